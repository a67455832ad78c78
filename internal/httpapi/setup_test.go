package httpapi

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"orderd/internal/metrics"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/stock"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// bundle is an API on services without a database: it serves whatever is refused before a use case is called.
type bundle struct {
	*API
	registry *prometheus.Registry
	logs     *lockedBuffer
	checks   []Check
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func setup(t testing.TB, change ...func(*Config, *Deps)) *bundle {
	t.Helper()
	b := &bundle{registry: prometheus.NewRegistry(), logs: &lockedBuffer{}}
	auth, err := NewAuth(AuthConfig{Secret: secret, Now: time.Now})
	require.NoError(t, err)
	cfg := Config{Auth: auth}
	deps := Deps{
		Orders: &order.Service{}, Stock: &stock.Service{}, Gateways: map[string]payment.Gateway{},
		Ready:   func(context.Context) []Check { return b.checks },
		Metrics: metrics.New(b.registry),
		Log:     slog.New(slog.NewJSONHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:     time.Now,
	}
	for _, c := range change {
		c(&cfg, &deps)
	}
	b.API, err = New(cfg, deps)
	require.NoError(t, err)
	return b
}

// as sets the bearer token of a user.
func (b *bundle) as(user string, scopes ...string) func(*http.Request) {
	token, err := b.auth.Mint(user, scopes, time.Hour)
	if err != nil {
		panic(err)
	}
	return header("Authorization", "Bearer "+token)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

// call sends a request with a JSON body ("" for none).
func (b *bundle) call(method, target, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, "/", reader)
	r.URL, _ = r.URL.Parse(target)
	if strings.HasPrefix(target, "//") {
		r.URL.Host, r.URL.Path = "", target
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return w
}

// refusal requires a well-formed problem with this status and returns it.
func refusal(t testing.TB, w *httptest.ResponseRecorder, status int) problem {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	var p problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p, json.RejectUnknownMembers(true)))
	require.Equal(t, status, p.Status)
	require.Equal(t, "about:blank", p.Type)
	require.NotEmpty(t, p.Detail)
	require.Equal(t, w.Header().Get("X-Request-ID"), p.RequestID)
	require.NotEmpty(t, p.RequestID)
	return p
}

func fields(p problem) []string {
	names := []string{}
	for _, f := range p.Errors {
		names = append(names, f.Field)
	}
	return names
}
