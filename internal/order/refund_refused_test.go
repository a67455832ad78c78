package order_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// Somebody sent most of the money back at the gateway, past us. What we promise then it refuses for good: the refund is
// FAILED, its hold is free, and what is left can still go back.
func TestARefundThatTheGatewayHasNoMoneyFor(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		o := b.paid(b.sku(50, 10)) // 100 in all
		_, err := b.gateways["sandbox"].Refund(t.Context(), payment.RefundRequest{RefundNo: "by-hand", PaymentNo: o.Payment.PaymentNo, Amount: 70, Currency: "CNY"})
		require.NoError(t, err)
		refused, err := b.refund(o.OrderNo, no("ref"), 60)
		require.NoError(t, err)
		require.Equal(t, fsm.Failed, refused.Refund.Status)
		require.Nil(t, refused.Refund.NextCheckAt, "it is over")
		held := func() int64 {
			p, err := payment.Find(t.Context(), b.db, o.Payment.PaymentNo)
			require.NoError(t, err)
			return p.RefundHeld
		}
		require.Zero(t, held())
		rest, err := b.refund(o.OrderNo, no("ref"), 30)
		require.NoError(t, err)
		require.Equal(t, fsm.Succeeded, rest.Refund.Status)

		// Not to know is no refusal: the hold stays.
		b.gateways["sandbox"].fault(t, "refund", "error_before")
		unknown, err := b.refund(o.OrderNo, no("ref"), 60)
		require.NoError(t, err)
		require.Equal(t, fsm.Unknown, unknown.Refund.Status)
		require.EqualValues(t, 90, held())
		b.gateways["sandbox"].heal(t)
		b.due("refunds")
		_, err = b.SendRefunds(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 30, held(), "asked again, it says no")
		require.EqualValues(t, 30, b.get(o.OrderNo).RefundedAmount)
		b.clean()
	})
}

// oneNumber is a gateway that gives all its refunds one number of its own.
type oneNumber struct {
	*gateway
	state fsm.State
}

func (g oneNumber) Refund(_ context.Context, r payment.RefundRequest) (payment.RefundAnswer, error) {
	return payment.RefundAnswer{RefundNo: r.RefundNo, RefundID: "re_" + string(g.state), State: g.state, Amount: r.Amount}, nil
}

// One refund of a gateway's is never booked on two of ours: what it sent once would count twice. It stays unknown, and a
// person is called.
func TestOneRefundOfTheGatewaysIsBookedOnce(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		for _, state := range []fsm.State{fsm.Succeeded, fsm.Pending} {
			o := b.paid(b.sku(50, 10))
			alerts := testutil.ToFloat64(b.metrics.Alerts.WithLabelValues("message_conflict"))
			g := b.gateways["sandbox"]
			b.Gateways["sandbox"] = oneNumber{g, state}
			first, err := b.refund(o.OrderNo, no("ref"), 10)
			require.NoError(t, err)
			require.Equal(t, state, first.Refund.Status)
			second, err := b.refund(o.OrderNo, no("ref"), 20)
			require.NoError(t, err)
			require.Equal(t, fsm.Unknown, second.Refund.Status)
			require.Nil(t, second.Refund.RefundID)
			require.Nil(t, second.Refund.LeaseUntil)
			require.Greater(t, second.Refund.NextCheckAt.Sub(second.Refund.CreatedAt.Time), payment.CheckAfter[0]-time.Second, "asked for again, not at once")

			for range 2 { // a callback, and the gateway's repeat of it: a refusal leaves no trace in the inbox
				_, err = b.Settle(t.Context(), payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: "msg-" + second.Refund.RefundNo, PayloadHash: "h",
					Kind: payment.RefundSucceeded, PaymentNo: o.Payment.PaymentNo, RefundNo: second.Refund.RefundNo, RefundID: "re_" + string(state), Amount: 20, Currency: "CNY"})
				require.True(t, fault.Is(err, "message_conflict"), "%v", err)
			}
			require.EqualValues(t, alerts+3, testutil.ToFloat64(b.metrics.Alerts.WithLabelValues("message_conflict")))
			now, err := payment.FindRefund(t.Context(), b.db, second.Refund.RefundNo)
			require.NoError(t, err)
			require.Equal(t, fsm.Unknown, now.Status)

			_, err = b.Settle(t.Context(), payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: "msg-" + second.Refund.RefundNo, PayloadHash: "h",
				Kind: payment.RefundSucceeded, PaymentNo: o.Payment.PaymentNo, RefundNo: second.Refund.RefundNo, RefundID: second.Refund.RefundNo, Amount: 20, Currency: "CNY"})
			require.NoError(t, err, "its own number is no conflict")
			b.clean()
			b.Gateways["sandbox"] = g
		}
	})
}
