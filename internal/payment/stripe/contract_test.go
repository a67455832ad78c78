package stripe_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85/webhook"

	"orderd/internal/payment"
	"orderd/internal/payment/gatewaytest"
	"orderd/internal/payment/stripe"
)

const (
	secretKey = "sk_test_123"
	secret    = "whsec_0123456789abcdef0123456789abcdef"
)

func TestContract(t *testing.T) {
	t.Parallel()
	gatewaytest.Run(t, gatewaytest.Harness{
		Name: "stripe", Currency: "EUR", NotTaken: []gatewaytest.Money{{Amount: 1234, Currency: "KWD"}, {Amount: 501, Currency: "MGA"}, {Amount: 1299, Currency: "IQD"}, {Amount: 1299, Currency: "IRR"}, {Amount: 1000, Currency: "UGX"}},
		TransactionID: "cs_test_404",
		Start:         func(t testing.TB) gatewaytest.Company { return newFake(t).company() },
		Connect:       func(t testing.TB, url string) payment.Gateway { return connect(t, url) },
		Callback:      signedCallback,
		Kinds: []payment.NoticeKind{payment.PaymentSucceeded, payment.PaymentFailed, payment.PaymentClosed,
			payment.RefundSucceeded, payment.RefundFailed},
		Acknowledged: func(a payment.Acknowledgement) bool { return a.Status/100 == 2 },
	})
}

func connect(t testing.TB, url string) *stripe.Gateway {
	t.Helper()
	transport := stripe.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	g, err := stripe.NewGateway(stripe.Config{SecretKey: secretKey, WebhookSecrets: []string{secret}, ReturnURL: "https://shop/thanks",
		APIBase: url, Transport: transport})
	require.NoError(t, err)
	return g
}

// sign returns the header that goes with a body.
func sign(body []byte, at time.Time) http.Header {
	p := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: secret, Timestamp: at})
	return http.Header{"Stripe-Signature": {p.Header}, "Content-Type": {"application/json; charset=utf-8"}}
}

// eventOf is an event as Stripe writes it, the members that we do not read among them.
func eventOf(id, kind string, of object) object {
	return object{"id": id, "object": "event", "api_version": "2022-11-15", "created": 1772600767, "livemode": false, "pending_webhooks": 1,
		"request": object{"id": nil, "idempotency_key": nil}, "type": kind, "data": object{"object": of}}
}

func signedCallback(t testing.TB, c gatewaytest.Callback) (http.Header, []byte) {
	t.Helper()
	of := object{"id": c.TransactionID, "object": "checkout.session", "amount_total": c.Amount, "currency": strings.ToLower(c.Currency),
		"metadata": object{"payment_no": c.PaymentNo}, "payment_intent": "pi_1", "status": "complete", "payment_status": "unpaid"}
	kind := ""
	switch c.Kind {
	case payment.PaymentSucceeded:
		kind, of["payment_status"] = "checkout.session.completed", "paid"
	case payment.PaymentFailed:
		kind = "checkout.session.async_payment_failed"
	case payment.PaymentClosed:
		kind, of["status"] = "checkout.session.expired", "expired"
	case payment.RefundSucceeded, payment.RefundFailed:
		_, status, _ := strings.Cut(string(c.Kind), ".")
		kind = "refund.updated"
		of = object{"id": c.RefundID, "object": "refund", "amount": c.Amount, "currency": strings.ToLower(c.Currency), "status": status,
			"metadata": object{"payment_no": c.PaymentNo, "refund_no": c.RefundNo}, "payment_intent": "pi_1"}
	}
	e := eventOf("evt_"+c.ID, kind, of)
	e["pending_webhooks"] = c.At.Unix() % 7 // it differs from one delivery to the next
	switch c.Flaw {
	case gatewaytest.OtherMerchant:
		e["account"] = "acct_2"
	case gatewaytest.UnknownType:
		e["type"] = "payment_intent.partially_funded"
	case gatewaytest.Malformed:
		delete(of, "id")
	}
	body, err := json.Marshal(e, json.Deterministic(true))
	require.NoError(t, err)
	return sign(body, c.At), body
}
