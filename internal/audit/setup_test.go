package audit_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"orderd/internal/audit"
	"orderd/internal/db"
	"orderd/internal/idem"
	"orderd/internal/metrics"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/sandbox/server"
	"orderd/internal/stock"
	"orderd/internal/testenv"
)

const (
	merchant = "m-audit"
	apiKey   = "audit-api-key"
	secret   = "whsec_YXVkaXQtd2ViaG9vay1zZWNyZXQtb2YtMzItYnl0ZXM="
	keep     = 30 * 24 * time.Hour
)

// shop is the real flow on a real database, with the sandbox gateway beside it.
type shop struct {
	db      *db.DB
	orders  *order.Service
	stock   *stock.Service
	gateway string
	port    *sandbox.Gateway
}

var (
	buyer = order.Actor{UserID: "u1"}
	admin = order.Actor{UserID: "root", Admin: true}
)

// each runs a test on a shop on either engine.
func each(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Helper()
	t.Parallel()
	for _, engine := range []string{"mysql", "sqlite"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, engine))
		})
	}
}

func open(t *testing.T, engine string) *shop {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	var c db.Config
	if engine == "mysql" {
		c.DSN = testenv.Database(t)
	} else {
		c.Path = filepath.Join(t.TempDir(), "orderd.db")
	}
	d, err := db.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.Migrate(t.Context()))

	bank, err := server.New(server.Config{MerchantID: merchant, APIKey: apiKey, WebhookSecret: secret, Logger: log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bank.Close()) })
	web := httptest.NewServer(bank.Handler())
	t.Cleanup(web.Close)
	gateway, err := sandbox.NewGateway(sandbox.Config{URL: web.URL, APIKey: apiKey, MerchantID: merchant,
		WebhookSecrets: []string{secret}, NotifyURL: web.URL + "/nowhere"})
	require.NoError(t, err)

	redis := idem.Embedded(log)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	m := metrics.New(prometheus.NewRegistry())
	key := bytes.Repeat([]byte("k"), 32)
	tokens, err := idem.NewTokens(redis, key)
	require.NoError(t, err)
	s := &shop{db: d, stock: stock.NewService(d), gateway: web.URL, port: gateway, orders: order.New(
		order.Config{Gateway: "sandbox", Secret: key, Owner: "audit-test"},
		order.Deps{DB: d, Locks: idem.NewLocker(redis, m, log, idem.LockOptions{}), Tokens: tokens, Windows: idem.NewWindows(redis),
			Gateways: map[string]payment.Gateway{"sandbox": gateway}, Metrics: m, Log: log})}
	s.bank(t, http.MethodPut, "/v1/faults", map[string]any{"rules": []any{map[string]any{"on": "callback", "mode": "drop"}}})
	return s
}

// bank calls the gateway as a shopper or as whoever runs it.
func (s *shop) bank(t *testing.T, method, path string, body any) {
	t.Helper()
	content, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, s.gateway+path, bytes.NewReader(content))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Less(t, resp.StatusCode, 300, "%s %s", method, path)
}

func (s *shop) sku(t *testing.T, sku string, available int64) {
	t.Helper()
	_, _, err := s.stock.Put(t.Context(), stock.Item{SKU: sku, Title: sku, UnitPrice: 100, Currency: "CNY"}, &available)
	require.NoError(t, err)
}

// place places an order of two of each SKU.
func (s *shop) place(t *testing.T, orderNo string, skus ...string) (order.Order, error) {
	t.Helper()
	r := order.PlaceRequest{UserID: buyer.UserID, OrderNo: orderNo, Key: "key-of-" + orderNo}
	for _, sku := range skus {
		r.Lines = append(r.Lines, order.Line{SKU: sku, Quantity: 2})
	}
	res, err := s.orders.Place(t.Context(), r)
	return res.Order, err
}

func (s *shop) paying(t *testing.T, orderNo string) order.Order {
	t.Helper()
	o, err := s.place(t, orderNo, "TEA", "CUP")
	require.NoError(t, err)
	return o
}

// settle tells of the newest attempt of o what the gateway would.
func (s *shop) settle(t *testing.T, o order.Order, kind payment.NoticeKind, amount int64, result string) {
	t.Helper()
	n := payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: "msg-" + o.Payment.PaymentNo, PayloadHash: "hash", Kind: kind,
		PaymentNo: o.Payment.PaymentNo, TransactionID: *o.Payment.TransactionID, Amount: amount, Currency: o.Currency}
	got, err := s.orders.Settle(t.Context(), n)
	require.NoError(t, err)
	require.Equal(t, result, got.Result)
}

func (s *shop) paid(t *testing.T, orderNo string) order.Order {
	t.Helper()
	o := s.paying(t, orderNo)
	s.settle(t, o, payment.PaymentSucceeded, o.Amount, "applied")
	return o
}

func (s *shop) audit(t *testing.T) []audit.Violation {
	t.Helper()
	found, err := audit.Run(t.Context(), s.db, keep)
	require.NoError(t, err)
	return found
}

// fill makes an order of every kind that the flow knows.
func fill(t *testing.T, s *shop) {
	t.Helper()
	ctx := t.Context()
	s.sku(t, "TEA", 100)
	s.sku(t, "CUP", 100)
	s.sku(t, "RARE", 1)
	_, _, err := s.stock.Adjust(ctx, "TEA", "adjust-1", -7, "broken")
	require.NoError(t, err)

	s.paying(t, "order-paying")
	s.paid(t, "order-paid")
	s.paid(t, "order-shipped")
	_, err = s.orders.Ship(ctx, admin, "order-shipped", "T-1")
	require.NoError(t, err)
	s.paid(t, "order-completed")
	_, err = s.orders.Ship(ctx, admin, "order-completed", "T-2")
	require.NoError(t, err)
	_, err = s.orders.Complete(ctx, buyer, "order-completed")
	require.NoError(t, err)

	s.paying(t, "order-cancelled")
	_, err = s.orders.Cancel(ctx, buyer, "order-cancelled", "")
	require.NoError(t, err)
	late := s.paying(t, "order-late")
	_, err = s.orders.Cancel(ctx, buyer, "order-late", "")
	require.NoError(t, err)
	s.settle(t, late, payment.PaymentSucceeded, late.Amount, "refund_opened")

	for _, orderNo := range []string{"order-refused", "order-dropped"} {
		_, err = s.place(t, orderNo, "TEA", "RARE")
		require.ErrorContains(t, err, "out_of_stock")
	}
	_, err = s.orders.Cancel(ctx, buyer, "order-dropped", "")
	require.NoError(t, err)

	s.settle(t, s.paying(t, "order-second"), payment.PaymentFailed, 400, "applied")
	_, err = s.orders.OpenAttempt(ctx, buyer, "order-second", "")
	require.NoError(t, err)

	odd := s.paying(t, "order-odd")
	s.bank(t, http.MethodPost, "/v1/charges/"+odd.Payment.PaymentNo+"/pay", map[string]any{"outcome": "succeeded", "amount": 399})
	s.settle(t, odd, payment.PaymentSucceeded, 399, "refund_opened")

	twice := s.paying(t, "order-twice")
	s.settle(t, twice, payment.PaymentFailed, 400, "applied")
	again, err := s.orders.OpenAttempt(ctx, buyer, "order-twice", "")
	require.NoError(t, err)
	s.settle(t, again.Order, payment.PaymentSucceeded, 400, "applied")
	n := payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: "msg-late-" + twice.Payment.PaymentNo, PayloadHash: "hash",
		Kind: payment.PaymentSucceeded, PaymentNo: twice.Payment.PaymentNo, TransactionID: *twice.Payment.TransactionID, Amount: 400, Currency: "CNY"}
	got, err := s.orders.Settle(ctx, n)
	require.NoError(t, err)
	require.Equal(t, "refund_opened", got.Result)

	back := s.paid(t, "order-refunded")
	s.bank(t, http.MethodPost, "/v1/charges/"+back.Payment.PaymentNo+"/pay", map[string]any{"outcome": "succeeded"})
	_, err = s.orders.Refund(ctx, admin, order.RefundRequest{OrderNo: "order-refunded", RefundNo: "refund-1", Amount: 100})
	require.NoError(t, err)
	_, err = s.orders.Refund(ctx, admin, order.RefundRequest{OrderNo: "order-refunded", RefundNo: "refund-2", Amount: 300, Restock: true})
	require.NoError(t, err)
	_, err = s.orders.SendRefunds(ctx)
	require.NoError(t, err)
	refunded, err := s.orders.Get(ctx, admin, "order-refunded")
	require.NoError(t, err)
	require.EqualValues(t, "REFUNDED", refunded.Status)

	// The refund that brings the goods back is answered first, the one before it last.
	back = s.paid(t, "order-returned")
	s.bank(t, http.MethodPost, "/v1/charges/"+back.Payment.PaymentNo+"/pay", map[string]any{"outcome": "succeeded"})
	s.bank(t, http.MethodPut, "/v1/faults", map[string]any{"rules": []any{map[string]any{"on": "callback", "mode": "drop"},
		map[string]any{"on": "refund", "mode": "error_before", "times": 1}}})
	_, err = s.orders.Refund(ctx, admin, order.RefundRequest{OrderNo: "order-returned", RefundNo: "refund-3", Amount: 100})
	require.NoError(t, err)
	_, err = s.orders.Refund(ctx, admin, order.RefundRequest{OrderNo: "order-returned", RefundNo: "refund-4", Amount: 300, Restock: true})
	require.NoError(t, err)
	got, err = s.orders.Settle(ctx, payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: "msg-refund-3", Kind: payment.RefundSucceeded,
		PaymentNo: back.Payment.PaymentNo, RefundNo: "refund-3", RefundID: "rf-3", Amount: 100, Currency: "CNY"})
	require.NoError(t, err)
	require.Equal(t, "applied", got.Result)
	returned, err := s.orders.Get(ctx, admin, "order-returned")
	require.NoError(t, err)
	require.EqualValues(t, "REFUNDED", returned.Status)
}
