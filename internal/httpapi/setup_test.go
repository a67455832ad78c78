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

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
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
	t        testing.TB
	doc      *openapi3.T
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
	b := &bundle{t: t, doc: contract(t), registry: prometheus.NewRegistry(), logs: &lockedBuffer{}}
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
	b.keepsContract(r, w)
	return w
}

// keepsContract checks every answer of every test: its status, its required headers and the form of its JSON are those
// that the contract promises for the operation.
func (b *bundle) keepsContract(r *http.Request, w *httptest.ResponseRecorder) {
	b.t.Helper()
	c := b.echo.NewContext(r, w)
	b.echo.Router().Find(r.Method, echo.GetPath(r), c)
	method := strings.Replace(r.Method, "HEAD", "GET", 1)
	for path, item := range b.doc.Paths.Map() {
		op := item.Operations()[method]
		if op == nil || echoRoute(path) != c.Path() || w.Code == http.StatusMethodNotAllowed {
			continue
		}
		if strings.HasSuffix(r.URL.Path, "/") || strings.Contains(r.URL.Path, "//") {
			return // no resource of ours
		}
		promised := op.Responses.Status(w.Code)
		if !assert.NotNil(b.t, promised, "%s %s answers %d, which the contract does not have", method, path, w.Code) {
			return
		}
		for name := range w.Header() {
			if name == "Location" || name == "Retry-After" || strings.HasPrefix(name, "Idempot") {
				assert.True(b.t, hasHeader(promised.Value, name), "%s %s %d: header %s", method, path, w.Code, name)
			}
		}
		media := promised.Value.Content.Get(strings.TrimSuffix(w.Header().Get("Content-Type"), "; charset=UTF-8"))
		if w.Body.Len() == 0 || !assert.NotNil(b.t, media, "%s %s %d: media type", method, path, w.Code) || !strings.Contains(w.Header().Get("Content-Type"), "json") {
			return
		}
		var f findings
		body, ok := parseJSON(w.Body.Bytes(), &f)
		assert.True(b.t, ok, w.Body.String())
		assert.NoError(b.t, media.Schema.Value.VisitJSON(body), "%s %s %d", method, path, w.Code)
	}
}

func hasHeader(r *openapi3.Response, name string) bool {
	for known := range r.Headers {
		if http.CanonicalHeaderKey(known) == name {
			return true
		}
	}
	return false
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
