package order_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/order"
	"orderd/internal/payment"
)

// news is what the gateway's callback about a refund says, under a message id of its own.
func news(kind payment.NoticeKind, r payment.Refund) payment.Notice {
	return payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: no("msg"), PayloadHash: "h", Kind: kind,
		PaymentNo: r.PaymentNo, RefundNo: r.SentNo(), RefundID: "R-" + r.RefundNo, Amount: r.Amount, Currency: r.Currency}
}

// hears settles the news twice, and returns what it was answered first.
func (b *bundle) hears(n payment.Notice) string {
	b.t.Helper()
	out, err := b.Settle(b.t.Context(), n)
	require.NoError(b.t, err)
	again, err := b.Settle(b.t.Context(), n)
	require.NoError(b.t, err)
	require.Equal(b.t, "duplicate", again.Result)
	return out.Result
}

func (b *bundle) alerts(kind string) float64 {
	return testutil.ToFloat64(b.metrics.Alerts.WithLabelValues(kind))
}

// A failure that comes after the success changes nothing, and a person looks at it; a success that comes after the failure
// counts, as the money has gone.
func TestRefundNewsOutOfOrder(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sandbox, sku := b.gateways["sandbox"], b.sku(50, 1000)

		o := b.paid(sku)
		res, err := b.refund(o.OrderNo, no("ref"), 60)
		require.NoError(t, err)
		before := b.get(o.OrderNo)
		require.Equal(t, "ignored", b.hears(news(payment.RefundFailed, res.Refund)))
		require.EqualValues(t, 1, b.alerts("refund_failed_after_success"))
		require.Equal(t, before, b.get(o.OrderNo))

		o = b.paid(sku)
		sandbox.fault(t, "refund", "decline")
		res, err = b.refund(o.OrderNo, no("ref"), 60)
		require.NoError(t, err)
		require.Equal(t, fsm.Failed, res.Refund.Status)
		require.Equal(t, "ignored", b.hears(news(payment.RefundFailed, res.Refund)))
		sandbox.heal(t)
		_, err = sandbox.Refund(t.Context(), payment.RefundRequest{RefundNo: res.Refund.RefundNo, PaymentNo: o.Payment.PaymentNo, Amount: 60, Total: 100, Currency: "CNY"})
		require.NoError(t, err, "the gateway thinks better of it")
		require.Equal(t, "applied", b.hears(news(payment.RefundSucceeded, res.Refund)))
		require.EqualValues(t, 1, b.alerts("refund_succeeded_after_failure"))
		require.EqualValues(t, 60, b.get(o.OrderNo).RefundedAmount)
		_, err = b.refund(o.OrderNo, no("ref"), 41)
		require.True(t, fault.Is(err, "refund_exceeds_payment"), "%v", err)
		b.clean()
		b.gatewaysAgree()
	})
}

// The news of a refund whose answer was lost finds the order shipped, or completed, since.
func TestRefundNewsFindTheOrderMovedOn(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sandbox, sku := b.gateways["sandbox"], b.sku(50, 1000)
		ship := func(o order.Order) { b.must(b.Ship(t.Context(), admin, o.OrderNo, "T-1")) }
		complete := func(o order.Order) { b.must(b.Complete(t.Context(), user, o.OrderNo)) }
		for _, steps := range [][]func(order.Order){{ship}, {ship, complete}} {
			o := b.paid(sku)
			sandbox.fault(t, "refund", "error_after")
			part, err := b.refund(o.OrderNo, no("ref"), 60)
			require.NoError(t, err)
			for _, step := range steps {
				step(o)
			}
			rest, err := b.refund(o.OrderNo, no("ref"), 40)
			require.NoError(t, err)
			sandbox.heal(t)
			before := b.get(o.OrderNo)
			require.Zero(t, before.RefundedAmount)
			require.Equal(t, "applied", b.hears(news(payment.RefundSucceeded, rest.Refund)))
			now := b.get(o.OrderNo)
			require.Equal(t, before.Status, now.Status)
			require.EqualValues(t, 40, now.RefundedAmount)
			require.Equal(t, "T-1", now.TrackingNo)
			require.Equal(t, "applied", b.hears(news(payment.RefundSucceeded, part.Refund)))
			now = b.get(o.OrderNo)
			require.Equal(t, fsm.Refunded, now.Status)
			require.EqualValues(t, 100, now.RefundedAmount)
			require.Equal(t, "ignored", b.hears(news(payment.RefundFailed, rest.Refund)))
			require.Equal(t, now, b.get(o.OrderNo))
		}
		b.clean()
		b.gatewaysAgree()
	})
}

// late is an order that was paid after it was cancelled, and the refund that it owes.
func (b *bundle) late() (order.Order, func() payment.Refund) {
	b.t.Helper()
	sandbox := b.gateways["sandbox"]
	sandbox.fault(b.t, "close", "closed_but_payable")
	o := b.placed(b.sku(50, 10))
	b.must(b.Cancel(b.t.Context(), user, o.OrderNo, ""))
	sandbox.pay(b.t, o.Payment.PaymentNo, "")
	_, err := b.Settle(b.t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
	require.NoError(b.t, err)
	sandbox.heal(b.t)
	return o, func() payment.Refund {
		r, err := payment.FindRefund(b.t.Context(), b.db, "auto-"+o.Payment.PaymentNo)
		require.NoError(b.t, err)
		return *r
	}
}

// sends lets the worker send and ask for all refunds that are open.
func (b *bundle) sends() {
	b.t.Helper()
	b.due("refunds")
	_, err := b.SendRefunds(b.t.Context())
	require.NoError(b.t, err)
}

// An automatic refund goes under its next number after a failure. What is said of the earlier one does not touch it.
func TestNewsOfAnEarlierTry(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		_, find := b.late()
		first := find()
		require.Equal(t, "applied", b.hears(news(payment.RefundFailed, first)))
		second := find()
		require.Equal(t, first.RefundNo+"-2", second.SentNo())
		require.Equal(t, "ignored", b.hears(news(payment.RefundFailed, first)))
		require.Equal(t, second, find())
		b.sends()
		require.Equal(t, fsm.Succeeded, find().Status)
		require.Equal(t, "ignored", b.hears(news(payment.RefundFailed, first)))
		require.Zero(t, b.alerts("refund_failed_after_success"), "that is how it was")
		require.Equal(t, "ignored", b.hears(news(payment.RefundFailed, second)))
		require.EqualValues(t, 1, b.alerts("refund_failed_after_success"))
		require.Equal(t, "duplicate", b.hears(news(payment.RefundSucceeded, second)))
		require.Zero(t, b.alerts("refund_sent_twice"))
		require.Equal(t, "ignored", b.hears(news(payment.RefundSucceeded, first)), "the money has gone under the second number")
		require.EqualValues(t, 1, b.alerts("refund_sent_twice"))
		require.Equal(t, fsm.Succeeded, find().Status)
		b.clean()
		b.gatewaysAgree()
	})
}

// A try that was said to have failed has sent the money after all: the next one is not sent, and the books name the number
// that the gateway knows.
func TestAnEarlierTrySucceedsAfterAll(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sandbox := b.gateways["sandbox"]
		o, find := b.late()
		first := find()
		require.Equal(t, "applied", b.hears(news(payment.RefundFailed, first)))
		_, err := sandbox.Refund(t.Context(), payment.RefundRequest{RefundNo: first.SentNo(), PaymentNo: o.Payment.PaymentNo, Amount: 100, Total: 100, Currency: "CNY"})
		require.NoError(t, err)
		require.Equal(t, "applied", b.hears(news(payment.RefundSucceeded, first)))
		require.EqualValues(t, 1, b.alerts("refund_succeeded_after_failure"))
		b.sends()
		now := find()
		require.Equal(t, fsm.Succeeded, now.Status)
		require.Equal(t, first.SentNo(), now.SentNo())
		require.Equal(t, "duplicate", b.hears(news(payment.RefundSucceeded, first)))
		require.Zero(t, b.alerts("refund_sent_twice"))
		b.clean()
		b.gatewaysAgree()
	})
}

// News that name another amount or currency, or a refund of another payment, are not booked.
func TestRefundNewsThatDoNotFit(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(50, 10)
		o := b.paid(sku)
		b.gateways["sandbox"].fault(t, "refund", "error_after")
		res, err := b.refund(o.OrderNo, no("ref"), 60)
		require.NoError(t, err)
		b.gateways["sandbox"].heal(t)
		before := b.get(o.OrderNo)
		for code, change := range map[string]func(n *payment.Notice){
			"message_conflict": func(n *payment.Notice) { n.Amount = 61 },
			"not_found":        func(n *payment.Notice) { n.PaymentNo = b.paid(sku).Payment.PaymentNo },
		} {
			n := news(payment.RefundSucceeded, res.Refund)
			change(&n)
			for range 2 { // no trace is left: the second time it is no repeat
				_, err = b.Settle(t.Context(), n)
				require.True(t, fault.Is(err, code), "%v", err)
			}
		}
		n := news(payment.RefundSucceeded, res.Refund)
		n.Currency = "JPY"
		_, err = b.Settle(t.Context(), n)
		require.True(t, fault.Is(err, "message_conflict"), "%v", err)
		require.EqualValues(t, 3, b.alerts("refund_mismatch"))
		require.Equal(t, before, b.get(o.OrderNo))
		n.Currency = "CNY"
		require.Equal(t, "applied", b.hears(n), "the same message, said right")
		b.clean()
		b.gatewaysAgree()
	})
}

// A number of digits only is no number of a later try.
func TestARefundNumberOfDigits(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		o := b.paid(b.sku(50, 10))
		refundNo := strconv.FormatInt(time.Now().UnixNano(), 10)
		res, err := b.refund(o.OrderNo, refundNo, 60)
		require.NoError(t, err)
		require.Equal(t, fsm.Succeeded, res.Refund.Status)
		require.Equal(t, refundNo, b.get(o.OrderNo).Refunds[0].SentNo())
		require.Equal(t, "duplicate", b.hears(news(payment.RefundSucceeded, res.Refund)))
		require.Zero(t, b.alerts("refund_sent_twice"))
		b.clean()
		b.gatewaysAgree()
	})
}
