package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Selling exactly what there is, and adding it up right.
func TestStockAndSums(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		nodes := e.replicas(t)
		admin, buyer := nodes[0].admin(t), nodes[0].as(t, "u1")
		both := [2]*client{buyer, nodes[1].as(t, "u1")}
		code := func(body any) (status int, code string) {
			a := buyer.place(body)
			return a.Status, a.code()
		}

		t.Run("the last one is charged once", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 1)
			var won []orderView
			for _, a := range gather(5, func(i int) answer { return both[i%2].place(want(newNo("ord"), sku, 1)) }) {
				if a.Status == 201 {
					won = append(won, a.order(t))
				} else {
					require.Equal(t, "out_of_stock", a.code(), a)
				}
			}
			require.Len(t, won, 1)
			e.sandbox.pay(t, won[0].Payment.PaymentNo)
			buyer.becomes(won[0].OrderNo, "PAID")
			require.Len(t, e.sandbox.ledger(t), 1)
			require.Zero(t, buyer.available(sku))
		})

		t.Run("a SKU once per order", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 5)
			for _, quantity := range []int{3, 2} {
				no := newNo("ord")
				a := buyer.place(cart(no, sku, quantity, sku, quantity))
				require.Equal(t, "validation_failed", a.code(), a)
				require.Equal(t, 404, buyer.do(http.MethodGet, "/v1/orders/"+no, nil).Status)
			}
			require.EqualValues(t, 5, buyer.available(sku))
		})

		t.Run("numbers at their limits", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku, other, dear := admin.stock(100, 1_000_000_000), admin.stock(100, 3), admin.stock(10_000_000_000, 9999)
			for quantity, status := range map[string]int{"0": 422, "-1": 422, "10000": 422, "2147483647": 422, "2147483648": 400, "9223372036854775807": 400,
				"9223372036854775808": 400, "1.0": 400, "1e3": 400, `"1"`: 400, "null": 400} {
				a := buyer.place(fmt.Sprintf(`{"order_no":%q,"items":[{"sku":%q,"quantity":%s}]}`, newNo("ord"), sku, quantity))
				require.Equal(t, status, a.Status, "quantity %s: %s", quantity, a)
			}
			a := buyer.place(want(newNo("ord"), dear, 11))
			require.Equal(t, 422, a.Status, a)
			a = buyer.place(want(newNo("ord"), dear, 10))
			require.Equal(t, 201, a.Status, a)
			require.EqualValues(t, 100_000_000_000, a.order(t).Amount)
			a = buyer.place(want(newNo("ord"), other, 4))
			require.Equal(t, "out_of_stock", a.code(), a)
			require.EqualValues(t, 3, buyer.available(other))
			require.EqualValues(t, 1_000_000_000, buyer.available(sku), "nobody took any")
		})

		t.Run("all lines or none", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			x, y, z := admin.stock(100, 10), admin.stock(100, 0), admin.stock(100, 10)
			body := cart(newNo("ord"), x, 1, y, 1, z, 1)
			a := buyer.place(body)
			require.Equal(t, "out_of_stock", a.code(), a)
			require.Contains(t, string(a.Body), body["order_no"])
			require.Contains(t, string(a.Body), y)
			require.EqualValues(t, []int64{10, 0, 10}, []int64{buyer.available(x), buyer.available(y), buyer.available(z)})
			require.Equal(t, "CREATED", buyer.order(body["order_no"].(string)).Status)
			require.Equal(t, 201, admin.do(http.MethodPost, "/v1/stock/"+y+"/adjustments", obj{"adjustment_no": newNo("adj"), "delta": 5, "reason": "delivery"}).Status)
			a = buyer.place(body)
			require.Equal(t, 200, a.Status, a)
			require.Equal(t, "PAYING", a.order(t).Status)
			require.EqualValues(t, []int64{9, 4, 9}, []int64{buyer.available(x), buyer.available(y), buyer.available(z)})
		})

		t.Run("resuming runs no stage again", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			for _, mode := range []string{"error_before", "error_after", "garbage"} {
				sku := admin.stock(100, 10)
				body := want(newNo("ord"), sku, 3)
				e.sandbox.faults(t, 1, rule{On: "charge", Mode: mode, Rate: 1}, rule{On: "query", Mode: "error_before", Rate: 1})
				a := buyer.place(body)
				require.Equal(t, 202, a.Status, a)
				require.Equal(t, "UNKNOWN", a.order(t).Payment.Status)
				for range 3 {
					again := buyer.place(body)
					require.Equal(t, 200, again.Status, again)
					require.NotEmpty(t, again.Header.Get("Retry-After"))
				}
				e.sandbox.heal(t)
				settled(t, func() error { // resubmitting, or the reconciler
					if o := buyer.place(body).order(t); o.Payment.Status != "PENDING" || o.Payment.Attempt != 1 {
						return fmt.Errorf("payment is %+v", o.Payment)
					}
					return nil
				})
				require.EqualValues(t, 7, buyer.available(sku), mode)
				require.Equal(t, []string{"create", "reserve", "open_payment"}, buyer.history(body["order_no"].(string)))
			}
		})

		t.Run("a popular SKU", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 1000)
			took := make([]time.Duration, 100)
			if e.engine == embedded { // one writer, one fsync a transaction: fewer fit into a request's time
				took = took[:25]
			}
			for _, a := range gather(len(took), func(i int) answer {
				began := time.Now()
				defer func() { took[i] = time.Since(began) }()
				return both[i%2].place(want(newNo("ord"), sku, 1))
			}) {
				require.Contains(t, []int{201, 202}, a.Status, a) // 202: the gateway took its time
			}
			require.EqualValues(t, 1000-len(took), buyer.available(sku))
			slices.Sort(took)
			require.Less(t, took[len(took)-2], 8*time.Second)
		})

		t.Run("the server's own sum", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 10)
			body := want(newNo("ord"), sku, 2)
			for _, wrong := range []int{199, 201, 0, -200} {
				body["expected_amount"] = wrong
				a := buyer.place(body)
				require.Equal(t, "amount_changed", a.code(), a)
			}
			delete(body, "expected_amount")
			for _, name := range []string{"amount", "price", "total", "currency", "status", "user_id", "paid_amount", "expires_at", "version", "notify_url"} {
				body[name] = 1
				status, c := code(body)
				require.Equal(t, 400, status, "%s: %s", name, c)
				delete(body, name)
			}
			body["items"].([]obj)[0]["unit_price"] = 1
			status, _ := code(body)
			require.Equal(t, 400, status)
			delete(body["items"].([]obj)[0], "unit_price")
			a := buyer.place(body)
			require.Equal(t, 201, a.Status, a)
			require.Equal(t, 200, admin.do(http.MethodPut, "/v1/stock/"+sku, obj{"title": "dearer", "unit_price": 999, "currency": "CNY"}).Status)
			a = buyer.place(body)
			require.Equal(t, 200, a.Status, a)
			require.EqualValues(t, 200, a.order(t).Amount, "the price of the moment it was placed")
		})
		e.auditSettled(t)
	})
}

// The database connection is cut at every statement of a cancel.
func TestCancelIsAllOrNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	dsn, proxy := through(t, e.vars["ORDERD_DB_DSN"])
	o := e.start(t, "ORDERD_DB_DSN="+dsn)
	admin, buyer := o.admin(t), o.as(t, "u1")
	skus := []string{admin.stock(100, 100), admin.stock(100, 100)}
	for _, match := range []string{"UPDATE payments", "UPDATE orders SET status", "INSERT INTO `order_events`", "INSERT INTO `outbox", "INSERT INTO `stock_mov", "UPDATE stock", "COMMIT"} {
		for _, cut := range []func(string, int){proxy.CutBefore, proxy.CutAfter} {
			a := buyer.place(cart(newNo("ord"), skus[0], 1, skus[1], 2))
			require.Equal(t, 201, a.Status, a)
			cut(match, 1)
			no, cuts := a.order(t).OrderNo, proxy.Cuts()
			buyer.during().do(http.MethodPost, "/v1/orders/"+no+"/cancel", obj{})
			require.Equal(t, cuts+1, proxy.Cuts(), "nothing was cut at %s", match)
			proxy.Restore()
			settled(t, func() error {
				if a := buyer.do(http.MethodPost, "/v1/orders/"+no+"/cancel", obj{}); a.Status != 200 {
					return fmt.Errorf("cancel: %s", a)
				}
				return nil
			})
			require.Equal(t, []int64{100, 100}, []int64{buyer.available(skus[0]), buyer.available(skus[1])}, match)
			require.Equal(t, 1, buyer.happened(no, "cancel"))
		}
	}
	e.auditSettled(t)
}
