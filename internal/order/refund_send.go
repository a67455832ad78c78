package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orderd/internal/db"
	"orderd/internal/failpoint"
	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// SendRefunds is one round of the refund worker: it sends what is promised and asks for what is under way. It returns
// how many refunds it dealt with.
func (s *Service) SendRefunds(ctx context.Context) (int, error) {
	due, err := payment.DueRefunds(ctx, s.DB, sweepBatch)
	if err != nil {
		return 0, err
	}
	return s.all(ctx, len(due), func(i int) string { return due[i].OrderNo }, func(i int) error { return s.sendRefund(ctx, due[i], false) }), nil
}

// sendRefund brings a refund to its gateway, outside of any transaction, under the refund's lease; leased says that the
// caller has it already. refund_no is the gateway's idempotency key: sent twice, it is one refund. Dying before or
// after the call is the same to whoever comes next: they ask first, and send again what the gateway does not know.
func (s *Service) sendRefund(ctx context.Context, r payment.Refund, leased bool) error {
	limit := gatewayTime
	if !leased {
		limit = workerTime
		ok, err := payment.LeaseRefund(ctx, s.DB, r.RefundNo, s.cfg.Owner, limit+leaseReserve)
		if err != nil || !ok {
			return err
		}
		now, err := payment.FindRefund(ctx, s.DB, r.RefundNo) // who had the lease before may have changed it
		if err != nil || now == nil || now.NextCheckAt == nil {
			return err
		}
		r = *now
		if time.Since(r.CreatedAt.Time) > payment.Stuck {
			s.alert(ctx, "refund_stuck", "refund_no", r.RefundNo, "order_no", r.OrderNo, "since", r.CreatedAt.Time)
		}
	}
	p, err := s.findPayment(ctx, r.PaymentNo)
	if err != nil || p == nil {
		return errors.Join(err, fmt.Errorf("payment %s of refund %s: not read", r.PaymentNo, r.RefundNo))
	}
	callCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := s.askForRefund(callCtx, p, r, leased)
	if err != nil {
		return errors.Join(errGateway(err), payment.WaitRefund(ctx, s.DB, r, fsm.Unknown, nil))
	}
	n := payment.Notice{Source: "answer:" + p.Gateway, Gateway: p.Gateway, MessageID: answer.RefundNo + ":" + string(answer.State),
		PaymentNo: r.PaymentNo, RefundNo: answer.RefundNo, RefundID: answer.RefundID, Amount: answer.Amount, Currency: r.Currency}
	switch n.Kind = refundKinds[answer.State]; n.Kind {
	case "": // under way
		if err = payment.WaitRefund(ctx, s.DB, r, fsm.Pending, &answer.RefundID); db.IsDuplicate(err) {
			err = s.refundIDTaken(ctx, n)
		}
	default:
		_, err = s.Settle(ctx, n)
	}
	if err != nil { // not believed, or not written: it is asked for again, at its time
		return errors.Join(err, payment.WaitRefund(ctx, s.DB, r, fsm.Unknown, nil))
	}
	return nil
}

var refundKinds = map[fsm.State]payment.NoticeKind{fsm.Succeeded: payment.RefundSucceeded, fsm.Failed: payment.RefundFailed}

// askForRefund asks whether the gateway has the refund, unless it is fresh and cannot have been sent, and sends it if not.
func (s *Service) askForRefund(ctx context.Context, p *payment.Payment, r payment.Refund, fresh bool) (payment.RefundAnswer, error) {
	gateway, ok := s.Gateways[p.Gateway]
	if !ok {
		return payment.RefundAnswer{}, fmt.Errorf("gateway %q is not configured", p.Gateway)
	}
	if !fresh {
		failpoint.Here("gateway_query_refund.call")
		answer, err := gateway.QueryRefund(ctx, r.SentNo(), p.Ref())
		failpoint.Here("gateway_query_refund.called")
		s.called(p.Gateway, "query_refund", answer.State, err)
		if !errors.Is(err, payment.ErrNotFound) {
			return answer, err
		}
	}
	q := payment.RefundRequest{RefundNo: r.SentNo(), PaymentNo: r.PaymentNo, TransactionID: p.Ref().TransactionID,
		Amount: r.Amount, Total: p.ReceivedAmount, Currency: r.Currency}
	failpoint.Here("gateway_refund.call")
	answer, err := gateway.Refund(ctx, q)
	failpoint.Here("gateway_refund.called")
	s.called(p.Gateway, "refund", answer.State, err)
	return answer, err
}
