package order

import (
	"context"
	"fmt"
	"time"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
)

// placing is one request on its way through the stages. What is below the line is what the running transaction has
// found and done; it starts anew when the transaction is run again.
type placing struct {
	PlaceRequest
	resume      bool       // by order_no alone: the sweeper, which has no request
	fresh       bool       // the number was made for this request
	orderNo     string     // what every door led to
	paymentNo   string     // of the attempt that this request may open; made here so that a repeated transaction repeats it
	fingerprint string     // see fingerprint.go
	door        idem.Guard // the door that knew the request already
	absent      error      // answer this if the order does not exist
	runs        int        // of the transaction, since the request last joined a batch
	missed      bool       // a read before the transaction did not find the order
	locked      bool       // the order's lock is held
	alone       bool       // nobody else held it when it was asked for
	bound       bool       // its Idempotency-Key has its row
	received    bool       // its message has its row in the inbox
	guard       idem.Guard // which was the first to know that this is a repeat
	created     bool       // the order, by this request
	opened      bool       // its payment attempt, by this request
	// --
	order    *Order // nil: none yet
	creating bool   // it is created in this transaction; created: and committed
	opening  bool   // its payment attempt is; opened: and committed
	twin     bool   // of another in the same batch, or perhaps of an order not looked for: comes again in the next
	err      error
}

// Place creates the order that r asks for, or resumes it, or answers it as it is now: whichever stages are missing are
// run, and no other. It may be called any number of times, at once or after any failure; there is one order, one
// reservation and one charge.
//
// Errors are faults: order_no_taken, order_no_reused, idempotency_key_reused, validation_failed, amount_changed,
// out_of_stock (the order exists and stays CREATED), order_in_progress, token_expired, too_many_open_orders,
// unavailable, outcome_unknown.
func (s *Service) Place(ctx context.Context, r PlaceRequest) (Result, error) {
	if r.Gateway == "" {
		r.Gateway = s.cfg.Gateway
	}
	if _, ok := s.Gateways[r.Gateway]; !ok {
		return Result{}, fault.Unprocessed(fault.Field{Field: "gateway", Code: "unknown", Message: "there is no such gateway"})
	}
	r.Lines = sortLines(r.Lines)
	p := &placing{PlaceRequest: r, fingerprint: fingerprint(r.Lines, r.Gateway, r.Note)}
	if err := s.enter(ctx, p); err != nil {
		return Result{}, err
	}
	res, err := s.place(ctx, p)
	s.leave(ctx, p, err)
	s.stopped(res.Guard)
	return res, err
}

// resume runs the missing stages of an order that exists. It is how the sweeper finishes what a dead process began.
func (s *Service) resume(ctx context.Context, orderNo string) error {
	_, err := s.place(ctx, &placing{resume: true, orderNo: orderNo, absent: errNoOrder()})
	return err
}

// place is one path for all: first submission, repeat, and recovery.
func (s *Service) place(ctx context.Context, p *placing) (Result, error) {
	if !p.fresh {
		// Most repeats end here: one read, no lock, no transaction.
		known, err := s.find(ctx, p.orderNo)
		if err != nil {
			return Result{}, err
		}
		if p.found(known); p.err != nil {
			return Result{}, p.err
		}
		if known == nil && p.absent != nil {
			return Result{}, p.absent
		}
		p.missed = known == nil
	}
	if p.order == nil {
		if err := s.limitOpenOrders(ctx, p.UserID); err != nil {
			return Result{}, err
		}
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	if p.order == nil || p.order.Status == fsm.Created || p.order.Status == fsm.Reserved || p.Key != "" && !p.bound {
		if err := s.placeLocally(ctx, p); err != nil {
			return Result{}, err
		}
	}
	if pay := p.order.Payment; p.order.Status == fsm.Paying && pay != nil && (pay.Status == fsm.Init || pay.Status == fsm.Unknown) {
		if err := s.callGateway(ctx, p.order, p.opened, gatewayTime); err != nil {
			// The order is stored: that is the answer. Its payment is brought on by the next that comes.
			s.Log.WarnContext(ctx, "payment not opened yet", "order_no", p.orderNo, "error", err)
		}
	}
	if p.created {
		p.guard = ""
	}
	return Result{Order: *p.order, Created: p.created, Guard: p.guard}, nil
}

// placeLocally runs the stages that need nobody else, under the order's lock. The lock is given back before the gateway
// is called: a gateway may take longer than any lock lives.
func (s *Service) placeLocally(ctx context.Context, p *placing) error {
	if !p.fresh { // a fresh number only a double click may know
		lock, answer := s.Locks.Acquire(ctx, p.orderNo, lockWait)
		defer lock.Release(ctx)
		if answer == idem.Busy {
			s.stopped(idem.GuardLock)
			return errInProgress(nil)
		}
		p.locked, p.alone = answer == idem.Held, lock.AtOnce()
	}
	p.paymentNo = newNo("P")
	for {
		if err := s.places.Do(ctx, p); err != nil {
			p.order = nil // what the transaction saw, nobody knows to be stored
			return err
		}
		if !p.twin {
			return p.err
		}
		if err := ctx.Err(); err != nil { // a twin in every batch for 8 s
			return errInProgress(err)
		}
		p.runs, p.missed = 0, false // what was missed may be there by now
	}
}

// presumed reports whether the order is taken to be absent without looking: its number was made for this request, or a read
// has just missed it, its lock was free, and no door knew the request. An order that came in between (of a fresh number: by
// a double click that the window led here) meets the unique index, and the next run looks.
func (p *placing) presumed() bool {
	return p.runs == 1 && (p.fresh || p.missed && p.alone && p.door == "")
}

// found takes the order that the request's number stands for, and judges whether it is the one that was meant.
func (p *placing) found(o *Order) {
	if p.order = o; o == nil || p.resume {
		return
	}
	if o.UserID != p.UserID {
		p.order, p.err = nil, fault.New(fault.Conflict, "order_no_taken", "this order_no is in use: choose another",
			fault.Field{Field: "order_no", Code: "taken", Message: "is in use"})
		return
	}
	if o.Fingerprint != p.fingerprint {
		code, what := "order_no_reused", "order_no"
		if p.OrderNo == "" && p.Key != "" {
			code, what = "idempotency_key_reused", "Idempotency-Key"
		}
		p.err = fault.New(fault.Unprocessable, code, fmt.Sprintf("this %s stands for another order", what), differences(o, p.PlaceRequest)...)
		p.order = nil
		return
	}
	if o.Payment != nil && o.Payment.PaymentNo == p.paymentNo {
		p.creating, p.opening = true, true // ours: the answer to our COMMIT was lost, and this is the second run
		return
	}
	if p.created || p.guard != "" {
		return
	}
	switch { // which guard was the first to know?
	case p.door != "":
		p.guard = p.door
	case p.runs > 1: // the read missed it, the index did not
		p.guard = idem.GuardUniqueIndex
	case p.missed && p.locked: // it was created while we waited for the lock
		p.guard = idem.GuardLock
	default:
		p.guard = idem.GuardState
	}
}

// limitOpenOrders refuses a new order to a user who has too many unpaid ones. A courtesy, not a guard: it reads before
// the write.
func (s *Service) limitOpenOrders(ctx context.Context, userID string) error {
	if s.cfg.MaxOpenOrders == 0 {
		return nil
	}
	var n int64
	err := s.DB.Read(ctx).Model(&Order{}).Where("user_id = ? AND status IN ?", userID, []fsm.State{fsm.Created, fsm.Reserved, fsm.Paying}).Count(&n).Error
	if err == nil && n >= int64(s.cfg.MaxOpenOrders) {
		return &fault.Error{Kind: fault.Limited, Code: "too_many_open_orders", RetryAfter: time.Minute,
			Message: fmt.Sprintf("you have %d unpaid orders: pay or cancel one first", n)}
	}
	return err
}
