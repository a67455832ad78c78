package order_test

import (
	"cmp"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/order"
	"orderd/internal/payment"
)

// paid places an order and pays it.
func (b *bundle) paid(sku string) order.Order {
	b.t.Helper()
	o := b.placed(sku)
	b.gateways["sandbox"].pay(b.t, o.Payment.PaymentNo, "")
	_, err := b.Settle(b.t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
	require.NoError(b.t, err)
	return b.get(o.OrderNo)
}

func (b *bundle) refund(orderNo, refundNo string, amount int64) (order.RefundResult, error) {
	return b.Refund(b.t.Context(), admin, order.RefundRequest{OrderNo: orderNo, RefundNo: refundNo, Amount: amount})
}

// rounds is how often a race is repeated: 30, or ROUNDS.
func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("ROUNDS"), "30"))
	require.NoError(t, err, "ROUNDS")
	return n
}

// Of two refunds of 60 % asked for at once one wins, whatever the interleaving; then the rest can go back, and no more.
func TestRefundsTogetherNeverExceedThePayment(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(50, 1000) // two of it: an order of 100
		for range rounds(t) {
			o := b.paid(sku)
			start := make(chan struct{})
			var won atomic.Int64
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					<-start
					_, err := b.refund(o.OrderNo, no("ref"), 60)
					if err == nil {
						won.Add(1)
					} else if !fault.Is(err, "refund_exceeds_payment") {
						t.Error(err)
					}
				})
			}
			close(start)
			all.Wait()
			require.EqualValues(t, 1, won.Load())
			_, err := b.refund(o.OrderNo, no("ref"), 40)
			require.NoError(t, err)
			_, err = b.refund(o.OrderNo, no("ref"), 1)
			require.True(t, fault.Is(err, "refund_exceeds_payment"), "%v", err)
			now := b.get(o.OrderNo)
			require.Equal(t, fsm.Refunded, now.Status)
			require.EqualValues(t, 100, now.RefundedAmount)
		}
		b.clean()
		b.gatewaysAgree()
	})
}

func TestTheSameRefundIsOne(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(50, 1000)
		o := b.paid(sku)
		refundNo := no("ref")
		first, err := b.refund(o.OrderNo, refundNo, 30)
		require.NoError(t, err)
		require.True(t, first.Created)
		require.Equal(t, fsm.Succeeded, first.Refund.Status)
		again, err := b.refund(o.OrderNo, refundNo, 30)
		require.NoError(t, err)
		require.False(t, again.Created)
		require.EqualValues(t, "state", again.Guard)
		_, err = b.refund(o.OrderNo, refundNo, 31)
		require.True(t, fault.Is(err, "refund_no_reused"), "%v", err)
		_, err = b.refund(b.paid(sku).OrderNo, refundNo, 30)
		require.True(t, fault.Is(err, "refund_no_reused"), "%v", err)
		_, err = b.refund(o.OrderNo, "auto-"+o.Payment.PaymentNo, 30)
		require.True(t, fault.Is(err, "validation_failed"), "%v", err)
		_, err = b.refund(b.placed(sku).OrderNo, no("ref"), 30)
		require.True(t, fault.Is(err, "invalid_transition"), "%v", err)
		require.EqualValues(t, 30, b.get(o.OrderNo).RefundedAmount)
		b.clean()
		b.gatewaysAgree()
	})
}

func TestRestockGoesWithTheLastRefund(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(50, 10)
		o := b.paid(sku)
		require.EqualValues(t, 8, b.left(sku))
		restock := func(amount int64) error {
			_, err := b.Refund(t.Context(), admin, order.RefundRequest{OrderNo: o.OrderNo, RefundNo: no("ref"), Amount: amount, Restock: true})
			return err
		}
		err := restock(99)
		require.True(t, fault.Is(err, "validation_failed"), "%v", err)
		_, err = b.refund(o.OrderNo, no("ref"), 60)
		require.NoError(t, err)
		require.NoError(t, restock(40))
		require.Equal(t, fsm.Refunded, b.get(o.OrderNo).Status)
		require.EqualValues(t, 10, b.left(sku))
		b.clean()
	})
}

// A lost answer is asked for; the money goes back once.
func TestARefundWhoseAnswerWasLostIsAskedFor(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		for _, mode := range []string{"error_after", "error_before"} {
			o := b.paid(b.sku(50, 10))
			b.gateways["sandbox"].fault(t, "refund", mode)
			res, err := b.refund(o.OrderNo, no("ref"), 100)
			require.NoError(t, err)
			require.Equal(t, fsm.Unknown, res.Refund.Status)
			require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
			_, err = b.Ship(t.Context(), admin, o.OrderNo, "T-1")
			require.True(t, fault.Is(err, "invalid_transition"), "all of its money is on the way back: %v", err)
			b.gateways["sandbox"].heal(t)
			b.due("refunds")
			_, err = b.SendRefunds(t.Context())
			require.NoError(t, err)
			require.Equal(t, fsm.Refunded, b.get(o.OrderNo).Status)
		}
		b.clean()
		b.gatewaysAgree()
	})
}

// due lets the workers look at everything that waits, now.
func (b *bundle) due(table string) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), "test", "UPDATE "+table+" SET next_check_at = ?, lease_until = NULL WHERE next_check_at IS NOT NULL", b.db.SQLNowPlus(-1000000000))
	require.NoError(b.t, err)
}

// A refund that the gateway refuses: a customer's gives its hold back, an automatic one is owed and goes again under its
// next number.
func TestARefusedRefund(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sandbox := b.gateways["sandbox"]
		sku := b.sku(50, 1000)
		t.Run("customer", func(t *testing.T) {
			o := b.paid(sku)
			sandbox.fault(t, "refund", "decline")
			res, err := b.refund(o.OrderNo, no("ref"), 60)
			require.NoError(t, err)
			require.Equal(t, fsm.Failed, res.Refund.Status)
			sandbox.heal(t)
			_, err = b.refund(o.OrderNo, no("ref"), 100)
			require.NoError(t, err, "all of it is free again")
			require.Equal(t, fsm.Refunded, b.get(o.OrderNo).Status)
		})
		t.Run("automatic", func(t *testing.T) {
			sandbox.fault(t, "close", "closed_but_payable")
			o := b.placed(sku)
			b.must(b.Cancel(t.Context(), user, o.OrderNo, ""))
			sandbox.pay(t, o.Payment.PaymentNo, "")
			_, err := b.Settle(t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
			require.NoError(t, err)
			sandbox.fault(t, "refund", "decline")
			_, err = b.SendRefunds(t.Context())
			require.NoError(t, err)
			r, err := payment.FindRefund(t.Context(), b.db, "auto-"+o.Payment.PaymentNo)
			require.NoError(t, err)
			require.Equal(t, fsm.Failed, r.Status)
			require.Equal(t, r.RefundNo+"-2", r.SentNo())
			require.NotNil(t, r.NextCheckAt, "it is still owed")
			b.clean()
			sandbox.heal(t)
			b.due("refunds")
			_, err = b.SendRefunds(t.Context())
			require.NoError(t, err)
			r, err = payment.FindRefund(t.Context(), b.db, r.RefundNo)
			require.NoError(t, err)
			require.Equal(t, fsm.Succeeded, r.Status)
		})
		b.clean()
		b.gatewaysAgree()
	})
}

// A gateway has no say in what another one sent.
func TestOneGatewayDoesNotSettleAnothersRefund(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		o := b.paid(b.sku(50, 10))
		b.gateways["sandbox"].fault(t, "refund", "error_before")
		res, err := b.refund(o.OrderNo, no("ref"), 100)
		require.NoError(t, err)
		require.Equal(t, fsm.Unknown, res.Refund.Status)
		_, err = b.Settle(t.Context(), payment.Notice{Source: "callback:second", Gateway: "second", MessageID: no("msg"), Kind: payment.RefundSucceeded,
			PaymentNo: res.Refund.PaymentNo, RefundNo: res.Refund.RefundNo, RefundID: "R1", Amount: 100, Currency: "CNY"})
		require.True(t, fault.Is(err, "not_found"), "%v", err)
		require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
		b.clean()
	})
}

// A refund that failed gave its hold back, and all was promised to another; then the first is said to have succeeded
// after all. That cannot be booked, is answered all the same, and a person is called.
func TestALateSuccessThatCannotBeHeld(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		o := b.paid(b.sku(50, 10))
		b.gateways["sandbox"].fault(t, "refund", "decline")
		first, err := b.refund(o.OrderNo, no("ref"), 100)
		require.NoError(t, err)
		require.Equal(t, fsm.Failed, first.Refund.Status)
		b.gateways["sandbox"].fault(t, "refund", "error_before")
		second, err := b.refund(o.OrderNo, no("ref"), 100)
		require.NoError(t, err)
		require.Equal(t, fsm.Unknown, second.Refund.Status)
		out, err := b.Settle(t.Context(), payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: no("msg"), Kind: payment.RefundSucceeded,
			PaymentNo: o.Payment.PaymentNo, RefundNo: first.Refund.RefundNo, RefundID: "R1", Amount: 100, Currency: "CNY"})
		require.NoError(t, err)
		require.Equal(t, "ignored", out.Result)
		require.EqualValues(t, 1, testutil.ToFloat64(b.metrics.Alerts.WithLabelValues("refund_beyond_payment")))
		b.clean()
	})
}

// A worker that read a refund before another had it in hand leaves it alone.
func TestARefundInHandIsLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		o := b.paid(b.sku(50, 10))
		b.gateways["sandbox"].fault(t, "refund", "error_before")
		res, err := b.refund(o.OrderNo, no("ref"), 100)
		require.NoError(t, err)
		got, err := payment.LeaseRefund(t.Context(), b.db, res.Refund.RefundNo, "other", time.Minute)
		require.NoError(t, err)
		require.False(t, got, "not due yet")
		b.due("refunds")
		for i, want := range []bool{true, false} {
			got, err := payment.LeaseRefund(t.Context(), b.db, res.Refund.RefundNo, "other", time.Minute)
			require.NoError(t, err)
			require.Equal(t, want, got, i)
		}
	})
}
