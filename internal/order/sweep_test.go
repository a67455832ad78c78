package order_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/order"
	"orderd/internal/payment"
)

// expired lets the order's time be over by the database's clock.
func (b *bundle) expired(orderNo string, ago time.Duration) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), "test", "UPDATE orders SET expires_at = ? WHERE order_no = ?", b.db.SQLNowPlus(-ago), orderNo)
	require.NoError(b.t, err)
}

func (b *bundle) sweep() int {
	b.t.Helper()
	n, err := b.Sweep(b.t.Context())
	require.NoError(b.t, err)
	return n
}

func TestAnUnpaidOrderExpires(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 10)
		o := b.placed(sku)
		require.Zero(t, b.sweep())
		b.expired(o.OrderNo, time.Second)
		require.Equal(t, 1, b.sweep())
		now := b.get(o.OrderNo)
		require.Equal(t, fsm.Cancelled, now.Status)
		require.Equal(t, order.Expired, now.CancelReason)
		require.Equal(t, fsm.Closed, now.Payment.Status)
		require.EqualValues(t, 10, b.left(sku))
		c, err := b.gateways["sandbox"].Query(t.Context(), ref(o))
		require.NoError(t, err)
		require.Equal(t, fsm.Closed, c.State, "nobody can pay for it any more")
		require.Zero(t, b.sweep(), "nothing is left to do")
		b.clean()
	})
}

// A payment of which we have not heard is found when its order expires: the gateway is asked before anything is given up.
func TestExpiryFindsThePayment(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 10)
		o := b.placed(sku)
		b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
		b.expired(o.OrderNo, time.Second)
		b.sweep()
		require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
		require.EqualValues(t, 8, b.left(sku))
		require.Zero(t, b.sweep())
		b.clean()
	})
}

// An unreachable gateway is waited for; after the grace the stock is freed, and money that comes late goes back.
func TestExpiryWaitsForTheGatewayAndNotForEver(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 10)
		o := b.placed(sku)
		sandbox := b.gateways["sandbox"]
		sandbox.fault(t, "close", "error_before")
		b.expired(o.OrderNo, time.Minute)
		require.Zero(t, b.sweep())
		require.Equal(t, fsm.Paying, b.get(o.OrderNo).Status)

		b.expired(o.OrderNo, 6*time.Minute)
		b.due("payments") // the lease of the try before
		require.Equal(t, 1, b.sweep())
		require.Equal(t, fsm.Cancelled, b.get(o.OrderNo).Status)
		require.EqualValues(t, 10, b.left(sku))

		sandbox.heal(t)
		sandbox.pay(t, o.Payment.PaymentNo, "")
		out, err := b.Settle(t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
		require.NoError(t, err)
		require.Equal(t, "refund_opened", out.Result)
		require.Equal(t, fsm.Cancelled, b.get(o.OrderNo).Status)
		b.clean()
	})
}

// A user's cancel does not wait: it changes nothing and says so.
func TestCancelNeedsTheGateway(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 10)
		o := b.placed(sku)
		b.gateways["sandbox"].fault(t, "close", "error_before")
		before := b.get(o.OrderNo)
		_, err := b.Cancel(t.Context(), user, o.OrderNo, "no more")
		require.True(t, fault.Is(err, "gateway_unavailable"), "%v", err)
		require.Equal(t, before.Status, b.get(o.OrderNo).Status)
		b.gateways["sandbox"].heal(t)
		res, err := b.Cancel(t.Context(), user, o.OrderNo, "no more")
		require.NoError(t, err)
		require.Equal(t, fsm.Cancelled, res.Order.Status)
		again, err := b.Cancel(t.Context(), user, o.OrderNo, "another reason")
		require.NoError(t, err)
		require.EqualValues(t, "state", again.Guard)
		require.Equal(t, "no more", again.Order.CancelReason)
		require.EqualValues(t, 10, b.left(sku))
		b.clean()
	})
}

// A callback that never comes is not needed: the gateway is asked.
func TestAMissingCallbackIsFound(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		o := b.placed(b.sku(1299, 10))
		b.due("payments")
		require.Equal(t, 1, b.sweep(), "asked: not paid yet")
		require.Zero(t, b.sweep(), "left alone until the next time is due")
		b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
		b.due("payments")
		b.sweep()
		require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
		b.clean()
	})
}

// What a dead process left at a local stage is finished by the sweeper; what was refused is left to its client.
func TestTheSweeperResumes(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		b.gateways["sandbox"].fault(t, "charge", "error_before")
		sku := b.sku(1299, 10)
		res, err := b.Place(t.Context(), request(no("ord"), sku, 2))
		require.NoError(t, err)
		require.Equal(t, fsm.Unknown, res.Order.Payment.Status)
		refused := request(no("ord"), sku, 100)
		_, err = b.Place(t.Context(), refused)
		require.True(t, fault.Is(err, "out_of_stock"), "%v", err)
		require.Equal(t, refused.OrderNo, fault.As(err).OrderNo)
		_, err = b.db.Exec(t.Context(), "test", "UPDATE orders SET updated_at = ?", b.db.SQLNowPlus(-time.Minute))
		require.NoError(t, err)
		b.gateways["sandbox"].heal(t)
		b.due("payments")
		require.Equal(t, 1, b.sweep(), "the gateway does not know the charge")
		require.Equal(t, fsm.Unknown, b.get(res.Order.OrderNo).Payment.Status)
		b.later(payment.SureAfter)
		require.Equal(t, 1, b.sweep(), "and it says so again")
		require.Equal(t, fsm.Pending, b.get(res.Order.OrderNo).Payment.Status)
		require.Equal(t, fsm.Created, b.get(refused.OrderNo).Status)

		_, _, err = b.stock.Adjust(t.Context(), sku, no("adj"), 100, "delivery")
		require.NoError(t, err)
		again, err := b.Place(t.Context(), refused)
		require.NoError(t, err)
		require.Equal(t, fsm.Paying, again.Order.Status)
		require.False(t, again.Created)
		b.clean()
	})
}

// A gateway that takes money for a charge it had closed, and whose callback is lost, is asked once more.
func TestAnEndedAttemptIsLookedAtAgain(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 10)
		quiet, late := b.placed(sku), b.placed(sku)
		b.gateways["sandbox"].fault(t, "close", "closed_but_payable")
		for _, o := range []order.Order{quiet, late} {
			b.must(b.Cancel(t.Context(), user, o.OrderNo, ""))
		}
		b.gateways["sandbox"].pay(t, late.Payment.PaymentNo, "")
		require.Zero(t, b.sweep(), "not yet")
		for range payment.FollowUps {
			b.due("payments")
			b.sweep()
		}
		require.Equal(t, fsm.Succeeded, b.get(late.OrderNo).Payment.Status)
		require.Equal(t, payment.LatePayment, b.get(late.OrderNo).Refunds[0].Reason)
		p, err := payment.Find(t.Context(), b.db, quiet.Payment.PaymentNo)
		require.NoError(t, err)
		require.Equal(t, fsm.Closed, p.Status)
		require.Nil(t, p.NextCheckAt, "and then left alone")
		b.clean()
	})
}
