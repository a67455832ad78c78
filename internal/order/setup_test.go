package order_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"orderd/internal/audit"
	"orderd/internal/db"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/metrics"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
	"orderd/internal/stock"
	"orderd/internal/testenv"
)

const (
	apiKey   = "test-key"
	merchant = "m-1"
	webhook  = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// bundle is the flow on a real database, with two real gateways whose callbacks go nowhere: a test settles what it wants,
// when it wants.
type bundle struct {
	*order.Service
	t        testing.TB
	db       *db.DB
	stock    *stock.Service
	metrics  *metrics.Metrics
	gateways map[string]*gateway
}

// gateway is a sandbox gateway under a name of its own.
type gateway struct {
	*sandbox.Gateway
	name    string
	url     string
	blind   atomic.Int64           // so many more questions about charges are answered without sight of the newest
	asked   func()                 // what happens before such an answer
	closed  func()                 // what happens once it has closed a charge, before it answers
	charged func(paymentNo string) // what happens once it has a charge, before it answers
}

func (g *gateway) Name() string { return g.name }

func (g *gateway) Query(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	if g.blind.Add(-1) >= 0 {
		if g.asked != nil {
			g.asked()
		}
		return payment.Charge{}, payment.ErrNotFound
	}
	return g.Gateway.Query(ctx, of)
}

func (g *gateway) Charge(ctx context.Context, r payment.ChargeRequest) (payment.Charge, error) {
	charge, err := g.Gateway.Charge(ctx, r)
	if g.charged != nil {
		g.charged(r.PaymentNo)
	}
	return charge, err
}

func (g *gateway) Close(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	charge, err := g.Gateway.Close(ctx, of)
	if g.closed != nil {
		g.closed()
	}
	return charge, err
}

type options struct {
	order order.Config
	db    db.Config
}

// each runs a test on MySQL's protocol and on SQLite.
func each(t *testing.T, test func(t *testing.T, b *bundle), change ...func(*options)) {
	t.Helper()
	t.Parallel()
	for _, dialect := range []string{"mysql", "sqlite"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, dialect, change...))
		})
	}
}

func setup(t testing.TB, dialect string, change ...func(*options)) *bundle {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	m := metrics.New(prometheus.NewRegistry())
	o := options{order: order.Config{Gateway: "sandbox", Secret: []byte(strings.Repeat("s", 32)), Owner: "test"}, db: db.Config{Log: log, Metrics: m}}
	if dialect == "mysql" {
		o.db.DSN = testenv.Database(t)
	} else {
		o.db.Path = filepath.Join(t.TempDir(), "orderd.db")
	}
	for _, f := range change {
		f(&o)
	}
	d, err := db.Open(t.Context(), o.db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.Migrate(t.Context()))
	redis := idem.Embedded(log)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	tokens, err := idem.NewTokens(redis, o.order.Secret)
	require.NoError(t, err)
	b := &bundle{t: t, db: d, stock: stock.NewService(d), metrics: m, gateways: map[string]*gateway{}}
	ports := map[string]payment.Gateway{}
	for _, name := range []string{"sandbox", "second"} {
		b.gateways[name] = newGateway(t, name)
		ports[name] = b.gateways[name]
	}
	b.Service = order.New(o.order, order.Deps{DB: d, Locks: idem.NewLocker(redis, m, log, idem.LockOptions{}), Tokens: tokens,
		Windows: idem.NewWindows(redis), Gateways: ports, Metrics: m, Log: log})
	return b
}

func newGateway(t testing.TB, name string) *gateway {
	t.Helper()
	s, err := server.New(server.Config{MerchantID: merchant, APIKey: apiKey, WebhookSecret: webhook, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() { require.NoError(t, s.Close()); h.Close() })
	nowhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(nowhere.Close)
	g, err := sandbox.NewGateway(sandbox.Config{URL: h.URL, APIKey: apiKey, MerchantID: merchant, WebhookSecrets: []string{webhook}, NotifyURL: nowhere.URL})
	require.NoError(t, err)
	return &gateway{Gateway: g, name: name, url: h.URL}
}

// post calls the gateway as a shopper or an operator does.
func (g *gateway) post(t testing.TB, method, path, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Less(t, resp.StatusCode, 300, "%s %s", method, path)
}

func (g *gateway) fault(t testing.TB, on, mode string) {
	t.Helper()
	g.post(t, http.MethodPut, "/v1/faults", fmt.Sprintf(`{"seed":1,"rules":[{"on":%q,"mode":%q}]}`, on, mode))
}

func (g *gateway) heal(t testing.TB) {
	t.Helper()
	g.post(t, http.MethodPut, "/v1/faults", `{"seed":1,"rules":[]}`)
}

// pay plays the shopper; extra are further members, as `,"amount":1`.
func (g *gateway) pay(t testing.TB, paymentNo, extra string) {
	t.Helper()
	g.post(t, http.MethodPost, "/v1/charges/"+paymentNo+"/pay", `{"outcome":"succeeded"`+extra+`}`)
}

func (g *gateway) ledger(t testing.TB) []wire.LedgerEntry {
	t.Helper()
	entries, err := g.Ledger(t.Context(), 0)
	require.NoError(t, err)
	return entries
}

func no(prefix string) string { return prefix + "-" + ulid.Make().String() }

// sku puts a new SKU on sale.
func (b *bundle) sku(price, quantity int64) string {
	b.t.Helper()
	sku := no("SKU")
	_, _, err := b.stock.Put(b.t.Context(), stock.Item{SKU: sku, Title: "Tea", UnitPrice: price, Currency: "CNY"}, &quantity)
	require.NoError(b.t, err)
	return sku
}

// reprice changes a SKU's price.
func (b *bundle) reprice(sku string, price int64) {
	b.t.Helper()
	it, err := b.stock.Get(b.t.Context(), sku)
	require.NoError(b.t, err)
	it.UnitPrice = price
	_, _, err = b.stock.Put(b.t.Context(), it, nil)
	require.NoError(b.t, err)
}

func (b *bundle) left(sku string) int64 {
	b.t.Helper()
	it, err := b.stock.Get(b.t.Context(), sku)
	require.NoError(b.t, err)
	return it.Available
}

// placed places an order for two of a SKU at 1299 and returns it PAYING.
func (b *bundle) placed(sku string) order.Order {
	b.t.Helper()
	res, err := b.Place(b.t.Context(), request(no("ord"), sku, 2))
	require.NoError(b.t, err)
	require.True(b.t, res.Created)
	require.Equal(b.t, fsm.Paying, res.Order.Status)
	return res.Order
}

func request(orderNo, sku string, quantity int64) order.PlaceRequest {
	return order.PlaceRequest{UserID: "u1", OrderNo: orderNo, Lines: []order.Line{{SKU: sku, Quantity: quantity}}}
}

var (
	user  = order.Actor{UserID: "u1"}
	admin = order.Actor{UserID: "root", Admin: true}
)

func (b *bundle) get(orderNo string) order.Order {
	b.t.Helper()
	o, err := b.Get(b.t.Context(), admin, orderNo)
	require.NoError(b.t, err)
	return o
}

// notice is what the gateway's callback about a payment would say now, under a message id of its own.
func (b *bundle) notice(gateway, paymentNo string) payment.Notice {
	b.t.Helper()
	c, err := b.gateways[gateway].Query(b.t.Context(), payment.Ref{PaymentNo: paymentNo})
	require.NoError(b.t, err)
	kind := map[fsm.State]payment.NoticeKind{fsm.Succeeded: payment.PaymentSucceeded, fsm.Failed: payment.PaymentFailed, fsm.Closed: payment.PaymentClosed}[c.State]
	return payment.Notice{Source: "callback:" + gateway, Gateway: gateway, MessageID: no("msg"), PayloadHash: "h", Kind: kind,
		PaymentNo: paymentNo, TransactionID: c.TransactionID, Amount: c.Amount, Currency: c.Currency}
}

// history returns the names of the order's events, in order.
func (b *bundle) history(orderNo string) []string {
	b.t.Helper()
	entries, err := b.Timeline(b.t.Context(), admin, orderNo)
	require.NoError(b.t, err)
	var events []string
	for _, e := range entries {
		if e.Kind == "event" {
			events = append(events, e.Event)
		}
	}
	return events
}

// clean checks the invariants.
func (b *bundle) clean() {
	b.t.Helper()
	found, err := audit.Run(context.WithoutCancel(b.t.Context()), b.db, 720*time.Hour)
	require.NoError(b.t, err)
	require.Empty(b.t, found)
}

func ref(o order.Order) payment.Ref { return payment.Ref{PaymentNo: o.Payment.PaymentNo} }
