package httpapi

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/idem"
	"orderd/internal/metrics"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
	"orderd/internal/stock"
)

const (
	webhookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	merchant      = "m-1"
	apiKey        = "test-key"
)

// live is the whole service in one process, on SQLite, with the payment company beside it.
type live struct {
	*bundle
	url, company string
	stopRedis    func() error
}

func setupLive(t *testing.T) *live {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	base, err := db.Open(t.Context(), db.Config{Path: filepath.Join(t.TempDir(), "orders.db")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = base.Close() })
	require.NoError(t, base.Migrate(t.Context()))
	redis := idem.Embedded(log)
	stopRedis := sync.OnceValue(redis.Close)
	t.Cleanup(func() { _ = stopRedis() })
	tokens, err := idem.NewTokens(redis, secret)
	require.NoError(t, err)

	company, err := server.New(server.Config{MerchantID: merchant, APIKey: apiKey, WebhookSecret: webhookSecret, CallbackBase: 10 * time.Millisecond, Logger: log})
	require.NoError(t, err)
	companyEnd := httptest.NewServer(company.Handler())
	t.Cleanup(companyEnd.Close)
	t.Cleanup(func() { _ = company.Close() })

	l := &live{company: companyEnd.URL, stopRedis: stopRedis}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.ServeHTTP(w, r) }))
	l.url = "http://" + front.Listener.Addr().String()
	gateway, err := sandbox.NewGateway(sandbox.Config{URL: companyEnd.URL, APIKey: apiKey, WebhookSecrets: []string{webhookSecret},
		MerchantID: merchant, NotifyURL: l.url + "/v1/payments/callbacks/sandbox"})
	require.NoError(t, err)
	gateways := map[string]payment.Gateway{"sandbox": gateway}
	l.bundle = setup(t, func(_ *Config, d *Deps) {
		d.Stock, d.Gateways = stock.NewService(base), gateways
		d.Orders = order.New(order.Config{Gateway: "sandbox", Secret: secret, Owner: "test"}, order.Deps{
			DB: base, Locks: idem.NewLocker(redis, d.Metrics, log, idem.LockOptions{}), Tokens: tokens, Windows: idem.NewWindows(redis),
			Gateways: gateways, Metrics: metrics.New(prometheus.NewRegistry()), Log: log,
		})
	})
	front.Start()
	t.Cleanup(front.Close)
	l.stocked(t, "TEA-250", 1299, "CNY", 100)
	return l
}

func (l *live) stocked(t *testing.T, sku string, price int64, currency string, available int64) {
	t.Helper()
	body := `{"title":"Tea","unit_price":` + strconv.FormatInt(price, 10) + `,"currency":"` + currency + `","available":` + strconv.FormatInt(available, 10) + `}`
	w := l.call("PUT", "/v1/stock/"+sku, body, l.as("root", "admin"))
	require.Equal(t, 201, w.Code, w.Body.String())
}

// shown is the part of an order that these tests look at.
type shown struct {
	OrderNo    string `json:"order_no"`
	Status     string `json:"status"`
	Amount     int64  `json:"amount"`
	PaidAmount int64  `json:"paid_amount"`
	Payment    *struct {
		PaymentNo     string `json:"payment_no"`
		TransactionID string `json:"transaction_id"`
		Status        string `json:"status"`
	} `json:"payment"`
}

// ok requires a status and the form that the contract promises for it, and returns the order.
func (l *live) ok(t *testing.T, w *httptest.ResponseRecorder, status int) shown {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	var f findings
	doc, parsed := parseJSON(w.Body.Bytes(), &f)
	require.True(t, parsed, w.Body.String())
	require.NoError(t, contract(t).Components.Schemas["Order"].Value.VisitJSON(doc))
	var o shown
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &o))
	return o
}

// pay plays the shopper and waits until the callback has been booked.
func (l *live) pay(t *testing.T, o shown, as func(*http.Request)) shown {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", l.company+"/v1/charges/"+o.Payment.PaymentNo+"/pay", strings.NewReader(`{"outcome":"succeeded"}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.Eventually(t, func() bool {
		o = l.ok(t, l.call("GET", "/v1/orders/"+o.OrderNo, "", as), 200)
		return o.Status == "PAID"
	}, 5*time.Second, 5*time.Millisecond)
	return o
}

// callback signs and sends a body as the payment company does.
func (l *live) callback(id string, at time.Time, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	key, err := wire.ParseSecret(webhookSecret)
	if err != nil {
		panic(err)
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	change = append([]func(*http.Request){header("webhook-id", id), header("webhook-timestamp", stamp),
		header("webhook-signature", wire.Sign(key, id, stamp, []byte(body)))}, change...)
	return l.call("POST", "/v1/payments/callbacks/sandbox", body, change...)
}

func notice(o shown, transaction string) string {
	return `{"type":"payment.succeeded","created_at":"2026-11-30T12:00:00Z","data":{"merchant_id":"` + merchant + `","payment_no":"` +
		o.Payment.PaymentNo + `","transaction_id":"` + transaction + `","amount":` + strconv.FormatInt(o.Amount, 10) + `,"currency":"CNY"}}`
}
