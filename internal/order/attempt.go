package order

import (
	"context"
	"slices"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/payment"
)

// OpenAttempt returns the order's open payment attempt, or opens a new one: after the last one failed, or because
// another gateway is wanted, when the old one is closed at its gateway first. gateway may be empty: any open attempt
// will do, and a new one goes where the last one went.
//
// Errors are faults: not_found, validation_failed (no such gateway, or it does not take the amount), invalid_transition (not
// payable, or expired), order_in_progress, gateway_unavailable (nothing changed), unavailable, outcome_unknown.
func (s *Service) OpenAttempt(ctx context.Context, a Actor, orderNo, gateway string) (Result, error) {
	if _, ok := s.Gateways[gateway]; !ok && gateway != "" {
		return Result{}, fault.Unprocessed(fault.Field{Field: "gateway", Code: "unknown", Message: "there is no such gateway"})
	}
	o, err := s.Get(ctx, Actor{UserID: a.UserID}, orderNo)
	if err != nil {
		return Result{}, err
	}
	if o.Status != fsm.Paying {
		return Result{}, errNotPayable("an order that is " + string(o.Status) + " cannot be paid")
	}
	now, err := s.DB.Now(ctx)
	if err != nil {
		return Result{}, err
	}
	if !o.ExpiresAt.After(now) { // the sweeper has not come by yet
		return Result{}, errNotPayable("the time to pay this order is over")
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	if p := o.Payment; p.OpenSlot == nil || gateway != "" && gateway != p.Gateway {
		if gateway == "" {
			gateway = p.Gateway
		}
		if fields := s.notTaken(gateway, o.Amount, o.Currency); fields != nil { // the open attempt stays
			return Result{}, fault.Unprocessed(fields...)
		}
		if err := s.endOpenAttempt(ctx, &o, gatewayTime); err != nil {
			return Result{}, err
		}
		if err := s.replaceAttempt(ctx, &o, gateway, a); err != nil {
			s.unlease(ctx, p)
			return Result{}, err
		}
		err := s.callGateway(ctx, &o, true, gatewayTime)
		return Result{Order: o, Created: true}, err
	}
	s.stopped(idem.GuardState)
	if slices.Contains([]fsm.State{fsm.Init, fsm.Unknown}, o.Payment.Status) {
		err = s.callGateway(ctx, &o, false, gatewayTime)
	}
	return Result{Order: o, Guard: idem.GuardState}, err
}

// replaceAttempt ends the last attempt in our books and opens the next, in one transaction.
func (s *Service) replaceAttempt(ctx context.Context, o *Order, gateway string, a Actor) error {
	lock, answer := s.Locks.Acquire(ctx, o.OrderNo, lockWait)
	defer lock.Release(ctx)
	if answer == idem.Busy {
		s.stopped(idem.GuardLock)
		return errInProgress(nil)
	}
	attempts, paymentNo := o.Attempts, newNo("P")
	return s.DB.InTx(ctx, "attempt", func(tx *db.Tx) error {
		now, err := readOrders(tx.DB, []string{o.OrderNo})
		if err != nil || len(now) == 0 {
			return err
		}
		*o = *now[0]
		switch {
		case o.Payment.PaymentNo == paymentNo:
			return nil // ours: the answer to our COMMIT was lost, and this is the second run
		case o.Status != fsm.Paying:
			return errNotPayable("an order that is " + string(o.Status) + " cannot be paid")
		case !o.ExpiresAt.After(tx.Now.Time):
			return errNotPayable("the time to pay this order is over")
		case o.Attempts != attempts:
			return errInProgress(nil) // another opened an attempt in between
		}
		return s.replaceAttemptTx(tx, o, paymentNo, gateway, a)
	})
}

func (s *Service) replaceAttemptTx(tx *db.Tx, o *Order, paymentNo, gateway string, a Actor) error {
	if o.Payment.OpenSlot != nil {
		err := payment.EndTx(tx, payment.Booking{PaymentNo: o.Payment.PaymentNo, Status: fsm.Payments.Target(fsm.Close)})
		if err != nil {
			return err
		}
	}
	next := []payment.Payment{{PaymentNo: paymentNo, OrderNo: o.OrderNo, Attempt: o.Attempts + 1, Gateway: gateway, Amount: o.Amount, Currency: o.Currency}}
	if err := payment.OpenTx(tx, s.cfg.Owner, tx.Now.Add(gatewayTime+leaseReserve), next); err != nil {
		return err
	}
	// attempts: of two that open the next attempt at once, or one that cancels, one wins. expires_at: not after the end.
	r := tx.Exec(`UPDATE orders SET attempts = attempts + 1, version = version + 1, updated_at = ?
		WHERE order_no = ? AND status = 'PAYING' AND attempts = ? AND expires_at > ?`, tx.Now, o.OrderNo, o.Attempts, tx.Now)
	if err := db.Exactly(1, r); err != nil {
		return err
	}
	o.Attempts++
	o.Payment = &next[0]
	t := &tail{}
	t.money(o, attemptOpened, tx.Now, cause{actor: a.String(), cause: "payments", detail: paymentNo})
	return s.flushTx(tx, t)
}

func errNotPayable(message string) error {
	return &fault.Error{Kind: fault.Conflict, Code: "invalid_transition", Message: message}
}
