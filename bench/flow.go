package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"orderd/internal/db"
	"orderd/internal/idem"
	"orderd/internal/metrics"
	"orderd/internal/msg"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
)

// flow is orderd's flow in this process: where single steps are timed, and the statements that they run are looked at.
type flow struct {
	*order.Service
	db      *db.DB
	relay   *msg.Relay
	redis   *idem.Redis
	gateway *gateway
	user    order.Actor
	admin   order.Actor
}

func newFlow(d *db.DB) (_ *flow, err error) {
	log := slog.New(slog.DiscardHandler)
	m := metrics.New(prometheus.NewRegistry())
	f := &flow{db: d, redis: idem.Embedded(log), user: order.Actor{UserID: "user-7"}, admin: order.Actor{UserID: "admin", Admin: true}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.gateway, err = startGateway(); err != nil {
		return nil, err
	}
	port, err := sandbox.NewGateway(sandbox.Config{URL: f.gateway.url, APIKey: apiKey, MerchantID: merchantID, WebhookSecrets: []string{webhookSecret},
		NotifyURL: f.gateway.url + "/nobody-calls-back"})
	if err != nil {
		return nil, err
	}
	secret := []byte(strings.Repeat("s", 32))
	tokens, err := idem.NewTokens(f.redis, secret)
	if err != nil {
		return nil, err
	}
	f.Service = order.New(order.Config{Gateway: "sandbox", Secret: secret, Owner: "bench"}, order.Deps{DB: d, Tokens: tokens, Windows: idem.NewWindows(f.redis),
		Locks: idem.NewLocker(f.redis, m, log, idem.LockOptions{}), Gateways: map[string]payment.Gateway{port.Name(): port}, Metrics: m, Log: log})
	broker := msg.NewLocal(msg.Schedule{})
	broker.Subscribe(func(context.Context, msg.Message) error { return nil })
	f.relay = &msg.Relay{DB: d, Broker: broker, Owner: 1, Metrics: m, Log: log}
	return f, nil
}

func (f *flow) close() error {
	err := f.redis.Close()
	if f.gateway != nil {
		err = errors.Join(err, f.gateway.stop())
	}
	return err
}

// placeOne places a new order of one line.
func (f *flow) placeOne(ctx context.Context, sku string) (order.Order, error) {
	r, err := f.Place(ctx, order.PlaceRequest{UserID: f.user.UserID, OrderNo: "m" + ulid.Make().String(), Lines: []order.Line{{SKU: sku, Quantity: 1}}})
	return r.Order, err
}

// paid is the notice that an order is paid.
func paid(o order.Order) payment.Notice {
	return payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: "msg-" + o.OrderNo, PayloadHash: strings.Repeat("h", 64),
		Kind: payment.PaymentSucceeded, PaymentNo: o.Payment.PaymentNo, TransactionID: *o.Payment.TransactionID, Amount: o.Amount, Currency: o.Currency}
}

// list reads the first page of a list.
func (f *flow) list(ctx context.Context, a order.Actor, status string) func() error {
	return func() error {
		_, _, err := f.List(ctx, a, order.ListQuery{Limit: 20, Status: status})
		return err
	}
}
