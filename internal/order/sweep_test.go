package order_test

import (
	"context"
	"sync"
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

// The sweeper never rests and finds everything due, while orders are placed twice at once, paid and reported twice, and
// some are over before they are paid. It sees what others have half done, and neither doubles nor undoes it.
func TestTheSweeperAmongRequests(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		const orders, ended = 12, 3 // every third is over
		sku := b.sku(1299, 1000)
		b.gateways["sandbox"].fault(t, "close", "closed_but_payable")
		ctx, stop := context.WithCancel(t.Context())
		var sweeping, requests sync.WaitGroup
		for range 2 {
			sweeping.Go(func() {
				for ctx.Err() == nil {
					_, err := b.db.Exec(t.Context(), "test", "UPDATE payments SET next_check_at = ? WHERE next_check_at IS NOT NULL", b.db.SQLNowPlus(-time.Second))
					if err == nil {
						_, err = b.Sweep(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		orderNos := make([]string, orders)
		for i := range orderNos {
			orderNos[i] = no("ord")
			requests.Go(func() {
				var twins sync.WaitGroup
				for range 2 {
					twins.Go(func() {
						if _, err := b.Place(t.Context(), request(orderNos[i], sku, 2)); err != nil && !fault.Is(err, "order_in_progress") {
							t.Error(err)
						}
					})
				}
				twins.Wait()
				o := b.get(orderNos[i])
				b.eventually(func() error { // the gateway has it, whoever called it
					_, err := b.gateways["sandbox"].Query(t.Context(), ref(o))
					return err
				})
				if i%ended == 0 {
					b.expired(o.OrderNo, time.Second)
				}
				b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
				for range 2 {
					twins.Go(func() {
						if _, err := b.Settle(t.Context(), b.notice("sandbox", o.Payment.PaymentNo)); err != nil {
							t.Error(err)
						}
					})
				}
				twins.Wait()
			})
		}
		requests.Wait()
		stop()
		sweeping.Wait()
		_, err := b.SendRefunds(t.Context())
		require.NoError(t, err)
		left := int64(1000)
		for i, orderNo := range orderNos {
			o := b.get(orderNo)
			require.EqualValues(t, 1, o.Attempts)
			require.Equal(t, fsm.Succeeded, o.Payment.Status)
			if i%ended == 0 && o.Status == fsm.Cancelled {
				require.Equal(t, []string{"create", "reserve", "open_payment", "cancel", "late_payment", "refund_opened", "refund_succeeded"}, b.history(orderNo))
				require.Equal(t, payment.LatePayment, o.Refunds[0].Reason)
				continue
			}
			left -= 2
			require.Equal(t, fsm.Paid, o.Status)
			require.Equal(t, []string{"create", "reserve", "open_payment", "pay"}, b.history(orderNo))
		}
		require.Equal(t, left, b.left(sku))
		b.clean()
		b.gatewaysAgree()
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
