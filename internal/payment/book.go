package payment

import (
	"strings"

	"orderd/internal/db"
	"orderd/internal/fsm"
)

// Reasons of a refund. All but Customer are automatic: we owe them by ourselves, once per payment.
const (
	Customer         = "CUSTOMER"
	LatePayment      = "LATE_PAYMENT"      // it came after the order was cancelled
	DuplicatePayment = "DUPLICATE_PAYMENT" // the order was paid by another attempt
	AmountMismatch   = "AMOUNT_MISMATCH"   // another amount or currency than asked for
)

// Booking is what a verified notice says of a payment. Amount is in minor units.
type Booking struct {
	PaymentNo     string
	TransactionID string
	Amount        int64
	Currency      string
	Status        fsm.State // of EndTx
}

// ApplyTx books payments whose amount and currency are as asked, and which pay their orders: SUCCEEDED, applied. It is
// one statement for all; db.ErrConflict if one of them is SUCCEEDED already.
func ApplyTx(tx *db.Tx, bs []Booking) error {
	if len(bs) == 0 {
		return nil
	}
	args := []any{fsm.Succeeded}
	nos := make([]string, len(bs))
	for i, b := range bs {
		args = append(args, b.PaymentNo, b.TransactionID)
		nos[i] = b.PaymentNo
	}
	r := tx.Exec(`UPDATE payments SET status = ?, transaction_id = CASE payment_no`+strings.Repeat(" WHEN ? THEN ?", len(bs))+` END,
		received_amount = amount, received_currency = currency, open_slot = NULL, applied = 1,
		next_check_at = NULL, lease_owner = NULL, lease_until = NULL, updated_at = ?
		WHERE payment_no IN ? AND status IN ?`, append(args, tx.Now, nos, fsm.Payments.Sources(fsm.Succeed))...)
	return db.Exactly(len(bs), r)
}

// SendBackTx books money that its order cannot use: SUCCEEDED, not applied, and all of it held for a refund.
func SendBackTx(tx *db.Tx, b Booking) error {
	r := tx.Exec(`UPDATE payments SET status = ?, transaction_id = ?, received_amount = ?, received_currency = ?, refund_held = ?,
		open_slot = NULL, next_check_at = NULL, lease_owner = NULL, lease_until = NULL, updated_at = ?
		WHERE payment_no = ? AND status IN ?`,
		fsm.Succeeded, b.TransactionID, b.Amount, b.Currency, b.Amount, tx.Now, b.PaymentNo, fsm.Payments.Sources(fsm.Succeed))
	return db.Exactly(1, r)
}

// EndTx books that an open attempt failed or was closed. It is looked at a few more times: see FollowUps.
func EndTx(tx *db.Tx, b Booking) error {
	r := tx.Exec(`UPDATE payments SET status = ?, open_slot = NULL, checks = 0, next_check_at = ?, lease_owner = NULL, lease_until = NULL, updated_at = ?
		WHERE payment_no = ? AND open_slot = 1`, b.Status, db.At(tx.Now.Add(FollowUps[0])), tx.Now, b.PaymentNo)
	return db.Exactly(1, r)
}
