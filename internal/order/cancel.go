package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orderd/internal/db"
	"orderd/internal/failpoint"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/payment"
	"orderd/internal/stock"
)

// Expired is the cancel_reason of an order that was not paid in time.
const Expired = "expired"

// Cancel gives an unpaid order up and its stock back. The open payment attempt is closed at its gateway first, so that
// nobody pays for what is gone; if it turns out to be paid, the order is PAID and the answer 409.
//
// Again: the same answer. Errors are faults: not_found, invalid_transition, order_in_progress, gateway_unavailable
// (nothing changed), unavailable, outcome_unknown.
func (s *Service) Cancel(ctx context.Context, a Actor, orderNo, reason string) (Result, error) {
	return s.cancelFor(ctx, a, orderNo, reason, cause{actor: a.String(), cause: "cancel", detail: reason})
}

func (s *Service) cancelFor(ctx context.Context, a Actor, orderNo, reason string, c cause) (Result, error) {
	o, err := s.Get(ctx, a, orderNo)
	if err != nil {
		return Result{}, err
	}
	if o.Status == fsm.Cancelled {
		s.stopped(idem.GuardState)
		return Result{Order: o, Guard: idem.GuardState}, nil
	}
	if _, err := fsm.Orders.Next(o.Status, fsm.Cancel); err != nil {
		return Result{}, errTransition(err)
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	if err := s.endOpenAttempt(ctx, &o, gatewayTime); err != nil {
		return Result{}, err
	}
	closed := o.Payment
	res, err := s.cancel(ctx, &o, reason, c)
	if err != nil {
		s.unlease(ctx, closed)
	}
	return res, err
}

// unlease lets the next call to a payment's gateway come at once, not when the lease runs out.
func (s *Service) unlease(ctx context.Context, p *payment.Payment) {
	if p == nil {
		return
	}
	if err := payment.Unlease(ctx, s.DB, p.PaymentNo, s.cfg.Owner); err != nil {
		s.Log.WarnContext(ctx, "lease not given back: it ends by itself", "payment_no", p.PaymentNo, "error", err)
	}
}

// endOpenAttempt closes the order's open attempt at its gateway, holding the attempt's lease: nobody else may send it
// meanwhile. When it returns nil, the attempt is closed there, or the order has none. The lease is kept: the transaction
// that follows ends the attempt in our books. Dying in between: the lease runs out, and the next cancel, sweep or check
// closes it again, which a gateway allows.
func (s *Service) endOpenAttempt(ctx context.Context, o *Order, limit time.Duration) error {
	p := o.Payment
	if p == nil || p.OpenSlot == nil {
		return nil
	}
	ok, err := payment.Lease(ctx, s.DB, p.PaymentNo, s.cfg.Owner, []fsm.State{fsm.Init, fsm.Pending, fsm.Unknown}, limit+leaseReserve)
	if err != nil {
		return err
	}
	if !ok { // another call to the gateway is under way, or it has ended
		return errInProgress(nil)
	}
	charge, err := s.closeAtGateway(ctx, p, limit)
	if err == nil && charge.State != fsm.Succeeded {
		return nil
	}
	s.unlease(ctx, p)
	if err != nil {
		return err
	}
	out, err := s.Settle(ctx, answer(p.Gateway, charge)) // paid, after all
	if err != nil {
		return err
	}
	if out.Result == refundIsOpen { // not what was asked for: it goes back, and the order is as it was
		return errInProgress(nil)
	}
	return fault.New(fault.Conflict, "invalid_transition", "the payment has gone through: the order is PAID")
}

// cancel is the local part: one lock, two checks, three update.
func (s *Service) cancel(ctx context.Context, o *Order, reason string, c cause) (Result, error) {
	lock, answer := s.Locks.Acquire(ctx, o.OrderNo, lockWait)
	defer lock.Release(ctx)
	if answer == idem.Busy {
		s.stopped(idem.GuardLock)
		return Result{}, errInProgress(nil)
	}
	attempts := o.Attempts
	var guard idem.Guard
	err := s.DB.InTx(ctx, "cancel", func(tx *db.Tx) error {
		now, err := readOrders(tx.DB, []string{o.OrderNo})
		if err != nil || len(now) == 0 {
			return err
		}
		*o, guard = *now[0], ""
		if o.Status == fsm.Cancelled {
			guard = idem.GuardStatusSQL // somebody else's cancel came in between
			return nil
		}
		if _, err := fsm.Orders.Next(o.Status, fsm.Cancel); err != nil {
			return errTransition(err)
		}
		if o.Attempts != attempts {
			return errInProgress(nil) // a new attempt was opened, which nobody has closed
		}
		return s.cancelTx(tx, o, reason, c)
	})
	if err != nil {
		return Result{}, err
	}
	s.stopped(guard)
	return Result{Order: *o, Guard: guard}.reread(ctx, s)
}

// cancelTx writes CANCELLED and everything that goes with it.
func (s *Service) cancelTx(tx *db.Tx, o *Order, reason string, c cause) error {
	if err := msg.ReceiveTx(tx, c.receivedRows(o.OrderNo, tx.Now)); err != nil {
		return err
	}
	t := &tail{}
	if p := o.Payment; p != nil && p.OpenSlot != nil {
		err := payment.EndTx(tx, payment.Booking{PaymentNo: p.PaymentNo, Status: fsm.Payments.Target(fsm.Close)})
		if err != nil {
			return err
		}
	}
	// attempts: a new attempt and a cancel must not pass each other.
	r := tx.Exec(`UPDATE orders SET status = ?, cancel_reason = ?, version = version + 1, updated_at = ?
		WHERE order_no = ? AND status IN ? AND attempts = ?`,
		fsm.Cancelled, reason, tx.Now, o.OrderNo, fsm.Orders.Sources(fsm.Cancel), o.Attempts)
	if err := db.Exactly(1, r); err != nil { // a conflict: paid or cancelled in between
		return err
	}
	failpoint.Here("cancel.stage")
	if o.Status != fsm.Created { // stock was reserved: given back once, because this statement wins once
		for _, it := range o.Items {
			t.moves = append(t.moves, stock.Movement{SKU: it.SKU, Kind: stock.Release, Ref: o.OrderNo, Delta: it.Quantity, At: tx.Now})
		}
	}
	t.move(o, fsm.Cancel, tx.Now, c)
	return s.flushTx(tx, t)
}

// errTransition tells a client what the state machine refused.
func errTransition(err error) error {
	f := fault.New(fault.Conflict, "invalid_transition", "the order's status does not allow this")
	var illegal *fsm.IllegalError
	if f.Err = err; errors.As(err, &illegal) {
		f.Message = fmt.Sprintf("%s is not possible: the order is %s", illegal.Event, illegal.From)
	}
	return f
}
