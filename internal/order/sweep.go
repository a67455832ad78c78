package order

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/payment"
)

const (
	stuckAfter = 10 * time.Second // an order at a local stage for longer has lost its process
	sweepBatch = 100              // orders, payments or refunds read at once
	sweepers   = 8                // of them in hand at once: most of the time goes into waiting for gateways
)

// Sweep is one round of the sweeper: it finishes what dead processes left behind and expires unpaid orders. Every
// replica may run it, at any time: it calls what requests call. It returns how many orders it moved on.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	stuck, err := s.each(ctx, s.resume, "status IN ? AND refused_at IS NULL AND updated_at < ?",
		[]fsm.State{fsm.Created, fsm.Reserved}, s.DB.SQLNowPlus(-stuckAfter))
	if err != nil {
		return stuck, err
	}
	expired, err := s.each(ctx, s.expire, "status IN ? AND expires_at <= ?", fsm.Orders.Sources(fsm.Cancel), s.DB.SQLNow())
	if err != nil {
		return stuck + expired, err
	}
	checked, err := s.checkPayments(ctx)
	return stuck + expired + checked, err
}

// each calls work for all orders that match, page by page in the order of their expiry, and returns how many it succeeded
// for.
func (s *Service) each(ctx context.Context, work func(ctx context.Context, orderNo string) error, where string, args ...any) (int, error) {
	n := 0
	last := Order{ExpiresAt: db.At(time.Unix(0, 0))}
	for {
		var page []Order
		err := s.DB.Read(ctx).Select("id, order_no, expires_at").Where(where, args...).
			Where("expires_at > ? OR (expires_at = ? AND id > ?)", last.ExpiresAt, last.ExpiresAt, last.ID).
			Order("expires_at, id").Limit(sweepBatch).Find(&page).Error
		if err != nil {
			return n, err
		}
		n += s.all(ctx, len(page), func(i int) string { return page[i].OrderNo }, func(i int) error { return work(ctx, page[i].OrderNo) })
		if len(page) < sweepBatch || ctx.Err() != nil {
			return n, nil
		}
		last = page[len(page)-1]
	}
}

// all does work 0 to n-1, a few at a time, and returns how often it succeeded. One failure is logged and does not hold up
// the others; neither does a slow gateway.
func (s *Service) all(ctx context.Context, n int, orderNo func(i int) string, work func(i int) error) int {
	var done atomic.Int64
	var at errgroup.Group
	at.SetLimit(sweepers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		at.Go(func() error {
			if err := work(i); err != nil {
				s.sweepFailed(ctx, orderNo(i), err)
				return nil
			}
			done.Add(1)
			return nil
		})
	}
	_ = at.Wait() // they return no errors
	return int(done.Load())
}

func (s *Service) sweepFailed(ctx context.Context, orderNo string, err error) {
	if ctx.Err() != nil { // shutting down
		return
	}
	if f := fault.As(err); f != nil && (f.Kind == fault.Conflict || f.Kind == fault.Unavailable) {
		s.Log.InfoContext(ctx, "order left for the next sweep", "order_no", orderNo, "error", err)
		return
	}
	s.Log.ErrorContext(ctx, "order cannot be swept", "order_no", orderNo, "error", err)
}

// expire cancels an order that was not paid in time. An unreachable gateway is waited for during CloseGrace; after that
// the stock is worth more than certainty: late money finds the order CANCELLED and goes back.
func (s *Service) expire(ctx context.Context, orderNo string) error {
	o, err := s.find(ctx, orderNo)
	if err != nil || o == nil {
		return err
	}
	if err := s.endOpenAttempt(ctx, o, workerTime); err != nil {
		now, e := s.DB.Now(ctx)
		if !fault.Is(err, "gateway_unavailable") || e != nil || now.Before(o.ExpiresAt.Add(s.cfg.CloseGrace)) {
			return errors.Join(err, e)
		}
		s.alert(ctx, "expired_without_gateway", "order_no", orderNo, "error", err)
	}
	_, err = s.cancel(ctx, o, Expired, cause{actor: "sweeper", cause: Expired})
	return err
}

// checkPayments asks the gateways about payments that are due: those whose process died, whose answer was lost, or whose
// callback never came, and for a while those that have ended.
func (s *Service) checkPayments(ctx context.Context) (int, error) {
	due, err := payment.Due(ctx, s.DB, sweepBatch)
	if err != nil {
		return 0, err
	}
	return s.all(ctx, len(due), func(i int) string { return due[i].OrderNo }, func(i int) error { return s.checkPayment(ctx, due[i]) }), nil
}

func (s *Service) checkPayment(ctx context.Context, p payment.Payment) error {
	o, err := s.find(ctx, p.OrderNo)
	if err != nil || o == nil {
		return err
	}
	if o.Status == fsm.Paying && (p.Status == fsm.Init || p.Status == fsm.Unknown) {
		o.Payment = &p
		return s.callGateway(ctx, o, false, workerTime)
	}
	ok, err := payment.Lease(ctx, s.DB, p.PaymentNo, s.cfg.Owner, fsm.Payments.Sources(fsm.Succeed), workerTime+leaseReserve)
	if err != nil || !ok {
		return err
	}
	if p.OpenSlot != nil && o.Status != fsm.Paying { // nobody may pay this any more
		return s.closeForgotten(ctx, p)
	}
	gateway, known := s.Gateways[p.Gateway]
	if !known {
		return payment.Postpone(ctx, s.DB, p, false)
	}
	callCtx, cancel := context.WithTimeout(ctx, workerTime)
	defer cancel()
	charge, err := s.query(callCtx, gateway, p.Ref())
	if err == nil && (charge.State == fsm.Succeeded || p.OpenSlot != nil && charge.State != fsm.Pending) {
		_, err = s.Settle(ctx, answer(p.Gateway, charge))
		return err
	}
	if p.OpenSlot != nil && time.Since(p.CreatedAt.Time) > payment.Stuck {
		s.alert(ctx, "payment_stuck", "payment_no", p.PaymentNo, "order_no", p.OrderNo, "since", p.CreatedAt.Time)
	}
	answered := err == nil || errors.Is(err, payment.ErrNotFound)
	if e := payment.Postpone(ctx, s.DB, p, answered); e != nil || answered {
		return e
	}
	return errGateway(err)
}

// closeForgotten closes an attempt of an order that is past paying.
func (s *Service) closeForgotten(ctx context.Context, p payment.Payment) error {
	charge, err := s.closeAtGateway(ctx, &p, workerTime)
	if errors.Is(err, errNotSure) { // which has set the next time to ask
		return err
	}
	if err != nil {
		return errors.Join(err, payment.Postpone(ctx, s.DB, p, false))
	}
	_, err = s.Settle(ctx, answer(p.Gateway, charge))
	return err
}
