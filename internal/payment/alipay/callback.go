package alipay

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"orderd/internal/fault"
	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

// VerifyCallback implements payment.Gateway: signature (401), then application and seller (403), then the rest (400)
// (opendocs.alipay.com, "异步通知说明").
//
// There is no freshness: what is dated in it, notify_time, says when it was sent, but not whether a repeat (up to 25 hours
// later) is dated anew. A limit could turn away the only report of a payment, and would win nothing: a replay is the same
// notify_id, which the inbox knows, about a payment that is settled.
func (g *Gateway) VerifyCallback(_ http.Header, body []byte, _ time.Time) (payment.Notice, error) {
	fields, err := verify(g, body)
	if err != nil {
		return payment.Notice{}, &fault.Error{
			Kind: fault.Unauthenticated, Code: "unauthenticated", Message: "the callback's signature does not verify", Err: err,
		}
	}
	if fields["app_id"] != g.cfg.AppID || fields["seller_id"] != g.cfg.SellerID {
		return payment.Notice{}, fault.New(fault.Forbidden, "forbidden", "the callback is another application's or seller's")
	}
	n, err := parse(fields)
	if err != nil {
		return payment.Notice{}, fault.New(fault.Invalid, "invalid_request", err.Error())
	}
	n.Source, n.Gateway = "callback:"+name, name
	n.PayloadHash = n.FactsHash() // a repeat may have another notify_time, and another signature for that
	return n, nil
}

// verify reads the form and checks the signature, which is over all decoded fields but sign and sign_type. A field given
// twice and a name that is no plain word are refused: with them, one signed text could be read in two ways.
func verify(g *Gateway, body []byte) (map[string]string, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, errors.New("the callback is no form")
	}
	fields := make(map[string]string, len(form))
	for name, values := range form {
		if len(values) != 1 || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return nil, fmt.Errorf("field %.64q is given twice or has no plain name", name)
		}
		fields[name] = values[0]
	}
	if fields["sign_type"] != "RSA2" {
		return nil, errors.New("sign_type must be RSA2")
	}
	return fields, signed.Verify(g.public, content(fields, "sign", "sign_type"), fields["sign"])
}

// parse reads the verified fields. Fields and types that we do not know are ignored.
func parse(f map[string]string) (payment.Notice, error) {
	n := payment.Notice{Kind: payment.Other, MessageID: f["notify_id"], PaymentNo: f["out_trade_no"], TransactionID: f["trade_no"], Currency: currency}
	if !signed.Token(n.MessageID) {
		return n, errors.New("notify_id must be 1 to 128 visible ASCII characters")
	}
	if f["notify_type"] != "trade_status_sync" {
		return n, nil
	}
	switch f["trade_status"] {
	case "TRADE_SUCCESS", "TRADE_FINISHED": // also sent again after a partial refund: it was paid all the same
		n.Kind = payment.PaymentSucceeded
	case "TRADE_CLOSED":
		if !refundIn(f) {
			n.Kind = payment.PaymentClosed
		} // else: it was paid, and all of it has gone back. Whoever sent the refund asks for it by its number.
	case "":
		return n, errors.New("trade_status is missing")
	}
	if n.Kind == payment.Other { // WAIT_BUYER_PAY, and what there may be one day
		return n, nil
	}
	if !signed.Token(n.PaymentNo) || !signed.Token(n.TransactionID) {
		return n, errors.New("out_trade_no and trade_no must be 1 to 128 visible ASCII characters")
	}
	var err error
	if n.Amount, err = fen(f["total_amount"]); err != nil {
		return n, fmt.Errorf("total_amount: %w", err)
	}
	return n, nil
}

// refundIn reports whether a callback tells of a refund. refund_fee may also be there as 0.00.
func refundIn(f map[string]string) bool {
	return f["gmt_refund"] != "" || strings.Trim(f["refund_fee"], "0.") != ""
}

// Acknowledge implements payment.Gateway: Alipay takes the seven characters "success" for a receipt and sends everything
// else again. An error's own words could contain them, so they stay out.
func (g *Gateway) Acknowledge(_ string, err error) payment.Acknowledgement {
	const text = "text/plain; charset=utf-8"
	if err != nil {
		return payment.Acknowledgement{Status: signed.Status(err), ContentType: text, Body: []byte("fail")}
	}
	return payment.Acknowledgement{Status: http.StatusOK, ContentType: text, Body: []byte("success")}
}
