package order_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/order"
	"orderd/internal/payment"
)

// later is so long, by the database's clock, after the gateway first said that it does not know a charge.
func (b *bundle) later(by time.Duration) {
	b.t.Helper()
	rows, err := b.db.Exec(b.t.Context(), "test", "UPDATE payments SET missing_since = ?, next_check_at = ? WHERE missing_since IS NOT NULL",
		b.db.SQLNowPlus(-by), b.db.SQLNowPlus(payment.SureAfter-by))
	require.NoError(b.t, err)
	require.Positive(b.t, rows, "no gateway said so")
}

// called counts the calls to the sandbox, whatever came of them.
func (b *bundle) called(call string) (n int) {
	for _, outcome := range []string{"pending", "succeeded", "failed", "closed", "not_found", "unknown"} {
		n += int(testutil.ToFloat64(b.metrics.GatewayCalls.WithLabelValues("sandbox", call, outcome)))
	}
	return n
}

// lost places an order whose charge is sent, and answered by the fault.
func (b *bundle) lost(sku, mode string) (order.PlaceRequest, order.Order) {
	b.t.Helper()
	b.gateways["sandbox"].fault(b.t, "charge", mode)
	r := request(no("ord"), sku, 2)
	res, err := b.Place(b.t.Context(), r)
	require.NoError(b.t, err)
	require.Equal(b.t, fsm.Unknown, res.Order.Payment.Status)
	return r, res.Order
}

// A gateway that does not know a charge whose answer was lost must say so twice, some time apart, before the charge is sent
// again; and again twice if that answer is lost as well.
func TestAChargeIsMissingWhenTheGatewaySaysSoTwice(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		r, o := b.lost(b.sku(1299, 10), "error_before")
		for sent := range 2 {
			for range 3 { // as often as the client likes to ask
				again := b.must(b.Place(t.Context(), r))
				require.Equal(t, fsm.Unknown, again.Order.Payment.Status)
				require.Nil(t, again.Order.Payment.PayURL)
			}
			b.later(payment.SureAfter - time.Second)
			again := b.must(b.Place(t.Context(), r))
			require.Equal(t, 1+sent, b.called("charge"), "sent again too early")
			if sent == 1 {
				b.gateways["sandbox"].heal(t)
			}
			b.later(payment.SureAfter)
			again = b.must(b.Place(t.Context(), r))
			require.Equal(t, 2+sent, b.called("charge"))
			require.Equal(t, o.Payment.PaymentNo, again.Order.Payment.PaymentNo)
			require.EqualValues(t, 1, again.Order.Payment.Attempt)
			if sent == 1 {
				require.Equal(t, fsm.Pending, again.Order.Payment.Status)
			}
		}
		b.clean()
	})
}

// The first answer came too early: the gateway had the charge. It is not sent again.
func TestAChargeThatTheGatewaySeesLater(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		_, o := b.lost(b.sku(1299, 10), "error_after")
		b.gateways["sandbox"].blind.Store(1)
		b.due("payments")
		b.sweep()
		require.Equal(t, fsm.Unknown, b.get(o.OrderNo).Payment.Status)
		b.later(payment.SureAfter)
		b.sweep()
		require.Equal(t, fsm.Pending, b.get(o.OrderNo).Payment.Status)
		require.Equal(t, 1, b.called("charge"))
		b.clean()
	})
}

// An attempt whose process died may have been sent: nobody knows. It is asked about as one whose answer was lost.
func TestAnAttemptWhoseProcessDied(t *testing.T) {
	for _, sent := range []string{"error_before", "error_after"} {
		t.Run(sent, func(t *testing.T) {
			each(t, func(t *testing.T, b *bundle) {
				r, o := b.lost(b.sku(1299, 10), sent)
				b.gateways["sandbox"].heal(t)
				_, err := b.db.Exec(t.Context(), "test", "UPDATE payments SET status = 'INIT', checks = 0, lease_owner = 'dead', lease_until = ?", b.db.SQLNowPlus(-time.Second))
				require.NoError(t, err)
				again := b.must(b.Place(t.Context(), r))
				if sent == "error_before" {
					require.Equal(t, fsm.Unknown, again.Order.Payment.Status)
					require.Equal(t, 1, b.called("charge"))
					b.later(payment.SureAfter)
					again = b.must(b.Place(t.Context(), r))
					require.Equal(t, 2, b.called("charge"))
				}
				require.Equal(t, fsm.Pending, again.Order.Payment.Status)
				require.Equal(t, o.Payment.PaymentNo, again.Order.Payment.PaymentNo)
				b.clean()
			})
		})
	}
}

// What may be on its way is not closed either because the gateway does not know it: not by a cancel, not by the end of the
// order's time, not by the next attempt.
func TestAMissingChargeIsClosedWhenTheGatewaySaysSoTwice(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		end := map[string]func(o order.Order) error{
			"cancel": func(o order.Order) error { _, err := b.Cancel(t.Context(), user, o.OrderNo, ""); return err },
			"attempt": func(o order.Order) error {
				_, err := b.OpenAttempt(t.Context(), user, o.OrderNo, "second")
				return err
			},
		}
		for name, end := range end {
			sku := b.sku(1299, 10)
			_, o := b.lost(sku, "error_before")
			for range 2 {
				err := end(o)
				require.True(t, fault.Is(err, "outcome_unknown"), "%s: %v", name, err)
				require.Equal(t, payment.SureAfter, fault.As(err).RetryAfter)
				require.Equal(t, fsm.Paying, b.get(o.OrderNo).Status)
				require.EqualValues(t, 8, b.left(sku))
			}
			b.later(payment.SureAfter)
			require.NoError(t, end(o), name)
		}

		sku := b.sku(1299, 10)
		_, o := b.lost(sku, "error_before")
		b.expired(o.OrderNo, time.Hour) // longer than an unreachable gateway is waited for: this one answers
		b.sweep()
		require.Equal(t, fsm.Paying, b.get(o.OrderNo).Status)
		b.later(payment.SureAfter)
		b.sweep()
		require.Equal(t, fsm.Cancelled, b.get(o.OrderNo).Status)
		require.Equal(t, fsm.Closed, b.get(o.OrderNo).Payment.Status)
		require.EqualValues(t, 10, b.left(sku))
		b.clean()
	})
}

// The answer to a charge is lost, and the callback that tells of its payment was faster: nothing is in doubt.
func TestALostAnswerAfterTheCallback(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sandbox, orderNo := b.gateways["sandbox"], no("o")
		sandbox.fault(t, "charge", "error_after")
		sandbox.charged = func(paymentNo string) {
			sandbox.pay(t, paymentNo, "")
			out, err := b.Settle(t.Context(), b.notice("sandbox", paymentNo))
			require.NoError(t, err)
			require.Equal(t, "applied", out.Result)
		}
		res, err := b.Place(t.Context(), request(orderNo, b.sku(50, 10), 2))
		require.NoError(t, err)
		require.Equal(t, []fsm.State{fsm.Paid, fsm.Succeeded}, []fsm.State{res.Order.Status, res.Order.Payment.Status})
		b.clean()
		b.gatewaysAgree()
	})
}

// The callback comes between the gateway's second answer that it does not know the charge and what would follow: nothing is
// sent for a payment that is settled.
func TestAMissingChargeIsPaidMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sandbox := b.gateways["sandbox"]
		r, o := b.lost(b.sku(50, 10), "error_after")
		sandbox.heal(t)
		sandbox.blind.Store(2)
		_, err := b.Place(t.Context(), r)
		require.NoError(t, err)
		b.later(payment.SureAfter)
		sandbox.asked = func() {
			sandbox.pay(t, o.Payment.PaymentNo, "")
			out, err := b.Settle(t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
			require.NoError(t, err)
			require.Equal(t, "applied", out.Result)
		}
		sent := b.called("charge")
		res, err := b.Place(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, fsm.Paid, res.Order.Status)
		require.Equal(t, sent, b.called("charge"))
		b.clean()
		b.gatewaysAgree()
	})
}
