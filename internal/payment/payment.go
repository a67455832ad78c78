package payment

import (
	"orderd/internal/db"
	"orderd/internal/fsm"
)

// Payment is one attempt to pay an order. Amounts are minor units.
type Payment struct {
	PaymentNo        string    `json:"payment_no" gorm:"primaryKey"` // the gateway's idempotency key; never reused
	OrderNo          string    `json:"-"`
	Attempt          int64     `json:"attempt"`
	Gateway          string    `json:"gateway"`
	Status           fsm.State `json:"status"`
	Amount           int64     `json:"amount"`
	Currency         string    `json:"currency"`
	PayURL           *string   `json:"pay_url" gorm:"column:pay_url"`
	TransactionID    *string   `json:"transaction_id"`
	ReceivedAmount   int64     `json:"-"`
	ReceivedCurrency string    `json:"-"`
	OpenSlot         *int      `json:"-"` // 1 while INIT, PENDING or UNKNOWN: UNIQUE with order_no
	Applied          *int      `json:"-"` // 1 for the one payment that paid the order: UNIQUE with order_no
	RefundHeld       int64     `json:"-"` // promised back; never more than ReceivedAmount
	NextCheckAt      *db.Time  `json:"-"`
	Checks           int64     `json:"-"` // how often the gateway was asked
	MissingSince     *db.Time  `json:"-"` // when the gateway first said that it does not know the charge: see Missing
	LeaseOwner       *string   `json:"-"`
	LeaseUntil       *db.Time  `json:"-"`
	CreatedAt        db.Time   `json:"created_at"`
	UpdatedAt        db.Time   `json:"-"`
}

// Ref names the payment's charge at its gateway.
func (p *Payment) Ref() Ref {
	ref := Ref{PaymentNo: p.PaymentNo}
	if p.TransactionID != nil {
		ref.TransactionID = *p.TransactionID
	}
	return ref
}

// Refund sends money of one payment back. Amount is in minor units.
type Refund struct {
	RefundNo    string    `json:"refund_no" gorm:"primaryKey"`
	PaymentNo   string    `json:"payment_no"`
	OrderNo     string    `json:"-"`
	Gateway     string    `json:"-"` // the payment's: UNIQUE with RefundID
	Amount      int64     `json:"amount"`
	Currency    string    `json:"currency"`
	Reason      string    `json:"reason"` // CUSTOMER, LATE_PAYMENT, DUPLICATE_PAYMENT or AMOUNT_MISMATCH
	Note        string    `json:"-"`      // the customer's or the clerk's words
	Automatic   *int      `json:"-"`      // 1 for one that we owe by ourselves: UNIQUE with payment_no
	Status      fsm.State `json:"status"`
	RefundID    *string   `json:"-"` // the gateway's own number
	Restock     bool      `json:"-"`
	Tries       int64     `json:"-"` // refund_no, refund_no-2, refund_no-3 ... were sent
	Checks      int64     `json:"-"` // how often the gateway was asked
	NextCheckAt *db.Time  `json:"-"`
	LeaseOwner  *string   `json:"-"`
	LeaseUntil  *db.Time  `json:"-"`
	CreatedAt   db.Time   `json:"created_at"`
	UpdatedAt   db.Time   `json:"updated_at"`
}
