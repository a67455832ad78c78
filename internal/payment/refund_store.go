package payment

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"orderd/internal/db"
	"orderd/internal/fsm"
)

// autoPrefix starts the numbers of automatic refunds; customers' and clerks' may not.
const autoPrefix = "auto-"

// Automatic returns the refund of all that a payment brought. Its number is the payment's: there is one.
func Automatic(p *Payment, b Booking, reason string, now db.Time) Refund {
	one := 1
	return Refund{RefundNo: autoPrefix + p.PaymentNo, PaymentNo: p.PaymentNo, OrderNo: p.OrderNo, Gateway: p.Gateway,
		Amount: b.Amount, Currency: b.Currency,
		Reason: reason, Automatic: &one, Status: fsm.Pending, NextCheckAt: &now, CreatedAt: now, UpdatedAt: now}
}

// Reserved reports whether a refund number is one that only automatic refunds have.
func Reserved(refundNo string) bool { return strings.HasPrefix(refundNo, autoPrefix) }

// SentNo is the number that the refund goes, or went, to the gateway under: its own, and after a failure its own with
// -2, -3, ... A gateway answers a number that failed with the same failure for ever.
func (r *Refund) SentNo() string {
	if r.Tries == 0 {
		return r.RefundNo
	}
	return fmt.Sprintf("%s-%d", r.RefundNo, r.Tries+1)
}

// triesBefore is how many numbers went to the gateway before sentNo: the reverse of SentNo.
func (r *Refund) triesBefore(sentNo string) int64 {
	suffix, ok := strings.CutPrefix(sentNo, r.RefundNo+"-")
	n, err := strconv.ParseInt(suffix, 10, 64)
	if !ok || err != nil { // its own number
		return 0
	}
	return n - 1
}

// StoredNo is the refund that a number at the gateway belongs to.
func StoredNo(sentNo string) string {
	if !Reserved(sentNo) {
		return sentNo
	}
	paymentNo, _, _ := strings.Cut(strings.TrimPrefix(sentNo, autoPrefix), "-")
	return autoPrefix + paymentNo
}

// FindRefund returns a refund by its number, or nil.
func FindRefund(ctx context.Context, d *db.DB, refundNo string) (*Refund, error) {
	var rs []Refund
	if err := d.Read(ctx).Where("refund_no = ?", refundNo).Find(&rs).Error; err != nil || len(rs) == 0 {
		return nil, err
	}
	return &rs[0], nil
}

// DueRefunds returns refunds that should be sent, or asked for, by now, the longest due first.
func DueRefunds(ctx context.Context, d *db.DB, limit int) ([]Refund, error) {
	var rs []Refund
	err := d.Read(ctx).Where("next_check_at <= ?", d.SQLNow()).Order("next_check_at").Limit(limit).Find(&rs).Error
	return rs, err
}

// LeaseRefund takes the right to call the gateway for a refund that is due, for hold, by the database's clock.
func LeaseRefund(ctx context.Context, d *db.DB, refundNo, owner string, hold time.Duration) (bool, error) {
	until := d.SQLNowPlus(hold)
	rows, err := d.Exec(ctx, "refund_lease", `UPDATE refunds SET lease_owner = ?, lease_until = ?, next_check_at = ?
		WHERE refund_no = ? AND next_check_at <= ? AND (lease_until IS NULL OR lease_until < ?)`,
		owner, until, until, refundNo, d.SQLNow(), d.SQLNow())
	return rows == 1, err
}

// WaitRefund books that the gateway has the refund, or that its answer was lost (UNKNOWN, refundID nil), and when to ask. A
// refundID that another refund has is a duplicate (db.IsDuplicate).
// A FAILED one that is sent again stays FAILED until it succeeds.
func WaitRefund(ctx context.Context, d *db.DB, r Refund, status fsm.State, refundID *string) error {
	_, err := d.Exec(ctx, "refund_wait", `UPDATE refunds SET status = CASE status WHEN 'FAILED' THEN status ELSE ? END,
		refund_id = COALESCE(?, refund_id), checks = checks + 1, next_check_at = ?, lease_owner = NULL, lease_until = NULL, updated_at = ?
		WHERE refund_no = ? AND next_check_at IS NOT NULL`,
		status, refundID, d.SQLNowPlus(pause(CheckAfter, r.Checks)), d.SQLNow(), r.RefundNo)
	return err
}

// HoldTx promises amount of a payment back; db.ErrConflict if less is left. Two promises of more than there is cannot
// both match.
func HoldTx(tx *db.Tx, paymentNo string, amount int64) error {
	r := tx.Exec("UPDATE payments SET refund_held = refund_held + ?, updated_at = ? WHERE payment_no = ? AND refund_held + ? <= received_amount",
		amount, tx.Now, paymentNo, amount)
	return db.Exactly(1, r)
}

// UnholdTx takes a promise back.
func UnholdTx(tx *db.Tx, paymentNo string, amount int64) error {
	r := tx.Exec("UPDATE payments SET refund_held = refund_held - ?, updated_at = ? WHERE payment_no = ? AND refund_held >= ?",
		amount, tx.Now, paymentNo, amount)
	return db.Exactly(1, r)
}

// SucceedRefundTx books that the money went back, under the number sentNo: it may be that of an earlier try. A refundID
// that another refund has is a duplicate (db.IsDuplicate): the gateway sent once what we promised twice.
func SucceedRefundTx(tx *db.Tx, r Refund, sentNo, refundID string) error {
	x := tx.Exec(`UPDATE refunds SET status = ?, tries = ?, refund_id = ?, next_check_at = NULL, lease_owner = NULL, lease_until = NULL, updated_at = ?
		WHERE refund_no = ? AND status IN ?`, fsm.Succeeded, r.triesBefore(sentNo), refundID, tx.Now, r.RefundNo, fsm.Refunds.Sources(fsm.Succeed))
	return db.Exactly(1, x)
}

// FailRefundTx books that the gateway refused a refund. A customer's is over; an automatic one is owed and goes again,
// under its next number, after the pause.
func FailRefundTx(tx *db.Tx, r Refund) error {
	var next *db.Time
	tries := r.Tries
	if r.Automatic != nil {
		tries++
		next = db.AtPtr(tx.Now.Add(pause(CheckAfter, tries)))
	}
	x := tx.Exec(`UPDATE refunds SET status = ?, tries = ?, refund_id = NULL, checks = 0, next_check_at = ?, lease_owner = NULL, lease_until = NULL, updated_at = ?
		WHERE refund_no = ? AND status = ? AND tries = ?`, fsm.Failed, tries, next, tx.Now, r.RefundNo, r.Status, r.Tries)
	return db.Exactly(1, x)
}
