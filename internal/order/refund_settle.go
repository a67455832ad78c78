package order

import (
	"context"
	"fmt"
	"slices"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/payment"
	"orderd/internal/stock"
)

// settleRefund books what a gateway says of a refund, once: like Settle, of which it is the other half.
func (s *Service) settleRefund(ctx context.Context, n payment.Notice) (Settled, error) {
	r, err := payment.FindRefund(ctx, s.DB, payment.StoredNo(n.RefundNo))
	if err != nil {
		return Settled{}, err
	}
	if r == nil || r.PaymentNo != n.PaymentNo {
		return Settled{}, errNoRefund()
	}
	p, err := s.findPayment(ctx, r.PaymentNo)
	if err != nil {
		return Settled{}, err
	}
	if p == nil || p.Gateway != n.Gateway { // one gateway has no say in another's refunds
		return Settled{}, errNoRefund()
	}
	if n.Kind == payment.RefundSucceeded && (n.Amount != r.Amount || n.Currency != r.Currency) {
		s.alert(ctx, "refund_mismatch", "refund_no", r.RefundNo, "amount", n.Amount, "currency", n.Currency)
		return Settled{}, errMessageConflict("the refund has another amount or currency")
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	lock, _ := s.Locks.Acquire(ctx, r.OrderNo, settleWait)
	defer lock.Release(ctx)
	var out Settled
	var alert string
	err = s.DB.InTx(ctx, "settle_refund", func(tx *db.Tx) error {
		out, alert = Settled{}, ""
		known, err := msg.Known(tx.DB, []msg.ID{{Source: n.Source, MessageID: n.MessageID}})
		if err != nil {
			return err
		}
		for id, before := range known {
			if before.PayloadHash != n.PayloadHash {
				return errMessageConflict("this message id came before with another content")
			}
			out = Settled{Result: duplicate, Guard: idem.GuardInbox}
			return msg.CountDuplicatesTx(tx, []msg.ID{id})
		}
		out, alert, err = s.settleRefundTx(tx, n)
		return err
	})
	if db.IsDuplicate(err) { // still, when the transaction was run again: not the inbox row of a twin
		return Settled{}, s.refundIDTaken(ctx, n)
	}
	if err != nil {
		return Settled{}, err
	}
	if alert != "" {
		s.alert(ctx, alert, "refund_no", r.RefundNo, "order_no", r.OrderNo)
	}
	s.stopped(out.Guard)
	return out, nil
}

// refundIDTaken: the gateway calls one refund of its own by two of our numbers. It sent the money once; a person must look.
func (s *Service) refundIDTaken(ctx context.Context, n payment.Notice) error {
	s.alert(ctx, "message_conflict", "refund_no", n.RefundNo, "refund_id", n.RefundID)
	return errMessageConflict("this refund_id stands for another refund")
}

func (s *Service) settleRefundTx(tx *db.Tx, n payment.Notice) (out Settled, alert string, err error) {
	var r payment.Refund
	if err := tx.Where("refund_no = ?", payment.StoredNo(n.RefundNo)).Take(&r).Error; err != nil {
		return out, "", err
	}
	orders, err := readOrders(tx.DB, []string{r.OrderNo})
	if err != nil || len(orders) == 0 {
		return out, "", err
	}
	o := orders[0]
	t := &tail{}
	who := cause{actor: "gateway:" + n.Gateway, cause: n.Source + " " + n.MessageID, detail: fmt.Sprintf("%s: %d %s", n.RefundNo, r.Amount, r.Currency)}
	switch {
	case r.Status == fsm.Succeeded && n.RefundNo == r.SentNo():
		if n.Kind == payment.RefundSucceeded {
			return Settled{Result: duplicate, Guard: idem.GuardState}, "", nil
		}
		out.Result, alert = ignored, "refund_failed_after_success" // the money may have come back to us: a person must look
	case r.Status == fsm.Succeeded && n.Kind == payment.RefundSucceeded:
		out.Result, alert = ignored, "refund_sent_twice" // under two of its numbers: the gateway has sent what it said had failed
	case n.Kind == payment.RefundSucceeded && r.Status == fsm.Failed && r.Automatic == nil && !holdable(tx, r):
		// Its hold was given back when it failed, and promised to another refund since. Both cannot be right: a person
		// must look at the gateway's books.
		out.Result, alert = ignored, "refund_beyond_payment"
	case n.Kind == payment.RefundSucceeded:
		out.Result = applied
		if r.Status == fsm.Failed {
			alert = "refund_succeeded_after_failure"
		}
	case r.Status == fsm.Failed && r.Automatic == nil || n.RefundNo != r.SentNo():
		out.Result = ignored // it had failed, or this is about another try
	default:
		out.Result, alert = applied, "refund_failed"
	}
	err = msg.ReceiveTx(tx, []msg.Received{{Source: n.Source, MessageID: n.MessageID, PayloadHash: n.PayloadHash, OrderNo: r.OrderNo,
		Kind: string(n.Kind), Outcome: out.Result, ReceivedAt: tx.Now}})
	if err != nil || out.Result != applied {
		return out, alert, err
	}
	if n.Kind == payment.RefundSucceeded {
		err = s.refundSucceededTx(tx, t, o, r, n, who)
	} else {
		err = s.refundFailedTx(tx, t, o, r, who)
	}
	if err != nil {
		return out, alert, err
	}
	return out, alert, s.flushTx(tx, t)
}

// refundSucceededTx: a customer's refund counts on the order, and the last of them makes it REFUNDED; an automatic one is
// about money that never was the order's.
func (s *Service) refundSucceededTx(tx *db.Tx, t *tail, o *Order, r payment.Refund, n payment.Notice, who cause) error {
	if err := payment.SucceedRefundTx(tx, r, n.RefundNo, n.RefundID); err != nil {
		return err
	}
	if r.Status == fsm.Failed && r.Automatic == nil { // its hold was given back when it failed
		if err := payment.HoldTx(tx, r.PaymentNo, r.Amount); err != nil {
			return err
		}
	}
	read := o.Version
	t.money(o, refundSucceeded, tx.Now, who)
	if r.Automatic != nil {
		return bumpTx(tx, o, read)
	}
	all := o.RefundedAmount+r.Amount == o.PaidAmount
	if all {
		t.move(o, fsm.Refund, tx.Now, who)
	}
	// Its own columns only: a ship or complete that comes in between changes the version, and this runs again.
	x := tx.Exec(`UPDATE orders SET status = ?, refunded_amount = refunded_amount + ?, version = ?, updated_at = ?
		WHERE order_no = ? AND version = ? AND refunded_amount + ? <= paid_amount`,
		o.Status, r.Amount, o.Version, tx.Now, o.OrderNo, read, r.Amount)
	if x.Error == nil && x.RowsAffected == 0 {
		return db.ErrConflict
	}
	// The refund that brings the goods back need not be the last one to succeed.
	restock := slices.ContainsFunc(o.Refunds, func(x payment.Refund) bool {
		return x.Restock && (x.Status == fsm.Succeeded || x.RefundNo == r.RefundNo)
	})
	if all && restock {
		for _, it := range o.Items {
			t.moves = append(t.moves, stock.Movement{SKU: it.SKU, Kind: stock.Return, Ref: o.OrderNo, Delta: it.Quantity, At: tx.Now})
		}
	}
	return x.Error
}

// refundFailedTx: a customer's refund gives its hold back, somebody may ask anew; an automatic one is still owed.
func (s *Service) refundFailedTx(tx *db.Tx, t *tail, o *Order, r payment.Refund, who cause) error {
	if err := payment.FailRefundTx(tx, r); err != nil {
		return err
	}
	if r.Automatic == nil {
		if err := payment.UnholdTx(tx, r.PaymentNo, r.Amount); err != nil {
			return err
		}
	}
	read := o.Version
	t.money(o, refundFailed, tx.Now, who)
	return bumpTx(tx, o, read)
}

// holdable reports whether a refund's amount is still free to be promised.
func holdable(tx *db.Tx, r payment.Refund) bool {
	var n int64
	err := tx.Model(&payment.Payment{}).Where("payment_no = ? AND refund_held + ? <= received_amount", r.PaymentNo, r.Amount).Count(&n).Error
	return err != nil || n == 1 // the error comes up again at the next statement
}

func errNoRefund() error { return fault.New(fault.NotFound, "not_found", "there is no such refund") }
