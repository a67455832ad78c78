package sandbox

import (
	"context"
	"time"

	"orderd/internal/payment"
)

// listTime is for the whole ledger, however long.
const listTime = time.Minute

var _ payment.Ledger = (*Gateway)(nil)

// Entries implements payment.Ledger.
func (g *Gateway) Entries(ctx context.Context, since time.Time) ([]payment.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	all, err := g.Ledger(ctx, 0)
	if err != nil {
		return nil, err
	}
	var entries []payment.Entry
	for _, e := range all {
		if e.At.Before(since) {
			continue
		}
		entries = append(entries, payment.Entry{PaymentNo: e.PaymentNo, RefundNo: e.RefundNo, TransactionID: e.TransactionID,
			Amount: e.Amount, Currency: e.Currency, At: e.At})
	}
	return entries, nil
}
