package payment

import (
	"context"
	"strings"
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
// runs out and whoever comes next asks the gateway first: see Missing.
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

// Accept books that the gateway has these charges: PENDING, with the page where the shopper pays. It writes the payments
// only: their orders were PAYING before the gateway was called, and may be PAID by now. It returns those that are PENDING
// now: of the others it was known already how they ended.
func Accept(ctx context.Context, d *db.DB, cs []Charge) (map[string]bool, error) {
	nos := make([]string, len(cs))
	var transactions, pages []any
	for i, c := range cs {
		nos[i] = c.PaymentNo
		transactions, pages = append(transactions, c.PaymentNo, c.TransactionID), append(pages, c.PaymentNo, c.PayURL)
	}
	which := "CASE payment_no" + strings.Repeat(" WHEN ? THEN ?", len(cs)) + " END"
	args := append(append([]any{fsm.Pending}, transactions...), pages...)
	args = append(args, d.SQLNowPlus(CheckAfter[0]), d.SQLNow(), nos, fsm.Payments.Sources(fsm.Accept))
	rows, err := d.Exec(ctx, "payment_accept", `UPDATE payments SET status = ?, transaction_id = NULLIF(`+which+`, ''), pay_url = `+which+`,
		next_check_at = ?, lease_owner = NULL, lease_until = NULL, updated_at = ? WHERE payment_no IN ? AND status IN ?`, args...)
	if err != nil {
		return nil, err
	}
	if rows < int64(len(cs)) { // the number does not tell which
		if err := d.Read(ctx).Model(&Payment{}).Where("payment_no IN ? AND status = ?", nos, fsm.Pending).Pluck("payment_no", &nos).Error; err != nil {
			return nil, err
		}
	}
	accepted := make(map[string]bool, len(nos))
	for _, no := range nos {
		accepted[no] = true
	}
	return accepted, nil
}

// Lose books that the gateway's answer was lost (UNKNOWN), and when to ask for it. It returns false when the payment's
// outcome has become known in another way.
func Lose(ctx context.Context, d *db.DB, p Payment) (bool, error) {
	rows, err := d.Exec(ctx, "payment_lose", `UPDATE payments SET status = ?, checks = checks + 1, next_check_at = ?,
		lease_owner = NULL, lease_until = NULL, updated_at = ? WHERE payment_no = ? AND status IN ?`,
		fsm.Unknown, d.SQLNowPlus(pause(CheckAfter, p.Checks)), d.SQLNow(), p.PaymentNo,
		append(fsm.Payments.Sources(fsm.Lose), fsm.Unknown))
	return rows == 1, err
}

// SureAfter is how far apart a gateway must say twice that it does not know a charge before we believe it: a charge whose
// answer was lost may still be on its way, or not be seen yet by what answers the gateway's queries.
const SureAfter = 5 * time.Second

// Missing books that the gateway does not know a charge which may have been sent. It is sure when the gateway said so
// before, SureAfter ago or longer by the database's clock: the charge was never made, and the caller, who holds the lease,
// may send it or end the attempt. Else the payment is UNKNOWN, its lease is given back, and the gateway is asked again;
// unless the payment is settled: what became of it is known in another way.
//
// Dying when it is sure, or a sending whose answer is lost again, takes two new answers.
func Missing(ctx context.Context, d *db.DB, paymentNo string) (sure, settled bool, err error) {
	inDoubt := []fsm.State{fsm.Init, fsm.Unknown}
	rows, err := d.Exec(ctx, "payment_never_made", `UPDATE payments SET missing_since = NULL
		WHERE payment_no = ? AND status IN ? AND missing_since <= ?`, paymentNo, inDoubt, d.SQLNowPlus(-SureAfter))
	if err != nil || rows == 1 {
		return err == nil, false, err
	}
	rows, err = d.Exec(ctx, "payment_missing", `UPDATE payments SET status = ?, missing_since = COALESCE(missing_since, ?), next_check_at = ?,
		lease_owner = NULL, lease_until = NULL, updated_at = ? WHERE payment_no = ? AND status IN ?`,
		fsm.Unknown, d.SQLNow(), d.SQLNowPlus(SureAfter), d.SQLNow(), paymentNo, inDoubt)
	return false, err == nil && rows == 0, err
}

// Find returns a payment by its number, or nil.
func Find(ctx context.Context, d *db.DB, paymentNo string) (*Payment, error) {
	found, err := FindAll(ctx, d, []string{paymentNo})
	if p, ok := found[paymentNo]; ok {
		return &p, nil
	}
	return nil, err
}

// FindAll returns the payments with these numbers, as far as they exist.
func FindAll(ctx context.Context, d *db.DB, paymentNos []string) (map[string]Payment, error) {
	var ps []Payment
	if err := d.Read(ctx).Where("payment_no IN ?", paymentNos).Find(&ps).Error; err != nil {
		return nil, err
	}
	found := make(map[string]Payment, len(ps))
	for _, p := range ps {
		found[p.PaymentNo] = p
	}
	return found, nil
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
