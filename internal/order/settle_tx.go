package order

import (
	"fmt"

	"orderd/internal/db"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/payment"
)

// books collects what a batch of notices changes. decide fills it, from what was read; writeTx writes it, by statements
// that match only what is still as it was read. If one is not, the transaction runs again and decides anew.
type books struct {
	tx      *db.Tx
	tail    tail
	inbox   []msg.Received
	pays    []payment.Booking // money that pays its order
	odd     []payment.Booking // money that goes back
	ended   []payment.Booking // attempts that failed or were closed
	refunds []payment.Refund
	paid    []string // orders that become PAID
	changes []change // other orders: events were added
}

type change struct {
	order *Order
	read  int64 // its version before
}

// decide is the table of what happens to the money.
//
//	the money                  order                result
//	right                      PAYING               applied: the order becomes PAID, whichever attempt it was
//	right, another payment     PAID or later        refund DUPLICATE_PAYMENT
//	right                      CANCELLED            refund LATE_PAYMENT: no revival, the stock may be gone
//	other amount or currency   any                  refund AMOUNT_MISMATCH; a PAYING order stays so, without this attempt
//	again the same             any                  duplicate
//
// A failure or closing ends its own attempt if that is open, and touches nothing else.
func (b *books) decide(x *settling) error {
	o, p := x.order, x.pay
	if p.TransactionID != nil && x.TransactionID != "" && *p.TransactionID != x.TransactionID {
		return errMessageConflict("this payment came with another transaction_id before")
	}
	who := cause{actor: "gateway:" + x.Gateway, cause: x.Source + " " + x.MessageID, detail: p.PaymentNo}
	booking := payment.Booking{PaymentNo: p.PaymentNo, TransactionID: x.TransactionID, Amount: x.Amount, Currency: x.Currency}
	if x.Kind != payment.PaymentSucceeded {
		return b.decideEnd(x, booking, who)
	}
	if p.Status == fsm.Succeeded {
		x.out = Settled{Result: duplicate, Guard: idem.GuardState}
		return nil
	}
	read := o.Version
	right := x.Amount == p.Amount && x.Currency == p.Currency
	switch {
	case !right:
		who.detail = fmt.Sprintf("%s: received %d %s, expected %d %s", p.PaymentNo, x.Amount, x.Currency, p.Amount, p.Currency)
		b.sendBack(x, booking, amountMismatch, payment.AmountMismatch, who)
	case o.Status == fsm.Paying:
		x.out = Settled{Result: applied}
		b.pays, b.paid = append(b.pays, booking), append(b.paid, o.OrderNo)
		b.tail.move(o, fsm.Pay, b.tx.Now, who)
	case o.Status == fsm.Cancelled:
		b.sendBack(x, booking, latePayment, payment.LatePayment, who)
	case o.PaidAmount > 0:
		b.sendBack(x, booking, duplicatePayment, payment.DuplicatePayment, who)
	default: // CREATED or RESERVED with a payment: it was read in the middle of being opened
		return db.ErrConflict
	}
	if x.out.Result != applied {
		b.changed(o, read)
	}
	b.receive(x)
	return nil
}

// decideEnd books a failure or closing of an open attempt.
func (b *books) decideEnd(x *settling, booking payment.Booking, who cause) error {
	ev, name := fsm.Fail, attemptFailed
	if x.Kind == payment.PaymentClosed {
		ev, name = fsm.Close, attemptClosed
	}
	booking.Status = fsm.Payments.Target(ev)
	if x.pay.OpenSlot == nil { // it came late: the attempt has ended, perhaps well
		x.out = Settled{Result: ignored}
		b.receive(x)
		return nil
	}
	read := x.order.Version
	x.out = Settled{Result: applied}
	b.ended = append(b.ended, booking)
	b.tail.money(x.order, name, b.tx.Now, who)
	b.changed(x.order, read)
	b.receive(x)
	return nil
}

// sendBack books money that the order cannot use, and the refund of all of it, in one transaction: there is no moment at
// which we have it and owe it to nobody.
func (b *books) sendBack(x *settling, booking payment.Booking, ev string, reason string, who cause) {
	x.out = Settled{Result: refundIsOpen}
	b.odd = append(b.odd, booking)
	refund := payment.Automatic(x.pay, booking, reason, b.tx.Now)
	b.refunds = append(b.refunds, refund)
	b.tail.money(x.order, ev, b.tx.Now, who)
	b.tail.money(x.order, refundOpened, b.tx.Now, cause{actor: who.actor, cause: who.cause, detail: refund.RefundNo})
}

func (b *books) changed(o *Order, read int64) { b.changes = append(b.changes, change{o, read}) }

func (b *books) receive(x *settling) {
	b.inbox = append(b.inbox, msg.Received{Source: x.Source, MessageID: x.MessageID, PayloadHash: x.PayloadHash, OrderNo: x.order.OrderNo,
		Kind: string(x.Kind), Outcome: x.out.Result, ReceivedAt: b.tx.Now})
}

// writeTx writes in the order of locks: inbox, refunds, payments, orders.
func (b *books) writeTx(s *Service, xs []*settling) error {
	if err := msg.CountDuplicatesTx(b.tx, repeated(xs)); err != nil {
		return err
	}
	if err := msg.ReceiveTx(b.tx, b.inbox); err != nil {
		return err
	}
	if len(b.refunds) > 0 {
		if err := b.tx.Create(&b.refunds).Error; err != nil {
			return err
		}
	}
	if err := payment.ApplyTx(b.tx, b.pays); err != nil {
		return err
	}
	for _, o := range b.odd {
		if err := payment.SendBackTx(b.tx, o); err != nil {
			return err
		}
	}
	for _, e := range b.ended {
		if err := payment.EndTx(b.tx, e); err != nil {
			return err
		}
	}
	return b.ordersTx()
}

func (b *books) ordersTx() error {
	if len(b.paid) > 0 {
		r := b.tx.Exec(`UPDATE orders SET status = ?, paid_amount = amount, paid_at = ?, version = version + 1, updated_at = ?
			WHERE order_no IN ? AND status = 'PAYING'`, fsm.Paid, b.tx.Now, b.tx.Now, b.paid)
		if err := db.Exactly(len(b.paid), r); err != nil { // a conflict: cancelled or paid in between
			return err
		}
	}
	for _, c := range b.changes {
		if err := bumpTx(b.tx, c.order, c.read); err != nil {
			return err
		}
	}
	return nil
}
