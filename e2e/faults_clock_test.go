package e2e

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"orderd/internal/testenv"
)

// moved sets the database's clock and waits until the database knows.
func moved(t testing.TB, clock *testenv.Clock, db *sql.DB, by time.Duration) {
	t.Helper()
	clock.Move(t, by)
	settled(t, func() error {
		var ahead float64 // seconds
		err := db.QueryRow("SELECT UNIX_TIMESTAMP(NOW(6)) - ?", float64(time.Now().UnixMicro())/1e6).Scan(&ahead)
		if err == nil && (ahead < by.Seconds()-1 || ahead > by.Seconds()+1) {
			err = fmt.Errorf("the database is %v s ahead, not %v", ahead, by)
		}
		return err
	})
}

// The clocks of orderd's machine and of the database are ten minutes apart, either way, and this changes while orders are
// open. Only a difference can be seen, so it is the database's clock that is moved. What expires and who holds a lease is
// by that clock alone: nothing happens early, nothing is held up, nothing is sent twice.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	server := testenv.OwnMariaDB(t)
	clock := server.FakeClock(t)
	e := newEnv(t, mariadbRedis, "ORDERD_DB_DSN="+server.Database(t))
	nodes := e.replicas(t)
	db := e.sql(t)
	admin, buyer := nodes[0].admin(t), nodes[0].as(t, "u1")
	sku := admin.stock(100, 1000)
	var open []orderView
	for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute, 0} {
		t.Run(by.String(), func(t *testing.T) {
			buyer := buyer.on(t)
			moved(t, clock, db, by)

			// A charge takes its time, and the other replica gets the same order: the lease holds.
			e.sandbox.faults(t, 1, rule{On: "charge", Mode: "slow", Rate: 1, Times: 1})
			before := nodes[0].calls(t, "charge", "pending") + nodes[1].calls(t, "charge", "pending")
			body := want(newNo("ord"), sku, 1)
			var o orderView
			for _, a := range gather(2, func(i int) answer { return nodes[i].as(t, "u1").place(body) }) {
				require.NoError(t, expect(a, 200, 201, 202))
				o = a.order(t)
			}
			require.Equal(t, before+1, nodes[0].calls(t, "charge", "pending")+nodes[1].calls(t, "charge", "pending"))

			// A lease whose holder died ends in its time, too.
			dead := e.startFailpoint(t, "gateway_charge.call", 1, "ORDERD_WORKER_INTERVAL=1h")
			orphan := want(newNo("ord"), sku, 1)
			_, err := dead.as(t, "u1").try(http.MethodPost, "/v1/orders", orphan)
			require.Error(t, err)
			settled(t, func() error {
				if now := buyer.place(orphan).order(t); now.Payment.Status != "PENDING" {
					return fmt.Errorf("the payment is %s", now.Payment.Status)
				}
				return nil
			})

			// One that is over is swept away, by a sweeper that leaves all others alone.
			over := buyer.mustPlace(sku, 1)
			_, err = db.Exec("UPDATE orders SET expires_at = UTC_TIMESTAMP(6) WHERE order_no = ?", over.OrderNo)
			require.NoError(t, err)
			buyer.becomes(over.OrderNo, "CANCELLED")
			var span float64
			require.NoError(t, db.QueryRow("SELECT TIMESTAMPDIFF(MICROSECOND, created_at, expires_at) / 1e6 FROM orders WHERE order_no = ?", o.OrderNo).Scan(&span))
			require.InDelta(t, 900, span, 1)
			require.Equal(t, "PAYING", buyer.order(o.OrderNo).Status)

			e.sandbox.pay(t, buyer.order(orphan["order_no"].(string)).Payment.PaymentNo)
			buyer.becomes(orphan["order_no"].(string), "PAID")
			open = append(open, o)
		})
	}
	for _, o := range open {
		require.Equal(t, "PAYING", buyer.order(o.OrderNo).Status)
		e.sandbox.pay(t, o.Payment.PaymentNo)
		buyer.becomes(o.OrderNo, "PAID")
	}
	require.EqualValues(t, 1000-6, buyer.available(sku))
	e.auditSettled(t)
}

// The gateway's clock and ours are an hour apart: its callbacks are refused, and counted for whoever is to be alerted.
// When the clocks agree again, it sends them again, and they are booked.
func TestGatewaysClockIsWrong(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t, "ORDERD_WORKER_INTERVAL=1h") // nobody asks the gateway instead
		buyer := o.as(t, "u1")
		placed := buyer.mustPlace(o.admin(t).stock(100, 10), 1)
		e.sandbox.faults(t, 1, rule{On: "callback", Mode: "old_timestamp", Rate: 1})
		e.sandbox.pay(t, placed.Payment.PaymentNo)
		const refused, taken = `orderd_callbacks_total{gateway="sandbox",result="unauthenticated"}`, `orderd_callbacks_total{gateway="sandbox",result="applied"}`
		settled(t, func() error {
			if n := o.metric(t, refused); n < 2 {
				return fmt.Errorf("%v callbacks were refused", n)
			}
			return nil
		})
		require.Contains(t, o.Log(), "callback refused")
		require.Equal(t, "PAYING", buyer.order(placed.OrderNo).Status)
		e.sandbox.heal(t)
		buyer.becomes(placed.OrderNo, "PAID")
		require.EqualValues(t, 1, o.metric(t, taken))
		e.auditSettled(t)
	})
}

// The database's clock jumps ahead by an hour. Orders expire by it, all of them, and money that comes after that goes back.
// Nothing else happens: paid orders stay paid, keys stand for their orders, and new orders live. Nor when it jumps back.
func TestDatabaseClockJumps(t *testing.T) {
	t.Parallel()
	server := testenv.OwnMariaDB(t)
	clock := server.FakeClock(t)
	e := newEnv(t, mariadbRedis, "ORDERD_DB_DSN="+server.Database(t))
	nodes := e.replicas(t)
	db := e.sql(t)
	admin, buyer := nodes[0].admin(t), nodes[0].as(t, "u1")
	sku := admin.stock(100, 100)
	e.sandbox.faults(t, 1, rule{On: "close", Mode: "closed_but_payable", Rate: 1})
	paid := e.paid(t, buyer, sku, 1)
	var unpaid []orderView
	for range 10 {
		unpaid = append(unpaid, buyer.mustPlace(sku, 2))
	}
	key := "Idempotency-Key: " + newNo("key")
	keyed := buyer.place(want("", sku, 1), key)
	require.Equal(t, http.StatusCreated, keyed.Status, "%s", keyed)
	unpaid = append(unpaid, keyed.order(t))

	moved(t, clock, db, time.Hour)
	for _, o := range unpaid {
		now := buyer.becomes(o.OrderNo, "CANCELLED")
		require.Equal(t, "expired", now.CancelReason)
		require.Equal(t, 1, buyer.happened(o.OrderNo, "cancel"))
	}
	require.EqualValues(t, 99, buyer.available(sku))
	require.Equal(t, "PAID", buyer.order(paid.OrderNo).Status)
	for _, o := range unpaid[:3] {
		e.sandbox.pay(t, o.Payment.PaymentNo)
	}
	for _, o := range unpaid[:3] {
		settled(t, func() error {
			if now := buyer.order(o.OrderNo); len(now.Refunds) != 1 || now.Refunds[0].Status != "SUCCEEDED" {
				return fmt.Errorf("the refunds of order %s are %v", o.OrderNo, now.Refunds)
			}
			return nil
		})
		now := buyer.order(o.OrderNo)
		require.Equal(t, "CANCELLED", now.Status)
		refundOf(t, now, "LATE_PAYMENT", o.Amount)
	}
	again := buyer.place(want("", sku, 1), key)
	require.Equal(t, http.StatusOK, again.Status, "%s", again)
	require.Equal(t, keyed.order(t).OrderNo, again.order(t).OrderNo)
	require.Equal(t, "PAID", e.paid(t, nodes[1].as(t, "u1"), sku, 1).Status)
	open := buyer.mustPlace(sku, 1)
	e.auditSettled(t)

	moved(t, clock, db, 0)
	require.Equal(t, "PAID", e.paid(t, buyer, sku, 1).Status)
	require.Equal(t, "PAYING", buyer.order(open.OrderNo).Status)
	e.sandbox.pay(t, open.Payment.PaymentNo)
	buyer.becomes(open.OrderNo, "PAID")
	require.EqualValues(t, 96, buyer.available(sku))
	e.auditSettled(t)
}

// A thousand orders expire, one every few milliseconds, and are paid around that very moment. Each is PAID, or CANCELLED with
// its money on the way back; both happen. Redis is dead: with the lock, the two would only meet in turn.
func TestExpiryAgainstThePaymentsCallback(t *testing.T) {
	t.Parallel()
	const orders, gap = 1000, 5 * time.Millisecond
	a := newArena(t, "ORDERD_WORKER_INTERVAL=10ms")
	a.redis.Kill()
	a.sandbox.faults(t, 1, rule{On: "close", Mode: "closed_but_payable", Rate: 1})
	sku := a.admin.stock(100, orders)
	db := a.sql(t)
	placed := make([]orderView, orders)
	var work errgroup.Group
	work.SetLimit(32)
	for i := range placed {
		work.Go(func() error {
			placed[i] = a.at(i).place(want(newNo("exp"), sku, 1)).order(t)
			return nil
		})
	}
	require.NoError(t, work.Wait())
	const lead = 2 * time.Second // for the statements below
	first := time.Now().Add(lead)
	var base string // the same moment by the database's clock
	require.NoError(t, db.QueryRow("SELECT UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", time.Until(first).Microseconds()).Scan(&base))
	// Orders are numbered by their ids.
	_, err := db.Exec("UPDATE orders SET expires_at = ? + INTERVAL (id - (SELECT * FROM (SELECT MIN(id) FROM orders) x)) * ? MICROSECOND", base, gap.Microseconds())
	require.NoError(t, err)
	rows, err := db.Query("SELECT payment_no, TIMESTAMPDIFF(MICROSECOND, ?, expires_at) FROM orders JOIN payments USING (order_no) ORDER BY expires_at", base)
	require.NoError(t, err)
	defer rows.Close()
	work.SetLimit(64)
	for rows.Next() {
		var paymentNo string
		var after int64
		require.NoError(t, rows.Scan(&paymentNo, &after))
		// The sweeper comes a little after the moment, and so do half of the payments.
		due := first.Add(time.Duration(after)*time.Microsecond + rand.N(300*time.Millisecond) - 100*time.Millisecond)
		<-time.After(time.Until(due.Add(-200 * time.Millisecond))) // not all goroutines at once
		work.Go(func() error {
			<-time.After(time.Until(due))
			a.sandbox.pay(t, paymentNo)
			return nil
		})
	}
	require.NoError(t, rows.Err())
	require.NoError(t, work.Wait())

	var paid, refunded int
	settled(t, func() error {
		err := db.QueryRow(`SELECT COALESCE(SUM(o.status = 'PAID' AND o.paid_amount = o.amount AND p.applied = 1 AND r.refund_no IS NULL), 0),
			COALESCE(SUM(o.status = 'CANCELLED' AND o.paid_amount = 0 AND p.status = 'SUCCEEDED' AND r.reason = 'LATE_PAYMENT' AND r.amount = o.amount AND r.status = 'SUCCEEDED'), 0)
			FROM orders o JOIN payments p USING (order_no) LEFT JOIN refunds r USING (payment_no)`).Scan(&paid, &refunded)
		if err == nil && paid+refunded != orders {
			err = fmt.Errorf("%d orders are paid and %d refunded, of %d", paid, refunded, orders)
		}
		return err
	})
	t.Logf("%d paid, %d expired and refunded", paid, refunded)
	require.Greater(t, paid, orders/50, "the race was not run")
	require.Greater(t, refunded, orders/50, "the race was not run")
	require.EqualValues(t, orders-paid, a.admin.available(sku))
	a.auditSettled(t)
	a.ledgerAgrees(t)
}
