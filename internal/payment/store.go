package payment

import (
	"context"
	"time"

	"orderd/internal/db"
	"orderd/internal/fsm"
)

// CheckAfter is how long the gateway is left alone before it is asked about an open payment, by the number of times it
// was asked already. A callback is expected to come first.
var CheckAfter = []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute}

// pause is the wait after so many questions; the last of a list goes on for ever.
func pause(after []time.Duration, asked int64) time.Duration {
	return after[min(int(asked), len(after)-1)]
}

// FollowUps is how long after its end, and then after each answer, an attempt that failed or was closed is asked about: a
// gateway may take money for what it had closed, and the callback that tells of it may be lost.
var FollowUps = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// Stuck is the age at which an attempt that is still open is worth an alert.
const Stuck = 24 * time.Hour

// OpenTx inserts attempts as INIT, holding each order's open slot, with their lease given to owner until until: the
// caller is about to call the gateway, once the transaction that says so is committed. If it dies instead, the lease
// runs out and whoever comes next sends the same payment_no.
func OpenTx(tx *db.Tx, owner string, until time.Time, ps []Payment) error {
	slot := 1
	for i := range ps {
		p := &ps[i]
		p.Status, p.OpenSlot = fsm.Init, &slot
		p.LeaseOwner, p.LeaseUntil, p.NextCheckAt = &owner, db.AtPtr(until), db.AtPtr(until)
		p.CreatedAt, p.UpdatedAt = tx.Now, tx.Now
	}
	return tx.Create(&ps).Error
}

// Lease takes the right to call the gateway for a payment in one of the states, for hold, by the database's clock; until
// then no worker looks at it. It returns false when another holds it or the payment is in another state.
func Lease(ctx context.Context, d *db.DB, paymentNo, owner string, states []fsm.State, hold time.Duration) (bool, error) {
	until := d.SQLNowPlus(hold)
	rows, err := d.Exec(ctx, "payment_lease", `UPDATE payments SET lease_owner = ?, lease_until = ?, next_check_at = ?
		WHERE payment_no = ? AND status IN ? AND (lease_until IS NULL OR lease_until < ?)`,
		owner, until, until, paymentNo, states, d.SQLNow())
	return rows == 1, err
}

// Unlease gives the lease back early. Dying before it only costs the rest of the lease.
func Unlease(ctx context.Context, d *db.DB, paymentNo, owner string) error {
	_, err := d.Exec(ctx, "payment_unlease", "UPDATE payments SET lease_owner = NULL, lease_until = NULL WHERE payment_no = ? AND lease_owner = ?",
		paymentNo, owner)
	return err
}

// Accept books that the gateway has the charge: PENDING, with the page where the shopper pays. It writes the payment
// only: the order was PAYING before the gateway was called, and may be PAID by now. It returns false when the payment
// is no longer INIT or UNKNOWN.
func Accept(ctx context.Context, d *db.DB, c Charge) (bool, error) {
	rows, err := d.Exec(ctx, "payment_accept", `UPDATE payments SET status = ?, transaction_id = NULLIF(?, ''), pay_url = ?, next_check_at = ?,
		lease_owner = NULL, lease_until = NULL, updated_at = ? WHERE payment_no = ? AND status IN ?`,
		fsm.Pending, c.TransactionID, c.PayURL, d.SQLNowPlus(CheckAfter[0]), d.SQLNow(), c.PaymentNo, fsm.Payments.Sources(fsm.Accept))
	return rows == 1, err
}

// Lose books that the gateway's answer was lost (UNKNOWN), and when to ask for it.
func Lose(ctx context.Context, d *db.DB, p Payment) error {
	_, err := d.Exec(ctx, "payment_lose", `UPDATE payments SET status = ?, checks = checks + 1, next_check_at = ?,
		lease_owner = NULL, lease_until = NULL, updated_at = ? WHERE payment_no = ? AND status IN ?`,
		fsm.Unknown, d.SQLNowPlus(pause(CheckAfter, p.Checks)), d.SQLNow(), p.PaymentNo,
		append(fsm.Payments.Sources(fsm.Lose), fsm.Unknown))
	return err
}

// Find returns a payment by its number, or nil.
func Find(ctx context.Context, d *db.DB, paymentNo string) (*Payment, error) {
	var ps []Payment
	if err := d.Read(ctx).Where("payment_no = ?", paymentNo).Find(&ps).Error; err != nil || len(ps) == 0 {
		return nil, err
	}
	return &ps[0], nil
}

// Due returns payments whose gateway should be asked by now, the longest due first.
func Due(ctx context.Context, d *db.DB, limit int) ([]Payment, error) {
	var ps []Payment
	err := d.Read(ctx).Where("next_check_at <= ?", d.SQLNow()).Order("next_check_at").Limit(limit).Find(&ps).Error
	return ps, err
}

// Postpone notes that the gateway had nothing new, or (answered false) did not answer, gives the lease back, and sets the
// next time to ask. An attempt that has ended is asked about only FollowUps times, answers counted.
func Postpone(ctx context.Context, d *db.DB, p Payment, answered bool) error {
	checks, after := p.Checks+1, CheckAfter
	if p.OpenSlot == nil {
		after = FollowUps
		if !answered {
			checks--
		}
	}
	next := d.SQLNowPlus(pause(after, checks))
	if p.OpenSlot == nil && int(checks) >= len(after) {
		next = nil
	}
	_, err := d.Exec(ctx, "payment_postpone", `UPDATE payments SET checks = ?, next_check_at = ?, lease_owner = NULL, lease_until = NULL
		WHERE payment_no = ? AND status = ?`, checks, next, p.PaymentNo, p.Status)
	return err
}
