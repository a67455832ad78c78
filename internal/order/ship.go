package order

import (
	"context"
	"fmt"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
)

// Ship notes that a paid order was handed over under trackingNo. Again with the same number: the same answer; with
// another one: 409. An order whose whole payment is promised back is not shipped: 409.
func (s *Service) Ship(ctx context.Context, a Actor, orderNo, trackingNo string) (Result, error) {
	return s.move(ctx, a, orderNo, step{
		event:  fsm.Ship,
		detail: trackingNo,
		done:   func(o *Order) bool { return o.TrackingNo == trackingNo },
		refuse: refundHeld,
		set:    "tracking_no = ?, ",
		args:   []any{trackingNo},
	})
}

// Complete notes that a shipped order was received. Again: the same answer.
func (s *Service) Complete(ctx context.Context, a Actor, orderNo string) (Result, error) {
	return s.move(ctx, a, orderNo, step{
		event: fsm.Complete,
		done:  func(o *Order) bool { return o.Status == fsm.Completed },
	})
}

// refundHeld refuses an order all of whose money is on its way back.
func refundHeld(tx *db.Tx, o *Order) error {
	var held int64
	err := tx.Raw("SELECT COALESCE(SUM(refund_held), 0) FROM payments WHERE order_no = ? AND applied = 1", o.OrderNo).Row().Scan(&held)
	if err == nil && held > 0 && held >= o.PaidAmount {
		return fault.New(fault.Conflict, "invalid_transition", "the whole payment is being refunded")
	}
	return err
}

// step is a plain transition: one event, a guarded UPDATE and nothing else.
type step struct {
	event  fsm.Event
	detail string
	done   func(o *Order) bool // it happened before, just so: repeat the answer
	refuse func(tx *db.Tx, o *Order) error
	set    string // further columns
	args   []any
}

// move takes an order through a plain transition: one lock, two checks, three update.
func (s *Service) move(ctx context.Context, a Actor, orderNo string, st step) (Result, error) {
	o, err := s.Get(ctx, a, orderNo)
	if err != nil {
		return Result{}, err
	}
	if st.done(&o) {
		s.stopped(idem.GuardState)
		return Result{Order: o, Guard: idem.GuardState}, nil
	}
	if _, err := fsm.Orders.Next(o.Status, st.event); err != nil {
		return Result{}, errTransition(err)
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	lock, answer := s.Locks.Acquire(ctx, orderNo, lockWait)
	defer lock.Release(ctx)
	if answer == idem.Busy {
		s.stopped(idem.GuardLock)
		return Result{}, errInProgress(nil)
	}
	var guard idem.Guard
	err = s.DB.InTx(ctx, "move", func(tx *db.Tx) error {
		guard = ""
		var now Order
		if err := tx.Where("order_no = ?", orderNo).Take(&now).Error; err != nil {
			return err
		}
		if st.done(&now) {
			guard = idem.GuardStatusSQL
			return nil
		}
		to, err := fsm.Orders.Next(now.Status, st.event)
		if err != nil {
			return errTransition(err)
		}
		if st.refuse != nil {
			if err := st.refuse(tx, &now); err != nil {
				return err
			}
		}
		r := tx.Exec(fmt.Sprintf("UPDATE orders SET %sstatus = ?, version = version + 1, updated_at = ? WHERE order_no = ? AND status IN ?", st.set),
			append(append([]any{}, st.args...), to, tx.Now, orderNo, fsm.Orders.Sources(st.event))...)
		if err := db.Exactly(1, r); err != nil {
			return err
		}
		t := &tail{}
		t.move(&now, st.event, tx.Now, cause{actor: a.String(), cause: string(st.event), detail: st.detail})
		return s.flushTx(tx, t)
	})
	if err != nil {
		return Result{}, err
	}
	s.stopped(guard)
	return Result{Order: o, Guard: guard}.reread(ctx, s)
}

func (r Result) reread(ctx context.Context, s *Service) (Result, error) {
	err := s.reread(ctx, &r.Order)
	return r, err
}
