package alipay

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment"
	"orderd/internal/payment/gatewaytest"
	"orderd/internal/payment/signed/signedtest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	gatewaytest.Run(t, gatewaytest.Harness{
		Name: "alipay", Currency: "CNY", NotTaken: []gatewaytest.Money{{Amount: 1299, Currency: "USD"}, {Amount: 1299, Currency: "JPY"}, {Amount: 1299, Currency: "KWD"}, {Amount: maxAmount + 1, Currency: "CNY"}},
		TransactionID: "2026030422001004330000121536",
		Start: func(t testing.TB) gatewaytest.Company {
			f := startFake(t)
			return gatewaytest.Company{
				URL: f.url,
				Open: func(t testing.TB, c payment.Charge) {
					require.Contains(t, f.open(t, c.PayURL), "10000")
				},
				Pay: func(_ testing.TB, c payment.Charge, amount int64) { f.pay(c.PaymentNo, amount) },
			}
		},
		Connect:  func(t testing.TB, url string) payment.Gateway { return connect(t, url) },
		Callback: callback,
		Kinds:    []payment.NoticeKind{payment.PaymentSucceeded, payment.PaymentClosed}, // refunds are settled by their answers
		Acknowledged: func(a payment.Acknowledgement) bool {
			return a.Status == http.StatusOK && string(a.Body) == "success"
		},
		ChargesLocally: true, // page pay: the shopper's browser sends the request that we signed
		AskedOnly:      true,
		SignsAnswers:   true,
		SignsBody:      true, // field sign of the form
		Undated:        true, // see VerifyCallback
	})
}

func callback(t testing.TB, c gatewaytest.Callback) (http.Header, []byte) {
	fields := with(paidFields(), "notify_id", c.ID, "out_trade_no", c.PaymentNo, "trade_no", c.TransactionID, "total_amount", yuan(c.Amount),
		"notify_time", c.At.In(beijing).Format(timeForm))
	if c.Kind == payment.PaymentClosed {
		fields = without(with(fields, "trade_status", "TRADE_CLOSED"), "gmt_payment", "receipt_amount", "fund_bill_list")
	}
	switch c.Flaw {
	case gatewaytest.OtherMerchant:
		fields["seller_id"] = "2088000000000002"
	case gatewaytest.UnknownType:
		fields["notify_type"] = "dut_user_sign"
	case gatewaytest.Malformed:
		delete(fields, "total_amount")
	}
	return http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}}, signedtest.Alipay(t, alipayKey(), fields)
}
