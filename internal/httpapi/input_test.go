package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const line = `{"sku":"TEA-250","quantity":2}`

func items(member string) string { return `{"items":[{"sku":"TEA-250",` + member + `}]}` }

// TestBadBodies sends bodies that must be refused before any use case is called. The services of the bundle have no
// database, so that a call which got through would be a 500.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tests := []struct {
		name, body string
		status     int
		field      string
	}{
		{"null", `null`, 400, "body"},
		{"array", `[]`, 400, "body"},
		{"string", `"x"`, 400, "body"},
		{"number", `1`, 400, "body"},
		{"empty", ` `, 400, "body"},
		{"cut off", `{"items":[` + line, 400, "body"},
		{"two documents", `{"items":[` + line + `]}{}`, 400, "body"},
		{"trailing garbage", `{"items":[` + line + `]}x`, 400, "body"},
		{"comment", `{"items":[` + line + `]} // x`, 400, "body"},
		{"duplicate quantity", `{"items":[{"sku":"A","quantity":1,"quantity":2}]}`, 400, "items[0].quantity"},
		{"duplicate items", `{"items":[` + line + `],"items":[]}`, 400, "items"},
		{"duplicate, escaped", `{"note":"a","n\u006fte":"b","items":[` + line + `]}`, 400, "note"},
		{"wrong case", `{"Items":[` + line + `]}`, 400, "Items"},
		{"wrong case beside the right one", `{"items":[` + line + `],"NOTE":"x"}`, 400, "NOTE"},
		{"BOM", "\ufeff" + `{"items":[` + line + `]}`, 400, "body"},
		{"invalid UTF-8", `{"items":[` + line + `],"note":"` + "\xff" + `"}`, 400, "body"},
		{"lone surrogate", `{"items":[` + line + `],"note":"\ud800"}`, 400, "body"},
		{"NUL", `{"items":[` + line + `],"note":"a\u0000b"}`, 400, "body"},
		{"items missing", `{}`, 422, "items"},
		{"items empty", `{"items":[]}`, 422, "items"},
		{"101 items", `{"items":[` + strings.TrimSuffix(strings.Repeat(line+",", 101), ",") + `]}`, 422, "items"},
		{"items null", `{"items":null}`, 400, "items"},
		{"item null", `{"items":[null]}`, 400, "items[0]"},
		{"sku twice", `{"items":[` + line + `,` + line + `]}`, 422, "items[1].sku"},
		{"sku missing", `{"items":[{"quantity":1}]}`, 422, "items[0].sku"},
		{"sku a number", `{"items":[{"sku":5,"quantity":1}]}`, 400, "items[0].sku"},
		{"sku a fraction", `{"items":[{"sku":5.5,"quantity":1}]}`, 400, "items[0].sku"},
		{"sku empty", `{"items":[{"sku":"","quantity":1}]}`, 422, "items[0].sku"},
		{"sku of 300", `{"items":[{"sku":"` + strings.Repeat("a", 300) + `","quantity":1}]}`, 422, "items[0].sku"},
		{"sku with a line break at the end", `{"items":[{"sku":"A\n","quantity":1}]}`, 422, "items[0].sku"},
		{"quantity missing", `{"items":[{"sku":"A"}]}`, 422, "items[0].quantity"},
		{"quantity 0", items(`"quantity":0`), 422, "items[0].quantity"},
		{"quantity -1", items(`"quantity":-1`), 422, "items[0].quantity"},
		{"quantity 10000", items(`"quantity":10000`), 422, "items[0].quantity"},
		{"quantity 2^31-1", items(`"quantity":2147483647`), 422, "items[0].quantity"},
		{"quantity 1.5", items(`"quantity":1.5`), 400, "items[0].quantity"},
		{"quantity 1.0", items(`"quantity":1.0`), 400, "items[0].quantity"},
		{"quantity 1e3", items(`"quantity":1e3`), 400, "items[0].quantity"},
		{"quantity string", items(`"quantity":"1"`), 400, "items[0].quantity"},
		{"quantity true", items(`"quantity":true`), 400, "items[0].quantity"},
		{"quantity null", items(`"quantity":null`), 400, "items[0].quantity"},
		{"quantity 2^31", items(`"quantity":2147483648`), 400, "items[0].quantity"},
		{"quantity 2^63-1", items(`"quantity":9223372036854775807`), 400, "items[0].quantity"},
		{"quantity 2^63", items(`"quantity":9223372036854775808`), 400, "items[0].quantity"},
		{"quantity 1e400", items(`"quantity":1e400`), 400, "items[0].quantity"},
		{"quantity of 400 digits", items(`"quantity":` + strings.Repeat("9", 400)), 400, "items[0].quantity"},
		{"quantity 01", items(`"quantity":01`), 400, "body"},
		{"quantity NaN", items(`"quantity":NaN`), 400, "body"},
		{"expected_amount a string", `{"items":[` + line + `],"expected_amount":"1"}`, 400, "expected_amount"},
		{"expected_amount null", `{"items":[` + line + `],"expected_amount":null}`, 400, "expected_amount"},
		{"expected_amount 2^63", `{"items":[` + line + `],"expected_amount":9223372036854775808}`, 400, "expected_amount"},
		{"order_no empty", `{"items":[` + line + `],"order_no":""}`, 400, "order_no"},
		{"order_no null", `{"items":[` + line + `],"order_no":null}`, 400, "order_no"},
		{"order_no of 5", `{"items":[` + line + `],"order_no":"abcde"}`, 422, "order_no"},
		{"order_no of 33", `{"items":[` + line + `],"order_no":"` + strings.Repeat("a", 33) + `"}`, 422, "order_no"},
		{"order_no with umlaut", `{"items":[` + line + `],"order_no":"äbc-001"}`, 422, "order_no"},
		{"note of 501", `{"items":[` + line + `],"note":"` + strings.Repeat("ä", 501) + `"}`, 422, "note"},
		{"note with a card number", `{"items":[` + line + `],"note":"pay 4111111111111111 now"}`, 422, "note"},
		{"note with a grouped card number", `{"items":[` + line + `],"note":"no 12: 4111-1111 1111-1111"}`, 422, "note"},
		{"note with ESC", `{"items":[` + line + `],"note":"\u001b[31m"}`, 422, "note"},
		{"note with C1", `{"items":[` + line + `],"note":"\u0085"}`, 422, "note"},
		{"note a number", `{"items":[` + line + `],"note":4111111111111111}`, 400, "note"},
		{"gateway empty", `{"items":[` + line + `],"gateway":""}`, 422, "gateway"},
	}
	for _, name := range []string{"price", "total", "status", "user_id", "id", "paid_amount", "expires_at", "version", "currency", "amount", "notify_url"} {
		tests = append(tests, struct {
			name, body string
			status     int
			field      string
		}{"unknown " + name, `{"items":[` + line + `],"` + name + `":1}`, 400, name})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := refusal(t, b.call("POST", "/v1/orders", tt.body, b.as("u1", "orders")), tt.status)
			assert.Equal(t, map[int]string{400: "invalid_request", 422: "validation_failed"}[tt.status], p.Code)
			assert.Contains(t, fields(p), tt.field)
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := `{"order_no":"x","items":[{"sku":"A","quantity":0},{"sku":"A","quantity":10000},{"sku":""}],"note":"\u0007"}`
	p := refusal(t, b.call("POST", "/v1/orders", body, b.as("u1", "orders")), 422)
	assert.ElementsMatch(t, []string{"order_no", "items[0].quantity", "items[1].quantity", "items[1].sku", "items[2].sku",
		"items[2].quantity", "note"}, fields(p))

	// One fault that makes it unreadable outweighs; header and query are reported with the body.
	p = refusal(t, b.call("POST", "/v1/orders?x=1", `{"items":[],"total":5}`, b.as("u1", "orders"),
		header("Idempotency-Key", "a b"), header("Idempotent-Token", "a"), header("Idempotent-Token", "b")), 400)
	assert.ElementsMatch(t, []string{"x", "items", "total", "Idempotency-Key", "Idempotent-Token"}, fields(p))
}

func TestCardNumbersAreNotLogged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	card := "4111111111111111"
	refusal(t, b.call("POST", "/v1/orders", `{"items":[`+line+`],"note":"`+card+`"}`, b.as("u1", "orders")), 422)
	refusal(t, b.call("POST", "/v1/orders", `{"items":[`+line+`],"`+card+`":1}`, b.as("u1", "orders"), header("User-Agent", card)), 400)
	refusal(t, b.call("GET", "/v1/"+card, ""), 404)
	assert.NotContains(t, b.logs.String(), card)
	assert.Contains(t, b.logs.String(), "validation_failed")
}

func TestCardNumber(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"4111111111111111": true, "378282246310005": true, "4222222222222": true, "6304000000000000": true,
		"4111 1111 1111 1111": true, "4111-1111-1111-1111": true, "x4111111111111111y": true,
		"12 4111 1111 1111 1111": true, "4111 1111 1111 1111 9": true, "5105105105105100.": true,
		"4111111111111112": false, "4111  1111  1111  1111": false, "411111111111": false, "": false,
		"41111111111111114111111111111111": false, "call +49 30 901820": false,
		"4111.1111.1111.1111": true, "4111/1111/1111/1111": true, "4111_1111:1111,1111": true, "3782.822463.10005": true, "4222 222 222 222": true,
		"4111\u00a01111\u00a01111\u00a01111": true, "4111\u200b1111\u200b1111\u200b1111": true,
		"4111\n1111\n1111\n1111": true, "4111\u20131111\u20131111\u20131111.": true, "４１１１-１１１１-1111-1111": true,
		"4111x1111x1111x1111": false, "4111茶1111茶1111茶1111": false, "2026.11.30 17:07-19:00": false, "41 11 11 11 11 11 11 11": false,
	} {
		assert.Equal(t, want, hasCardNumber(s), s)
	}
	assert.NoError(t, checkText("two\r\nlines \U0001F600 \u202e"))
}

func TestDeepNestingIsCheap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, body := range []string{strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)} {
		start := time.Now()
		refusal(t, b.call("POST", "/v1/orders", body, b.as("u1", "orders")), 400)
		assert.Less(t, time.Since(start), 2*time.Second, "time that grows with the square of the depth")
	}
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, media := range []string{"", "text/plain", "application/xml", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=x", "application/json; charset=gbk", "application/json; x=y", "application/jsonp",
		"application/problem+json", "application/json, text/plain"} {
		w := b.call("POST", "/v1/orders", `{"items":[`+line+`]}`, b.as("u1", "orders"), func(r *http.Request) {
			r.Header.Del("Content-Type")
			if media != "" {
				r.Header.Set("Content-Type", media)
			}
		})
		assert.Equal(t, "unsupported_media_type", refusal(t, w, 415).Code, media)
	}
	refusal(t, b.call("POST", "/v1/orders", `{}`, b.as("u1", "orders"), header("Content-Type", "application/json")), 415)
	refusal(t, b.call("POST", "/v1/orders", `{}`, b.as("u1", "orders"), header("Content-Encoding", "gzip")), 415)
	for _, media := range []string{"application/json; charset=utf-8", `application/json;charset="UTF-8"`, "Application/JSON"} {
		w := b.call("POST", "/v1/orders", `{}`, b.as("u1", "orders"), func(r *http.Request) { r.Header.Set("Content-Type", media) })
		refusal(t, w, 422)
	}
}

func TestBodySize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pad := func(n int) string { return `{` + strings.Repeat(" ", n-2) + `}` }
	refusal(t, b.call("POST", "/v1/orders", pad(64<<10), b.as("u1", "orders")), 422)
	assert.Equal(t, "payload_too_large", refusal(t, b.call("POST", "/v1/orders", pad(64<<10+1), b.as("u1", "orders")), 413).Code)
	streamed := func(r *http.Request) { r.ContentLength = -1 }
	refusal(t, b.call("POST", "/v1/orders", pad(64<<10+1), b.as("u1", "orders"), streamed), 413)
	refusal(t, b.call("POST", "/v1/orders", pad(64<<10), b.as("u1", "orders"), streamed), 422)
}

func TestIdentityHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, values := range map[string][]string{
		"Idempotency-Key":  {"", "a b", "a\nb", "a\x00b", "\xc3\xa4", strings.Repeat("k", 129), `"`, `""`, `"a`, `"a"b"`, `"a\b"`, `"a b"`},
		"Idempotent-Token": {"", "a b", "\xff", strings.Repeat("t", 257)},
	} {
		for _, value := range values {
			p := refusal(t, b.call("POST", "/v1/orders", `{"items":[`+line+`]}`, b.as("u1", "orders"), header(name, value)), 400)
			assert.Equal(t, []string{name}, fields(p), "%q", value)
		}
		p := refusal(t, b.call("POST", "/v1/orders", `{"items":[`+line+`]}`, b.as("u1", "orders"), header(name, "x"), header(name, "x")), 400)
		assert.Equal(t, []string{name}, fields(p))
	}
	for _, key := range []string{"k", `"k"`, strings.Repeat("k", 128), `"` + strings.Repeat("k", 128) + `"`, "a/b%c"} {
		p := refusal(t, b.call("POST", "/v1/orders", `{}`, b.as("u1", "orders"), header("Idempotency-Key", key)), 422)
		assert.Equal(t, []string{"items"}, fields(p), key)
	}
	assert.Equal(t, "k", unquote(`"k"`))
	assert.Equal(t, "k", unquote("k"))
	assert.Equal(t, "", unquote(""))
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, query := range []string{"limit=0", "limit=-1", "limit=101", "limit=abc", "limit=1e9", "limit=1.0", "limit=", "limit=%2B5",
		"limit=5&limit=6", "status=paid'", "status=paid", "status[]=PAID", "status=", "Status=PAID", "cursor=", "cursor=" + strings.Repeat("x", 513),
		"user_id=u2", "x=1", "limit=5;status=PAID", "status=%zz"} {
		p := refusal(t, b.call("GET", "/v1/orders?"+query, "", b.as("u1", "orders")), 400)
		assert.Len(t, p.Errors, 1, query)
	}
	refusal(t, b.call("GET", "/v1/orders?user_id=a%20b", "", b.as("root", "admin")), 400)
	refusal(t, b.call("GET", "/v1/stock?status=PAID", "", b.as("u1", "orders")), 400)
	refusal(t, b.call("GET", "/healthz?x=1", ""), 400)
}

func TestPaths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.as("root", "orders", "admin")
	for _, target := range []string{"/", "/v1/orders/", "//v1/orders", "/v1//orders", "/v1/%2e%2e/", "/v1/orders/%2e%2e", "/v1/orders/a%2Fbcdef",
		"/V1/orders", "/v1/orders/abc", "/v1/orders/-abcdef", "/v1/orders/abcdef'", "/v1/orders/" + strings.Repeat("a", 33), "/v1/orders/abcdef/x",
		"/v1/stock/a%20b", "/v1/stock/", "/docs/", "/docs/x.js", "/metrics", "/debug/pprof/", "/v1/idempotency-keys/%C3%A4", "/v1/orders/abcdef%00"} {
		refusal(t, b.call("GET", target, "", admin), 404)
	}
	for _, action := range []string{"payments", "cancel", "ship", "complete"} {
		refusal(t, b.call("POST", "/v1/orders/abc/"+action, `{"tracking_no":"T1"}`, admin), 404)
	}
}

func TestOtherBodies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"POST", "/v1/orders/abcdef/payments", `{"amount":1}`, 400, "amount"},
		{"POST", "/v1/orders/abcdef/payments", `{"currency":"CNY"}`, 400, "currency"},
		{"POST", "/v1/orders/abcdef/cancel", `{"reason":"4111111111111111"}`, 422, "reason"},
		{"POST", "/v1/orders/abcdef/cancel", `[]`, 400, "body"},
		{"POST", "/v1/orders/abcdef/ship", `{}`, 422, "tracking_no"},
		{"POST", "/v1/orders/abcdef/complete", `{"status":"PAID"}`, 400, "status"},
		{"POST", "/v1/order-tokens", `{"order_no":"abcdef"}`, 400, "order_no"},
		{"PUT", "/v1/stock/TEA", `{"title":"Tea","unit_price":0,"currency":"CNY"}`, 422, "unit_price"},
		{"PUT", "/v1/stock/TEA", `{"title":"Tea","unit_price":10000000001,"currency":"CNY"}`, 422, "unit_price"},
		{"PUT", "/v1/stock/TEA", `{"title":"Tea","unit_price":9223372036854775808,"currency":"CNY"}`, 400, "unit_price"},
		{"PUT", "/v1/stock/TEA", `{"title":"","unit_price":1,"currency":"cny","available":-1}`, 422, "available"},
		{"POST", "/v1/stock/TEA/adjustments", `{"adjustment_no":"adj-0001","delta":0,"reason":"x"}`, 422, "delta"},
		{"POST", "/v1/stock/TEA/adjustments", `{"adjustment_no":"adj-0001","delta":1.0,"reason":"x"}`, 400, "delta"},
		{"POST", "/v1/stock/TEA/adjustments", `{"adjustment_no":"x","delta":"1","reason":""}`, 400, "delta"},
	} {
		p := refusal(t, b.call(tt.method, tt.path, tt.body, b.as("root", "orders", "admin")), tt.status)
		assert.Contains(t, fields(p), tt.field, "%s %s", tt.path, tt.body)
	}
}

// TestManyFaultsAreCheap: a body that is wrong everywhere costs little time and gives a short answer.
func TestManyFaultsAreCheap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var unknown strings.Builder
	for i := 0; unknown.Len() < 60<<10; i++ {
		fmt.Fprintf(&unknown, `"m%d":1,`, i)
	}
	for _, body := range []string{
		"{" + unknown.String() + `"items":[]}`,
		`{"items":[{` + unknown.String() + `"sku":""}]}`,
		`{"items":[` + strings.Repeat(`{"x":1},`, 7000) + `{}]}`,
		`{"items":[` + strings.Repeat("1,", 30_000) + `1]}`,
	} {
		start := time.Now()
		p := refusal(t, b.call("POST", "/v1/orders", body, b.as("u1", "orders")), 400)
		assert.Len(t, p.Errors, maxFindings)
		assert.Less(t, time.Since(start), 10*time.Second, "not quadratic: that would be minutes")
	}
}
