package sandbox_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
)

const (
	apiKey   = "test-key"
	merchant = "m-1"
	secret   = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is a callback as it arrived: err is what verifying it gave.
type received struct {
	notice payment.Notice
	err    error
}

// bundle is a gateway, its adapter and the merchant's end of the callbacks, all over real HTTP.
type bundle struct {
	*sandbox.Gateway
	url      string
	calls    chan received
	refusals atomic.Int64 // so many callbacks are answered 503 before one is accepted
	inside   atomic.Pointer[func(payment.Notice)]
}

func setup(t *testing.T, options ...func(*server.Config)) *bundle {
	t.Helper()
	b := &bundle{calls: make(chan received, 100)}
	merchantEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n, err := b.VerifyCallback(r.Header, body, time.Now())
		if f := b.inside.Load(); f != nil {
			(*f)(n)
		}
		b.calls <- received{n, err}
		switch {
		case err != nil:
			w.WriteHeader(http.StatusUnauthorized)
		case b.refusals.Add(-1) >= 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(merchantEnd.Close)
	cfg := server.Config{
		MerchantID: merchant, APIKey: apiKey, WebhookSecret: secret, CallbackBase: 10 * time.Millisecond,
		SlowFor: 50 * time.Millisecond, HangFor: time.Minute, Logger: slog.New(slog.DiscardHandler),
	}
	for _, option := range options {
		option(&cfg)
	}
	s, err := server.New(cfg)
	require.NoError(t, err)
	companyEnd := httptest.NewServer(s.Handler())
	t.Cleanup(companyEnd.Close)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	client := sandbox.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	b.url = companyEnd.URL
	b.Gateway, err = sandbox.NewGateway(sandbox.Config{
		URL: b.url, APIKey: apiKey, WebhookSecrets: []string{secret}, MerchantID: merchant,
		NotifyURL: merchantEnd.URL + "/v1/payments/callbacks/sandbox", Client: client,
	})
	require.NoError(t, err)
	return b
}

// raw sends a call that the adapter has no method for: the shopper's and the saboteur's.
func (b *bundle) raw(t *testing.T, method, path string, in any) (status int, answer string) {
	t.Helper()
	body, err := json.Marshal(in)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(string(body)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(out)
}

func (b *bundle) pay(t *testing.T, paymentNo string, in wire.PayRequest) {
	t.Helper()
	status, answer := b.raw(t, http.MethodPost, "/v1/charges/"+paymentNo+"/pay", in)
	require.Equal(t, http.StatusOK, status, answer)
}

func (b *bundle) sabotage(t *testing.T, rules ...wire.Rule) {
	t.Helper()
	status, answer := b.raw(t, http.MethodPut, "/v1/faults", wire.Faults{Seed: 1, Rules: rules})
	require.Equal(t, http.StatusOK, status, answer)
}

// next waits for a callback that verifies.
func (b *bundle) next(t *testing.T) payment.Notice {
	t.Helper()
	got := b.arrival(t)
	require.NoError(t, got.err)
	return got.notice
}

func (b *bundle) arrival(t *testing.T) received {
	t.Helper()
	select {
	case got := <-b.calls:
		return got
	case <-time.After(10 * time.Second):
		t.Fatal("no callback came")
		return received{}
	}
}

func charge(no string) payment.ChargeRequest {
	return payment.ChargeRequest{
		PaymentNo: no, Amount: 1299, Currency: "CNY", Subject: "Order 1",
		ExpiresAt: time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond),
	}
}

// open opens a charge that nothing interferes with.
func (b *bundle) open(t *testing.T, no string) payment.ChargeRequest {
	t.Helper()
	r := charge(no)
	_, err := b.Charge(t.Context(), r)
	require.NoError(t, err)
	return r
}

// brief is a context that gives up soon: for calls that are never answered.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}
