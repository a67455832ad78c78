package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// refund asks for money of an order to be sent back.
func (c *client) refund(orderNo, refundNo string, amount int64) answer {
	c.t.Helper()
	return c.do(http.MethodPost, "/v1/orders/"+orderNo+"/refunds", obj{"refund_no": refundNo, "amount": amount})
}

// sentBack is the message that a refund of o's payment was carried out, with an id of its own.
func sentBack(o orderView, refundNo string, amount int64) callback {
	cb := message(o)
	cb.Type = "refund.succeeded"
	cb.Data["refund_no"], cb.Data["refund_id"], cb.Data["amount"] = refundNo, "rfd_"+refundNo, amount
	return cb
}

// moves is what the gateway's ledger has of a payment, in order: "charge 100 CNY", "refund 30 CNY".
func (s *sandbox) moves(t testing.TB, paymentNo string) []string {
	t.Helper()
	var all []string
	for _, entry := range s.ledger(t) {
		if entry.PaymentNo == paymentNo {
			all = append(all, fmt.Sprintf("%s %d %s", entry.Kind, entry.Amount, entry.Currency))
		}
	}
	return all
}

// Refunds, and the news of them, that come twice, at once, too early and too late.
func TestRefunds(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		nodes := e.crossed(t)
		e.mute(t)
		admin, buyer := nodes[0].admin(t), nodes[0].as(t, "u1")
		admins := [2]*client{admin, nodes[1].admin(t)}
		sku := admin.stock(100, 1000)
		paid := func(t *testing.T) orderView {
			t.Helper()
			o := buyer.mustPlace(sku, 1)
			require.Equal(t, 200, buyer.callback(e.paidAtGateway(t, o)).Status)
			return o
		}
		// booked checks that the refunds of an order of 100 are these amounts, once each, here and at the gateway.
		booked := func(t *testing.T, o orderView, amounts ...int64) {
			t.Helper()
			now, sum, moved := buyer.order(o.OrderNo), int64(0), []string{"charge 100 CNY"}
			require.Len(t, now.Refunds, len(amounts))
			for i, amount := range amounts {
				require.Equal(t, "SUCCEEDED", now.Refunds[i].Status)
				require.Equal(t, amount, now.Refunds[i].Amount)
				sum, moved = sum+amount, append(moved, fmt.Sprintf("refund %d CNY", amount))
			}
			require.Equal(t, sum, now.RefundedAmount)
			require.Equal(t, map[bool]string{false: "PAID", true: "REFUNDED"}[sum == 100], now.Status)
			require.Equal(t, len(amounts), buyer.happened(o.OrderNo, "refund_opened"))
			require.Equal(t, len(amounts), buyer.happened(o.OrderNo, "refund_succeeded"))
			require.Equal(t, moved, e.sandbox.moves(t, o.Payment.PaymentNo))
		}

		t.Run("reported before it is answered", func(t *testing.T) {
			admin := admin.on(t)
			for _, answer := range []string{"", "slow", "error_after", "garbage"} { // what becomes of the answer, which comes second
				o, refundNo := paid(t), newNo("ref")
				rules := []rule{{On: "callback", Mode: "before_response", Rate: 1, Times: 1}, {On: "callback", Mode: "drop", Rate: 1}}
				if answer != "" {
					rules = append(rules, rule{On: "refund", Mode: answer, Rate: 1, Times: 1})
				}
				e.sandbox.faults(t, 1, rules...)
				a := admins[1].on(t).refund(o.OrderNo, refundNo, 30)
				require.Equal(t, 201, a.Status, a)
				booked(t, o, 30) // already, whatever the answer was
				for i := range 5 {
					require.Equal(t, "duplicate", admins[i%2].on(t).callback(sentBack(o, refundNo, 30)).result(t))
				}
				booked(t, o, 30)
				require.Equal(t, "refund_exceeds_payment", admin.refund(o.OrderNo, newNo("ref"), 71).code())
				require.Equal(t, 201, admin.refund(o.OrderNo, newNo("ref"), 70).Status)
				booked(t, o, 30, 70)
			}
			e.mute(t)
		})

		t.Run("reported before it is committed", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			o, refundNo := paid(t), newNo("ref")
			cb := sentBack(o, refundNo, 30)
			require.Equal(t, "not_found", buyer.callback(cb).result(t), "there is no such refund yet")
			if e.engine == mariadbRedis { // and not while it is being written either
				db := e.sql(t)
				release := hold(t, db, o.OrderNo)
				done := make(chan answer, 1)
				go func() { done <- admins[1].on(t).refund(o.OrderNo, refundNo, 30) }()
				blocked(t, db, "UPDATE orders")
				require.Equal(t, "not_found", buyer.callback(cb).result(t))
				release()
				require.Equal(t, 201, (<-done).Status)
			} else {
				require.Equal(t, 201, admin.refund(o.OrderNo, refundNo, 30).Status)
			}
			a := buyer.callback(cb) // the gateway sends again; what was refused is no repeat, the refund is booked
			require.Equal(t, "duplicate", a.result(t))
			require.Equal(t, "state", a.guard())
			booked(t, o, 30)
		})

		t.Run("five requests and five reports at once", func(t *testing.T) {
			calls := func() (n float64) { // of every replica; the first one is the only one on the embedded engine
				for i, node := range nodes {
					if i == 0 || node != nodes[0] {
						n += node.metric(t, `orderd_gateway_calls_total{call="refund",gateway="sandbox",outcome="succeeded"}`)
					}
				}
				return n
			}
			for range 5 {
				o, refundNo, before := paid(t), newNo("ref"), calls()
				cb := sentBack(o, refundNo, 30)
				answers := gather(10, func(i int) (a answer) {
					if i < 5 {
						return admins[i%2].on(t).refund(o.OrderNo, refundNo, 30)
					}
					_ = poll(t, func() error { // until it is taken: the gateway sends again
						a = admins[i%2].on(t).callback(cb)
						return statusIs(a, 200)
					})
					return a
				})
				created, applied := 0, 0
				for i, a := range answers {
					switch {
					case i >= 5:
						require.Contains(t, []string{"applied", "duplicate"}, a.result(t))
						if a.result(t) == "applied" {
							applied++
						}
					case a.Status == 201:
						created++
					case a.Status != 200:
						require.Equal(t, "order_in_progress", a.code(), a)
					}
				}
				require.Equal(t, 1, created)
				require.LessOrEqual(t, applied, 1)
				require.EqualValues(t, 1, calls()-before, "calls to the gateway")
				booked(t, o, 30)
			}
		})

		t.Run("several refunds of one payment", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			o := paid(t)
			e.sandbox.faults(t, 1, rule{On: "refund", Mode: "error_after", Rate: 1}, rule{On: "callback", Mode: "drop", Rate: 1})
			var news []callback
			for i, refundNo := range []string{newNo("ref"), newNo("ref")} {
				amount := int64(30 - 10*i)
				a := admin.refund(o.OrderNo, refundNo, amount)
				require.Equal(t, 201, a.Status, a)
				news = append(news, sentBack(o, refundNo, amount))
			}
			e.mute(t)
			for _, i := range []int{1, 0} { // the later one first
				require.Contains(t, []string{"applied", "duplicate"}, buyer.callback(news[i]).result(t), "duplicate: the service had asked")
				require.Equal(t, "duplicate", buyer.callback(news[i]).result(t))
			}
			for _, cb := range news {
				require.Equal(t, "duplicate", buyer.callback(cb).result(t))
				cb.ID = newNo("msg")
				require.Equal(t, "duplicate", buyer.callback(cb).result(t))
			}
			booked(t, o, 30, 20)
		})

		t.Run("more than was paid", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			o, left := paid(t), buyer.available(sku)
			for amount, code := range map[int64]string{0: "validation_failed", -1: "validation_failed", 101: "refund_exceeds_payment",
				100_000_000_000: "refund_exceeds_payment", 1<<63 - 1: "validation_failed"} {
				a := admin.refund(o.OrderNo, newNo("ref"), amount)
				require.Equal(t, 422, a.Status, a)
				require.Equal(t, code, a.code(), amount)
			}
			require.Equal(t, 201, admin.refund(o.OrderNo, newNo("ref"), 50).Status)
			require.Equal(t, "refund_exceeds_payment", admin.refund(o.OrderNo, newNo("ref"), 51).code())
			last := obj{"refund_no": newNo("ref"), "amount": 50, "restock": true}
			require.Equal(t, 201, admin.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/refunds", last).Status)
			require.Equal(t, 200, admin.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/refunds", last).Status)
			require.Equal(t, "refund_exceeds_payment", admin.refund(o.OrderNo, newNo("ref"), 1).code())
			booked(t, o, 50, 50)
			require.Equal(t, left+1, buyer.available(sku), "the piece came back once")
			for _, path := range []string{"/v1/orders?limit=100", "/v1/orders/" + o.OrderNo + "/refunds", "/v1/orders/" + o.OrderNo + "/timeline", "/v1/stock?limit=100"} {
				require.Equal(t, 200, buyer.do(http.MethodGet, path, nil).Status, path)
			}
			var list struct{ Orders []orderView }
			buyer.do(http.MethodGet, "/v1/orders?status=REFUNDED&limit=1", nil).decode(t, &list)
			require.Equal(t, []orderView{buyer.order(o.OrderNo)}, list.Orders)
		})
		e.auditSettled(t)
	})
}

// Minor units are what each currency makes of them: none for yen and won, a thousandth for the dinar. Nobody converts.
func TestCurrencies(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		admin, buyer := o.admin(t), o.as(t, "u1")
		for currency, price := range map[string]int64{"JPY": 500, "KRW": 1000, "KWD": 1234} {
			t.Run(currency, func(t *testing.T) {
				admin, buyer := admin.on(t), buyer.on(t)
				sku := newNo("SKU")
				require.Equal(t, 201, admin.do(http.MethodPut, "/v1/stock/"+sku, obj{"title": "Tea", "unit_price": price, "currency": currency, "available": 9}).Status)
				placed := buyer.mustPlace(sku, 3)
				require.Equal(t, 3*price, placed.Amount)
				require.Equal(t, currency, placed.Currency)
				var charge paymentView
				e.sandbox.do(t, http.MethodGet, "/v1/charges/"+placed.Payment.PaymentNo, nil, 200).decode(t, &charge)
				require.Equal(t, 3*price, charge.Amount)
				require.Equal(t, currency, charge.Currency)

				e.sandbox.pay(t, placed.Payment.PaymentNo)
				require.Equal(t, 3*price, buyer.becomes(placed.OrderNo, "PAID").PaidAmount)
				first := newNo("ref")
				require.Equal(t, 201, admin.refund(placed.OrderNo, first, 1).Status)
				other := sentBack(placed, first, 1)
				other.Data["currency"] = "CNY"
				require.Equal(t, "message_conflict", buyer.callback(other).result(t), "the same number of another currency")
				require.Equal(t, "duplicate", buyer.callback(sentBack(placed, first, 1)).result(t))
				require.Equal(t, 201, admin.refund(placed.OrderNo, newNo("ref"), 3*price-1).Status)
				now := buyer.order(placed.OrderNo)
				require.Equal(t, "REFUNDED", now.Status)
				require.Equal(t, 3*price, now.RefundedAmount)
				for i, amount := range []int64{1, 3*price - 1} {
					require.Equal(t, amount, now.Refunds[i].Amount)
					require.Equal(t, currency, now.Refunds[i].Currency)
				}
				require.Equal(t, []string{fmt.Sprintf("charge %d %s", 3*price, currency), "refund 1 " + currency,
					fmt.Sprintf("refund %d %s", 3*price-1, currency)}, e.sandbox.moves(t, placed.Payment.PaymentNo))
			})
		}
		for _, unknown := range []string{"XQQ", "jpy", "YEN", "", "JPYY"} {
			a := admin.do(http.MethodPut, "/v1/stock/"+newNo("SKU"), obj{"title": "Tea", "unit_price": 1, "currency": unknown, "available": 1})
			require.Equal(t, 422, a.Status, "%q: %s", unknown, a)
			require.Equal(t, []string{"currency"}, a.fields(t))
		}
		e.auditSettled(t)
	})
}
