package sandbox_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/sandbox/wire"
)

func TestChargePaidOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := charge("p-1")
	first, err := b.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, fsm.Pending, first.State)
	require.Equal(t, b.url+"/pay/p-1", first.PayURL)

	again, err := b.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, first, again)
	other := r
	other.Amount++
	_, err = b.Charge(t.Context(), other)
	require.ErrorContains(t, err, "payment_no_reused")

	b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded"})
	n := b.next(t)
	require.Equal(t, payment.PaymentSucceeded, n.Kind)
	require.Equal(t, "callback:sandbox", n.Source)
	require.Equal(t, "sandbox", n.Gateway)
	require.Len(t, n.PayloadHash, 64)
	require.Equal(t, []any{"p-1", first.TransactionID, int64(1299), "CNY"}, []any{n.PaymentNo, n.TransactionID, n.Amount, n.Currency})

	status, _ := b.raw(t, http.MethodPost, "/v1/charges/p-1/pay", wire.PayRequest{Outcome: "succeeded"})
	require.Equal(t, http.StatusConflict, status)
	for name, call := range map[string]func() (payment.Charge, error){
		"query":  func() (payment.Charge, error) { return b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"}) },
		"close":  func() (payment.Charge, error) { return b.Close(t.Context(), payment.Ref{PaymentNo: "p-1"}) },
		"charge": func() (payment.Charge, error) { return b.Charge(t.Context(), r) },
	} {
		c, err := call()
		require.NoError(t, err, name)
		require.Equal(t, fsm.Succeeded, c.State, name)
		require.Equal(t, first.TransactionID, c.TransactionID, name)
	}
	ledger, err := b.Ledger(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, ledger, 1)
}

func TestUnknownToTheGateway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Query(t.Context(), payment.Ref{PaymentNo: "nobody's"})
	require.ErrorIs(t, err, payment.ErrNotFound)
	_, err = b.Close(t.Context(), payment.Ref{PaymentNo: "../faults"})
	require.ErrorIs(t, err, payment.ErrNotFound)
	_, err = b.QueryRefund(t.Context(), "nobody's", payment.Ref{PaymentNo: "p-1"})
	require.ErrorIs(t, err, payment.ErrNotFound)
	_, err = b.Refund(t.Context(), payment.RefundRequest{RefundNo: "r-1", PaymentNo: "nobodys", Amount: 1})
	require.ErrorIs(t, err, payment.ErrNotFound)
}

func TestClosedIsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.open(t, "p-1")
	for range 2 {
		c, err := b.Close(t.Context(), payment.Ref{PaymentNo: "p-1"})
		require.NoError(t, err)
		require.Equal(t, fsm.Closed, c.State)
	}
	require.Equal(t, payment.PaymentClosed, b.next(t).Kind)
	status, _ := b.raw(t, http.MethodPost, "/v1/charges/p-1/pay", wire.PayRequest{Outcome: "succeeded"})
	require.Equal(t, http.StatusConflict, status)
	_, err := b.Charge(t.Context(), r)
	require.Error(t, err, "a charge that is closed already was not opened")
	c, err := b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, fsm.Closed, c.State)
}

func TestDeclinedByTheShopper(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open(t, "p-1")
	b.pay(t, "p-1", wire.PayRequest{Outcome: "failed"})
	require.Equal(t, payment.PaymentFailed, b.next(t).Kind)
	c, err := b.Close(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, fsm.Failed, c.State)
	status, _ := b.raw(t, http.MethodPost, "/v1/charges/p-1/pay", wire.PayRequest{Outcome: "succeeded"})
	require.Equal(t, http.StatusConflict, status)
}

func TestAnotherAmountIsPaid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open(t, "p-1")
	b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded", Amount: new(int64(7)), Currency: new("JPY")})
	n := b.next(t)
	require.Equal(t, []any{int64(7), "JPY"}, []any{n.Amount, n.Currency})
	c, err := b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, []any{int64(7), "JPY"}, []any{c.Amount, c.Currency})
	c, err = b.Close(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, int64(7), c.Amount)
	ledger, err := b.Ledger(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, []any{"charge", int64(7), "JPY"}, []any{ledger[0].Kind, ledger[0].Amount, ledger[0].Currency})
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open(t, "p-1")
	no, err := b.Refund(t.Context(), payment.RefundRequest{RefundNo: "r-0", PaymentNo: "p-1", Amount: 1})
	require.NoError(t, err)
	require.Equal(t, fsm.Failed, no.State, "nothing was received yet")
	b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded"})
	b.next(t)

	r := payment.RefundRequest{RefundNo: "r-1", PaymentNo: "p-1", Amount: 1000, Currency: "CNY"}
	first, err := b.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, fsm.Succeeded, first.State)
	n := b.next(t)
	require.Equal(t, []any{payment.RefundSucceeded, "p-1", "r-1", first.RefundID, int64(1000), "CNY"},
		[]any{n.Kind, n.PaymentNo, n.RefundNo, n.RefundID, n.Amount, n.Currency})
	again, err := b.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, first, again)
	asked, err := b.QueryRefund(t.Context(), "r-1", payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, first, asked)
	r.Amount = 999
	_, err = b.Refund(t.Context(), r)
	require.ErrorContains(t, err, "refund_no_reused")
	require.ErrorIs(t, err, payment.ErrRefused)

	no, err = b.Refund(t.Context(), payment.RefundRequest{RefundNo: "r-2", PaymentNo: "p-1", Amount: 300})
	require.NoError(t, err)
	require.Equal(t, payment.RefundAnswer{RefundNo: "r-2", State: fsm.Failed, Amount: 300}, no)
	_, err = b.Refund(t.Context(), payment.RefundRequest{RefundNo: "r-2", PaymentNo: "p-1", Amount: 299})
	require.NoError(t, err)
	ledger, err := b.Ledger(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, ledger, 2)
	require.Equal(t, []any{int64(2), "refund", "r-1", int64(1000)},
		[]any{ledger[0].Seq, ledger[0].Kind, ledger[0].RefundNo, ledger[0].Amount})
}

// Whatever does not come from the gateway, or is not about our payment, leaves the outcome unknown: it is an error, and
// never ErrNotFound.
func TestAnswersThatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	const good = `{"payment_no":"p-1","transaction_id":"t","status":"PENDING","amount":1,"currency":"CNY"}`
	for name, answer := range map[string]struct {
		status      int
		contentType string
		body        string
	}{
		"not found, says a proxy":  {404, "text/plain", "404 page not found"},
		"not found, without code":  {404, "application/problem+json", `{"status":404}`},
		"redirect":                 {302, "application/json", good},
		"other content type":       {200, "text/html", good},
		"no content type":          {200, "", good},
		"too long":                 {200, "application/json", good + strings.Repeat(" ", 1<<20)},
		"no JSON":                  {200, "application/json", `{"status":`},
		"duplicate member":         {200, "application/json", strings.Replace(good, "{", `{"status":"SUCCEEDED",`, 1)},
		"another payment":          {200, "application/json", strings.Replace(good, "p-1", "p-2", 1)},
		"unknown status":           {200, "application/json", strings.Replace(good, "PENDING", "DONE", 1)},
		"no transaction":           {200, "application/json", strings.Replace(good, `"t"`, `""`, 1)},
		"amount zero":              {200, "application/json", strings.Replace(good, ":1,", ":0,", 1)},
		"script behind the button": {200, "application/json", strings.Replace(good, "{", `{"pay_url":"javascript:alert(1)",`, 1)},
		"server error":             {500, "application/problem+json", `{"status":500,"code":"not_found"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redirected := false
			stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				redirected = redirected || r.URL.Path == "/elsewhere"
				w.Header()["Content-Type"] = []string{answer.contentType}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(answer.status)
				_, _ = w.Write([]byte(answer.body))
			}))
			client := sandbox.NewClient()
			defer stranger.Close()
			defer client.CloseIdleConnections()
			g, err := sandbox.NewGateway(sandbox.Config{
				URL: stranger.URL, APIKey: apiKey, WebhookSecrets: []string{secret}, MerchantID: merchant, NotifyURL: "http://merchant/", Client: client,
			})
			require.NoError(t, err)
			_, err = g.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
			require.Error(t, err)
			require.NotErrorIs(t, err, payment.ErrNotFound)
			_, err = g.Close(t.Context(), payment.Ref{PaymentNo: "p-1"})
			require.Error(t, err)
			require.NotErrorIs(t, err, payment.ErrNotFound)
			require.False(t, redirected)
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := sandbox.Config{URL: "http://gateway/", APIKey: "k", WebhookSecrets: []string{secret}, MerchantID: "m", NotifyURL: "https://merchant/"}
	_, err := sandbox.NewGateway(good)
	require.NoError(t, err)
	for name, spoil := range map[string]func(*sandbox.Config){
		"url":      func(c *sandbox.Config) { c.URL = "gateway:80" },
		"notify":   func(c *sandbox.Config) { c.NotifyURL = "ftp://merchant/" },
		"key":      func(c *sandbox.Config) { c.APIKey = "" },
		"merchant": func(c *sandbox.Config) { c.MerchantID = "" },
		"none":     func(c *sandbox.Config) { c.WebhookSecrets = nil },
		"secret":   func(c *sandbox.Config) { c.WebhookSecrets = []string{"whsec_short"} },
	} {
		c := good
		spoil(&c)
		_, err := sandbox.NewGateway(c)
		require.Error(t, err, name)
	}
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	a := setup(t).Acknowledge("applied", nil)
	require.Equal(t, []any{200, "application/json", `{"result":"applied"}`}, []any{a.Status, a.ContentType, string(a.Body)})
	require.Zero(t, setup(t).Acknowledge("", payment.ErrNotFound))
}
