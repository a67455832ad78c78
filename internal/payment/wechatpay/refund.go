package wechatpay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

// refund is a refund as the answers and the callback tell it; the state has another name in each.
type refund struct {
	MchID         string `json:"mchid"` // callback only
	OutTradeNo    string `json:"out_trade_no"`
	TransactionID string `json:"transaction_id"`
	OutRefundNo   string `json:"out_refund_no"`
	RefundID      string `json:"refund_id"`
	Status        string `json:"status"`
	RefundStatus  string `json:"refund_status"` // callback only
	Amount        struct {
		Refund jsontext.Value `json:"refund"`
	} `json:"amount"`
}

// states of a refund. ABNORMAL (the shopper's card does not take the money) is not the end: the money waits, and somebody
// sends it on in the merchant platform, after which it is SUCCESS. Taking it for Failed would free the amount for a second
// refund, and both would be paid.
var states = map[string]fsm.State{
	"SUCCESS": fsm.Succeeded, "PROCESSING": fsm.Pending, "ABNORMAL": fsm.Pending, "CLOSED": fsm.Failed,
}

type refundAmount struct {
	Refund   int64  `json:"refund"` // fen
	Total    int64  `json:"total"`  // of the payment, fen
	Currency string `json:"currency"`
}

// Refund implements payment.Gateway. out_refund_no is the idempotency key ("同一退款单号多次请求只退一笔"). Most refusals are an
// error, not Failed: WeChat Pay wants the same number again after them ("申请退款失败重试时请使用原商户退款单号，避免重复退款"),
// and a Failed refund would be sent under another. Failed are those that no repeat can mend.
func (g *Gateway) Refund(ctx context.Context, r payment.RefundRequest) (payment.RefundAnswer, error) {
	if !g.Takes(r.Amount, r.Currency) { // not sent, now or before
		return payment.RefundAnswer{RefundNo: r.RefundNo, State: fsm.Failed, Amount: r.Amount}, nil
	}
	var out refund
	err := g.call(ctx, http.MethodPost, "/v3/refund/domestic/refunds", struct {
		OutTradeNo  string       `json:"out_trade_no"`
		OutRefundNo string       `json:"out_refund_no"`
		NotifyURL   string       `json:"notify_url"`
		Amount      refundAmount `json:"amount"`
	}{r.PaymentNo, r.RefundNo, g.cfg.NotifyURL, refundAmount{r.Amount, r.Total, currency}}, &out)
	var answer payment.RefundAnswer
	switch {
	case refused(err, forGood...): // an earlier try whose answer was lost may have gone through all the same
		answer, err = g.QueryRefund(ctx, r.RefundNo, payment.Ref{PaymentNo: r.PaymentNo})
		if errors.Is(err, payment.ErrNotFound) {
			return payment.RefundAnswer{RefundNo: r.RefundNo, State: fsm.Failed, Amount: r.Amount}, nil
		}
	case err == nil:
		answer, err = out.answer(r.RefundNo, r.PaymentNo)
	}
	if err == nil && answer.Amount != r.Amount {
		err = fmt.Errorf("wechatpay: refund %s is there with %d fen, not %d", r.RefundNo, answer.Amount, r.Amount)
	}
	return answer, err
}

// forGood are the refusals of a refund that stay: the order is in no state for it, too old, or has less left; or the shopper's
// account is no more ("申请退款", 业务错误码).
var forGood = []string{"INVALID_REQUEST", "USER_ACCOUNT_ABNORMAL"}

// QueryRefund implements payment.Gateway.
func (g *Gateway) QueryRefund(ctx context.Context, refundNo string, of payment.Ref) (payment.RefundAnswer, error) {
	var out refund
	err := g.call(ctx, http.MethodGet, "/v3/refund/domestic/refunds/"+url.PathEscape(refundNo), nil, &out)
	if refused(err, notExist...) {
		return payment.RefundAnswer{}, payment.ErrNotFound
	}
	if err != nil {
		return payment.RefundAnswer{}, err
	}
	return out.answer(refundNo, of.PaymentNo)
}

// answer believes an answer only if it is about our refund and says what a refund must say.
func (f *refund) answer(refundNo, paymentNo string) (payment.RefundAnswer, error) {
	state, known := states[f.Status]
	amount, ok := fen(f.Amount.Refund)
	if !known || !ok || f.OutRefundNo != refundNo || f.OutTradeNo != paymentNo || !signed.Token(f.RefundID) {
		return payment.RefundAnswer{}, fmt.Errorf("wechatpay: an answer about refund %s (%q) cannot be believed", refundNo, f.Status)
	}
	return payment.RefundAnswer{RefundNo: refundNo, RefundID: f.RefundID, State: state, Amount: amount}, nil
}
