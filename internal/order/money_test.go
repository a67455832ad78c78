package order_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/order"
	"orderd/internal/payment"
)

// states bring a fresh order to a state in which its first attempt, at the gateway "sandbox", can still be paid by a
// shopper: where we have closed it, the gateway lets them pay all the same.
var states = []struct {
	name  string
	after fsm.State // the order's status before the money comes
	reach func(b *bundle, o order.Order)
}{
	{"paying", fsm.Paying, func(*bundle, order.Order) {}},
	{"paying by another attempt", fsm.Paying, func(b *bundle, o order.Order) { b.replace(o) }},
	{"paid by another attempt", fsm.Paid, func(b *bundle, o order.Order) { b.payByOther(o) }},
	{"shipped", fsm.Shipped, func(b *bundle, o order.Order) {
		b.payByOther(o)
		b.must(b.Ship(b.t.Context(), admin, o.OrderNo, "T-1"))
	}},
	{"completed", fsm.Completed, func(b *bundle, o order.Order) {
		b.payByOther(o)
		b.must(b.Ship(b.t.Context(), admin, o.OrderNo, "T-1"))
		b.must(b.Complete(b.t.Context(), user, o.OrderNo))
	}},
	{"cancelled", fsm.Cancelled, func(b *bundle, o order.Order) {
		b.must(b.Cancel(b.t.Context(), user, o.OrderNo, "changed my mind"))
	}},
	{"refunded", fsm.Refunded, func(b *bundle, o order.Order) {
		b.payByOther(o)
		_, err := b.Refund(b.t.Context(), admin, order.RefundRequest{OrderNo: o.OrderNo, RefundNo: no("ref"), Amount: o.Amount})
		require.NoError(b.t, err)
	}},
}

func (b *bundle) must(res order.Result, err error) order.Result {
	b.t.Helper()
	require.NoError(b.t, err)
	return res
}

// replace moves the order's payment to the second gateway.
func (b *bundle) replace(o order.Order) order.Order {
	b.t.Helper()
	res, err := b.OpenAttempt(b.t.Context(), user, o.OrderNo, "second")
	require.NoError(b.t, err)
	require.True(b.t, res.Created)
	require.EqualValues(b.t, 2, res.Order.Payment.Attempt)
	return res.Order
}

func (b *bundle) payByOther(o order.Order) {
	b.t.Helper()
	o = b.replace(o)
	b.gateways["second"].pay(b.t, o.Payment.PaymentNo, "")
	out, err := b.Settle(b.t.Context(), b.notice("second", o.Payment.PaymentNo))
	require.NoError(b.t, err)
	require.Equal(b.t, "applied", out.Result)
}

// The money table: whatever comes, in whatever state, is either what pays the order or goes back in full.
func TestEveryCellOfTheMoneyTable(t *testing.T) {
	moneys := []struct {
		name   string
		extra  string // what the shopper really pays
		reason string // of the refund, if it is not the right money
	}{
		{"right", "", ""},
		{"less", `,"amount":1`, payment.AmountMismatch},
		{"more", `,"amount":999999`, payment.AmountMismatch},
		{"other currency", `,"currency":"JPY"`, payment.AmountMismatch},
	}
	each(t, func(t *testing.T, b *bundle) {
		b.gateways["sandbox"].fault(t, "close", "closed_but_payable")
		sku := b.sku(1299, 1000)
		for _, state := range states {
			for _, money := range moneys {
				t.Run(state.name+"/"+money.name, func(t *testing.T) {
					at := *b
					at.t = t
					o := at.placed(sku)
					state.reach(&at, o)
					before := at.get(o.OrderNo)
					require.Equal(t, state.after, before.Status)
					at.gateways["sandbox"].pay(t, o.Payment.PaymentNo, money.extra)

					out, err := at.Settle(t.Context(), at.notice("sandbox", o.Payment.PaymentNo))
					require.NoError(t, err)
					want := at.expected(state.after, money.reason)
					require.Equal(t, want.result, out.Result)
					now := at.get(o.OrderNo)
					require.Equal(t, want.status, now.Status)
					at.sentBack(now, o.Payment.PaymentNo, want.reason)
					at.again(o)
				})
			}
		}
		b.clean()
		b.gatewaysAgree()
	})
}

type cell struct {
	result string
	status fsm.State
	reason string
}

func (b *bundle) expected(before fsm.State, mismatch string) cell {
	switch {
	case mismatch != "":
		return cell{"refund_opened", before, mismatch}
	case before == fsm.Paying:
		return cell{"applied", fsm.Paid, ""}
	case before == fsm.Cancelled:
		return cell{"refund_opened", before, payment.LatePayment}
	}
	return cell{"refund_opened", before, payment.DuplicatePayment}
}

// sentBack checks the automatic refund of a payment, and sends it.
func (b *bundle) sentBack(o order.Order, paymentNo, reason string) {
	b.t.Helper()
	r, err := payment.FindRefund(b.t.Context(), b.db, "auto-"+paymentNo)
	require.NoError(b.t, err)
	if reason == "" {
		require.Nil(b.t, r)
		return
	}
	require.NotNil(b.t, r)
	require.Equal(b.t, reason, r.Reason)
	require.Equal(b.t, fsm.Pending, r.Status)
	require.Contains(b.t, refundNos(o), r.RefundNo, "the order shows it")
	n, err := b.SendRefunds(b.t.Context())
	require.NoError(b.t, err)
	require.Positive(b.t, n)
	r, err = payment.FindRefund(b.t.Context(), b.db, r.RefundNo)
	require.NoError(b.t, err)
	require.Equal(b.t, fsm.Succeeded, r.Status)
}

func refundNos(o order.Order) []string {
	nos := []string{}
	for _, r := range o.Refunds {
		nos = append(nos, r.RefundNo)
	}
	return nos
}

// again sends the same news under new message ids, and an older failure: nothing changes any more.
func (b *bundle) again(o order.Order) {
	b.t.Helper()
	before := b.get(o.OrderNo)
	out, err := b.Settle(b.t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
	require.NoError(b.t, err)
	require.Equal(b.t, "duplicate", out.Result)
	late := b.notice("sandbox", o.Payment.PaymentNo)
	late.Kind = payment.PaymentFailed
	out, err = b.Settle(b.t.Context(), late)
	require.NoError(b.t, err)
	require.Equal(b.t, "ignored", out.Result)
	require.Equal(b.t, before, b.get(o.OrderNo))
}

// gatewaysAgree compares our books with the gateways' own, payment by payment and refund by refund.
func (b *bundle) gatewaysAgree() {
	b.t.Helper()
	for name, g := range b.gateways {
		theirs := map[string]int64{}
		for _, e := range g.ledger(b.t) {
			key := e.Kind + " " + e.PaymentNo
			if e.Kind == "refund" {
				key = e.Kind + " " + payment.StoredNo(e.RefundNo)
			}
			theirs[key+" "+e.Currency] += e.Amount
		}
		ours := map[string]int64{}
		var payments []payment.Payment
		require.NoError(b.t, b.db.Read(b.t.Context()).Where("gateway = ? AND status = ?", name, fsm.Succeeded).Find(&payments).Error)
		for _, p := range payments {
			ours["charge "+p.PaymentNo+" "+p.ReceivedCurrency] += p.ReceivedAmount
		}
		var refunds []payment.Refund
		require.NoError(b.t, b.db.Read(b.t.Context()).Where("status = ? AND payment_no IN (SELECT payment_no FROM payments WHERE gateway = ?)", fsm.Succeeded, name).Find(&refunds).Error)
		for _, r := range refunds {
			ours["refund "+r.RefundNo+" "+r.Currency] += r.Amount
		}
		require.Equal(b.t, theirs, ours)
	}
}

// A message that claims another amount than the gateway holds is not believed: the gateway is asked.
func TestAClaimIsNotBelieved(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 1000)
		t.Run("the gateway holds the right amount", func(t *testing.T) {
			o := b.placed(sku)
			b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
			n := b.notice("sandbox", o.Payment.PaymentNo)
			n.Amount = 1
			out, err := b.Settle(t.Context(), n)
			require.NoError(t, err)
			require.Equal(t, "applied", out.Result)
			require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
		})
		t.Run("nothing was paid there", func(t *testing.T) {
			o := b.placed(sku)
			before := b.get(o.OrderNo)
			n := b.notice("sandbox", o.Payment.PaymentNo)
			n.Kind, n.Amount = payment.PaymentSucceeded, 1
			_, err := b.Settle(t.Context(), n)
			require.True(t, fault.Is(err, "gateway_unavailable"), "%v", err)
			require.Equal(t, before, b.get(o.OrderNo), "nothing was stored")
		})
		t.Run("the gateway cannot be asked", func(t *testing.T) {
			o := b.placed(sku)
			b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
			n := b.notice("sandbox", o.Payment.PaymentNo)
			n.Currency = "JPY"
			b.gateways["sandbox"].fault(t, "query", "error_before")
			_, err := b.Settle(t.Context(), n)
			require.True(t, fault.Is(err, "gateway_unavailable"), "%v", err)
			require.Equal(t, fsm.Paying, b.get(o.OrderNo).Status)
			b.gateways["sandbox"].heal(t)
			out, err := b.Settle(t.Context(), n)
			require.NoError(t, err)
			require.Equal(t, "applied", out.Result, "the gateway's next try is no duplicate")
		})
		t.Run("another process has settled the payment", func(t *testing.T) {
			o := b.placed(sku)
			b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
			n := b.notice("sandbox", o.Payment.PaymentNo)
			_, err := b.another().Settle(t.Context(), n)
			require.NoError(t, err)
			n.MessageID, n.Amount = no("msg"), 1
			b.gateways["sandbox"].fault(t, "query", "error_before")
			out, err := b.Settle(t.Context(), n)
			require.NoError(t, err)
			require.Equal(t, "duplicate", out.Result, "no money moves: nobody need be asked")
			b.gateways["sandbox"].heal(t)
		})
		b.clean()
	})
}

// A transaction_id stands for one payment: no other is settled by it, whether or not it has one of its own by then.
func TestATransactionOfAnotherPayment(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 1000)
		first := b.placed(sku)
		for _, numbered := range []bool{true, false} {
			o := b.placed(sku)
			if !numbered { // some gateways give a number only once it is paid
				_, err := b.db.Exec(t.Context(), "test", "UPDATE payments SET transaction_id = NULL WHERE payment_no = ?", o.Payment.PaymentNo)
				require.NoError(t, err)
			}
			b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
			n := b.notice("sandbox", o.Payment.PaymentNo)
			before, own := b.get(o.OrderNo), n.TransactionID
			n.TransactionID = *first.Payment.TransactionID
			_, err := b.Settle(t.Context(), n)
			require.True(t, fault.Is(err, "message_conflict"), "%v", err)
			require.Equal(t, before, b.get(o.OrderNo))
			n.TransactionID = own
			out, err := b.Settle(t.Context(), n)
			require.NoError(t, err)
			require.Equal(t, "applied", out.Result, "the refused notice was not stored")
		}
		b.clean()
	})
}
