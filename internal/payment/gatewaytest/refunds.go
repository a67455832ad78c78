package gatewaytest

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

func refunds(t *testing.T, h Harness) {
	company := h.Start(t)
	g := h.Connect(t, company.URL)
	c := h.paid(t, company, g, "P1")
	_, err := g.QueryRefund(t.Context(), "R1", ref(c))
	require.ErrorIs(t, err, payment.ErrNotFound, "of a payment that it has")

	r := h.refund(c, "R1", 300)
	first, err := g.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Contains(t, []fsm.State{fsm.Pending, fsm.Succeeded}, first.State)
	require.Equal(t, []any{"R1", int64(300)}, []any{first.RefundNo, first.Amount})
	again, err := g.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []any{first.RefundNo, first.RefundID, first.Amount}, []any{again.RefundNo, again.RefundID, again.Amount})
	asked, err := g.QueryRefund(t.Context(), "R1", ref(c))
	require.NoError(t, err)
	require.Equal(t, []any{first.RefundNo, first.RefundID, first.Amount}, []any{asked.RefundNo, asked.RefundID, asked.Amount})

	// Sent twice it was one: all the rest can still go back.
	r.RefundNo, r.Amount = "R2", amount-300
	rest, err := g.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []any{"R2", int64(amount - 300)}, []any{rest.RefundNo, rest.Amount})
	require.NotEqual(t, fsm.Failed, rest.State)
	asked, err = g.QueryRefund(t.Context(), "R1", ref(c))
	require.NoError(t, err)
	require.Equal(t, int64(300), asked.Amount, "each refund is found by its own number")
}

// refusedRefunds: what the company refuses for good is Failed, and moved nothing; what it has done stays done, whatever is
// refused since. Where any answer on the way to that is lost, the outcome is unknown.
func refusedRefunds(t *testing.T, h Harness) {
	company := h.Start(t)
	answers, cut := 0, -1
	g := h.Connect(t, proxy(t, company.URL, func(res *http.Response, body []byte) []byte {
		if answers++; cut >= 0 && answers > cut {
			res.StatusCode, res.Header = http.StatusBadGateway, http.Header{"Content-Type": {"text/html"}}
			return []byte("<h1>bad gateway</h1>")
		}
		return body
	}))
	c := h.paid(t, company, g, "P1")
	first, err := g.Refund(t.Context(), h.refund(c, "R1", 300))
	require.NoError(t, err)

	tooMuch := h.refund(c, "R2", amount-299) // than is left
	answers = 0
	no, err := g.Refund(t.Context(), tooMuch)
	require.NoError(t, err)
	require.Equal(t, []any{"R2", fsm.Failed, int64(amount - 299)}, []any{no.RefundNo, no.State, no.Amount})
	for cut = range answers {
		answers = 0
		_, err = g.Refund(t.Context(), tooMuch)
		require.Error(t, err, "answer %d is lost", cut+1)
		require.NotErrorIs(t, err, payment.ErrNotFound)
	}
	cut = -1
	if found, err := g.QueryRefund(t.Context(), "R2", ref(c)); !errors.Is(err, payment.ErrNotFound) {
		require.NoError(t, err)
		require.Equal(t, fsm.Failed, found.State)
	}

	rest, err := g.Refund(t.Context(), h.refund(c, "R3", amount-300))
	require.NoError(t, err)
	require.NotEqual(t, fsm.Failed, rest.State)
	again, err := g.Refund(t.Context(), h.refund(c, "R1", 300))
	require.NoError(t, err)
	require.Equal(t, []any{first.State, first.RefundID}, []any{again.State, again.RefundID}, "nothing is left, but this had gone back before")
	_, err = g.Refund(t.Context(), h.refund(c, "R1", 301))
	require.Error(t, err, "the number of another amount is no refusal of that one")
}

// paid opens a charge and pays it.
func (h Harness) paid(t *testing.T, company Company, g payment.Gateway, paymentNo string) payment.Charge {
	t.Helper()
	opened := h.open(t, company, g, paymentNo)
	company.Pay(t, opened, amount)
	c, err := g.Query(t.Context(), ref(opened))
	require.NoError(t, err)
	require.Equal(t, fsm.Succeeded, c.State)
	return c
}

func (h Harness) refund(of payment.Charge, refundNo string, back int64) payment.RefundRequest {
	return payment.RefundRequest{RefundNo: refundNo, PaymentNo: of.PaymentNo, TransactionID: of.TransactionID, Amount: back, Currency: h.Currency, Total: of.Amount}
}
