package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// refundOf checks that all of a payment's money goes back, once, by the one automatic refund for that reason.
func refundOf(t testing.TB, o orderView, reason string, amount int64) {
	t.Helper()
	require.Len(t, o.Refunds, 1)
	r := o.Refunds[0]
	require.Equal(t, reason, r.Reason)
	require.EqualValues(t, amount, r.Amount)
	require.Contains(t, []string{"PENDING", "UNKNOWN", "SUCCEEDED"}, r.Status)
}

// Giving up an order while its money is on the way.
func TestCancelAndExpiryAgainstPayment(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		e.mute(t)
		admin, buyer := o.admin(t), o.as(t, "u1")
		cancel := func(orderNo string) answer {
			return buyer.do(http.MethodPost, "/v1/orders/"+orderNo+"/cancel", obj{"reason": "no longer wanted"})
		}

		t.Run("money for a cancelled order goes back", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			e.sandbox.faults(t, 1, rule{On: "close", Mode: "closed_but_payable", Rate: 1}, rule{On: "callback", Mode: "drop", Rate: 1})
			sku := admin.stock(100, 10)
			placed := buyer.mustPlace(sku, 3)
			require.Equal(t, 200, cancel(placed.OrderNo).Status)
			cb := e.paidAtGateway(t, placed)
			opened := 0
			for range 3 {
				switch r := buyer.callback(cb).result(t); r {
				case "refund_opened":
					opened++
				default:
					require.Equal(t, "duplicate", r)
				}
			}
			require.Equal(t, 1, opened)
			now := buyer.order(placed.OrderNo)
			require.Equal(t, "CANCELLED", now.Status)
			require.Zero(t, now.PaidAmount, "it was never the order's money")
			refundOf(t, now, "LATE_PAYMENT", 300)
			require.EqualValues(t, 10, buyer.available(sku))
			require.Equal(t, 1, buyer.happened(placed.OrderNo, "late_payment"))
			settled(t, func() error {
				if r := buyer.order(placed.OrderNo).Refunds[0]; r.Status != "SUCCEEDED" {
					return fmt.Errorf("refund is %s", r.Status)
				}
				return nil
			})
			require.Equal(t, []string{"charge 300 CNY", "refund 300 CNY"}, e.sandbox.moves(t, placed.Payment.PaymentNo))
			e.mute(t)
		})

		t.Run("a paid order is not cancelled", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			placed := buyer.mustPlace(admin.stock(100, 10), 1)
			require.Equal(t, 200, buyer.callback(e.paidAtGateway(t, placed)).Status)
			a := cancel(placed.OrderNo)
			require.Equal(t, "invalid_transition", a.code(), a)
			require.Equal(t, "PAID", buyer.order(placed.OrderNo).Status)

			// The gateway has the money and has not said so yet.
			placed = buyer.mustPlace(admin.stock(100, 10), 1)
			e.sandbox.pay(t, placed.Payment.PaymentNo)
			a = cancel(placed.OrderNo)
			require.Equal(t, "invalid_transition", a.code(), a)
			require.Equal(t, "PAID", buyer.order(placed.OrderNo).Status)
		})

		t.Run("cancelling again gives nothing back twice", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 10)
			placed := buyer.mustPlace(sku, 4)
			first := cancel(placed.OrderNo)
			require.Equal(t, 200, first.Status, first)
			require.Empty(t, first.guard())
			for range 2 {
				again := cancel(placed.OrderNo)
				require.Equal(t, 200, again.Status, again)
				require.Equal(t, "state", again.guard())
			}
			require.Equal(t, "invalid_transition", admin.refund(placed.OrderNo, newNo("ref"), 1).code(), "there is no money to send back")
			require.EqualValues(t, 10, buyer.available(sku))
			require.Equal(t, 1, buyer.happened(placed.OrderNo, "cancel"))
			require.Equal(t, "invalid_transition", buyer.do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/payments", obj{}).code())
			require.Equal(t, "CLOSED", buyer.order(placed.OrderNo).Payment.Status)
		})

		t.Run("an unreachable gateway changes nothing", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			sku := admin.stock(100, 10)
			placed := buyer.mustPlace(sku, 4)
			e.sandbox.faults(t, 1, rule{On: "close", Mode: "error_before", Rate: 1}, rule{On: "callback", Mode: "drop", Rate: 1})
			a := buyer.during().do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/cancel", obj{})
			require.Equal(t, "gateway_unavailable", a.code(), a)
			require.Equal(t, "PAYING", buyer.order(placed.OrderNo).Status)
			require.EqualValues(t, 6, buyer.available(sku))
			e.mute(t)
			require.Equal(t, 200, cancel(placed.OrderNo).Status)
		})

		t.Run("the pieces of many lines come back", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			var lines []any
			var skus []string
			for i := range 5 {
				skus = append(skus, admin.stock(100, 10))
				lines = append(lines, skus[i], i+1)
			}
			a := buyer.place(cart(newNo("ord"), lines...))
			require.Equal(t, 201, a.Status, a)
			for i, sku := range skus {
				require.EqualValues(t, 9-i, buyer.available(sku))
			}
			require.Equal(t, 200, cancel(a.order(t).OrderNo).Status)
			for _, sku := range skus {
				require.EqualValues(t, 10, buyer.available(sku))
			}
		})
		e.auditSettled(t)
	})
}

// Orders that nobody pays in time, at a gateway that does not let itself be asked.
func TestExpiry(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t, "ORDERD_PAY_TIMEOUT=3s", "ORDERD_CLOSE_GRACE=1ms", "ORDERD_WORKER_INTERVAL=20ms")
		e.sandbox.faults(t, 1, rule{On: "close", Mode: "error_before", Rate: 1}, rule{On: "callback", Mode: "drop", Rate: 1})
		admin, buyer := o.admin(t), o.as(t, "u1")
		sku := admin.stock(100, 100)
		late := buyer.mustPlace(sku, 2)
		cb := e.paidAtGateway(t, late)                                               // and nobody tells us
		orders := gather(12, func(int) orderView { return buyer.mustPlace(sku, 2) }) // while the sweeper runs all the time
		for _, placed := range append(orders, late) {
			now := buyer.becomes(placed.OrderNo, "CANCELLED")
			require.Equal(t, "expired", now.CancelReason)
			require.Equal(t, "CLOSED", now.Payment.Status)
			require.EqualValues(t, 1, now.Payment.Attempt)
			require.Equal(t, []string{"create", "reserve", "open_payment", "cancel"}, buyer.history(placed.OrderNo))
			if e.engine == mariadbRedis { // not a microsecond too early, by the database's own clock
				var early bool
				require.NoError(t, e.sql(t).QueryRow("SELECT updated_at < expires_at OR expires_at < created_at + INTERVAL 3 SECOND FROM orders WHERE order_no = ?",
					placed.OrderNo).Scan(&early))
				require.False(t, early)
			}
		}
		require.EqualValues(t, 100, buyer.available(sku))

		require.Equal(t, "refund_opened", buyer.callback(cb).result(t))
		now := buyer.order(late.OrderNo)
		require.Equal(t, "CANCELLED", now.Status)
		require.Zero(t, now.PaidAmount)
		refundOf(t, now, "LATE_PAYMENT", 200)
		require.Equal(t, "SUCCEEDED", now.Payment.Status)
		if e.engine == mariadbRedis { // we owe it from the moment on in which we have it
			var together bool
			require.NoError(t, e.sql(t).QueryRow("SELECT p.updated_at = r.created_at FROM payments p JOIN refunds r ON r.payment_no = p.payment_no WHERE p.payment_no = ?",
				late.Payment.PaymentNo).Scan(&together))
			require.True(t, together)
		}
		require.Equal(t, "invalid_transition", buyer.do(http.MethodPost, "/v1/orders/"+late.OrderNo+"/payments", obj{}).code(), "nor can it be paid anew")
		a := buyer.place(want(late.OrderNo, sku, 2))
		require.Equal(t, 200, a.Status, a)
		require.Equal(t, "CANCELLED", a.order(t).Status, "a repeat does not revive it")
		require.EqualValues(t, 100, buyer.available(sku))
		settled(t, func() error {
			if r := buyer.order(late.OrderNo).Refunds[0]; r.Status != "SUCCEEDED" {
				return fmt.Errorf("refund is %s", r.Status)
			}
			return nil
		})
		require.Len(t, e.sandbox.ledger(t), 2, "in and out again")
		e.auditSettled(t)
		if e.engine == mariadbRedis {
			e.nothingIsLeft(t)
		}
	})
}

// nothingIsLeft waits until nothing belongs to an order that has ended but its history: no attempt that can be paid, no
// message that was not sent, no lock.
func (e *env) nothingIsLeft(t testing.TB) {
	t.Helper()
	db, keys := e.sql(t), e.keys(t)
	settled(t, func() error {
		var attempts, messages int
		err := db.QueryRow(`SELECT (SELECT COUNT(*) FROM payments p JOIN orders o ON o.order_no = p.order_no WHERE p.open_slot = 1 AND o.status <> 'PAYING'),
			(SELECT COUNT(*) FROM outbox_messages WHERE published_at IS NULL)`).Scan(&attempts, &messages)
		if locks := keys.Keys(t.Context(), lockKey("*")).Val(); err == nil && (attempts > 0 || messages > 0 || len(locks) > 0) {
			err = fmt.Errorf("%d attempts, %d messages and the locks %v are left", attempts, messages, locks)
		}
		return err
	})
}

// An order whose time is over cannot be paid any more, also before anybody has come by to cancel it.
func TestExpiredIsNotPayable(t *testing.T) {
	t.Parallel()
	e := newEnv(t, embedded, "ORDERD_PAY_TIMEOUT=1s", "ORDERD_WORKER_INTERVAL=1h")
	o := e.start(t)
	admin, buyer := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 10)
	placed := buyer.mustPlace(sku, 1)
	settled(t, func() error {
		if a := buyer.do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/payments", obj{}); a.code() != "invalid_transition" {
			return fmt.Errorf("still payable: %s", a)
		}
		return nil
	})
	require.Equal(t, "PAYING", buyer.order(placed.OrderNo).Status)
	require.Equal(t, 200, buyer.do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/cancel", nil).Status)
	require.EqualValues(t, 10, buyer.available(sku))
	e.auditSettled(t)
}
