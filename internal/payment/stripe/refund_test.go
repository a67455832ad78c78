package stripe_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "github.com/stripe/stripe-go/v85"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

func TestRefunds(t *testing.T) {
	t.Parallel()
	f, g, of := setup(t)
	r := payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", TransactionID: of.TransactionID, Amount: 1, Currency: "EUR", Total: 1299}
	_, err := g.Refund(t.Context(), r)
	require.Error(t, err, "nothing was received yet")
	f.change(of.TransactionID, "complete", "paid", "succeeded", 1299)
	for i := range 101 { // more than a page
		r.RefundNo = "R" + strings.Repeat("x", i)
		_, err = g.Refund(t.Context(), r)
		require.NoError(t, err)
	}
	for status, want := range map[string]fsm.State{"pending": fsm.Pending, "requires_action": fsm.Pending, "succeeded": fsm.Succeeded,
		"failed": fsm.Failed, "canceled": fsm.Failed, "something new": ""} {
		f.mu.Lock()
		f.refunds[0]["status"] = status
		f.mu.Unlock()
		asked, err := g.QueryRefund(t.Context(), "R", of)
		require.Equal(t, []any{want, want == ""}, []any{asked.State, err != nil}, status)
		require.NotErrorIs(t, err, payment.ErrNotFound)
		r.RefundNo = "R"
		again, err := g.Refund(t.Context(), r)
		require.Equal(t, []any{want, want == ""}, []any{again.State, err != nil}, "the state of now, not of the first answer")
	}
	r.RefundNo, r.Amount = "R-more", 1299
	more, err := g.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, payment.RefundAnswer{RefundNo: "R-more", State: fsm.Failed, Amount: 1299}, more)
	r.TransactionID = ""
	_, err = g.Refund(t.Context(), r)
	require.Error(t, err)
}

// A refusal that passes is an error: the same number is sent again. One that stays is Failed, unless an earlier try went
// through.
func TestRefusedRefunds(t *testing.T) {
	t.Parallel()
	for code, state := range map[sdk.ErrorCode]fsm.State{
		"balance_insufficient": "", "insufficient_funds": "", "charge_already_refunded": fsm.Failed, "charge_disputed": fsm.Failed, "": fsm.Failed,
	} {
		f, g, of := setup(t)
		f.change(of.TransactionID, "complete", "paid", "succeeded", 1299)
		r := payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", TransactionID: of.TransactionID, Amount: 300, Currency: "EUR", Total: 1299}
		f.refuses = &problem{400, sdk.ErrorTypeInvalidRequest, code, "no"}
		for _, kind := range []sdk.ErrorType{sdk.ErrorTypeInvalidRequest, sdk.ErrorTypeAPI} {
			r.RefundNo, f.refuses.kind = "R"+string(kind), kind
			a, err := g.Refund(t.Context(), r)
			failed := state == fsm.Failed && kind == sdk.ErrorTypeInvalidRequest
			require.Equal(t, !failed, err != nil, "%s %s: %v", kind, code, err)
			require.Equal(t, failed, a.State == fsm.Failed, "%s %s", kind, code)
			require.NotErrorIs(t, err, payment.ErrNotFound)
		}
		f.refunds = append(f.refunds, object{"id": "re_1", "object": "refund", "amount": int64(300), "currency": "eur", "payment_intent": "pi_" + of.TransactionID,
			"metadata": object{"refund_no": "R9", "payment_no": "P1"}, "status": "succeeded", "created": f.now()})
		r.RefundNo, f.refuses.kind = "R9", sdk.ErrorTypeInvalidRequest
		a, err := g.Refund(t.Context(), r)
		require.Equal(t, state == "", err != nil, "%s: %v", code, err)
		require.Equal(t, state != "", a.State == fsm.Succeeded, code)
		r.Amount = 301
		_, err = g.Refund(t.Context(), r)
		require.Error(t, err, "another amount under the number")
	}
}

// The first of a refund's two calls succeeds; the second one's outcome is unknown.
func TestRefundIsLost(t *testing.T) {
	t.Parallel()
	f, g, of := setup(t)
	f.change(of.TransactionID, "complete", "paid", "succeeded", 1299)
	r := payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", TransactionID: of.TransactionID, Amount: 300, Currency: "EUR", Total: 1299}
	for _, after := range []bool{false, true} { // it had no effect, it had one
		lossy := connect(t, lose(t, f, after))
		_, err := lossy.Refund(t.Context(), r)
		require.Error(t, err)
		require.NotErrorIs(t, err, payment.ErrNotFound)
		_, err = g.QueryRefund(t.Context(), "R1", of)
		if after {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, payment.ErrNotFound)
		}
	}
	_, err := g.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, f.refunds, 1)
}
