package stripe_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
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

// What an event is taken for: a kind, or the code of a refusal.
func TestEvents(t *testing.T) {
	t.Parallel()
	paid := `{"id":"evt_1","object":"event","api_version":"2022-11-15","livemode":false,"type":"checkout.session.completed","data":{"object":` +
		`{"id":"cs_1","object":"checkout.session","amount_total":1299,"currency":"eur","payment_status":"paid","status":"complete","metadata":{"payment_no":"P1"}}}}`
	refund := `{"id":"evt_1","object":"event","livemode":false,"type":"refund.updated","data":{"object":` +
		`{"id":"re_1","object":"refund","amount":300,"currency":"eur","status":"succeeded","metadata":{"payment_no":"P1","refund_no":"R1"}}}}`
	change := func(of, old, new string) string {
		require.Contains(t, of, old)
		return strings.Replace(of, old, new, 1)
	}
	const invalid, forbidden = "invalid_request", "forbidden"
	for name, c := range map[string]struct{ body, want string }{
		"paid":                        {paid, "payment.succeeded"},
		"async paid":                  {change(paid, "completed", "async_payment_succeeded"), "payment.succeeded"},
		"async failed":                {change(change(paid, "completed", "async_payment_failed"), `"paid"`, `"unpaid"`), "payment.failed"},
		"expired":                     {change(change(paid, "completed", "expired"), `"paid"`, `"unpaid"`), "payment.closed"},
		"completed, money to come":    {change(paid, `"paid"`, `"unpaid"`), "other"},
		"completed, nothing to pay":   {change(paid, `"paid"`, `"no_payment_required"`), invalid},
		"another api_version":         {change(paid, "2022-11-15", "2099-01-01.zebra"), "payment.succeeded"},
		"unknown members":             {change(paid, `"livemode"`, `"x":[1,{}],"livemode"`), "payment.succeeded"},
		"not made by us":              {change(paid, `{"payment_no":"P1"}`, `{}`), "other"},
		"no metadata":                 {change(paid, `{"payment_no":"P1"}`, `null`), "other"},
		"declined, may try again":     {change(paid, "checkout.session.completed", "payment_intent.payment_failed"), "other"},
		"a type that we do not know":  {change(paid, "checkout.session.completed", "invoice.paid"), "other"},
		"refund":                      {refund, "refund.succeeded"},
		"refund created":              {change(refund, "updated", "created"), "refund.succeeded"},
		"refund failed":               {change(change(refund, "updated", "failed"), "succeeded", "failed"), "refund.failed"},
		"refund cancelled":            {change(refund, "succeeded", "canceled"), "refund.failed"},
		"refund pending":              {change(refund, "succeeded", "pending"), "other"},
		"refund in the dashboard":     {change(refund, `,"refund_no":"R1"`, ""), "other"},
		"refund in a new state":       {change(refund, "succeeded", "thinking"), invalid},
		"refund of no payment":        {change(refund, `"payment_no":"P1",`, ""), invalid},
		"live event, test key":        {change(paid, `"livemode":false`, `"livemode":true`), forbidden},
		"connected account's":         {change(paid, `"livemode"`, `"account":"acct_2","livemode"`), forbidden},
		"connected account's, odd":    {change(change(paid, `"livemode"`, `"account":"acct_2","livemode"`), "1299", "-1"), forbidden},
		"no livemode":                 {change(paid, `"livemode":false,`, ""), invalid},
		"Livemode":                    {change(paid, `"livemode"`, `"Livemode"`), invalid},
		"no id":                       {change(paid, `"id":"evt_1",`, ""), invalid},
		"id too long":                 {change(paid, "evt_1", strings.Repeat("x", 129)), invalid},
		"thin event":                  {change(paid, `"object":"event"`, `"object":"v2.core.event"`), invalid},
		"no type":                     {change(paid, "checkout.session.completed", ""), invalid},
		"no session id":               {change(paid, `"id":"cs_1",`, ""), invalid},
		"another object":              {change(paid, `"object":"checkout.session"`, `"object":"charge"`), invalid},
		"empty payment_no":            {change(paid, `"P1"`, `""`), invalid},
		"payment_no with a space":     {change(paid, `"P1"`, `"P 1"`), invalid},
		"amount a string":             {change(paid, "1299", `"1299"`), invalid},
		"amount 0":                    {change(paid, "1299", "0"), invalid},
		"amount negative":             {change(paid, "1299", "-1299"), invalid},
		"amount 12.99":                {change(paid, "1299", "12.99"), invalid},
		"amount twice":                {change(paid, `"amount_total"`, `"amount_total":1,"amount_total"`), invalid},
		"currency in capitals":        {change(paid, `"eur"`, `"EUR"`), invalid},
		"currency that is none":       {change(paid, `"eur"`, `"xxx"`), invalid},
		"currency of unknown decimal": {change(paid, `"eur"`, `"ugx"`), invalid},
		"no data":                     {change(paid, `"data"`, `"date"`), invalid},
		"cut short":                   {paid[:len(paid)-1], invalid},
		"two documents":               {paid + paid, invalid},
		"null":                        {"null", invalid},
		"empty":                       {"", invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := []byte(c.body)
			n, err := connect(t, "http://127.0.0.1:1").VerifyCallback(sign(body, now), body, now)
			if c.want == invalid || c.want == forbidden {
				require.True(t, fault.Is(err, c.want), err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []any{payment.NoticeKind(c.want), "evt_1"}, []any{n.Kind, n.MessageID})
		})
	}
}

// Whatever is signed, the parser neither panics nor lets through a notice that lacks what its kind needs.
func FuzzVerifyCallback(f *testing.F) {
	g := connect(f, "http://127.0.0.1:1")
	f.Add(`{"id":"evt_1","object":"event","livemode":false,"type":"checkout.session.completed","data":{"object":{"id":"cs_1","object":"checkout.session",` +
		`"amount_total":1299,"currency":"eur","payment_status":"paid","metadata":{"payment_no":"P1"}}}}`)
	f.Add(`{"id":"evt_1","object":"event","livemode":false,"type":"refund.failed","data":{"object":{"id":"re_1","object":"refund",` +
		`"amount":1,"currency":"isk","status":"failed","metadata":{"payment_no":"P1","refund_no":"R1"}}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		n, err := g.VerifyCallback(sign([]byte(body), now), []byte(body), now)
		if err != nil {
			if code := fault.As(err).Code; code != "invalid_request" && code != "forbidden" {
				t.Fatal(code)
			}
			return
		}
		if n.Kind != payment.Other && (n.Amount <= 0 || n.PaymentNo == "" || len(n.Currency) != 3) {
			t.Fatalf("%+v", n)
		}
	})
}
