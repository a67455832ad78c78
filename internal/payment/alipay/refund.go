package alipay

import (
	"context"
	"errors"
	"fmt"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

type refund struct {
	OutTradeNo   string `json:"out_trade_no"`
	OutRequestNo string `json:"out_request_no"`
	RefundAmount string `json:"refund_amount,omitzero"`
}

// Refund implements payment.Gateway. out_request_no is the idempotency key: a repeat moves nothing and says fund_change N.
// refund_fee of the answer is no use, it is the sum of all refunds of the trade.
//
// Most refusals are an error, not Failed: after them (the balance is too low, the trade is frozen) Alipay wants the same
// out_request_no again ("重试时请务必保证退款请求号一致"), and a Failed refund would be sent under another. Failed are those that
// no repeat can mend.
func (g *Gateway) Refund(ctx context.Context, r payment.RefundRequest) (payment.RefundAnswer, error) {
	if !g.Takes(r.Amount, r.Currency) { // not sent, now or before
		return answered(r.RefundNo, fsm.Failed, r.Amount), nil
	}
	a, err := g.call(ctx, "alipay.trade.refund", refund{r.PaymentNo, r.RefundNo, yuan(r.Amount)})
	final := refused(err, forGood...)
	if err != nil && !final {
		return payment.RefundAnswer{}, err
	}
	if !final && a.OutTradeNo != r.PaymentNo {
		return payment.RefundAnswer{}, fmt.Errorf("alipay: an answer about refund %s of %s cannot be believed", r.RefundNo, r.PaymentNo)
	}
	if a.FundChange == "Y" {
		return answered(r.RefundNo, fsm.Succeeded, r.Amount), nil
	}
	// Refused, or N: no money moved by this call. Only the query tells whether it moved by an earlier one, and how much.
	found, err := g.QueryRefund(ctx, r.RefundNo, payment.Ref{PaymentNo: r.PaymentNo, TransactionID: r.TransactionID})
	switch {
	case errors.Is(err, payment.ErrNotFound) && final:
		return answered(r.RefundNo, fsm.Failed, r.Amount), nil
	case errors.Is(err, payment.ErrNotFound):
		return payment.RefundAnswer{}, fmt.Errorf("alipay: refund %s was taken, and is not there yet", r.RefundNo)
	case err != nil:
		return payment.RefundAnswer{}, err
	case found.Amount != r.Amount:
		return payment.RefundAnswer{}, fmt.Errorf("alipay: refund %s is there with %d fen, not %d", r.RefundNo, found.Amount, r.Amount)
	}
	return found, nil
}

// forGood are the refusals of a refund that stay: the trade is over or in no state for it, or has less left
// (alipay.trade.refund, "业务错误码").
var forGood = []string{
	"ACQ.TRADE_HAS_FINISHED", "ACQ.TRADE_NOT_ALLOW_REFUND", "ACQ.TRADE_STATUS_ERROR",
	"ACQ.REASON_TRADE_REFUND_FEE_ERR", "ACQ.REFUND_FEE_ERROR", "ACQ.REFUND_AMT_NOT_EQUAL_TOTAL",
}

// QueryRefund implements payment.Gateway. An answer without refund_status means that there is no such refund or that it did
// not happen; both are ErrNotFound, after which the flow sends the same number again, as Alipay asks for.
func (g *Gateway) QueryRefund(ctx context.Context, refundNo string, of payment.Ref) (payment.RefundAnswer, error) {
	a, err := g.call(ctx, "alipay.trade.fastpay.refund.query", refund{OutTradeNo: of.PaymentNo, OutRequestNo: refundNo})
	if refused(err, "ACQ.TRADE_NOT_EXIST") {
		return payment.RefundAnswer{}, payment.ErrNotFound
	}
	if err != nil {
		return payment.RefundAnswer{}, err
	}
	if a.RefundStatus == "" && a.RefundAmount == "" {
		return payment.RefundAnswer{}, payment.ErrNotFound
	}
	amount, err := fen(a.RefundAmount)
	if err != nil || a.RefundStatus != "REFUND_SUCCESS" || a.OutTradeNo != of.PaymentNo || a.OutRequestNo != refundNo {
		return payment.RefundAnswer{}, fmt.Errorf("alipay: an answer about refund %s (%q, %q) cannot be believed", refundNo, a.RefundStatus, a.RefundAmount)
	}
	return answered(refundNo, fsm.Succeeded, amount), nil
}

// answered: Alipay has no number of its own for a refund, ours is the only one.
func answered(refundNo string, state fsm.State, amount int64) payment.RefundAnswer {
	return payment.RefundAnswer{RefundNo: refundNo, RefundID: refundNo, State: state, Amount: amount}
}
