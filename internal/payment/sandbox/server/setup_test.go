package server_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
)

const (
	apiKey = "test-key"
	secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// company is a running gateway.
type company struct {
	t     *testing.T
	url   string
	close func()
}

func start(t *testing.T, change func(*server.Config)) *company {
	t.Helper()
	cfg := server.Config{
		MerchantID: "m-1", APIKey: apiKey, WebhookSecret: secret, CallbackBase: 10 * time.Millisecond, HangFor: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := server.New(cfg)
	require.NoError(t, err)
	c := serve(t, s)
	stop := c.close
	c.close = sync.OnceFunc(func() {
		require.NoError(t, s.Close()) // first, so that answers which hang are cut off
		stop()
	})
	t.Cleanup(c.close)
	return c
}

func serve(t *testing.T, s *server.Server) *company {
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	return &company{t: t, url: ts.URL, close: ts.Close}
}

// call sends a call with the key, and in as JSON unless it is a string.
func (c *company) call(method, path string, in any) (status int, answer string) {
	c.t.Helper()
	body, ok := in.(string)
	if !ok && in != nil {
		encoded, err := json.Marshal(in)
		require.NoError(c.t, err)
		body = string(encoded)
	}
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	require.NoError(c.t, err)
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	return c.do(req)
}

func (c *company) do(req *http.Request) (status int, answer string) {
	c.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	require.NoError(c.t, err)
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	return res.StatusCode, string(out)
}

// must is call that expects a status; it reads the answer into out.
func (c *company) must(status int, method, path string, in, out any) {
	c.t.Helper()
	got, answer := c.call(method, path, in)
	require.Equal(c.t, status, got, answer)
	if out != nil {
		require.NoError(c.t, json.Unmarshal([]byte(answer), out), answer)
	}
}

func (c *company) ledger() []wire.LedgerEntry {
	c.t.Helper()
	var l wire.Ledger
	c.must(200, http.MethodGet, "/v1/ledger", nil, &l)
	return l.Entries
}

var expiry = time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)

func charge(no, notifyURL string) wire.ChargeRequest {
	return wire.ChargeRequest{
		MerchantID: "m-1", PaymentNo: no, Amount: 1299, Currency: "CNY", Subject: "Tea", NotifyURL: notifyURL, ExpiresAt: expiry,
	}
}

func refund(no, paymentNo string, amount int64, notifyURL string) wire.RefundRequest {
	return wire.RefundRequest{MerchantID: "m-1", RefundNo: no, PaymentNo: paymentNo, Amount: amount, NotifyURL: notifyURL}
}

// arrival is one callback as the merchant got it.
type arrival struct {
	header http.Header
	body   string
	at     time.Time
}

// merchant answers callbacks with the status that f says for the n-th one, from 0.
func merchant(t *testing.T, f func(n int) int) (url string, arrivals chan arrival) {
	t.Helper()
	arrivals = make(chan arrival, 100)
	numbers := make(chan int, 1)
	numbers <- 0
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := <-numbers
		numbers <- n + 1
		w.WriteHeader(f(n))
		arrivals <- arrival{r.Header, string(body), time.Now()}
	}))
	t.Cleanup(ts.Close)
	return ts.URL, arrivals
}

func accept(int) int { return http.StatusOK }

func next(t *testing.T, arrivals chan arrival) arrival {
	t.Helper()
	select {
	case a := <-arrivals:
		return a
	case <-time.After(10 * time.Second):
		t.Fatal("no callback came")
		return arrival{}
	}
}

// verify checks a callback's signature against the real clock.
func verify(t *testing.T, a arrival) {
	t.Helper()
	key, err := wire.ParseSecret(secret)
	require.NoError(t, err)
	_, err = wire.Verify([][]byte{key}, a.header, []byte(a.body), time.Now())
	require.NoError(t, err)
}
