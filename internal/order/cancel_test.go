package order_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
)

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

// The order is paid after a cancel, or its expiry, has looked at it and closed its charge: that comes too late and says so.
func TestGivingUpLosesToAPayment(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sandbox, sku := b.gateways["sandbox"], b.sku(1299, 10)
		sandbox.fault(t, "close", "closed_but_payable")
		for i, giveUp := range []func(orderNo string){
			func(orderNo string) {
				_, err := b.Cancel(t.Context(), user, orderNo, "no more")
				require.True(t, fault.Is(err, "invalid_transition"), "%v", err)
			},
			func(orderNo string) {
				b.expired(orderNo, time.Second)
				require.Zero(t, b.sweep())
			},
		} {
			o := b.placed(sku)
			sandbox.closed = func() {
				sandbox.pay(t, o.Payment.PaymentNo, "")
				out, err := b.Settle(t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
				require.NoError(t, err)
				require.Equal(t, "applied", out.Result)
			}
			giveUp(o.OrderNo)
			sandbox.closed = nil
			require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
			require.Equal(t, []string{"create", "reserve", "open_payment", "pay"}, b.history(o.OrderNo))
			require.EqualValues(t, 8-2*i, b.left(sku))
		}
		b.clean()
		b.gatewaysAgree()
	})
}

// Whatever else is asked of a cancelled order, its stock comes back once.
func TestStockComesBackOnce(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku, handle := b.sku(1299, 10), b.handler()
		o := b.placed(sku)
		body := command(no("m"), "order.cancel", cancelData(o.OrderNo))
		require.True(t, handle(body).Done())
		require.EqualValues(t, 10, b.left(sku))
		b.must(b.Cancel(t.Context(), user, o.OrderNo, "once more"))
		_, err := b.refund(o.OrderNo, no("ref"), 1)
		require.True(t, fault.Is(err, "invalid_transition"), "%v", err)
		b.expired(o.OrderNo, time.Second)
		require.Zero(t, b.sweep())
		require.True(t, handle(body).Done())
		require.True(t, handle(command(no("m"), "order.cancel", cancelData(o.OrderNo))).Done())
		require.EqualValues(t, 10, b.left(sku))
		require.Equal(t, []string{"create", "reserve", "open_payment", "cancel"}, b.history(o.OrderNo))
		b.clean()
	})
}
