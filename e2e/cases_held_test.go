package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A database that is slow to let go must not turn one notification into two, or into none.
func TestCallbacksWhileTheRowIsHeld(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	nodes := e.replicas(t)
	e.mute(t)
	admin, buyer := nodes[0].admin(t), nodes[0].as(t, "u1")
	both := [2]*client{buyer, nodes[1].as(t, "u1")}
	db := e.sql(t)

	t.Run("ten at once", func(t *testing.T) {
		admin, buyer := admin.on(t), buyer.on(t)
		o := buyer.mustPlace(admin.stock(100, 10), 1)
		cb := e.paidAtGateway(t, o)
		release := hold(t, db, o.OrderNo)
		answers := make(chan []answer, 1)
		go func() { answers <- gather(10, func(i int) answer { return both[i%2].callback(cb) }) }()
		blocked(t, db, "UPDATE orders")
		release()
		for _, a := range <-answers {
			require.Equal(t, 200, a.Status, a)
		}
		require.Equal(t, 1, buyer.happened(o.OrderNo, "pay"))
		require.Equal(t, "PAID", buyer.order(o.OrderNo).Status)
	})

	t.Run("the gateway gives up and sends again", func(t *testing.T) {
		admin, buyer := admin.on(t), buyer.on(t)
		o := buyer.mustPlace(admin.stock(100, 10), 1)
		cb := e.paidAtGateway(t, o)
		release := hold(t, db, o.OrderNo)
		body, header := cb.sign(t)
		ctx, giveUp := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() {
			_, err := buyer.exchange(ctx, http.MethodPost, "/v1/payments/callbacks/sandbox", body, header)
			given <- err
		}()
		blocked(t, db, "UPDATE orders")
		giveUp()
		require.Error(t, <-given)
		second := make(chan answer, 1)
		go func() { second <- both[1].callback(cb) }()
		blocked(t, db, "UPDATE orders")
		release()
		require.Equal(t, 200, (<-second).Status)
		require.Equal(t, "duplicate", buyer.callback(cb).result(t))
		require.Equal(t, 1, buyer.happened(o.OrderNo, "pay"))
	})

	t.Run("it looked before a cancel was written", func(t *testing.T) {
		admin, buyer := admin.on(t), buyer.on(t)
		e.sandbox.faults(t, 1, rule{On: "close", Mode: "closed_but_payable", Rate: 1}, rule{On: "callback", Mode: "drop", Rate: 1})
		sku := admin.stock(100, 10)
		var result string
		for range 5 { // a busy machine may be too slow for the row: then the cancel gives up, and the callback is first
			o := buyer.mustPlace(sku, 1)
			release := hold(t, db, o.OrderNo)
			cancel, paid := make(chan answer, 1), make(chan answer, 1)
			go func() {
				cancel <- buyer.during().do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/cancel", nil)
			}()
			blocked(t, db, "UPDATE orders") // and it has the payment's row
			cb := e.paidAtGateway(t, o)
			go func() { paid <- both[1].on(t).callback(cb) }()
			blocked(t, db, "UPDATE payments") // it has seen the order PAYING
			release()
			cancelled := <-cancel
			if result = (<-paid).result(t); result == "refund_opened" {
				require.Equal(t, 200, cancelled.Status, cancelled)
				now := buyer.order(o.OrderNo)
				require.Equal(t, "CANCELLED", now.Status)
				require.Zero(t, now.PaidAmount)
				refundOf(t, now, "LATE_PAYMENT", 100)
				require.EqualValues(t, 10, buyer.available(sku))
				break
			}
			require.Equal(t, "applied", result)
			require.Contains(t, []int{409, 503}, cancelled.Status, cancelled)
			require.Equal(t, "PAID", buyer.order(o.OrderNo).Status)
			sku = admin.stock(100, 10)
		}
		require.Equal(t, "refund_opened", result)
	})
	e.auditSettled(t)
}
