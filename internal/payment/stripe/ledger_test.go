package stripe_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment"
)

// What Stripe lists is what it moved for us since then, all pages of it: neither what others did in the same account, nor
// what moved no money.
func TestEntries(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	g := connect(t, f.url)
	open := func(no string) string {
		c, err := g.Charge(t.Context(), request(no))
		require.NoError(t, err)
		return c.TransactionID
	}
	var want []payment.Entry
	for i := range 101 { // more than a page
		no := fmt.Sprint("P", i)
		f.change(open(no), "complete", "paid", "succeeded", 1299)
		want = append([]payment.Entry{{PaymentNo: no, Amount: 1299, Currency: "EUR", At: began.Add(time.Duration(i+1) * time.Second)}}, want...)
	}
	f.change(open("failed"), "complete", "unpaid", "requires_payment_method", 0)
	f.change(open("slow"), "complete", "unpaid", "processing", 0)
	others := open("another's")
	f.change(others, "complete", "paid", "succeeded", 1299)
	delete(f.sessions[others].intent["metadata"].(object), "payment_no")

	back := func(session string, amount int64, metadata object, status string) {
		f.refunds = append(f.refunds, object{"id": fmt.Sprintf("re_%d", len(f.refunds)+1), "object": "refund", "amount": amount, "currency": "eur",
			"metadata": metadata, "payment_intent": "pi_" + session, "status": status, "created": f.now()})
	}
	back("cs_test_1", 99, object{"refund_no": "R1", "payment_no": "P0"}, "succeeded")
	back("cs_test_1", 100, object{}, "succeeded") // by somebody in the dashboard
	back("cs_test_1", 101, object{"refund_no": "R2", "payment_no": "P0"}, "failed")
	back("cs_test_1", 102, object{"refund_no": "R3", "payment_no": "P0"}, "pending")
	back(others, 103, object{}, "succeeded")
	at := time.Unix(f.refunds[0]["created"].(int64), 0)
	want = append(want, payment.Entry{PaymentNo: "P0", RefundNo: "re_2", Amount: 100, Currency: "EUR", At: at.Add(time.Second)},
		payment.Entry{PaymentNo: "P0", RefundNo: "R1", Amount: 99, Currency: "EUR", At: at})

	got, err := g.Entries(t.Context(), began)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = g.Entries(t.Context(), began.Add(101*time.Second))
	require.NoError(t, err)
	require.Equal(t, append(want[:1:1], want[101:]...), got, "since the last payment")
	got, err = g.Entries(t.Context(), at.Add(time.Hour))
	require.NoError(t, err)
	require.Empty(t, got)
}

// A list that breaks off is no list: what is missing would look like money that we do not have.
func TestEntriesThatBreakOff(t *testing.T) {
	t.Parallel()
	const first = `{"object":"list","url":"/v1/payment_intents","has_more":true,"data":[{"id":"pi_1","object":"payment_intent","status":"succeeded",
		"amount_received":1299,"currency":"eur","created":1800000000,"metadata":{"payment_no":"P1"}}]}`
	for name, body := range map[string]string{
		"second page": `{"error":{"type":"api_error"}}`, "amount": `{"object":"list","data":[{"id":"pi_2","object":"payment_intent","status":"succeeded",
		"amount_received":-1,"currency":"eur","metadata":{"payment_no":"P2"}}]}`,
	} {
		status := http.StatusOK
		if name == "second page" {
			status = http.StatusInternalServerError
		}
		s := sequence(t, answer{200, first}, answer{status, body})
		_, err := connect(t, s).Entries(t.Context(), began)
		require.Error(t, err, name)
	}
}

// What is no list is no empty list either: a refund that was not found would be sent again.
func TestRefundsThatAreNoList(t *testing.T) {
	t.Parallel()
	const paid = `{"id":"cs_1","object":"checkout.session","status":"complete","payment_status":"paid","metadata":{"payment_no":"P1"},
		"payment_intent":{"id":"pi_1","status":"succeeded","amount_received":1299,"currency":"eur"}}`
	of := payment.Ref{PaymentNo: "P1", TransactionID: "cs_1"}
	_, err := connect(t, sequence(t, answer{200, paid}, answer{200, `{"object":"list","url":"/v1/refunds","data":[]}`})).QueryRefund(t.Context(), "R1", of)
	require.ErrorIs(t, err, payment.ErrNotFound)
	for _, body := range []string{`{}`, `null`, `{"object":"list","data":[]}`, `{"object":"refund","id":"re_1"}`} {
		_, err := connect(t, sequence(t, answer{200, paid}, answer{200, body})).QueryRefund(t.Context(), "R1", of)
		require.Error(t, err, body)
		require.NotErrorIs(t, err, payment.ErrNotFound, body)
	}
}
