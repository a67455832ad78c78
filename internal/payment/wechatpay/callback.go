package wechatpay

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

var errOtherMerchant = errors.New("the callback is another merchant's or application's")

// event is the outside of a callback (pay.weixin.qq.com, "支付成功回调通知", "退款结果回调通知").
type event struct {
	ID        string    `json:"id"`
	EventType string    `json:"event_type"`
	Resource  *resource `json:"resource"`
}

// VerifyCallback implements payment.Gateway: signature over the raw bytes (401), then, decrypted, the merchant (403) and
// the rest (400).
func (g *Gateway) VerifyCallback(header http.Header, body []byte, now time.Time) (payment.Notice, error) {
	if err := g.verify(header, body, now); err != nil {
		return payment.Notice{}, &fault.Error{
			Kind: fault.Unauthenticated, Code: "unauthenticated", Message: "the callback's signature does not verify", Err: err,
		}
	}
	n, err := g.parse(body)
	if errors.Is(err, errOtherMerchant) {
		return payment.Notice{}, fault.New(fault.Forbidden, "forbidden", err.Error())
	}
	if err != nil {
		return payment.Notice{}, fault.New(fault.Invalid, "invalid_request", err.Error())
	}
	n.Source, n.Gateway = "callback:"+name, name
	n.PayloadHash = n.FactsHash() // a repeat may be encrypted anew
	return n, nil
}

// parse reads a verified callback. Members that we do not know are ignored; one given twice is refused.
func (g *Gateway) parse(body []byte) (payment.Notice, error) {
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return payment.Notice{}, errors.New("the callback is no JSON object as documented")
	}
	if !signed.Token(e.ID) || e.EventType == "" {
		return payment.Notice{}, errors.New("id and event_type must be given")
	}
	n := payment.Notice{Kind: payment.Other, MessageID: e.ID}
	payments, refunds := strings.HasPrefix(e.EventType, "TRANSACTION."), strings.HasPrefix(e.EventType, "REFUND.")
	if !payments && !refunds {
		return n, nil
	}
	if e.Resource == nil {
		return n, errors.New("resource must be given")
	}
	plain, err := decrypt(g.aead, *e.Resource)
	if err != nil {
		return n, err
	}
	if payments {
		return g.parsePayment(n, plain)
	}
	return g.parseRefund(n, plain)
}

func (g *Gateway) parsePayment(n payment.Notice, plain []byte) (payment.Notice, error) {
	var t transaction
	if err := json.Unmarshal(plain, &t); err != nil {
		return n, errors.New("the transaction is no JSON object as documented")
	}
	if t.MchID != g.cfg.MchID || t.AppID != g.cfg.AppID {
		return n, errOtherMerchant
	}
	c, ok := t.charge()
	kinds := map[fsm.State]payment.NoticeKind{
		fsm.Succeeded: payment.PaymentSucceeded, fsm.Failed: payment.PaymentFailed, fsm.Closed: payment.PaymentClosed,
	}
	switch kind := kinds[c.State]; {
	case c.State == "", kind == "", t.TradeState == "REFUND": // unknown; not paid yet; something went back, of which others tell
		return n, nil
	case !ok:
		return n, fmt.Errorf("a transaction in state %s must have its numbers and its amount", t.TradeState)
	default:
		n.Kind = kind
	}
	n.PaymentNo, n.TransactionID, n.Amount, n.Currency = c.PaymentNo, c.TransactionID, c.Amount, c.Currency
	return n, nil
}

// parseRefund: the callback has no currency, it is the payment's.
func (g *Gateway) parseRefund(n payment.Notice, plain []byte) (payment.Notice, error) {
	var f refund
	if err := json.Unmarshal(plain, &f); err != nil {
		return n, errors.New("the refund is no JSON object as documented")
	}
	if f.MchID != g.cfg.MchID {
		return n, errOtherMerchant
	}
	kind, ok := map[fsm.State]payment.NoticeKind{fsm.Succeeded: payment.RefundSucceeded, fsm.Failed: payment.RefundFailed}[states[f.RefundStatus]]
	if !ok { // under way, ABNORMAL (see states), or unknown
		return n, nil
	}
	amount, ok := fen(f.Amount.Refund)
	if !ok || !signed.Token(f.OutTradeNo) || !signed.Token(f.OutRefundNo) || !signed.Token(f.RefundID) || !signed.Token(f.TransactionID) {
		return n, fmt.Errorf("a refund in state %s must have its numbers and its amount", f.RefundStatus)
	}
	n.Kind, n.PaymentNo, n.TransactionID, n.RefundNo, n.RefundID = kind, f.OutTradeNo, f.TransactionID, f.OutRefundNo, f.RefundID
	n.Amount, n.Currency = amount, currency
	return n, nil
}

// Acknowledge implements payment.Gateway: 204 is a receipt; a status of 4xx or 5xx with a code has it sent again.
func (g *Gateway) Acknowledge(_ string, err error) payment.Acknowledgement {
	if err == nil {
		return payment.Acknowledgement{Status: http.StatusNoContent, ContentType: "application/json"}
	}
	status := signed.Status(err)
	return payment.Acknowledgement{
		Status: status, ContentType: "application/json", Body: []byte(`{"code":"FAIL","message":"` + http.StatusText(status) + `"}`),
	}
}
