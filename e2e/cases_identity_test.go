package e2e

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// One order per identity, whichever door it came through.
func TestIdentities(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		nodes := e.replicas(t)
		admin, buyer, other := nodes[0].admin(t), nodes[0].as(t, "u1"), nodes[1].as(t, "u2")
		both := [2]*client{buyer, nodes[1].as(t, "u1")}
		if e.engine == embedded {
			both[1] = buyer
		}

		t.Run("the same again, in every status", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			e.mute(t)
			sku := admin.stock(100, 50)
			repeat := func(o orderView, status string) {
				t.Helper()
				events := buyer.history(o.OrderNo)
				for range 2 {
					a := buyer.place(want(o.OrderNo, sku, 2))
					require.Equal(t, 200, a.Status, a)
					require.Equal(t, "true", a.Header.Get("Idempotent-Replayed"))
					require.Equal(t, "state", a.guard())
					require.Equal(t, status, a.order(t).Status)
				}
				require.Equal(t, events, buyer.history(o.OrderNo), "a repeat left a trace")
				differs := buyer.place(want(o.OrderNo, sku, 3))
				require.Equal(t, "order_no_reused", differs.code(), differs)
				require.Equal(t, []string{"items"}, differs.fields(t))
			}
			o := buyer.mustPlace(sku, 2)
			repeat(o, "PAYING")
			require.Equal(t, 200, buyer.callback(e.paidAtGateway(t, o)).Status)
			repeat(o, "PAID")
			require.Equal(t, 200, admin.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/ship", obj{"tracking_no": "T1"}).Status)
			repeat(o, "SHIPPED")
			require.Equal(t, 200, buyer.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/complete", nil).Status)
			repeat(o, "COMPLETED")
			o = buyer.mustPlace(sku, 2)
			require.Equal(t, 200, buyer.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/cancel", nil).Status)
			repeat(o, "CANCELLED")
			require.EqualValues(t, 48, buyer.available(sku))
			e.sandbox.heal(t)
		})

		t.Run("an order_no is one user's", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 50)
			o := buyer.mustPlace(sku, 2)
			a := other.place(obj{"order_no": o.OrderNo, "items": []obj{{"sku": sku, "quantity": 2}}})
			require.Equal(t, "order_no_taken", a.code(), a)
			require.NotContains(t, string(a.Body), "u1")
			require.NotContains(t, string(a.Body), o.Payment.PaymentNo)
			require.Equal(t, 404, other.do(http.MethodGet, "/v1/orders/"+o.OrderNo, nil).Status)
			require.EqualValues(t, 48, buyer.available(sku))
		})

		t.Run("no order_no is no order_no", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 50)
			for _, no := range []any{"", nil, 7} {
				body := want("", sku, 1)
				body["order_no"] = no
				require.Equal(t, 400, buyer.place(body).Status, no)
			}
			require.EqualValues(t, 50, buyer.available(sku))
		})

		t.Run("a double click", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku, second := admin.stock(100, 50), admin.stock(100, 50)
			first := buyer.place(cart("", sku, 1, second, 2))
			require.Equal(t, 201, first.Status, first)
			again := both[1].place(cart("", second, 2, sku, 1)) // the lines' order does not matter
			require.Equal(t, 200, again.Status, again)
			require.Equal(t, "window", again.guard())
			require.Equal(t, first.order(t).OrderNo, again.order(t).OrderNo)
			require.Equal(t, 201, buyer.place(cart("", sku, 1, second, 3)).Status, "another body is another order")
			require.Equal(t, 201, other.place(cart("", sku, 1, second, 2)).Status, "another user's is, too")

			// Refused, and so not remembered: the same body may be sent again at once.
			body := want("", newNo("SKU"), 1)
			require.Equal(t, 422, buyer.place(body).Status)
			sku = body["items"].([]obj)[0]["sku"].(string)
			require.Equal(t, 201, admin.do(http.MethodPut, "/v1/stock/"+sku, obj{"title": "new", "unit_price": 1, "currency": "CNY", "available": 9}).Status)
			require.Equal(t, 201, buyer.place(body).Status)
		})

		t.Run("a double click at once", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 50)
			created, numbers := 0, map[string]bool{}
			for _, a := range gather(10, func(i int) answer { return both[i%2].place(want("", sku, 1)) }) {
				if a.Status == 201 || a.Status == 202 {
					created++
				}
				if a.Status < 300 {
					numbers[a.order(t).OrderNo] = true
				} else {
					require.Equal(t, "order_in_progress", a.code(), a)
				}
			}
			require.Equal(t, 1, created)
			require.Len(t, numbers, 1)
			require.EqualValues(t, 49, buyer.available(sku))
		})

		t.Run("keys", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 50)
			key := newNo("key")
			bare, quoted := "Idempotency-Key: "+key, `Idempotency-Key: "`+key+`"`
			body := want("", sku, 1)
			first := buyer.place(body, bare)
			require.Equal(t, 201, first.Status, first)
			no := first.order(t).OrderNo
			for _, h := range []string{bare, quoted} {
				again := both[1].place(body, h)
				require.Equal(t, 200, again.Status, again)
				require.Equal(t, "key", again.guard())
				require.Equal(t, no, again.order(t).OrderNo)
			}
			for name, value := range map[string]any{"note": "other", "items": []obj{{"sku": sku, "quantity": 2}}} {
				changed := want("", sku, 1)
				changed[name] = value
				a := buyer.place(changed, bare)
				require.Equal(t, "idempotency_key_reused", a.code(), a)
				require.Equal(t, []string{name}, a.fields(t))
			}
			require.Equal(t, 200, buyer.place(want(no, sku, 1), bare).Status, "key and order_no agree")
			a := buyer.place(want(newNo("ord"), sku, 1), bare)
			require.Equal(t, "idempotency_key_reused", a.code(), "key and order_no disagree: %s", a)

			a = other.place(body, bare)
			require.Equal(t, 201, a.Status, "a key is its user's: %s", a)
			require.NotEqual(t, no, a.order(t).OrderNo)
			got := buyer.do(http.MethodGet, "/v1/idempotency-keys/"+key, nil)
			require.Equal(t, 200, got.Status, got)
			require.Contains(t, string(got.Body), no)
			require.Contains(t, string(got.Body), `"PAYING"`)
			require.Equal(t, 404, buyer.do(http.MethodGet, "/v1/idempotency-keys/"+newNo("key"), nil).Status)
			require.Equal(t, 400, buyer.place(body, "Idempotency-Key: "+strings.Repeat("k", 129)).Status)

			// A refused creation leaves the key free; a key that comes late with a known order_no is bound to it.
			refused := newNo("key")
			require.Equal(t, 422, buyer.place(want("", "SKU-unknown", 1), "Idempotency-Key: "+refused).Status)
			require.Equal(t, 404, buyer.do(http.MethodGet, "/v1/idempotency-keys/"+refused, nil).Status)
			require.Equal(t, 200, buyer.place(want(no, sku, 1), "Idempotency-Key: "+refused).Status)
			require.Equal(t, 200, buyer.do(http.MethodGet, "/v1/idempotency-keys/"+refused, nil).Status)
			require.EqualValues(t, 48, buyer.available(sku))
		})

		t.Run("tokens", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 50)
			token, no := issue(t, buyer)
			foreign := other.place(want("", sku, 1), "Idempotent-Token: "+token)
			require.Equal(t, "token_expired", foreign.code(), foreign)
			require.Equal(t, 410, foreign.Status)
			wrong := buyer.place(want(newNo("ord"), sku, 1), "Idempotent-Token: "+token)
			require.Equal(t, 422, wrong.Status, wrong)
			require.Equal(t, []string{"order_no"}, wrong.fields(t))
			require.Equal(t, 422, buyer.place(want("", "SKU-unknown", 1), "Idempotent-Token: "+token).Status)
			first := both[1].place(want(no, sku, 1), "Idempotent-Token: "+token)
			require.Equal(t, 201, first.Status, "refusals have not used it up: %s", first)
			require.Equal(t, no, first.order(t).OrderNo)
			again := buyer.place(want("", sku, 1), "Idempotent-Token: "+token)
			require.Equal(t, 200, again.Status, again)
			require.Equal(t, "token", again.guard())
			require.Equal(t, no, again.order(t).OrderNo)
			require.Equal(t, 422, buyer.place(want("", sku, 2), "Idempotent-Token: "+token).Status)
			for _, never := range []string{"x", no + ".x", no + "."} {
				require.Equal(t, 410, buyer.place(want("", sku, 1), "Idempotent-Token: "+never).Status, never)
			}
			require.EqualValues(t, 49, buyer.available(sku))
		})

		t.Run("many numbers of ours", func(t *testing.T) {
			admin := admin.on(t)
			sku := admin.stock(100, 1000)
			orders, payments := map[string]bool{}, map[string]bool{}
			for _, a := range gather(60, func(i int) answer { return both[i%2].place(want("", sku, 1), "Idempotency-Key: "+newNo("key")) }) {
				require.Contains(t, []int{201, 202}, a.Status, a)
				orders[a.order(t).OrderNo], payments[a.order(t).Payment.PaymentNo] = true, true
			}
			require.Len(t, orders, 60)
			require.Len(t, payments, 60)
		})
		e.auditSettled(t)
	})
}

func issue(t testing.TB, c *client) (token, orderNo string) {
	t.Helper()
	a := c.do(http.MethodPost, "/v1/order-tokens", nil)
	require.Equal(t, 201, a.Status, a)
	var v struct {
		Token   string `json:"token"`
		OrderNo string `json:"order_no"`
	}
	a.decode(t, &v)
	return v.Token, v.OrderNo
}

// What Redis knows can be lost, and Redis with it.
func TestIdentitiesWithoutRedis(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t)
	admin, buyer := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 50)
	used, usedNo := issue(t, buyer)
	unused, _ := issue(t, buyer)
	require.Equal(t, 201, buyer.place(want("", sku, 1), "Idempotent-Token: "+used).Status)

	r := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
	require.NoError(t, r.FlushAll(t.Context()).Err())
	require.NoError(t, r.Close())
	a := buyer.place(want("", sku, 1), "Idempotent-Token: "+used)
	require.Equal(t, 200, a.Status, "the database knows its order: %s", a)
	require.Equal(t, usedNo, a.order(t).OrderNo)
	a = buyer.place(want("", sku, 1), "Idempotent-Token: "+unused)
	require.Equal(t, 410, a.Status, a)

	pending, _ := issue(t, buyer)
	e.redis.Kill()
	faulty := buyer.during()
	a = faulty.do(http.MethodPost, "/v1/order-tokens", nil)
	require.Equal(t, 503, a.Status, a)
	a = faulty.place(want("", sku, 1))
	require.Equal(t, 503, a.Status, a)
	require.Contains(t, string(a.Body), "Idempotency-Key", "it says what to do instead")
	a = faulty.place(want("", sku, 1), "Idempotent-Token: "+pending)
	require.Equal(t, 503, a.Status, a)
	a = faulty.place(want("", sku, 1), "Idempotent-Token: "+used)
	require.Equal(t, 200, a.Status, a)
	key := "Idempotency-Key: " + newNo("key")
	a = buyer.place(want("", sku, 1), key)
	require.Equal(t, 201, a.Status, "a key needs no Redis: %s", a)
	require.Equal(t, 200, buyer.place(want("", sku, 1), key).Status)
	keyed := a.order(t)
	e.sandbox.pay(t, keyed.Payment.PaymentNo)
	buyer.becomes(keyed.OrderNo, "PAID")
	require.Equal(t, 200, buyer.do(http.MethodGet, "/v1/orders/"+keyed.OrderNo, nil).Status)

	require.NoError(t, e.redis.Restart())
	settled(t, func() error { return statusIs(faulty.do(http.MethodPost, "/v1/order-tokens", nil), 201) })
	require.Equal(t, 201, buyer.place(want("", sku, 3)).Status)
	require.EqualValues(t, 45, buyer.available(sku))
	e.auditSettled(t)
}

// A failure is not remembered. While the database is away nothing is done, and afterwards the same request is.
func TestFailureIsNotReplayed(t *testing.T) {
	t.Parallel()
	dsn, proxy := proxied(t)
	e := newEnv(t, mariadbRedis, "ORDERD_DB_DSN="+dsn)
	o := e.start(t)
	admin, buyer := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 50)
	body, key := want(newNo("ord"), sku, 1), "Idempotency-Key: "+newNo("key")
	proxy.Refuse()
	a := buyer.during().place(body, key)
	require.Equal(t, 503, a.Status, a)
	proxy.Restore()
	settled(t, func() error {
		a = buyer.during().place(body, key)
		if a.Status == 503 {
			return statusIs(a, 201)
		}
		return nil
	})
	require.Equal(t, 201, a.Status, a)
	require.EqualValues(t, 49, buyer.available(sku))

	// The answer to the COMMIT is lost. The same request, or its retry, finds its own order.
	body = want(newNo("ord"), sku, 1)
	proxy.CutAfter("COMMIT", 1)
	a = buyer.during().place(body)
	require.Equal(t, 201, a.Status, "its own order is no rival: %s", a)
	require.Empty(t, a.guard())
	proxy.Restore()
	require.Equal(t, 200, buyer.place(body).Status)
	require.EqualValues(t, 48, buyer.available(sku))
	e.auditSettled(t)
}

// A limit on unpaid orders, which refuses new ones and nothing else.
func TestTooManyOpenOrders(t *testing.T) {
	t.Parallel()
	e := newEnv(t, embedded, "ORDERD_MAX_OPEN_ORDERS=3", "ORDERD_RATE_LIMIT=20")
	o := e.start(t)
	admin, buyer := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 50)
	var orders []orderView
	for range 3 {
		orders = append(orders, buyer.mustPlace(sku, 1))
	}
	body := want(newNo("ord"), sku, 1)
	a := buyer.place(body)
	require.Equal(t, "too_many_open_orders", a.code(), a)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Equal(t, 200, buyer.place(want(orders[0].OrderNo, sku, 1)).Status, "a repeat is no new order")
	require.Equal(t, 201, o.as(t, "u2").place(want(newNo("ord"), sku, 1)).Status, "others are not concerned")
	require.Equal(t, 200, buyer.do(http.MethodPost, "/v1/orders/"+orders[0].OrderNo+"/cancel", nil).Status)
	require.Equal(t, 201, buyer.place(body).Status, "the refusal has left the number free")

	// A burst is limited by user, whatever address it claims to come from; callbacks are not counted.
	limited := 0
	for i, a := range gather(80, func(i int) answer {
		return buyer.do(http.MethodGet, "/v1/orders/"+orders[1].OrderNo, nil, "X-Forwarded-For: 10.0.0."+strconv.Itoa(i))
	}) {
		if a.Status == 429 {
			limited++
			require.Equal(t, "rate_limited", a.code(), i)
			require.NotEmpty(t, a.Header.Get("Retry-After"))
		}
	}
	require.Positive(t, limited)
	fresh := o.with(t, mint(t, jwt.MapClaims{"sub": "u1", "scope": "orders", "jti": "another token of the same user"}))
	require.Equal(t, 200, o.as(t, "u3").do(http.MethodGet, "/v1/stock/"+sku, nil).Status)
	refused := false
	for range 60 {
		refused = refused || fresh.do(http.MethodGet, "/v1/stock/"+sku, nil).Status == 429
	}
	require.True(t, refused, "a second token is no second allowance")
	e.sandbox.pay(t, orders[1].Payment.PaymentNo)
	admin.becomes(orders[1].OrderNo, "PAID")
	e.auditSettled(t)
}
