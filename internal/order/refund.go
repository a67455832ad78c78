package order

import (
	"context"
	"fmt"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/payment"
)

// RefundRequest asks for money of a paid order to be sent back. Amount is in minor units of the order's currency.
type RefundRequest struct {
	OrderNo  string
	RefundNo string // the caller's number: the same again is the same refund
	Amount   int64
	Reason   string
	Restock  bool // the goods came back too; only with the refund that completes the order's money
}

// RefundResult is a refund as it is now.
type RefundResult struct {
	Refund  payment.Refund
	Created bool
	Guard   idem.Guard
}

// Refund promises money of the order's payment back and asks its gateway to send it. What is promised is held in the
// same transaction, so that refunds together never exceed what came in, however many are asked for at once.
//
// The same again: the same refund. Errors are faults: not_found, invalid_transition (not paid), refund_no_reused,
// refund_exceeds_payment, validation_failed, unavailable, outcome_unknown.
func (s *Service) Refund(ctx context.Context, a Actor, q RefundRequest) (RefundResult, error) {
	if _, err := s.Get(ctx, a, q.OrderNo); err != nil {
		return RefundResult{}, err
	}
	if payment.Reserved(q.RefundNo) {
		return RefundResult{}, fault.Unprocessed(fault.Field{Field: "refund_no", Code: "reserved", Message: "auto-... numbers are the service's own"})
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	res, err := s.promise(ctx, a, q)
	if err != nil {
		return RefundResult{}, err
	}
	s.stopped(res.Guard)
	if res.Created { // else the worker sees to it
		if err := s.sendRefund(ctx, res.Refund, true); err != nil {
			s.Log.InfoContext(ctx, "refund left for the worker", "refund_no", q.RefundNo, "error", err)
		}
		if now, err := payment.FindRefund(ctx, s.DB, q.RefundNo); err == nil && now != nil {
			res.Refund = *now
		}
	}
	return res, nil
}

// promise writes the refund and its hold. The lock only keeps many refunds of one order from losing to each other.
func (s *Service) promise(ctx context.Context, a Actor, q RefundRequest) (res RefundResult, err error) {
	lock, answer := s.Locks.Acquire(ctx, q.OrderNo, lockWait)
	defer lock.Release(ctx)
	if answer == idem.Busy {
		s.stopped(idem.GuardLock)
		return res, errInProgress(nil)
	}
	err = s.DB.InTx(ctx, "refund", func(tx *db.Tx) error {
		res = RefundResult{}
		return s.refundTx(tx, a, q, &res)
	})
	return res, err
}

func (s *Service) refundTx(tx *db.Tx, a Actor, q RefundRequest, res *RefundResult) error {
	var known []payment.Refund
	if err := tx.Where("refund_no = ?", q.RefundNo).Find(&known).Error; err != nil {
		return err
	}
	if len(known) > 0 {
		res.Refund, res.Guard = known[0], idem.GuardState
		return sameRefund(known[0], q)
	}
	orders, err := readOrders(tx.DB, []string{q.OrderNo})
	if err != nil || len(orders) == 0 {
		return err
	}
	o := orders[0]
	var applied []payment.Payment
	if err := tx.Where("order_no = ? AND applied = 1", q.OrderNo).Find(&applied).Error; err != nil {
		return err
	}
	if o.PaidAmount == 0 || len(applied) == 0 {
		return &fault.Error{Kind: fault.Conflict, Code: "invalid_transition", Message: "an order that is " + string(o.Status) + " has no money to send back"}
	}
	p := applied[0]
	left := p.ReceivedAmount - p.RefundHeld
	if q.Amount > left {
		return fault.New(fault.Unprocessable, "refund_exceeds_payment", fmt.Sprintf("of this payment, %d %s can be refunded", left, p.Currency),
			fault.Field{Field: "amount", Code: "too_large", Message: fmt.Sprintf("at most %d", left)})
	}
	if g, ok := s.Gateways[p.Gateway]; ok && !g.Takes(q.Amount, p.Currency) {
		return fault.Unprocessed(fault.Field{Field: "amount", Code: "not_allowed", Message: fmt.Sprintf("%s cannot send back %d %s in minor units", p.Gateway, q.Amount, p.Currency)})
	}
	if q.Restock && q.Amount < left {
		return fault.Unprocessed(fault.Field{Field: "restock", Code: "not_allowed", Message: "goes with the refund that completes the order's money"})
	}
	until := db.AtPtr(tx.Now.Add(gatewayTime + leaseReserve))
	r := payment.Refund{RefundNo: q.RefundNo, PaymentNo: p.PaymentNo, OrderNo: q.OrderNo, Gateway: p.Gateway,
		Amount: q.Amount, Currency: p.Currency, Reason: payment.Customer, Note: q.Reason, Status: fsm.Refunds.Target(fsm.Open), Restock: q.Restock,
		NextCheckAt: until, LeaseOwner: &s.cfg.Owner, LeaseUntil: until, CreatedAt: tx.Now, UpdatedAt: tx.Now}
	if err := tx.Create(&r).Error; err != nil {
		return err
	}
	if err := payment.HoldTx(tx, p.PaymentNo, q.Amount); err != nil {
		return err
	}
	t := &tail{}
	read := o.Version
	t.money(o, refundOpened, tx.Now, cause{actor: a.String(), cause: "refunds " + q.RefundNo, detail: fmt.Sprintf("%s: %d %s", q.RefundNo, q.Amount, p.Currency)})
	if err := bumpTx(tx, o, read); err != nil {
		return err
	}
	res.Refund, res.Created = r, true
	return s.flushTx(tx, t)
}

// sameRefund refuses a refund_no that stands for another refund.
func sameRefund(r payment.Refund, q RefundRequest) error {
	var fields []fault.Field
	for name, differs := range map[string]bool{"refund_no": r.OrderNo != q.OrderNo, "amount": r.Amount != q.Amount, "reason": r.Note != q.Reason, "restock": r.Restock != q.Restock} {
		if differs {
			fields = append(fields, fault.Field{Field: name, Code: "differs", Message: "differs from the refund that exists"})
		}
	}
	if fields != nil {
		return fault.New(fault.Unprocessable, "refund_no_reused", "this refund_no stands for another refund", fields...)
	}
	return nil
}

// bumpTx writes the order's version after money events, unless somebody else wrote one since it was read.
func bumpTx(tx *db.Tx, o *Order, read int64) error {
	r := tx.Exec("UPDATE orders SET version = ?, updated_at = ? WHERE order_no = ? AND version = ?", o.Version, tx.Now, o.OrderNo, read)
	return db.Exactly(1, r)
}

// Refunds returns the order's refunds, oldest first.
func (s *Service) Refunds(ctx context.Context, a Actor, orderNo string) ([]payment.Refund, error) {
	o, err := s.Get(ctx, a, orderNo)
	return o.Refunds, err
}
