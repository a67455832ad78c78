package payment

import (
	"context"
	"time"
)

// Entry is money that moved at a gateway: a payment received (RefundNo is empty) or a refund sent. Amount is in minor
// units.
type Entry struct {
	PaymentNo     string
	RefundNo      string // as the gateway knows it: see Refund.SentNo
	TransactionID string // of the payment, if the list says it
	Amount        int64
	Currency      string
	At            time.Time
}

// Ledger is a gateway that can list all that it moved, which finds also what our books know nothing of. A gateway
// without it can only be asked about each payment and refund that we know.
type Ledger interface {
	Entries(ctx context.Context, since time.Time) ([]Entry, error)
}
