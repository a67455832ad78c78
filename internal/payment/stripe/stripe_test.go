package stripe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/stripe"
)

var now = time.Unix(1_800_000_000, 0)

func request(no string) payment.ChargeRequest {
	return payment.ChargeRequest{PaymentNo: no, Amount: 1299, Currency: "EUR", Subject: "Order 1", ExpiresAt: time.Now().Add(time.Hour)}
}

func setup(t *testing.T) (*fake, *stripe.Gateway, payment.Ref) {
	t.Helper()
	f := newFake(t)
	g := connect(t, f.url)
	c, err := g.Charge(t.Context(), request("P1"))
	require.NoError(t, err)
	return f, g, payment.Ref{PaymentNo: "P1", TransactionID: c.TransactionID}
}

// The states of a session and its PaymentIntent, and what they are to us. "" is an answer that cannot be believed.
func TestStates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status, paid, intent string
		received             int64
		want, afterClose     fsm.State
	}{
		{"open", "unpaid", "requires_payment_method", 0, "", fsm.Closed}, // an open session has a pay page
		{"complete", "paid", "succeeded", 1299, fsm.Succeeded, fsm.Succeeded},
		{"complete", "paid", "succeeded", 1300, fsm.Succeeded, fsm.Succeeded},
		{"complete", "unpaid", "processing", 0, fsm.Pending, ""}, // a bank debit cannot be stopped
		{"complete", "unpaid", "requires_payment_method", 0, fsm.Failed, fsm.Failed},
		{"complete", "unpaid", "canceled", 0, fsm.Failed, fsm.Failed},
		{"complete", "paid", "processing", 0, "", ""},
		{"complete", "unpaid", "succeeded", 1299, "", ""},
		{"complete", "no_payment_required", "succeeded", 0, "", ""},
		{"complete", "paid", "succeeded", 0, "", ""},
		{"expired", "unpaid", "requires_payment_method", 0, fsm.Closed, fsm.Closed},
		{"something new", "paid", "succeeded", 1299, "", ""},
	} {
		f, g, of := setup(t)
		f.change(of.TransactionID, c.status, c.paid, c.intent, c.received)
		got, err := g.Query(t.Context(), of)
		require.Equal(t, c.want == "", err != nil, "%+v: %v", c, err)
		require.Equal(t, c.want, got.State, "%+v", c)
		if c.want == fsm.Succeeded {
			require.Equal(t, []any{c.received, "EUR", of.TransactionID}, []any{got.Amount, got.Currency, got.TransactionID})
		}
		got, err = g.Close(t.Context(), of)
		require.Equal(t, c.afterClose == "", err != nil, "%+v: %v", c, err)
		require.NotErrorIs(t, err, payment.ErrNotFound)
		require.Equal(t, c.afterClose, got.State, "%+v", c)
	}
}

// Under one Idempotency-Key Stripe repeats its first answer word for word, whatever happened since.
func TestChargeSentAgainLater(t *testing.T) {
	t.Parallel()
	r := request("P1")
	f := newFake(t)
	g := connect(t, f.url)
	first, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	f.change(first.TransactionID, "complete", "paid", "succeeded", 1299)
	again, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []any{fsm.Succeeded, first.TransactionID}, []any{again.State, again.TransactionID})
	f.change(first.TransactionID, "expired", "unpaid", "canceled", 0)
	_, err = g.Charge(t.Context(), r)
	require.Error(t, err, "a charge that is closed already was not opened")
	require.NotErrorIs(t, err, payment.ErrNotFound)
	r.Amount++
	_, err = g.Charge(t.Context(), r)
	require.ErrorContains(t, err, "idempotency_error")
}

func TestAmountThatStripeCannotTake(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	g := connect(t, f.url)
	r := request("P1")
	r.Amount, r.Currency = 5124, "KWD"
	c, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, payment.Charge{PaymentNo: "P1", State: fsm.Failed, Amount: 5124, Currency: "KWD"}, c)
	require.Empty(t, f.requests)
	back, err := g.Refund(t.Context(), payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", TransactionID: "cs_test_1", Amount: 1, Currency: "KWD", Total: 5120})
	require.NoError(t, err)
	require.Equal(t, payment.RefundAnswer{RefundNo: "R1", State: fsm.Failed, Amount: 1}, back)
	require.Empty(t, f.requests)
}

// What goes over the line is Stripe's smallest unit, what comes back is ISO 4217's: charged, paid, and sent back in part.
func TestUnitsOfEachCurrency(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	g := connect(t, f.url)
	for i, c := range []struct {
		code                          string
		charged, sent, back, sentBack int64
	}{
		{"JPY", 500, 500, 120, 120}, {"KRW", 1000, 1000, 1, 1}, {"KWD", 1230, 1230, 10, 10}, {"CNY", 1299, 1299, 299, 299},
		{"ISK", 5, 500, 2, 200}, {"MGA", 500, 5, 100, 1},
	} {
		r := request(fmt.Sprint("P", i))
		r.Amount, r.Currency = c.charged, c.code
		require.True(t, g.Takes(c.charged, c.code))
		opened, err := g.Charge(t.Context(), r)
		require.NoError(t, err, c.code)
		of := payment.Ref{PaymentNo: r.PaymentNo, TransactionID: opened.TransactionID}
		require.Equal(t, c.sent, f.sessions[of.TransactionID].object["amount_total"], c.code)
		f.change(of.TransactionID, "complete", "paid", "succeeded", c.sent)
		paid, err := g.Query(t.Context(), of)
		require.NoError(t, err)
		require.Equal(t, []any{fsm.Succeeded, c.charged, c.code}, []any{paid.State, paid.Amount, paid.Currency})
		back, err := g.Refund(t.Context(), payment.RefundRequest{RefundNo: fmt.Sprint("R", i), PaymentNo: r.PaymentNo, TransactionID: of.TransactionID,
			Amount: c.back, Currency: c.code, Total: c.charged})
		require.NoError(t, err)
		require.Equal(t, []any{fsm.Succeeded, c.back}, []any{back.State, back.Amount})
		require.Equal(t, c.sentBack, f.refunds[i]["amount"], c.code)
	}
}

// An error is logged by the caller: Stripe's own words are in it, its objects and our key are not.
func TestErrorsAreShort(t *testing.T) {
	t.Parallel()
	g := connect(t, serve(t, 402, `{"error":{"type":"card_error","code":"card_declined","message":"Your card was declined.",`+
		`"payment_method":{"card":{"last4":"4242"}},"payment_intent":{"id":"pi_1","client_secret":"pi_1_secret_x"}}}`))
	_, err := g.Charge(t.Context(), request("P1"))
	require.ErrorContains(t, err, "402 card_error card_declined: Your card was declined.")
	for _, private := range []string{"4242", "pi_1", secretKey} {
		require.NotContains(t, err.Error(), private)
	}
}

func TestNotFoundIsStripesOwnWord(t *testing.T) {
	t.Parallel()
	of := payment.Ref{PaymentNo: "P1", TransactionID: "cs_test_1"}
	const missing = `{"error":{"type":"invalid_request_error","code":"resource_missing","message":"No such checkout.session"}}`
	g := connect(t, serve(t, 404, missing))
	_, err := g.Query(t.Context(), of)
	require.ErrorIs(t, err, payment.ErrNotFound)
	_, err = g.Charge(t.Context(), request("P1"))
	require.Error(t, err)
	require.NotErrorIs(t, err, payment.ErrNotFound, "a charge that is being made cannot be missing")
	_, err = connect(t, serve(t, 500, missing)).Query(t.Context(), of)
	require.Error(t, err)
	require.NotErrorIs(t, err, payment.ErrNotFound)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := stripe.Config{SecretKey: "rk_live_1", WebhookSecrets: []string{secret}, ReturnURL: "https://shop/"}
	_, err := stripe.NewGateway(good)
	require.NoError(t, err)
	for name, spoil := range map[string]func(*stripe.Config){
		"no key":          func(c *stripe.Config) { c.SecretKey = "" },
		"publishable key": func(c *stripe.Config) { c.SecretKey = "pk_live_1" },
		"key of no mode":  func(c *stripe.Config) { c.SecretKey = "sk_1" },
		"half a key":      func(c *stripe.Config) { c.SecretKey = "sk_live_" },
		"no secret":       func(c *stripe.Config) { c.WebhookSecrets = nil },
		"empty secret":    func(c *stripe.Config) { c.WebhookSecrets = []string{""} },
		"short secret":    func(c *stripe.Config) { c.WebhookSecrets = []string{"whsec_1"} },
		"return":          func(c *stripe.Config) { c.ReturnURL = "javascript:alert(1)" },
		"base":            func(c *stripe.Config) { c.APIBase = "api.stripe.com" },
	} {
		c := good
		spoil(&c)
		_, err := stripe.NewGateway(c)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "pk_live_1")
	}
}
