package order

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"orderd/internal/batch"
	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/payment"
)

// The results of settling a notice.
const (
	applied      = "applied"       // it changed the payment, and perhaps the order
	duplicate    = "duplicate"     // it had been settled before
	ignored      = "ignored"       // genuine, and nothing to do
	refundIsOpen = "refund_opened" // money came that the order cannot use: it goes back
)

// settleWait is how long settling waits for the order's lock before it goes on without: a gateway gives up soon, and the
// guarded statements need no lock.
const settleWait = 500 * time.Millisecond

// Settled says what became of a notice, and which guard recognised it if it was a repeat.
type Settled struct {
	Result string
	Guard  idem.Guard
}

// settling is one notice on its way into the books. What is below the line starts anew with each run of the transaction.
type settling struct {
	payment.Notice
	late bool // its payment had SUCCEEDED before: most likely it is a repeat
	// --
	pay   *payment.Payment
	order *Order
	out   Settled
	twin  bool // of another in the same batch, by message or by order: comes again when that one is done
	err   error
}

// Settle books what a gateway reports, be it by a callback, by the answer to a query or directly: once, whatever is
// repeated, late, out of order or concurrent. n must be verified. What happens to the money is the table in settle_tx.go.
//
// Errors are faults: not_found (no such payment), message_conflict, gateway_unavailable, unavailable, outcome_unknown.
// They leave no trace, so that the gateway's next try is no duplicate.
func (s *Service) Settle(ctx context.Context, n payment.Notice) (Settled, error) {
	if n.Kind == payment.RefundSucceeded || n.Kind == payment.RefundFailed {
		return s.settleRefund(ctx, n)
	}
	pay, ok, err := s.facts(ctx, n.PaymentNo)
	if err != nil {
		return Settled{}, err
	}
	if !ok || pay.gateway != n.Gateway {
		return Settled{}, errNoPayment()
	}
	if n.Kind == payment.PaymentSucceeded && (n.Amount != pay.amount || n.Currency != pay.currency) {
		if n, err = s.confirm(ctx, n); err != nil {
			return Settled{}, err
		}
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	if !pay.succeeded { // a repeat needs no lock
		lock, _ := s.Locks.Acquire(ctx, pay.orderNo, settleWait)
		defer lock.Release(ctx)
	}
	x := &settling{Notice: n, late: pay.succeeded}
	for {
		if err := s.settles.Do(ctx, x); err != nil {
			return Settled{}, err
		}
		if !x.twin {
			break
		}
		if err := ctx.Err(); err != nil {
			return Settled{}, errInProgress(err)
		}
	}
	if fault.Is(x.err, "message_conflict") {
		s.alert(ctx, "message_conflict", "source", n.Source, "message_id", n.MessageID, "payment_no", n.PaymentNo)
	}
	if n.Kind == payment.PaymentSucceeded && x.err == nil && !pay.succeeded { // now it has, and that is committed
		pay.succeeded = true
		s.known.Add(n.PaymentNo, pay)
	}
	if fault.Is(x.err, "not_found") {
		s.known.Remove(n.PaymentNo)
	}
	s.stopped(x.out.Guard)
	return x.out, x.err
}

// confirm asks the gateway about a message that claims another amount or currency than ours, and returns the notice with
// what was really received. A message alone moves no money that we did not ask for. Once the payment has SUCCEEDED, which is
// read here and not remembered, no message moves any.
func (s *Service) confirm(ctx context.Context, n payment.Notice) (payment.Notice, error) {
	if p, err := s.findPayment(ctx, n.PaymentNo); err != nil || p != nil && p.Status == fsm.Succeeded {
		return n, err
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayTime)
	defer cancel()
	gateway, ok := s.Gateways[n.Gateway]
	if !ok {
		return n, errGateway(nil)
	}
	charge, err := s.query(ctx, gateway, payment.Ref{PaymentNo: n.PaymentNo, TransactionID: n.TransactionID})
	if err != nil {
		return n, errGateway(err)
	}
	if charge.State != fsm.Succeeded {
		return n, fault.Busy("gateway_unavailable", "the gateway does not confirm this payment yet", 5*time.Second, nil)
	}
	n.Amount, n.Currency, n.TransactionID = charge.Amount, charge.Currency, charge.TransactionID
	return n, nil
}

// runSettle is the batch function of settling.
func (s *Service) runSettle(ctx context.Context, xs []*settling) error {
	if done, err := s.repeats(ctx, xs); done || err != nil {
		return err
	}
	return s.DB.InTx(ctx, "settle", func(tx *db.Tx) error {
		if err := loadSettlingsTx(tx, xs); err != nil {
			return err
		}
		b := &books{tx: tx}
		for _, x := range xs {
			if x.err == nil && !x.twin && x.out.Result == "" {
				if x.err = b.decide(x); errors.Is(x.err, db.ErrConflict) {
					return x.err
				}
			}
		}
		if err := b.writeTx(s, xs); err != nil {
			return err
		}
		return s.flushTx(tx, &b.tail)
	})
}

// loadSettlingsTx finds which messages are known, and the payments and orders of the others.
func loadSettlingsTx(tx *db.Tx, xs []*settling) error {
	fresh, err := unknown(tx.DB, xs)
	if err != nil || len(fresh) == 0 {
		return err
	}
	paymentNos := make([]string, len(fresh))
	for i, x := range fresh {
		paymentNos[i] = x.PaymentNo
	}
	var payments []payment.Payment
	if err := tx.Where("payment_no IN ?", paymentNos).Find(&payments).Error; err != nil {
		return err
	}
	pays, orderNos := map[string]*payment.Payment{}, []string{}
	for i := range payments {
		pays[payments[i].PaymentNo] = &payments[i]
		orderNos = append(orderNos, payments[i].OrderNo)
	}
	var rows []*Order
	if err := tx.Where("order_no IN ?", orderNos).Find(&rows).Error; err != nil {
		return err
	}
	orders := map[string]*Order{}
	for _, o := range rows {
		orders[o.OrderNo] = o
	}
	seen := map[string]bool{}
	for _, x := range fresh {
		if x.pay = pays[x.PaymentNo]; x.pay == nil { // the database was set back to a state without it
			x.err = errNoPayment()
			continue
		}
		if x.order = orders[x.pay.OrderNo]; x.order == nil {
			return db.ErrConflict // it came in between the two reads, and nothing is ever deleted
		}
		message := x.Source + "\x00" + x.MessageID
		x.twin = seen[x.order.OrderNo] || seen[message]
		seen[x.order.OrderNo], seen[message] = true, true
	}
	return transactionsTx(tx, fresh)
}

// transactionsTx refuses notices whose transaction_id stands for another payment already. It does not ask about those of
// payments that have one: if it is the same, the unique index lets no other have it; if it is another, decide refuses it.
func transactionsTx(tx *db.Tx, xs []*settling) error {
	var pairs [][2]string
	for _, x := range xs {
		if x.err == nil && x.TransactionID != "" && x.pay.TransactionID == nil {
			pairs = append(pairs, [2]string{x.Gateway, x.TransactionID})
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	var holders []payment.Payment
	condition, args := db.AnyPair("gateway", "transaction_id", pairs)
	if err := tx.Select("payment_no, gateway, transaction_id").Where(condition, args...).Find(&holders).Error; err != nil {
		return err
	}
	for _, h := range holders {
		for _, x := range xs {
			if x.Gateway == h.Gateway && x.TransactionID == *h.TransactionID && x.PaymentNo != h.PaymentNo {
				x.err = errMessageConflict("this transaction_id stands for another payment")
			}
		}
	}
	return nil
}

// repeats answers a batch in which every message is known: that takes one read, and no transaction.
func (s *Service) repeats(ctx context.Context, xs []*settling) (bool, error) {
	for _, x := range xs {
		if !x.late {
			return false, nil
		}
	}
	batch.Pass(ctx)
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if fresh, err := unknown(s.DB.Read(ctx), xs); err != nil || len(fresh) > 0 {
		return false, err
	}
	return true, msg.CountDuplicates(ctx, s.DB, repeated(xs))
}

// unknown answers those whose message is in the inbox, and returns the others.
func unknown(q *gorm.DB, xs []*settling) ([]*settling, error) {
	ids := make([]msg.ID, len(xs))
	for i, x := range xs {
		x.pay, x.order, x.out, x.twin, x.err = nil, nil, Settled{}, false, nil
		ids[i] = x.id()
	}
	known, err := msg.Known(q, ids)
	if err != nil {
		return nil, err
	}
	var fresh []*settling
	for _, x := range xs {
		if before, ok := known[x.id()]; ok {
			x.repeatOf(before)
		} else {
			fresh = append(fresh, x)
		}
	}
	return fresh, nil
}

// repeated returns the messages that were recognised by the inbox.
func repeated(xs []*settling) []msg.ID {
	var ids []msg.ID
	for _, x := range xs {
		if x.err == nil && x.out.Guard == idem.GuardInbox {
			ids = append(ids, x.id())
		}
	}
	return ids
}

func (x *settling) id() msg.ID { return msg.ID{Source: x.Source, MessageID: x.MessageID} }

// repeatOf answers a message that is in the inbox.
func (x *settling) repeatOf(before msg.Received) {
	if before.PayloadHash != x.PayloadHash {
		x.err = errMessageConflict("this message id came before with another content")
		return
	}
	x.out = Settled{Result: duplicate, Guard: idem.GuardInbox}
}

func errNoPayment() error { return fault.New(fault.NotFound, "not_found", "there is no such payment") }

func errMessageConflict(message string) error {
	return fault.New(fault.Conflict, "message_conflict", message)
}
