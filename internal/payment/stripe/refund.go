package stripe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/stripe/stripe-go/v85"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// Refund implements payment.Gateway. What Stripe finds impossible (no money is left of the payment, it is disputed) is Failed:
// under one Idempotency-Key the answer stays the same. But that our balance is too low passes.
func (g *Gateway) Refund(ctx context.Context, r payment.RefundRequest) (payment.RefundAnswer, error) {
	amount, err := toStripe(r.Amount, r.Currency)
	if err != nil { // not sent, now or before
		return payment.RefundAnswer{RefundNo: r.RefundNo, State: fsm.Failed, Amount: r.Amount}, nil
	}
	intent, err := g.intent(ctx, payment.Ref{PaymentNo: r.PaymentNo, TransactionID: r.TransactionID})
	if err != nil {
		return payment.RefundAnswer{}, err
	}
	p := &sdk.RefundCreateParams{PaymentIntent: &intent, Amount: &amount, Metadata: map[string]string{refundNo: r.RefundNo, paymentNo: r.PaymentNo}}
	p.SetIdempotencyKey("refund:" + r.RefundNo) // keys are the account's: no payment_no has a colon
	f, err := g.api.V1Refunds.Create(ctx, p)
	if err == nil && replayed(f.LastResponse) { // the answer of then
		f, err = g.api.V1Refunds.Retrieve(ctx, f.ID, nil)
	}
	if refused(err) && !lacksBalance(err) { // an earlier try whose answer was lost may have gone through all the same
		found, queryErr := g.QueryRefund(ctx, r.RefundNo, payment.Ref{PaymentNo: r.PaymentNo, TransactionID: r.TransactionID})
		switch {
		case errors.Is(queryErr, payment.ErrNotFound):
			return payment.RefundAnswer{RefundNo: r.RefundNo, State: fsm.Failed, Amount: r.Amount}, nil
		case queryErr == nil && found.Amount != r.Amount:
			return payment.RefundAnswer{}, masked(err)
		}
		return found, queryErr
	}
	if err != nil {
		return payment.RefundAnswer{}, unknown(err)
	}
	if f.Amount != amount || !strings.EqualFold(string(f.Currency), r.Currency) {
		return payment.RefundAnswer{}, fmt.Errorf("stripe: refund %s is one of %d %s", r.RefundNo, f.Amount, f.Currency)
	}
	return asRefund(f, r.RefundNo, intent)
}

// QueryRefund implements payment.Gateway. It looks through the refunds of the payment: lists, unlike Stripe's search, show
// at once what was made.
func (g *Gateway) QueryRefund(ctx context.Context, number string, of payment.Ref) (payment.RefundAnswer, error) {
	intent, err := g.intent(ctx, of)
	if err != nil {
		return payment.RefundAnswer{}, err
	}
	p := &sdk.RefundListParams{PaymentIntent: &intent}
	p.Limit = sdk.Int64(100) // a page; the list goes on to the next by itself
	for f, err := range items(ctx, g.api.V1Refunds.List(ctx, p)) {
		if err != nil {
			return payment.RefundAnswer{}, err
		}
		if f.Metadata[refundNo] == number {
			return asRefund(f, number, intent)
		}
	}
	return payment.RefundAnswer{}, payment.ErrNotFound
}

// intent returns the id of the PaymentIntent that took the money of a charge: ErrNotFound if there is no such charge, or no
// money came.
func (g *Gateway) intent(ctx context.Context, of payment.Ref) (string, error) {
	s, err := g.session(ctx, of)
	if err != nil {
		return "", err
	}
	c, err := g.asCharge(s, of)
	if err != nil {
		return "", err
	}
	if c.State != fsm.Succeeded {
		return "", payment.ErrNotFound
	}
	return s.PaymentIntent.ID, nil
}

var refundStates = map[sdk.RefundStatus]fsm.State{
	sdk.RefundStatusPending:        fsm.Pending,
	sdk.RefundStatusRequiresAction: fsm.Pending, // the shopper must say where to
	sdk.RefundStatusSucceeded:      fsm.Succeeded,
	sdk.RefundStatusFailed:         fsm.Failed,
	sdk.RefundStatusCanceled:       fsm.Failed,
}

// asRefund believes an answer only if it is about our refund.
func asRefund(f *sdk.Refund, number, intent string) (payment.RefundAnswer, error) {
	state, ok := refundStates[f.Status]
	if !ok || f.ID == "" || f.Metadata[refundNo] != number || f.PaymentIntent == nil || f.PaymentIntent.ID != intent {
		return payment.RefundAnswer{}, fmt.Errorf("stripe: an answer about %s (%s) cannot be believed", number, f.Status)
	}
	amount, _, err := fromStripe(f.Amount, string(f.Currency))
	return payment.RefundAnswer{RefundNo: number, RefundID: f.ID, State: state, Amount: amount}, err
}
