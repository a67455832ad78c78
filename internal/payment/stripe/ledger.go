package stripe

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/stripe/stripe-go/v85"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// listTime is for all that there is since the time asked for, however long.
const listTime = 5 * time.Minute

var _ payment.Ledger = (*Gateway)(nil)

// Entries implements payment.Ledger: the PaymentIntents that took money, and the refunds that sent it, of those that Stripe
// made since then. What is older and was only paid now (a bank takes days) is not among them. What others did in the same
// account is not ours to judge and is left out; but a refund of a payment of ours is told whoever made it, by Stripe's own
// number if it was somebody in the dashboard.
func (g *Gateway) Entries(ctx context.Context, since time.Time) ([]payment.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	created, page := &sdk.RangeQueryParams{GreaterThanOrEqual: since.Unix()}, sdk.ListParams{Limit: sdk.Int64(100)}
	intents := &sdk.PaymentIntentListParams{ListParams: page, CreatedRange: created}
	var entries []payment.Entry
	for i, err := range items(ctx, g.api.V1PaymentIntents.List(ctx, intents)) {
		if err != nil {
			return nil, err
		}
		number, ours := i.Metadata[paymentNo]
		if !ours || i.Status != sdk.PaymentIntentStatusSucceeded {
			continue
		}
		e := payment.Entry{PaymentNo: number, At: time.Unix(i.Created, 0)}
		if e.Amount, e.Currency, err = fromStripe(i.AmountReceived, string(i.Currency)); err != nil {
			return nil, fmt.Errorf("%s: %w", i.ID, err)
		}
		entries = append(entries, e)
	}
	refunds := &sdk.RefundListParams{ListParams: page, CreatedRange: created, Expand: []*string{sdk.String("data.payment_intent")}}
	for f, err := range items(ctx, g.api.V1Refunds.List(ctx, refunds)) {
		if err != nil {
			return nil, err
		}
		if refundStates[f.Status] != fsm.Succeeded || f.PaymentIntent == nil {
			continue
		}
		number, ours := f.PaymentIntent.Metadata[paymentNo]
		if !ours {
			continue
		}
		e := payment.Entry{PaymentNo: number, RefundNo: f.Metadata[refundNo], At: time.Unix(f.Created, 0)}
		if e.RefundNo == "" {
			e.RefundNo = f.ID
		}
		if e.Amount, e.Currency, err = fromStripe(f.Amount, string(f.Currency)); err != nil {
			return nil, fmt.Errorf("%s: %w", f.ID, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
