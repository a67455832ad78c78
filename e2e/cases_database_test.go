package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"orderd/api"
	"orderd/internal/testenv"
)

// What databases and their drivers do to the unwary.
func TestDatabaseTraps(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		nodes := e.replicas(t)
		admin, buyer, other := nodes[0].admin(t), nodes[0].as(t, "u1"), nodes[1].as(t, "u2")
		both := [2]*client{buyer, nodes[1].as(t, "u1")}

		t.Run("neighbours in empty tables", func(t *testing.T) {
			admin := admin.on(t)
			sku := admin.stock(100, 1000)
			for _, a := range gather(60, func(i int) answer { return both[i%2].place(want(fmt.Sprintf("empty-%03d", i), sku, 1)) }) {
				require.Contains(t, []int{201, 202}, a.Status, a)
			}
		})

		t.Run("ten lines, two users", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			var lines []any
			for range 10 {
				lines = append(lines, admin.stock(100, 100), 1)
			}
			gather(8, func(i int) answer { return [2]*client{buyer, other}[i%2].place(cart(newNo("ord"), lines...)) })
			for i := 0; i < len(lines); i += 2 {
				require.EqualValues(t, 92, buyer.available(lines[i].(string)))
			}
			for i, user := range []string{"u1", "u2"} {
				c := [2]*client{buyer, other}[i]
				for _, a := range gather(6, func(int) answer { return c.do(http.MethodGet, "/v1/orders?limit=100", nil) }) {
					require.Equal(t, 200, a.Status)
					require.Contains(t, string(a.Body), user)
					require.NotContains(t, string(a.Body), `"user_id":"`+[2]string{"u2", "u1"}[i])
				}
			}
		})

		t.Run("letters of either case, and of other alphabets", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku, upper := admin.stock(100, 100), admin.stock(100, 100)
			require.Equal(t, 201, buyer.place(want("abc-001", sku, 1)).Status)
			require.Equal(t, 201, other.place(want("ABC-001", upper, 1)).Status)
			require.Equal(t, "abc-001", buyer.order("abc-001").OrderNo)
			require.Equal(t, 404, buyer.do(http.MethodGet, "/v1/orders/ABC-001", nil).Status)
			require.Equal(t, "ABC-001", other.order("ABC-001").OrderNo)
			for _, no := range []string{"äbc-001", "abc-001 ", "lock:1", "a:b:c:d", "******", "{x}{x}", "-abcdef", "abc/001"} {
				require.Equal(t, 422, buyer.place(want(no, sku, 1)).Status, no)
			}
			key := newNo("Key")
			require.Equal(t, 201, buyer.place(want("", sku, 1), "Idempotency-Key: "+key).Status)
			require.Equal(t, 201, buyer.place(want("", sku, 1), "Idempotency-Key: "+strings.ToLower(key)).Status)
		})

		t.Run("every character", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 100)
			for _, note := range []string{"\U0001F600", "\U00020BB7", "a\u202Eb", "é", "é", "line\nbreak", "𝟙𝟚𝟛", " ", "'; DROP TABLE orders; --", strings.Repeat("\U0001F600", 500)} {
				body := want(newNo("ord"), sku, 1)
				body["note"] = note
				a := buyer.place(body)
				require.Equal(t, 201, a.Status, "%q: %s", note, a)
				var got struct{ Note string }
				buyer.do(http.MethodGet, "/v1/orders/"+body["order_no"].(string), nil).decode(t, &got)
				require.Equal(t, note, got.Note)
				require.Equal(t, 200, buyer.place(body).Status)
			}
			left := buyer.available(sku)
			for note, status := range map[string]int{"a\x00b": 422, "a\x07b": 422, strings.Repeat("x", 501): 422, "4111 1111 1111 1111": 422, "4111111111111111": 422} {
				body := want(newNo("ord"), sku, 1)
				body["note"] = note
				a := buyer.place(body)
				require.Contains(t, []int{400, status}, a.Status, "%q: %s", note, a)
			}
			a := buyer.place([]byte(`{"order_no":"` + newNo("ord") + `","note":"` + "\xff" + `","items":[{"sku":"` + sku + `","quantity":1}]}`))
			require.Equal(t, 400, a.Status, a)
			require.Equal(t, left, buyer.available(sku))
		})

		t.Run("lengths", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 100)
			long := newNo("L") + strings.Repeat("x", 32)
			require.Equal(t, 201, buyer.place(want(long[:32], sku, 1)).Status)
			for _, n := range []int{33, 50} {
				require.Equal(t, 422, buyer.place(want(long[:n], sku, 1)).Status, n)
			}
			require.Equal(t, 422, buyer.place(want(strings.Repeat("x", 10_000), sku, 1)).Status)
			require.Equal(t, 422, buyer.place(want("short", sku, 1)).Status)
			require.EqualValues(t, 99, buyer.available(sku))
		})

		t.Run("nothing is deleted", func(t *testing.T) {
			admin := admin.on(t)
			for _, path := range routes(t) {
				a := admin.do(http.MethodDelete, fill(path, "abc-001"), nil)
				require.Equal(t, 405, a.Status, path)
				require.NotContains(t, a.Header.Get("Allow"), "DELETE")
			}
			if e.engine == mariadbRedis {
				db := e.sql(t)
				var n int
				require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND column_name LIKE '%delete%'").Scan(&n))
				require.Zero(t, n)
				for _, unique := range [][2]string{{"orders", "order_no"}, {"payments", "payment_no"}, {"refunds", "refund_no"}, {"stock", "sku"}} {
					require.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM information_schema.statistics s WHERE table_schema = DATABASE() AND table_name = ? AND column_name = ?
						AND non_unique = 0 AND (SELECT COUNT(*) FROM information_schema.statistics o WHERE o.table_schema = DATABASE() AND o.table_name = s.table_name AND o.index_name = s.index_name) = 1`,
						unique[0], unique[1]).Scan(&n))
					require.Positive(t, n, unique)
				}
			}
		})
		e.auditSettled(t)
	})
}

// routes returns the paths of the contract.
func routes(t testing.TB) []string {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(api.Spec)
	require.NoError(t, err)
	paths := slices.Sorted(maps.Keys(doc.Paths.Map()))
	require.Greater(t, len(paths), 10)
	return paths
}

// fill puts values into a path of the contract.
func fill(path, orderNo string) string {
	return strings.NewReplacer("{order_no}", orderNo, "{sku}", "TEA-250", "{key}", "key-1", "{gateway}", "sandbox", "{refund_no}", "refund-1").Replace(path)
}

// Whatever the DSN says about affected rows, a repeat is a repeat.
func TestOppositeDriverFlag(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	e := newEnv(t, mariadbRedis, withDSN(dsn, "clientFoundRows=false&parseTime=false&interpolateParams=false"))
	o := e.start(t)
	e.mute(t)
	admin, buyer := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 100)
	placed := buyer.mustPlace(sku, 1)
	cb := e.paidAtGateway(t, placed)
	require.Contains(t, []string{"applied", "duplicate"}, buyer.callback(cb).result(t))
	require.Equal(t, "duplicate", buyer.callback(cb).result(t))
	for range 2 {
		require.Equal(t, 200, admin.do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/ship", obj{"tracking_no": "T1"}).Status)
	}
	require.Equal(t, "invalid_transition", admin.do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/ship", obj{"tracking_no": "T2"}).code())
	cancelled := buyer.mustPlace(sku, 1)
	for range 2 {
		require.Equal(t, 200, buyer.do(http.MethodPost, "/v1/orders/"+cancelled.OrderNo+"/cancel", nil).Status)
	}
	for range 2 { // the same title and price: nothing changes but the version
		require.Equal(t, 200, admin.do(http.MethodPut, "/v1/stock/"+sku, obj{"title": "same", "unit_price": 100, "currency": "CNY"}).Status)
	}
	require.EqualValues(t, 99, buyer.available(sku))
	e.auditSettled(t)
}

// A pool smaller than the number of requests, down to one connection, only makes them wait.
func TestSmallPools(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	e.mute(t)
	for _, size := range []string{"4", "1"} {
		o := e.start(t, "ORDERD_DB_MAX_OPEN="+size)
		admin, buyer := o.admin(t), o.as(t, "u1")
		sku := admin.stock(100, 1000)
		paying := buyer.mustPlace(sku, 1)
		cb := e.paidAtGateway(t, paying)
		began := time.Now()
		for i, a := range gather(64, func(i int) answer {
			switch i % 4 {
			case 0:
				return buyer.callback(cb)
			case 1:
				return buyer.do(http.MethodGet, "/healthz", nil)
			}
			return buyer.place(want(newNo("ord"), sku, 1))
		}) {
			require.Contains(t, []int{200, 201, 202}, a.Status, "%d: %s", i, a)
		}
		require.Less(t, time.Since(began), 20*time.Second)
		require.Equal(t, 1, buyer.happened(paying.OrderNo, "pay"))
		require.EqualValues(t, 967, buyer.available(sku))
		require.Zero(t, o.Term())
	}
	e.auditSettled(t)
}

// A client that hangs up leaves the whole order or nothing, and no connection behind.
func TestClientsThatHangUp(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		admin, buyer := o.admin(t), o.as(t, "u1")
		var lines []any
		for range 10 {
			lines = append(lines, admin.stock(100, 1000), 1)
		}
		inUse := func() error {
			if n := o.metric(t, `go_sql_in_use_connections{db_name="orders"}`); n != 0 {
				return fmt.Errorf("%v connections are in use", n)
			}
			return nil
		}
		settled(t, inUse)
		const aborted = 40
		bodies := make([]obj, aborted)
		for i := range bodies {
			bodies[i] = cart(newNo("ord"), lines...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5*(i%20)+1)*time.Millisecond)
			h := headers([]string{"Content-Type: application/json"})
			_, _ = buyer.exchange(ctx, http.MethodPost, "/v1/orders", buyer.content(bodies[i], h), h)
			cancel()
		}
		for _, body := range bodies {
			no := body["order_no"].(string)
			if a := buyer.do(http.MethodGet, "/v1/orders/"+no, nil); a.Status == 200 {
				require.Contains(t, []string{"PAYING", "RESERVED", "CREATED"}, a.order(t).Status)
			} else {
				require.Equal(t, 404, a.Status)
			}
			a := buyer.place(body)
			require.Contains(t, []int{200, 201, 202}, a.Status, a)
			require.Equal(t, []string{"create", "reserve", "open_payment"}, buyer.history(no))
		}
		for i := 0; i < len(lines); i += 2 {
			require.EqualValues(t, 1000-aborted, buyer.available(lines[i].(string)))
		}
		settled(t, inUse)
		e.auditSettled(t)
	})
}
