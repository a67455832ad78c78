package httpapi

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"orderd/internal/order"
)

func TestPlaceAndReplay(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u1 := l.as("u1", "orders")
	body := `{"items":[{"sku":"TEA-250","quantity":2}],"expected_amount":2598}`
	key := header("Idempotency-Key", `"k-1"`)

	w := l.call("POST", "/v1/orders", body, u1, key)
	first := l.ok(t, w, 201)
	assert.Equal(t, "PAYING", first.Status)
	assert.EqualValues(t, 2598, first.Amount)
	assert.Equal(t, "/v1/orders/"+first.OrderNo, w.Header().Get("Location"))
	assert.Empty(t, w.Header().Get("Idempotent-Replayed"))

	w = l.call("POST", "/v1/orders", body, u1, header("Idempotency-Key", "k-1")) // bare or quoted: the same key
	assert.Equal(t, first.OrderNo, l.ok(t, w, 200).OrderNo)
	assert.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, "key", w.Header().Get("Idempotency-Guard"))

	p := refusal(t, l.call("POST", "/v1/orders", `{"items":[{"sku":"TEA-250","quantity":3}]}`, u1, key), 422)
	assert.Equal(t, "idempotency_key_reused", p.Code)
	assert.Equal(t, []string{"items"}, fields(p))

	var view order.KeyView
	w = l.call("GET", "/v1/idempotency-keys/k-1", "", u1)
	require.Equal(t, 200, w.Code, l.logs)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &view))
	assert.Equal(t, first.OrderNo, view.OrderNo)
	refusal(t, l.call("GET", "/v1/idempotency-keys/k-1", "", l.as("u2", "orders")), 404)

	// Keys that need percent-encoding in a path are the same keys.
	slash := l.ok(t, l.call("POST", "/v1/orders", body, u1, header("Idempotency-Key", "a/b%c")), 201)
	w = l.call("GET", "/v1/idempotency-keys/a%2Fb%25c", "", u1)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Contains(t, w.Body.String(), slash.OrderNo)
}

func TestDoubleClick(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u1 := l.as("u1", "orders")
	first := l.ok(t, l.call("POST", "/v1/orders", `{"items":[{"sku":"TEA-250","quantity":2}]}`, u1), 201)
	w := l.call("POST", "/v1/orders", ` {"items": [{"quantity":2, "sku":"TEA-250"}]}`, u1)
	assert.Equal(t, first.OrderNo, l.ok(t, w, 200).OrderNo)
	assert.Equal(t, "window", w.Header().Get("Idempotency-Guard"))
	other := l.ok(t, l.call("POST", "/v1/orders", `{"items":[{"sku":"TEA-250","quantity":2}]}`, l.as("u2", "orders")), 201)
	assert.NotEqual(t, first.OrderNo, other.OrderNo)
}

func TestOrderToken(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u1 := l.as("u1", "orders")
	w := l.call("POST", "/v1/order-tokens", "", u1)
	require.Equal(t, 201, w.Code, w.Body.String())
	var token order.Token
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &token))
	body := `{"items":[{"sku":"TEA-250","quantity":1}]}`
	use := header("Idempotent-Token", token.Token)
	assert.Equal(t, token.OrderNo, l.ok(t, l.call("POST", "/v1/orders", body, u1, use), 201).OrderNo)
	w = l.call("POST", "/v1/orders", body, u1, use)
	assert.Equal(t, token.OrderNo, l.ok(t, w, 200).OrderNo)
	assert.Equal(t, "token", w.Header().Get("Idempotency-Guard"))
	assert.Equal(t, "token_expired", refusal(t, l.call("POST", "/v1/orders", body, l.as("u2", "orders"), use), 410).Code)
	refusal(t, l.call("POST", "/v1/orders", body, u1, header("Idempotent-Token", "never-issued")), 410)
}

// TestRedisDown: what needs Redis says so and may be tried again; all else goes on.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u1 := l.as("u1", "orders")
	require.NoError(t, l.stopRedis())
	body := `{"items":[{"sku":"TEA-250","quantity":1}]}`
	for _, w := range []*httptest.ResponseRecorder{l.call("POST", "/v1/order-tokens", "", u1), l.call("POST", "/v1/orders", body, u1)} {
		assert.Equal(t, "unavailable", refusal(t, w, 503).Code)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
	}
	o := l.ok(t, l.call("POST", "/v1/orders", body, u1, header("Idempotency-Key", "k-1")), 201)
	l.pay(t, o, u1)
}

func TestRefusedCreations(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	l.stocked(t, "CUP-1", 500, "JPY", 3)
	l.stocked(t, "GOLD", 10_000_000_000, "CNY", 9999)
	u1 := l.as("u1", "orders")
	for body, field := range map[string]string{
		`{"items":[{"sku":"NOPE","quantity":1}]}`:                                 "items",
		`{"items":[{"sku":"TEA-250","quantity":1}],"gateway":"nope"}`:             "gateway",
		`{"items":[{"sku":"GOLD","quantity":9999}]}`:                              "items",
		`{"items":[{"sku":"TEA-250","quantity":1},{"sku":"CUP-1","quantity":1}]}`: "items",
	} {
		p := refusal(t, l.call("POST", "/v1/orders", body, u1), 422)
		require.NotEmpty(t, p.Errors, body)
		assert.True(t, strings.HasPrefix(p.Errors[0].Field, field), "%s: %v", body, p.Errors)
	}
	amount := `{"order_no":"free-again","items":[{"sku":"TEA-250","quantity":1}],"expected_amount":`
	assert.Equal(t, "amount_changed", refusal(t, l.call("POST", "/v1/orders", amount+`9223372036854775807}`, u1), 409).Code)
	l.ok(t, l.call("POST", "/v1/orders", amount+`1299}`, u1), 201)

	p := refusal(t, l.call("POST", "/v1/orders", `{"order_no":"sold-out","items":[{"sku":"CUP-1","quantity":4}]}`, u1), 409)
	assert.Equal(t, "out_of_stock", p.Code)
	assert.Equal(t, "sold-out", p.OrderNo)
	assert.NotEmpty(t, p.Errors)
	assert.Equal(t, "CREATED", l.ok(t, l.call("GET", "/v1/orders/sold-out", "", u1), 200).Status)
}

func TestLifeOfAnOrder(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u1, admin := l.as("u1", "orders"), l.as("root", "admin")
	o := l.ok(t, l.call("POST", "/v1/orders", `{"order_no":"order-0001","items":[{"sku":"TEA-250","quantity":1}],"note":"\ud83d\ude00 \u202e"}`, u1), 201)
	path := "/v1/orders/order-0001"
	assert.Equal(t, o.Payment.PaymentNo, l.ok(t, l.call("POST", path+"/payments", "", u1), 200).Payment.PaymentNo)
	assert.Equal(t, "invalid_transition", refusal(t, l.call("POST", path+"/ship", `{"tracking_no":"T1"}`, admin), 409).Code)

	l.pay(t, o, u1)
	refusal(t, l.call("POST", path+"/payments", `{}`, u1), 409)
	refusal(t, l.call("POST", path+"/cancel", "", u1), 409)
	l.ok(t, l.call("POST", path+"/ship", `{"tracking_no":"T1"}`, admin), 200)
	w := l.call("POST", path+"/ship", `{"tracking_no":"T1"}`, admin)
	l.ok(t, w, 200)
	assert.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	refusal(t, l.call("POST", path+"/ship", `{"tracking_no":"T2"}`, admin), 409)
	l.ok(t, l.call("POST", path+"/complete", "", u1), 200)
	assert.Equal(t, "COMPLETED", l.ok(t, l.call("POST", path+"/complete", "{}", admin), 200).Status)

	w = l.call("GET", path+"/timeline", "", u1)
	require.Equal(t, 200, w.Code)
	var f findings
	doc, _ := parseJSON(w.Body.Bytes(), &f)
	assert.NoError(t, contract(t).Components.Schemas["Timeline"].Value.VisitJSON(doc))

	w = l.call("GET", path, "", u1)
	assert.Equal(t, 304, l.call("GET", path, "", u1, header("If-None-Match", w.Header().Get("ETag"))).Code)
	assert.Equal(t, w.Header().Get("ETag"), l.call("HEAD", path, "", u1).Header().Get("ETag"))

	l.ok(t, l.call("POST", "/v1/orders", `{"order_no":"order-0002","items":[{"sku":"TEA-250","quantity":1}]}`, u1), 201)
	for range 2 {
		assert.Equal(t, "CANCELLED", l.ok(t, l.call("POST", "/v1/orders/order-0002/cancel", `{"reason":"changed my mind"}`, u1), 200).Status)
	}
	refusal(t, l.call("POST", "/v1/orders/order-0002/payments", "", u1), 409)
}

// TestAnotherUsersOrderIsUnknown: each call on a foreign order answers as it does for one that does not exist.
func TestAnotherUsersOrderIsUnknown(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u2 := l.as("u2", "orders")
	l.ok(t, l.call("POST", "/v1/orders", `{"order_no":"order-0001","items":[{"sku":"TEA-250","quantity":1}]}`, l.as("u1", "orders")), 201)
	for _, call := range []string{"GET ", "HEAD ", "GET /timeline", "POST /payments", "POST /cancel", "POST /complete"} {
		method, action, _ := strings.Cut(call, " ")
		answers := map[string]problem{}
		for _, no := range []string{"order-0001", "order-9999"} {
			p := refusal(t, l.call(method, "/v1/orders/"+no+action, "", u2), 404)
			p.RequestID = ""
			answers[no] = p
		}
		assert.Equal(t, answers["order-9999"], answers["order-0001"], call)
	}
	assert.Equal(t, "order_no_taken", refusal(t, l.call("POST", "/v1/orders", `{"order_no":"order-0001","items":[{"sku":"TEA-250","quantity":1}]}`, u2), 409).Code)
}

func TestLists(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u1, u2, admin := l.as("u1", "orders"), l.as("u2", "orders"), l.as("root", "admin")
	for _, no := range []string{"order-0001", "order-0002", "order-0003"} {
		l.ok(t, l.call("POST", "/v1/orders", `{"order_no":"`+no+`","items":[{"sku":"TEA-250","quantity":1}]}`, u1), 201)
	}
	type list struct {
		Orders     []shown `json:"orders"`
		NextCursor *string `json:"next_cursor"`
	}
	get := func(query string, as func(*http.Request)) (page list) {
		w := l.call("GET", "/v1/orders"+query, "", as)
		require.Equal(t, 200, w.Code, w.Body.String())
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
		return page
	}
	first := get("?limit=2", u1)
	require.Len(t, first.Orders, 2)
	assert.Equal(t, "order-0003", first.Orders[0].OrderNo)
	require.NotNil(t, first.NextCursor)
	second := get("?limit=2&cursor="+*first.NextCursor, u1)
	require.Len(t, second.Orders, 1)
	assert.Nil(t, second.NextCursor)
	assert.Empty(t, get("?status=PAID", u1).Orders)
	assert.Empty(t, get("", u2).Orders)
	assert.Len(t, get("?user_id=u1", admin).Orders, 3)
	assert.Len(t, get("", admin).Orders, 3)
	refusal(t, l.call("GET", "/v1/orders?cursor=forged", "", u1), 400)
	refusal(t, l.call("GET", "/v1/orders?cursor="+*first.NextCursor, "", u2), 400)
	refusal(t, l.call("GET", "/v1/stock?cursor=!", "", u1), 400)
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	u1 := l.as("u1", "orders")
	o := l.ok(t, l.call("POST", "/v1/orders", `{"order_no":"order-0001","items":[{"sku":"TEA-250","quantity":1}]}`, u1), 201)
	now, body := time.Now(), notice(o, o.Payment.TransactionID)

	raw := func(body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
		return l.call("POST", "/v1/payments/callbacks/sandbox", body, change...)
	}
	for _, w := range []*httptest.ResponseRecorder{
		raw(""), raw("not JSON"), raw(body), // unsigned
		l.callback("m1", now.Add(-301*time.Second), body), l.callback("m1", now.Add(302*time.Second), body),
		l.callback("m1", now, body, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body + " ")) }),
		l.callback("m1", now, body, header("webhook-id", "m2")),
		l.callback("m1", now, body, func(r *http.Request) { r.Header.Set("webhook-id", "m2") }),
	} {
		assert.Equal(t, "unauthenticated", refusal(t, w, 401).Code)
	}
	assert.Equal(t, "payload_too_large", refusal(t, raw(strings.Repeat("x", 1<<20)), 413).Code)
	refusal(t, l.callback("m1", now, body, header("Content-Encoding", "gzip")), 415)
	refusal(t, l.callback("m1", now, strings.Replace(body, merchant, "m-2", 1)), 403)
	refusal(t, l.callback("m1", now, strings.Replace(body, o.Payment.PaymentNo, "P-unknown", 1)), 404)
	refusal(t, l.callback("m1", now, strings.Replace(body, `"amount":1299`, `"amount":1299,"Amount":1`, 1)), 400)
	refusal(t, l.callback("m1", now, strings.Replace(body, `"amount":1299`, `"amount":"1299"`, 1)), 400)
	refusal(t, l.call("POST", "/v1/payments/callbacks/other", body), 404)
	assert.Equal(t, "PAYING", l.ok(t, l.call("GET", "/v1/orders/order-0001", "", u1), 200).Status)

	for i, want := range []string{"applied", "duplicate", "duplicate"} {
		w := l.callback("m1", now, body)
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.JSONEq(t, `{"result":"`+want+`"}`, w.Body.String())
		assert.Equal(t, i > 0, w.Header().Get("Idempotency-Guard") != "", "%v", w.Header())
	}
	assert.Equal(t, "message_conflict", refusal(t, l.callback("m1", now, strings.Replace(body, "1299", "1299.0", 1)), 409).Code)
	w := l.callback("m9", now, `{"type":"customer.created","data":{}}`)
	assert.JSONEq(t, `{"result":"ignored"}`, w.Body.String())
	assert.Equal(t, "PAID", l.ok(t, l.call("GET", "/v1/orders/order-0001", "", u1), 200).Status)
	assert.NotContains(t, l.logs.String(), o.Payment.PaymentNo, "bodies are not logged")
}

func TestStock(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	admin := l.as("root", "admin")
	change := `{"title":"Tea","unit_price":1300,"currency":"CNY"}`
	assert.Equal(t, 200, l.call("PUT", "/v1/stock/TEA-250", change, admin).Code)
	refusal(t, l.call("PUT", "/v1/stock/TEA-250", strings.Replace(change, "CNY", "EUR", 1), admin), 422)
	refusal(t, l.call("PUT", "/v1/stock/NEW", strings.Replace(change, "CNY", "XQQ", 1), admin), 422)
	adjust := `{"adjustment_no":"adj-0001","delta":-40,"reason":"broken"}`
	assert.Equal(t, 201, l.call("POST", "/v1/stock/TEA-250/adjustments", adjust, admin).Code)
	w := l.call("POST", "/v1/stock/TEA-250/adjustments", adjust, admin)
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, "adjustment_no_reused", refusal(t, l.call("POST", "/v1/stock/TEA-250/adjustments", strings.Replace(adjust, "-40", "-41", 1), admin), 422).Code)
	assert.Equal(t, "out_of_stock", refusal(t, l.call("POST", "/v1/stock/TEA-250/adjustments", `{"adjustment_no":"adj-0002","delta":-61,"reason":"x"}`, admin), 409).Code)
	w = l.call("GET", "/v1/stock/TEA-250", "", l.as("u1", "orders"))
	assert.JSONEq(t, `{"sku":"TEA-250","title":"Tea","unit_price":1300,"currency":"CNY","available":60,"version":3}`, w.Body.String())
	refusal(t, l.call("GET", "/v1/stock/NOPE", "", admin), 404)
}

// TestClientGone: a request whose client has left is not a defect, and does not leave half an order.
func TestClientGone(t *testing.T) {
	t.Parallel()
	l := setupLive(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := l.call("GET", "/v1/orders/order-0001", "", l.as("u1", "orders"), func(r *http.Request) { *r = *r.WithContext(ctx) })
	assert.Equal(t, "unavailable", refusal(t, w, 503).Code)
}
