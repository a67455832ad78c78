package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Payment notifications that come twice, at once, late and out of order.
func TestCallbacksTwiceLateAndOutOfOrder(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		nodes := e.crossed(t)
		e.mute(t)
		admin, buyer := nodes[0].admin(t), nodes[0].as(t, "u1")
		both := [2]*client{buyer, nodes[1].as(t, "u1")}

		t.Run("before the charge is answered", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			for _, answer := range []string{"", "slow", "error_after", "garbage"} { // what becomes of the answer, which comes second
				rules := []rule{{On: "callback", Mode: "before_response", Rate: 1, Times: 1}}
				if answer != "" {
					rules = append(rules, rule{On: "charge", Mode: answer, Rate: 1, Times: 1})
				}
				e.sandbox.faults(t, 1, rules...)
				sku := admin.stock(100, 10)
				body := want(newNo("ord"), sku, 3)
				a := both[1].on(t).place(body)
				require.Contains(t, []int{201, 202}, a.Status, a)
				now := buyer.order(a.order(t).OrderNo)
				require.Equal(t, "PAID", now.Status)
				require.Equal(t, "SUCCEEDED", now.Payment.Status)
				require.EqualValues(t, 300, now.PaidAmount)
				require.EqualValues(t, 7, buyer.available(sku))
				a = buyer.place(body)
				require.Equal(t, 200, a.Status, a)
				require.Equal(t, now, a.order(t))
				require.Equal(t, "duplicate", buyer.callback(message(now)).result(t))
				require.Equal(t, []string{"create", "reserve", "open_payment", "pay"}, buyer.history(now.OrderNo))
				require.Equal(t, []string{"charge 300 CNY"}, e.sandbox.moves(t, now.Payment.PaymentNo))
			}
			e.mute(t)
		})

		t.Run("while the charge is being answered", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			e.sandbox.faults(t, 1, rule{On: "charge", Mode: "slow", Rate: 1, Times: 1})
			body := want(newNo("ord"), admin.stock(100, 10), 3)
			answered := make(chan answer, 1)
			go func() { answered <- both[1].on(t).place(body) }() // the answer, PENDING, is older than the payment
			var o orderView
			settled(t, func() error {
				a := buyer.do(http.MethodGet, "/v1/orders/"+body["order_no"].(string), nil)
				if a.Status != 200 {
					return statusIs(a, 200)
				}
				if o = a.order(t); o.Payment == nil {
					return fmt.Errorf("no payment yet: %s", a)
				}
				return statusIs(e.sandbox.do(t, http.MethodGet, "/v1/charges/"+o.Payment.PaymentNo, nil, 200, 404), 200)
			})
			e.sandbox.pay(t, o.Payment.PaymentNo)
			buyer.becomes(o.OrderNo, "PAID")
			a := <-answered
			require.Equal(t, 201, a.Status, a)
			if now := a.order(t); now.Status != "PAID" {
				require.Equal(t, "PENDING", now.Payment.Status, "on a busy machine, the answer was faster")
			}
			now := buyer.order(o.OrderNo)
			require.Equal(t, "PAID", now.Status)
			require.Equal(t, "SUCCEEDED", now.Payment.Status)
			require.Nil(t, now.Payment.PayURL)
			require.Equal(t, []string{"create", "reserve", "open_payment", "pay"}, buyer.history(o.OrderNo))
			e.mute(t)
		})

		t.Run("paying while the callback arrives", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			for range 5 {
				sku := admin.stock(100, 10)
				o := buyer.mustPlace(sku, 3)
				cb := e.paidAtGateway(t, o)
				answers := gather(6, func(i int) answer {
					if c := both[i%2]; i < 4 {
						return c.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/payments", obj{})
					}
					return both[i%2].callback(cb)
				})
				for i, a := range answers {
					if i < 4 {
						require.True(t, a.Status == 200 || a.code() == "invalid_transition", a)
					} else {
						require.Equal(t, 200, a.Status, a)
					}
				}
				require.Equal(t, "PAID", buyer.order(o.OrderNo).Status)
				require.EqualValues(t, 7, buyer.available(sku))
				require.Equal(t, []string{"create", "reserve", "open_payment", "pay"}, buyer.history(o.OrderNo))
			}
		})

		t.Run("creating and paying a paid order again", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 10)
			o := buyer.mustPlace(sku, 1)
			require.Equal(t, 200, buyer.callback(e.paidAtGateway(t, o)).Status)
			events := buyer.history(o.OrderNo)
			a := buyer.place(want(o.OrderNo, sku, 1))
			require.Equal(t, 200, a.Status, a)
			require.Equal(t, "PAID", a.order(t).Status)
			require.Equal(t, "invalid_transition", buyer.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/payments", obj{}).code())
			require.Equal(t, events, buyer.history(o.OrderNo))
		})

		t.Run("out of order", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			o := buyer.mustPlace(admin.stock(100, 10), 1)
			ok := e.paidAtGateway(t, o)
			failed, pending := ok, ok
			failed.ID, failed.Type = newNo("msg"), "payment.failed"
			pending.ID, pending.Type = newNo("msg"), "payment.pending"
			require.Equal(t, "ignored", buyer.callback(pending).result(t), "a type that we do not know")
			require.Contains(t, []string{"applied", "duplicate"}, buyer.callback(ok).result(t))
			require.Equal(t, "ignored", buyer.callback(failed).result(t), "it came late")
			require.Equal(t, "duplicate", buyer.callback(failed).result(t))
			require.Equal(t, "PAID", buyer.order(o.OrderNo).Status)

			o = buyer.mustPlace(admin.stock(100, 10), 1)
			e.sandbox.payAs(t, o.Payment.PaymentNo, obj{"outcome": "failed"})
			failed = message(o)
			failed.Type = "payment.failed"
			require.Contains(t, []string{"applied", "duplicate", "ignored"}, buyer.callback(failed).result(t))
			require.Equal(t, "FAILED", buyer.order(o.OrderNo).Payment.Status)
			next := buyer.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/payments", obj{})
			require.Equal(t, 201, next.Status, next)
			require.EqualValues(t, 2, next.order(t).Payment.Attempt)
			require.Equal(t, 200, buyer.callback(e.paidAtGateway(t, next.order(t))).Status)
			require.Equal(t, "PAID", buyer.order(o.OrderNo).Status)
		})

		t.Run("a failure before the success", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			for _, kind := range []string{"failed", "closed"} {
				sku := admin.stock(100, 10)
				o := buyer.mustPlace(sku, 1)
				early := message(o)
				early.Type = "payment." + kind
				require.Equal(t, "applied", buyer.callback(early).result(t))
				require.Equal(t, strings.ToUpper(kind), buyer.order(o.OrderNo).Payment.Status)
				require.Equal(t, "PAYING", buyer.order(o.OrderNo).Status)
				require.Contains(t, []string{"applied", "duplicate"}, buyer.callback(e.paidAtGateway(t, o)).result(t), "of the same charge")
				require.Equal(t, "duplicate", buyer.callback(early).result(t))
				now := buyer.order(o.OrderNo)
				require.Equal(t, "PAID", now.Status)
				require.Equal(t, "SUCCEEDED", now.Payment.Status)
				require.Empty(t, now.Refunds)
				require.EqualValues(t, 9, buyer.available(sku))
			}
		})

		t.Run("late, in every status", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			for _, life := range [][]string{{"refunds"}, {"ship", "refunds"}, {"ship", "complete", "refunds"}} {
				sku := admin.stock(100, 10)
				o := buyer.mustPlace(sku, 3)
				paid, refundNo := e.paidAtGateway(t, o), newNo("ref")
				require.Equal(t, 200, buyer.callback(paid).Status)
				late := map[string][]callback{"duplicate": {paid, message(o)}, "ignored": {message(o), message(o)}}
				late["ignored"][0].Type, late["ignored"][1].Type = "payment.failed", "payment.closed"
				unchanged := func() {
					t.Helper()
					before := buyer.do(http.MethodGet, "/v1/orders/"+o.OrderNo, nil)
					for result, news := range late {
						for _, cb := range news {
							got := buyer.callback(cb).result(t)
							require.Contains(t, []string{result, "duplicate"}, got, "%s of an order that is %s", cb.Type, before.order(t).Status)
							require.Equal(t, "duplicate", buyer.callback(cb).result(t))
							cb.ID = newNo("msg") // the same news again, as another message
							require.Equal(t, result, buyer.callback(cb).result(t))
						}
					}
					require.Equal(t, string(before.Body), string(buyer.do(http.MethodGet, "/v1/orders/"+o.OrderNo, nil).Body))
					require.EqualValues(t, 7, buyer.available(sku))
				}
				unchanged()
				bodies := map[string]obj{"ship": {"tracking_no": "T1"}, "complete": {}, "refunds": {"refund_no": refundNo, "amount": 300}}
				for _, step := range life {
					if a := admin.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/"+step, bodies[step]); a.Status != 201 {
						require.Equal(t, 200, a.Status, a)
					}
					unchanged()
				}
				failed := sentBack(o, refundNo, 300)
				failed.Type = "refund.failed"
				late["duplicate"] = append(late["duplicate"], sentBack(o, refundNo, 300))
				late["ignored"] = append(late["ignored"], failed)
				unchanged()
				now := buyer.order(o.OrderNo)
				require.Equal(t, "REFUNDED", now.Status)
				require.EqualValues(t, 300, now.RefundedAmount)
				for _, step := range []string{"payments", "cancel", "complete"} {
					require.Equal(t, "invalid_transition", buyer.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/"+step, obj{}).code(), step)
				}
				require.Equal(t, []string{"charge 300 CNY", "refund 300 CNY"}, e.sandbox.moves(t, o.Payment.PaymentNo))
			}
		})

		t.Run("a payment that nobody knows", func(t *testing.T) {
			buyer := buyer.on(t)
			cb := succeeded(orderView{Payment: &paymentView{PaymentNo: newNo("P")}, Amount: 100, Currency: "CNY"}, "txn_1")
			cb.ID, cb.At = newNo("msg"), time.Now()
			for range 2 {
				require.Equal(t, "not_found", buyer.callback(cb).result(t), "and it is no duplicate the second time")
			}
		})
		e.auditSettled(t)
	})
}

// Of two that place the same order, one loses its database in the middle of it.
func TestLoserDoesNotUndoTheWinnersWork(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	dsn, proxy := through(t, e.vars["ORDERD_DB_DSN"])
	winner, loser := e.start(t), e.start(t, "ORDERD_DB_DSN="+dsn)
	admin, one, other := winner.admin(t), winner.as(t, "u1"), loser.as(t, "u1").during()
	for _, cut := range []string{"INSERT INTO `orders`", "UPDATE stock", "COMMIT"} {
		sku := admin.stock(100, 10)
		body := want(newNo("ord"), sku, 2)
		proxy.CutAfter(cut, 1)
		created := 0
		for _, a := range gather(2, func(i int) answer { return [2]*client{one, other}[i].place(body) }) {
			if a.Status == 201 || a.Status == 202 {
				created++
			}
		}
		proxy.Restore()
		require.LessOrEqual(t, created, 1)
		a := one.place(body)
		require.Equal(t, 200, a.Status, a)
		require.Equal(t, "PAYING", a.order(t).Status)
		require.EqualValues(t, 8, one.available(sku), "taken once, after a cut at %s", cut)
	}
	e.auditSettled(t)
}
