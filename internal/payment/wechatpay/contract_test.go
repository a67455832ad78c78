package wechatpay

import (
	"net/http"
	"strings"
	"testing"

	"orderd/internal/payment"
	"orderd/internal/payment/gatewaytest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	gatewaytest.Run(t, gatewaytest.Harness{
		Name: "wechatpay", Currency: "CNY", NotTaken: []gatewaytest.Money{{Amount: 1299, Currency: "USD"}, {Amount: 1299, Currency: "HKD"}, {Amount: 1299, Currency: "JPY"}},
		TransactionID: "1217752501201407033233368018",
		Start: func(t testing.TB) gatewaytest.Company {
			f := startFake(t)
			return gatewaytest.Company{
				URL:     f.url,
				Pay:     func(_ testing.TB, c payment.Charge, amount int64) { f.pay(c.PaymentNo, amount) },
				Decline: func(_ testing.TB, c payment.Charge) { f.end(c.PaymentNo, "PAYERROR") },
			}
		},
		Connect:  func(t testing.TB, url string) payment.Gateway { return connect(t, url) },
		Callback: callback,
		Kinds: []payment.NoticeKind{
			payment.PaymentSucceeded, payment.PaymentFailed, payment.PaymentClosed, payment.RefundSucceeded, payment.RefundFailed,
		},
		Acknowledged: func(a payment.Acknowledgement) bool {
			return a.Status == http.StatusOK || a.Status == http.StatusNoContent
		},
		AskedOnly:    true,
		SignsAnswers: true,
	})
}

func callback(t testing.TB, c gatewaytest.Callback) (http.Header, []byte) {
	plain := with(paidTransaction(), "out_trade_no", c.PaymentNo, "transaction_id", c.TransactionID, "amount", object{"total": c.Amount, "currency": c.Currency})
	eventType := "TRANSACTION.SUCCESS"
	switch c.Kind {
	case payment.PaymentFailed:
		plain["trade_state"] = "PAYERROR"
	case payment.PaymentClosed:
		plain["trade_state"] = "CLOSED"
	case payment.RefundSucceeded, payment.RefundFailed:
		eventType = "REFUND.SUCCESS"
		plain = with(doneRefund(), "out_trade_no", c.PaymentNo, "out_refund_no", c.RefundNo, "refund_id", c.RefundID, "amount", object{"refund": c.Amount, "total": c.Amount})
		if c.Kind == payment.RefundFailed {
			eventType, plain["refund_status"] = "REFUND.CLOSED", "CLOSED"
		}
	}
	switch c.Flaw {
	case gatewaytest.OtherMerchant:
		plain["mchid"] = "1900000110"
	case gatewaytest.UnknownType:
		eventType = strings.Replace(eventType, "TRANSACTION", "PAYSCORE", 1)
	case gatewaytest.Malformed:
		delete(plain, "amount")
	}
	body := envelope(t, c.ID, eventType, plain)
	return signedHeaders(t, platformKey(), publicID, c.At, body), body
}
