package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"orderd/internal/db"
	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// Break is a difference between our books and a gateway's own.
type Break struct {
	Gateway   string `json:"gateway"`
	PaymentNo string `json:"payment_no"`
	RefundNo  string `json:"refund_no,omitempty"`
	Ours      string `json:"ours"`   // "1299 CNY", or "nothing"
	Theirs    string `json:"theirs"` // likewise, or why they could not be asked
}

const nothing = "nothing"

// Reconcile compares what our books say was received and sent back since then with what the gateways say, both ways.
// progress, if not nil, is told how far it is. A payment that is being settled at this moment shows as a break: look
// twice. Gateways that cannot list are asked about what we know; what only they know stays unseen there.
func Reconcile(ctx context.Context, d *db.DB, gateways map[string]payment.Gateway, since time.Time, progress func(done, total int)) ([]Break, error) {
	var breaks []Break
	for _, name := range slices.Sorted(keys(gateways)) {
		found, err := reconcile(ctx, d, name, gateways[name], since, progress)
		if err != nil {
			return nil, fmt.Errorf("gateway %s: %w", name, err)
		}
		breaks = append(breaks, found...)
	}
	return breaks, nil
}

func keys(m map[string]payment.Gateway) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// books are what one side says, by "payment_no" or "payment_no refund_no".
type books map[string]string

func key(paymentNo, refundNo string) string { return strings.TrimSpace(paymentNo + " " + refundNo) }

func money(amount int64, currency string) string { return fmt.Sprintf("%d %s", amount, currency) }

func reconcile(ctx context.Context, d *db.DB, name string, g payment.Gateway, since time.Time, progress func(done, total int)) ([]Break, error) {
	theirs := books{}
	lister, lists := g.(payment.Ledger)
	if lists { // before ours: what is settled in between is then only in ours, where it is looked at once more
		entries, err := lister.Entries(ctx, since)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			theirs[key(e.PaymentNo, e.RefundNo)] = money(e.Amount, e.Currency)
		}
	}
	payments, refunds, err := ours(ctx, d, name, since)
	if err != nil {
		return nil, err
	}
	var breaks []Break
	for k, says := range theirs { // what they moved and we know nothing of, or know otherwise
		paymentNo, refundNo, _ := strings.Cut(k, " ")
		mine, err := lookUp(ctx, d, name, paymentNo, refundNo)
		if err != nil {
			return nil, err
		}
		if mine != says {
			breaks = append(breaks, Break{name, paymentNo, refundNo, mine, says})
		}
	}
	total := len(payments) + len(refunds)
	for i, p := range payments {
		mine := money(p.ReceivedAmount, p.ReceivedCurrency)
		if _, known := theirs[p.PaymentNo]; !known {
			if says := askPayment(ctx, g, p); says != mine {
				breaks = append(breaks, Break{name, p.PaymentNo, "", mine, says})
			}
		}
		report(progress, i+1, total)
	}
	for i, r := range refunds {
		mine := money(r.Amount, r.Currency)
		if _, known := theirs[key(r.PaymentNo, r.SentNo())]; !known {
			if says := askRefund(ctx, d, g, r); says != mine {
				breaks = append(breaks, Break{name, r.PaymentNo, r.SentNo(), mine, says})
			}
		}
		report(progress, len(payments)+i+1, total)
	}
	slices.SortFunc(breaks, func(a, b Break) int {
		return strings.Compare(key(a.PaymentNo, a.RefundNo), key(b.PaymentNo, b.RefundNo))
	})
	return breaks, nil
}

func report(progress func(done, total int), done, total int) {
	if progress != nil {
		progress(done, total)
	}
}

// ours reads what we booked as received and as sent back since then.
func ours(ctx context.Context, d *db.DB, gateway string, since time.Time) ([]payment.Payment, []payment.Refund, error) {
	var payments []payment.Payment
	err := d.Read(ctx).Where("gateway = ? AND status = ? AND updated_at >= ?", gateway, fsm.Succeeded, db.At(since)).Find(&payments).Error
	if err != nil {
		return nil, nil, err
	}
	var refunds []payment.Refund
	err = d.Read(ctx).Where("status = ? AND updated_at >= ? AND payment_no IN (SELECT payment_no FROM payments WHERE gateway = ?)",
		fsm.Succeeded, db.At(since), gateway).Find(&refunds).Error
	return payments, refunds, err
}

// lookUp says what our books have of a movement at a gateway.
func lookUp(ctx context.Context, d *db.DB, gateway, paymentNo, refundNo string) (string, error) {
	p, err := payment.Find(ctx, d, paymentNo)
	if err != nil || p == nil || p.Gateway != gateway {
		return nothing, err
	}
	if refundNo == "" {
		if p.Status != fsm.Succeeded {
			return nothing + ", " + string(p.Status), nil
		}
		return money(p.ReceivedAmount, p.ReceivedCurrency), nil
	}
	r, err := payment.FindRefund(ctx, d, payment.StoredNo(refundNo))
	if err != nil || r == nil || r.PaymentNo != paymentNo {
		return nothing, err
	}
	if r.Status != fsm.Succeeded || r.SentNo() != refundNo {
		return nothing + ", " + string(r.Status), nil
	}
	return money(r.Amount, r.Currency), nil
}

const askTime = 5 * time.Second

func askPayment(ctx context.Context, g payment.Gateway, p payment.Payment) string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := g.Query(ctx, p.Ref())
	switch {
	case errors.Is(err, payment.ErrNotFound):
		return nothing
	case err != nil:
		return "no answer"
	case c.State != fsm.Succeeded:
		return nothing + ", " + string(c.State)
	}
	return money(c.Amount, c.Currency)
}

func askRefund(ctx context.Context, d *db.DB, g payment.Gateway, r payment.Refund) string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	p, err := payment.Find(ctx, d, r.PaymentNo)
	if err != nil || p == nil {
		return "no answer"
	}
	a, err := g.QueryRefund(ctx, r.SentNo(), p.Ref())
	switch {
	case errors.Is(err, payment.ErrNotFound):
		return nothing
	case err != nil:
		return "no answer"
	case a.State != fsm.Succeeded:
		return nothing + ", " + string(a.State)
	}
	return money(a.Amount, r.Currency)
}
