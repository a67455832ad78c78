package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/order"
	"orderd/internal/payment"
)

func TestMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, method := range []string{"PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"} {
		w := b.call(method, "/v1/orders", "")
		assert.Equal(t, "method_not_allowed", refusal(t, w, 405).Code, method)
		assert.Equal(t, "OPTIONS, GET, HEAD, POST", w.Header().Get("Allow"), method)
	}
	for _, r := range b.echo.Routes() {
		w := b.call("OPTIONS", strings.NewReplacer(":order_no", "abcdef", ":sku", "TEA", ":key", "k", ":gateway", "g").Replace(r.Path), "")
		assert.Equal(t, 204, w.Code, r.Path)
		assert.Contains(t, w.Header().Get("Allow"), r.Method, r.Path)
		assert.NotEmpty(t, w.Header().Get("X-Request-ID"))
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := func(values ...string) string {
		var change []func(*http.Request)
		for _, v := range values {
			change = append(change, header("X-Request-ID", v))
		}
		return b.call("GET", "/healthz", "", change...).Header().Get("X-Request-ID")
	}
	assert.Equal(t, "my-id.0_1", id("my-id.0_1"))
	forged := "\r\n" + `{"level":"info","msg":"paid"}`
	for _, bad := range [][]string{nil, {""}, {"short"}, {strings.Repeat("x", 65)}, {"with space"}, {forged}, {"ääääääää"}, {"my-id.0_1", "my-id.0_2"}} {
		got := id(bad...)
		assert.Regexp(t, requestID, got)
		assert.NotContains(t, bad, got)
	}
}

// TestLogCannotBeForged: whatever a client sends, a request is one line of JSON.
func TestLogCannotBeForged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	forged := "\r\n" + `{"level":"info","msg":"paid"}`
	note, _ := json.Marshal(forged)
	b.call("POST", "/v1/orders", `{"items":[],"note":`+string(note)+`}`, b.as("u1", "orders"), header("User-Agent", forged), header("X-Request-ID", forged))
	lines := 0
	for s := bufio.NewScanner(strings.NewReader(b.logs.String())); s.Scan(); lines++ {
		var entry map[string]any
		require.NoError(t, json.Unmarshal(s.Bytes(), &entry))
		assert.Equal(t, "request", entry["msg"])
	}
	assert.Equal(t, 1, lines)
	assert.NotContains(t, b.logs.String(), "paid")
}

func TestServicePages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.checks = []Check{{Name: "database"}, {Name: "redis"}}
	for _, path := range append([]string{"/healthz", "/readyz", "/openapi.yaml", "/docs"}, newDocs().assets...) {
		w := b.call("GET", path, "")
		require.Equal(t, 200, w.Code, path)
		tag := w.Header().Get("ETag")
		require.Regexp(t, `^"[0-9A-Za-z]+"$`, tag, path)
		assert.Equal(t, 200, b.call("HEAD", path, "").Code, path)
		assert.Equal(t, 200, b.call("GET", path, "", header("If-None-Match", `"other"`)).Code, path)
		same := b.call("GET", path, "", header("If-None-Match", tag))
		assert.Equal(t, 304, same.Code, path)
		assert.Zero(t, same.Body.Len(), path)
	}
	for _, list := range []string{"*", `"x", %s`, "W/%s"} {
		tag := b.call("GET", "/healthz", "").Header().Get("ETag")
		assert.Equal(t, 304, b.call("HEAD", "/healthz", "", header("If-None-Match", strings.ReplaceAll(list, "%s", tag))).Code)
	}
	w := b.call("GET", "/docs", "")
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self' 'sha256-")
	assert.NotContains(t, w.Header().Get("Content-Security-Policy"), "unsafe")
	assert.NotRegexp(t, `(src|href)="(https?:)?//`, w.Body.String())
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.checks = []Check{{Name: "database", Err: errors.New("dial tcp 10.0.0.7: refused")}, {Name: "redis"}}
	w := b.call("GET", "/readyz", "")
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	assert.JSONEq(t, `{"status":"unavailable","checks":[{"name":"database","status":"down"},{"name":"redis","status":"up"}]}`, w.Body.String())
	assert.Contains(t, b.logs.String(), "10.0.0.7", "why is in the log")

	b.checks = []Check{{Name: "database"}}
	assert.Equal(t, 200, b.call("GET", "/readyz", "").Code)
	b.Stop()
	w = b.call("GET", "/readyz", "")
	assert.Equal(t, 503, w.Code)
	assert.Contains(t, w.Body.String(), "stopping")
	assert.Equal(t, 200, b.call("GET", "/healthz", "").Code)
}

func TestProblems(t *testing.T) {
	t.Parallel()
	cause := errors.New("Error 1045: password of root")
	for name, tt := range map[string]struct {
		err        error
		status     int
		code       string
		retryAfter string
	}{
		"fault":             {fault.New(fault.Conflict, "invalid_transition", "m"), 409, "invalid_transition", ""},
		"wrapped fault":     {fmt.Errorf("x: %w", fault.New(fault.NotFound, "not_found", "m")), 404, "not_found", ""},
		"gone":              {fault.New(fault.Gone, "token_expired", "m"), 410, "token_expired", ""},
		"in progress":       {fault.New(fault.Conflict, "order_in_progress", "m"), 409, "order_in_progress", "1"},
		"busy":              {fault.Busy("outcome_unknown", "m", 1500*time.Millisecond, cause), 503, "outcome_unknown", "2"},
		"busy, no time":     {fault.Busy("unavailable", "m", 0, cause), 503, "unavailable", "1"},
		"too many":          {fault.New(fault.Limited, "too_many_open_orders", "m"), 429, "too_many_open_orders", "1"},
		"internal":          {cause, 500, "internal", ""},
		"internal fault":    {&fault.Error{Kind: fault.Internal, Code: "x", Message: "secret"}, 500, "internal", ""},
		"deadline":          {fmt.Errorf("query: %w", context.DeadlineExceeded), 503, "unavailable", "1"},
		"canceled":          {context.Canceled, 503, "unavailable", "1"},
		"fault of deadline": {fault.Busy("gateway_unavailable", "m", time.Second, context.DeadlineExceeded), 503, "gateway_unavailable", "1"},
		"odd echo error":    {echo.NewHTTPError(418, "secret"), 500, "internal", ""},
		"wrapped echo":      {fmt.Errorf("x: %w", echo.ErrNotFound), 404, "not_found", ""},
	} {
		b := setup(t)
		b.echo.GET("/fail", func(echo.Context) error { return tt.err })
		w := b.call("GET", "/fail", "")
		assert.Equal(t, tt.code, refusal(t, w, tt.status).Code, name)
		assert.Equal(t, tt.retryAfter, w.Header().Get("Retry-After"), name)
		assert.NotContains(t, w.Body.String(), "secret", name)
		assert.NotContains(t, w.Body.String(), "1045", name)
		if errors.Is(tt.err, cause) {
			assert.Contains(t, b.logs.String(), "1045", "the cause is in the log")
		}
	}
	b := setup(t)
	b.echo.GET("/fail", func(echo.Context) error {
		return &fault.Error{Kind: fault.Conflict, Code: "out_of_stock", Message: "m", OrderNo: "abcdef", Fields: []fault.Field{{Field: "items[0].sku"}}}
	})
	p := refusal(t, b.call("GET", "/fail", ""), 409)
	assert.Equal(t, "abcdef", p.OrderNo)
	assert.Equal(t, []string{"items[0].sku"}, fields(p))
}

func TestPanicIsMasked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.echo.GET("/panic", func(echo.Context) error { panic("secret detail") })
	p := refusal(t, b.call("GET", "/panic", ""), 500)
	assert.Equal(t, "internal", p.Code)
	assert.NotContains(t, p.Detail, "secret")
	assert.Contains(t, b.logs.String(), "secret detail")
	assert.Contains(t, b.logs.String(), "http_test.go", "the stack is in the log")
	b.echo.GET("/abort", func(echo.Context) error { panic(http.ErrAbortHandler) })
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { b.call("GET", "/abort", "") })
}

func TestRequestsHaveADeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var left time.Duration
	b.echo.GET("/deadline", func(c echo.Context) error {
		at, ok := c.Request().Context().Deadline()
		require.True(t, ok)
		left = time.Until(at)
		return nil
	})
	b.call("GET", "/deadline", "")
	assert.InDelta(t, requestTimeout, left, float64(time.Second))
}

func TestMetricsHaveNoClientValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.call("GET", "/v1/orders/abcdef", "")
	b.call("GET", "/made-up", "")
	b.call("HACK", "/v1/orders/", "")
	assert.Equal(t, 3, testutil.CollectAndCount(b.Metrics.HTTPDuration))
	w := httptest.NewRecorder()
	Ops(b.registry).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, w.Body.String(), `orderd_http_request_seconds_count{method="GET",route="/v1/orders/:order_no",status="401"} 1`)
	assert.Contains(t, w.Body.String(), `orderd_http_request_seconds_count{method="other",route="none",status="404"} 1`)
	assert.NotContains(t, w.Body.String(), "made-up")
	w = httptest.NewRecorder()
	Ops(b.registry).ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/", nil))
	assert.Equal(t, 200, w.Code)
}

// TestOrderAnswers walks the table of statuses and headers of an order's answer.
func TestOrderAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attempt := func(s fsm.State) *payment.Payment { return &payment.Payment{Status: s} }
	for _, tt := range []struct {
		name, op string
		res      order.Result
		status   int
		retry    string
	}{
		{"created", "placeOrder", order.Result{Created: true, Order: order.Order{Payment: attempt(fsm.Pending)}}, 201, ""},
		{"created, declined", "placeOrder", order.Result{Created: true, Order: order.Order{Payment: attempt(fsm.Failed)}}, 201, ""},
		{"created, unknown", "placeOrder", order.Result{Created: true, Order: order.Order{Payment: attempt(fsm.Unknown)}}, 202, "1"},
		{"created, not asked", "placeOrder", order.Result{Created: true, Order: order.Order{Payment: attempt(fsm.Init)}}, 202, "1"},
		{"replay", "placeOrder", order.Result{Guard: "state", Order: order.Order{Payment: attempt(fsm.Succeeded)}}, 200, ""},
		{"replay, unknown", "placeOrder", order.Result{Guard: "key", Order: order.Order{Payment: attempt(fsm.Unknown)}}, 200, "1"},
		{"replay, cancelled", "placeOrder", order.Result{Guard: "state", Order: order.Order{Status: fsm.Cancelled}}, 200, ""},
		{"open attempt", "openPayment", order.Result{Order: order.Order{Payment: attempt(fsm.Pending)}}, 200, ""},
		{"open attempt, unknown", "openPayment", order.Result{Order: order.Order{Payment: attempt(fsm.Unknown)}}, 202, "1"},
		{"new attempt", "openPayment", order.Result{Created: true, Order: order.Order{Payment: attempt(fsm.Pending)}}, 201, ""},
	} {
		tt.res.Order.OrderNo = "abcdef"
		w := httptest.NewRecorder()
		r := &request{Context: b.echo.NewContext(httptest.NewRequest("POST", "/", nil), w), op: &operation{id: tt.op}}
		require.NoError(t, r.answerOrder(tt.res))
		assert.Equal(t, tt.status, w.Code, tt.name)
		assert.Equal(t, tt.retry, w.Header().Get("Retry-After"), tt.name)
		assert.Equal(t, tt.status != 200, w.Header().Get("Location") == "/v1/orders/abcdef", tt.name)
		assert.Equal(t, string(tt.res.Guard), w.Header().Get("Idempotency-Guard"), tt.name)
		assert.Equal(t, tt.res.Guard != idem.Guard(""), w.Header().Get("Idempotent-Replayed") == "true", tt.name)
		var shown any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &shown))
	}
}

// TestOrderHasTheFormOfTheContract: what is sent is what is promised.
func TestOrderHasTheFormOfTheContract(t *testing.T) {
	t.Parallel()
	schemas := contract(t).Components.Schemas
	refund := payment.Refund{Status: fsm.Pending}
	o := order.Order{OrderNo: "abcdef", Status: fsm.Paying, Currency: "CNY", Items: []order.Item{{SKU: "A"}},
		Payment: &payment.Payment{Status: fsm.Init, Currency: "CNY"}, Refunds: []payment.Refund{refund}}
	o.Refunds[0].Currency = "CNY"
	for name, v := range map[string]any{
		"Order":          o,
		"OrderToken":     order.Token{OrderNo: "abcdef"},
		"IdempotencyKey": order.KeyView{OrderNo: "abcdef", OrderStatus: fsm.Paid},
		"Problem":        problem{Type: "about:blank", Code: "internal"},
		"Readiness":      readiness{Status: "ready", Checks: []check{{"database", "up"}}},
	} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		var f findings
		doc, ok := parseJSON(b, &f)
		require.True(t, ok)
		assert.NoError(t, schemas[name].Value.VisitJSON(doc), name)
	}
	empty, err := json.Marshal(order.Order{})
	require.NoError(t, err)
	assert.Contains(t, string(empty), `"items":[],"payment":null,"refunds":[]`)
}

func TestWindow(t *testing.T) {
	t.Parallel()
	r := &request{op: &operation{route: "/v1/orders"}}
	name := func(user, body string) string {
		r.actor.UserID, r.body = user, []byte(body)
		var in placeOrder
		require.NoError(t, r.decode(&in))
		return window(r, in)
	}
	one := name("u1", `{"items":[{"sku":"A","quantity":1},{"sku":"B","quantity":2}]}`)
	assert.Equal(t, one, name("u1", ` { "items": [{"quantity":2,"sku":"B"}, {"sku":"\u0041","quantity":1}]}`))
	assert.NotEqual(t, one, name("u2", `{"items":[{"sku":"A","quantity":1},{"sku":"B","quantity":2}]}`))
	assert.NotEqual(t, one, name("u1", `{"items":[{"sku":"A","quantity":2},{"sku":"B","quantity":2}]}`))
	assert.NotEqual(t, one, name("u1", `{"items":[{"sku":"A","quantity":1},{"sku":"B","quantity":2}],"note":"x"}`))
	assert.Regexp(t, `^[0-9a-f]{64}$`, one)
}
