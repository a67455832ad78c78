package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"orderd/internal/db"
	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// Kinds of a Break.
const (
	OnlyOurs   = "only_ours"   // they know nothing of it
	OnlyTheirs = "only_theirs" // we know nothing of it
	Status     = "status"      // both know it; for one side only, money moved
	Amount     = "amount"      // money moved, but not the same amount or currency
	NoAnswer   = "no_answer"   // they could not be asked
)

// Break is a difference between our books and a gateway's own.
type Break struct {
	Kind      string `json:"kind"`
	Gateway   string `json:"gateway"`
	PaymentNo string `json:"payment_no"`
	RefundNo  string `json:"refund_no,omitempty"` // as the gateway knows it
	Ours      string `json:"ours"`                // "1299 CNY" in minor units; a state, if no money moved; or "nothing"
	Theirs    string `json:"theirs"`              // likewise
}

// Report is what Reconcile found.
type Report struct {
	Breaks []Break `json:"breaks"`
	// Unlisted are the gateways that cannot list what they moved. They were asked about each payment and refund of ours;
	// what only they know stays unseen.
	Unlisted []string `json:"unlisted"`
}

// Reconcile compares the money that our books say was received and sent back since then with what the gateways say. A
// gateway that is a payment.Ledger lists what it moved, which is looked up in our books, and is asked about what we have
// and it did not list: both ways. Another is asked about all that we have, in whatever state: one way.
//
// progress, if not nil, is told how far it is. What is being settled at this moment shows as a break: look twice.
func Reconcile(ctx context.Context, d *db.DB, gateways map[string]payment.Gateway, since time.Time, progress func(done, total int)) (Report, error) {
	report := Report{Breaks: []Break{}, Unlisted: []string{}}
	for _, name := range slices.Sorted(maps.Keys(gateways)) {
		c := comparison{d: d, name: name, g: gateways[name], theirs: map[key]side{}}
		if err := c.run(ctx, since, progress); err != nil {
			return Report{}, fmt.Errorf("gateway %s: %w", name, err)
		}
		slices.SortFunc(c.breaks, func(a, b Break) int {
			return cmp.Or(strings.Compare(a.PaymentNo, b.PaymentNo), strings.Compare(a.RefundNo, b.RefundNo))
		})
		report.Breaks = append(report.Breaks, c.breaks...)
		if !c.lists {
			report.Unlisted = append(report.Unlisted, name)
		}
	}
	return report, nil
}

// key names a payment (no refundNo) or a refund.
type key struct{ paymentNo, refundNo string }

// side is what one side knows: nothing, a state, or money that moved.
type side struct {
	state fsm.State // "": nothing
	money string    // of a SUCCEEDED one
}

func moved(amount int64, currency string) side {
	return side{fsm.Succeeded, fmt.Sprintf("%d %s", amount, currency)}
}

func (s side) String() string { return cmp.Or(s.money, string(s.state), "nothing") }

// comparison is of our books with one gateway's.
type comparison struct {
	d      *db.DB
	name   string
	g      payment.Gateway
	lists  bool
	theirs map[key]side // what it listed
	breaks []Break
}

func (c *comparison) run(ctx context.Context, since time.Time, progress func(done, total int)) error {
	if err := c.list(ctx, since); err != nil { // before ours: what is settled in between is then only in ours, and asked for
		return err
	}
	payments, refunds, err := c.ours(ctx, since)
	if err != nil {
		return err
	}
	done, total := 0, len(c.theirs)+len(payments)+len(refunds)
	step := func() {
		if done++; progress != nil {
			progress(done, total)
		}
	}
	for k, theirs := range c.theirs {
		ours, err := c.lookUp(ctx, k)
		if err != nil {
			return err
		}
		c.compare(k, ours, theirs)
		step()
	}
	for _, p := range payments {
		k := key{p.PaymentNo, ""}
		if _, known := c.theirs[k]; !known {
			theirs, err := c.askPayment(ctx, p)
			c.answered(k, ofPayment(p), theirs, err)
		}
		step()
	}
	for _, r := range refunds {
		k := key{r.PaymentNo, r.SentNo()}
		if _, known := c.theirs[k]; !known {
			theirs, err := c.askRefund(ctx, r)
			c.answered(k, ofRefund(r), theirs, err)
		}
		step()
	}
	return ctx.Err()
}

// compare notes a break, if the two sides are one. Where neither moved money there is nothing to compare.
func (c *comparison) compare(k key, ours, theirs side) {
	kind := Amount
	switch {
	case ours.money == theirs.money:
		return
	case theirs.state == "":
		kind = OnlyOurs
	case ours.state == "":
		kind = OnlyTheirs
	case ours.money == "" || theirs.money == "":
		kind = Status
	}
	c.breaks = append(c.breaks, Break{kind, c.name, k.paymentNo, k.refundNo, ours.String(), theirs.String()})
}

func (c *comparison) answered(k key, ours, theirs side, err error) {
	if err != nil {
		c.breaks = append(c.breaks, Break{NoAnswer, c.name, k.paymentNo, k.refundNo, ours.String(), "no answer"})
		return
	}
	c.compare(k, ours, theirs)
}

// list reads the gateway's own list, if it has one. A payment or refund that is in it twice is shown as both: it is a
// break, whichever of them we have.
func (c *comparison) list(ctx context.Context, since time.Time) error {
	ledger, ok := c.g.(payment.Ledger)
	if c.lists = ok; !ok {
		return nil
	}
	entries, err := ledger.Entries(ctx, since)
	for _, e := range entries {
		k, now := key{e.PaymentNo, e.RefundNo}, moved(e.Amount, e.Currency)
		if before, twice := c.theirs[k]; twice {
			now.money = before.money + " and " + now.money
		}
		c.theirs[k] = now
	}
	return err
}

// ours reads what we booked as received and as sent back since then. Of a gateway that does not list we read the rest, too:
// it may have taken money for what we hold to be closed.
func (c *comparison) ours(ctx context.Context, since time.Time) (payments []payment.Payment, refunds []payment.Refund, err error) {
	booked := func() *gorm.DB {
		q := c.d.Read(ctx).Where("gateway = ? AND updated_at >= ?", c.name, db.At(since))
		if c.lists {
			q = q.Where("status = ?", fsm.Succeeded)
		}
		return q
	}
	err = errors.Join(booked().Order("payment_no").Find(&payments).Error, booked().Order("refund_no").Find(&refunds).Error)
	return payments, refunds, err
}

func ofPayment(p payment.Payment) side {
	if p.Status == fsm.Succeeded {
		return moved(p.ReceivedAmount, p.ReceivedCurrency)
	}
	return side{state: p.Status}
}

func ofRefund(r payment.Refund) side {
	if r.Status == fsm.Succeeded {
		return moved(r.Amount, r.Currency)
	}
	return side{state: r.Status}
}

// lookUp says what our books have of a movement at the gateway.
func (c *comparison) lookUp(ctx context.Context, k key) (side, error) {
	p, err := payment.Find(ctx, c.d, k.paymentNo)
	if err != nil || p == nil || p.Gateway != c.name {
		return side{}, err
	}
	if k.refundNo == "" {
		return ofPayment(*p), nil
	}
	r, err := payment.FindRefund(ctx, c.d, payment.StoredNo(k.refundNo))
	switch {
	case err != nil || r == nil || r.PaymentNo != k.paymentNo:
		return side{}, err
	case r.SentNo() != k.refundNo: // an earlier try, which failed for all that we know
		return side{state: fsm.Failed}, nil
	}
	return ofRefund(*r), nil
}

const askTime = 5 * time.Second

var errNoPayment = errors.New("the refund's payment is gone")

func (c *comparison) askPayment(ctx context.Context, p payment.Payment) (side, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	charge, err := c.g.Query(ctx, p.Ref())
	switch {
	case errors.Is(err, payment.ErrNotFound):
		return side{}, nil
	case err != nil || charge.State != fsm.Succeeded:
		return side{state: charge.State}, err
	}
	return moved(charge.Amount, charge.Currency), nil
}

func (c *comparison) askRefund(ctx context.Context, r payment.Refund) (side, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	p, err := payment.Find(ctx, c.d, r.PaymentNo)
	if err != nil || p == nil {
		return side{}, errors.Join(err, errNoPayment)
	}
	answer, err := c.g.QueryRefund(ctx, r.SentNo(), p.Ref())
	switch {
	case errors.Is(err, payment.ErrNotFound):
		return side{}, nil
	case err != nil || answer.State != fsm.Succeeded:
		return side{state: answer.State}, err
	}
	return moved(answer.Amount, r.Currency), nil
}
