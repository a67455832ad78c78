package alipay

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/signed"
	"orderd/internal/payment/signed/signedtest"
)

func request() payment.ChargeRequest {
	return payment.ChargeRequest{PaymentNo: "P1", Amount: 1299, Currency: "CNY", Subject: "Order 1", ExpiresAt: time.Now().Add(time.Hour)}
}

// paid returns a company that received 12.99 for P1, and its adapter.
func paid(t *testing.T) (*fake, *Gateway) {
	t.Helper()
	f := startFake(t)
	g := connect(t, f.url)
	c, err := g.Charge(t.Context(), request())
	require.NoError(t, err)
	require.Contains(t, f.open(t, c.PayURL), "10000")
	f.pay("P1", 1299)
	return f, g
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NotPanics(t, func() { _, _ = NewGateway(Config{}) })
	for name, spoil := range map[string]func(*Config){
		"URL":            func(c *Config) { c.URL = "alipay" },
		"URL with query": func(c *Config) { c.URL += "?charset=gbk" },
		"no app id":      func(c *Config) { c.AppID = "" },
		"no seller":      func(c *Config) { c.SellerID = "" },
		"no notify URL":  func(c *Config) { c.NotifyURL = "" },
		"no private key": func(c *Config) { c.PrivateKey = nil },
		"garbage key": func(c *Config) {
			c.PrivateKey = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		},
		"keys swapped":    func(c *Config) { c.PrivateKey, c.PublicKey = c.PublicKey, c.PrivateKey },
		"our own public":  func(c *Config) { c.PublicKey = signedtest.PublicPEM(t, appKey()) },
		"no Alipay key":   func(c *Config) { c.PublicKey = nil },
		"key without PEM": func(c *Config) { c.PublicKey = []byte("MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A") },
	} {
		cfg := config(t, "http://alipay.example")
		spoil(&cfg)
		_, err := NewGateway(cfg)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "BEGIN", name)
	}
}

func TestPayPage(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	g := connect(t, f.url)
	r := request()
	r.Subject = "大乐透/=& " + strings.Repeat("茶", 300)
	c, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Empty(t, f.methods, "nobody is called")

	_, err = g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
	require.ErrorIs(t, err, payment.ErrNotFound, "nobody opened the page")
	require.Contains(t, f.open(t, c.PayURL), "10000")
	got, err := g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
	require.NoError(t, err)
	require.Equal(t, fsm.Pending, got.State)

	page, err := url.Parse(c.PayURL)
	require.NoError(t, err)
	spoilt := strings.Replace(page.RawQuery, "12.99", "0.01", 1)
	require.NotEqual(t, page.RawQuery, spoilt)
	page.RawQuery = spoilt
	require.Contains(t, f.open(t, page.String()), "isv.invalid-signature", "the shopper cannot change the price")

	r.Amount = 1
	other, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Contains(t, f.open(t, other.PayURL), "CONTEXT_INCONSISTENT")
	r.PaymentNo, r.ExpiresAt = "P2", time.Now()
	late, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Contains(t, f.open(t, late.PayURL), "TRADE_HAS_CLOSE", "not after time_expire")
}

// Money that Alipay cannot take is refused exactly, before anything is signed: yen have no decimals, dinars three.
func TestOtherMoneyIsRefused(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	g := connect(t, f.url)
	for _, code := range []string{"JPY", "KRW", "KWD", "BHD", "USD", "cny", ""} {
		r := request()
		r.Currency = code
		c, err := g.Charge(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, payment.Charge{PaymentNo: "P1", State: fsm.Failed, Amount: 1299, Currency: code}, c)
		back, err := g.Refund(t.Context(), payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", Amount: 500, Currency: code, Total: 500})
		require.NoError(t, err)
		require.Equal(t, []any{"R1", fsm.Failed}, []any{back.RefundNo, back.State}, code)
	}
	for _, amount := range []int64{0, -1, maxAmount + 1} {
		r := request()
		r.Amount = amount
		c, err := g.Charge(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, []any{fsm.Failed, ""}, []any{c.State, c.PayURL}, amount)
	}
	require.Empty(t, f.methods)
}

func TestCloseOfPageThatNobodyOpened(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	g := connect(t, f.url)
	c, err := g.Charge(t.Context(), request())
	require.NoError(t, err)
	_, err = g.Close(t.Context(), payment.Ref{PaymentNo: "P1"})
	require.ErrorIs(t, err, payment.ErrNotFound)
	require.Contains(t, f.open(t, c.PayURL), "10000", "the address is good until time_expire")
	f.pay("P1", 1299)
	got, err := g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
	require.NoError(t, err)
	require.Equal(t, fsm.Succeeded, got.State, "late money is seen")
}

func TestFullyRefundedTradeWasPaid(t *testing.T) {
	t.Parallel()
	_, g := paid(t)
	_, err := g.Refund(t.Context(), payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", Amount: 1299, Currency: "CNY", Total: 1299})
	require.NoError(t, err)
	for _, ask := range []func() (payment.Charge, error){
		func() (payment.Charge, error) { return g.Query(t.Context(), payment.Ref{PaymentNo: "P1"}) },
		func() (payment.Charge, error) { return g.Close(t.Context(), payment.Ref{PaymentNo: "P1"}) },
	} {
		c, err := ask()
		require.NoError(t, err)
		require.Equal(t, []any{fsm.Succeeded, int64(1299)}, []any{c.State, c.Amount}, "TRADE_CLOSED, but paid")
	}
}

func TestRefundsAreExact(t *testing.T) {
	t.Parallel()
	_, g := paid(t)
	refund := func(no string, amount int64) (payment.RefundAnswer, error) {
		return g.Refund(t.Context(), payment.RefundRequest{RefundNo: no, PaymentNo: "P1", Amount: amount, Currency: "CNY", Total: 1299})
	}
	for range 2 { // fund_change Y, then N
		a, err := refund("R1", 301)
		require.NoError(t, err)
		require.Equal(t, payment.RefundAnswer{RefundNo: "R1", RefundID: "R1", State: fsm.Succeeded, Amount: 301}, a)
	}
	a, err := refund("R2", 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, a.Amount, "not refund_fee, the sum of all")
	_, err = refund("R1", 300)
	require.ErrorContains(t, err, "DISCORDANT_REPEAT_REQUEST")
	a, err = refund("R3", 994)
	require.NoError(t, err)
	require.Equal(t, fsm.Failed, a.State, "more than is left")
	_, err = g.QueryRefund(t.Context(), "R3", payment.Ref{PaymentNo: "P1"})
	require.ErrorIs(t, err, payment.ErrNotFound)
}

// A refusal that a repeat can mend is an error: Alipay wants the same out_request_no again. One that none can is Failed,
// unless an earlier try went through.
func TestRefusedRefunds(t *testing.T) {
	t.Parallel()
	r := payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", Amount: 300, Currency: "CNY", Total: 1299}
	for code, state := range map[string]fsm.State{
		"SELLER_BALANCE_NOT_ENOUGH": "", "REASON_TRADE_BEEN_FREEZEN": "", "SYSTEM_ERROR": "", "TRADE_HAS_FINISHED": fsm.Failed, "TRADE_NOT_ALLOW_REFUND": fsm.Failed,
		"TRADE_STATUS_ERROR": fsm.Failed, "REASON_TRADE_REFUND_FEE_ERR": fsm.Failed, "ODD": "",
	} {
		f, g := paid(t)
		f.refuses = code
		a, err := g.Refund(t.Context(), r)
		require.Equal(t, state == "", err != nil, "%s: %v", code, err)
		require.Equal(t, state == "" && code != "SYSTEM_ERROR", errors.Is(err, payment.ErrRefused), code)
		require.Equal(t, state, a.State, code)
		f.refuses = ""
		_, err = g.Refund(t.Context(), r) // it was not there: the same number goes through
		require.NoError(t, err, code)
		f.refuses = code
		a, err = g.Refund(t.Context(), r)
		require.Equal(t, state == "", err != nil, "%s: %v", code, err)
		if state != "" {
			require.Equal(t, fsm.Succeeded, a.State, code)
		}
	}
}

// The signature is over the bytes as they were sent; nothing is read from an answer that is not signed by Alipay's key.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		ok   bool
	}{
		"as it is":            {`{"alipay_trade_query_response":{ "a" : "\/" },"sign":"s"}`, true},
		"sign first":          {`{"sign":"s","alipay_trade_query_response":{ "a" : "\/" }}`, true},
		"cert serial":         {`{"alipay_trade_query_response":{ "a" : "\/" },"alipay_cert_sn":"1","sign":"s"}`, true},
		"twice":               {`{"alipay_trade_query_response":{},"alipay_trade_query_response":{ "a" : "\/" },"sign":"s"}`, false},
		"no sign":             {`{"alipay_trade_query_response":{ "a" : "\/" }}`, false},
		"sign null":           {`{"alipay_trade_query_response":{ "a" : "\/" },"sign":null}`, false},
		"another method's":    {`{"alipay_trade_close_response":{ "a" : "\/" },"sign":"s"}`, false},
		"no object":           {`{"alipay_trade_query_response":"{}","sign":"s"}`, false},
		"error":               {`{"error_response":{"code":"40002"},"sign":"s"}`, false},
		"something after it":  {`{"alipay_trade_query_response":{ "a" : "\/" },"sign":"s"}x`, false},
		"array":               {`[]`, false},
		"nothing":             {``, false},
		"invalid UTF-8":       {"{\"alipay_trade_query_response\":{\"a\":\"\xff\"},\"sign\":\"s\"}", false},
		"no JSON but a login": {`<html>`, false},
	} {
		raw, signature, err := envelope([]byte(c.body), "alipay.trade.query")
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
		if c.ok {
			require.Equal(t, []string{`{ "a" : "\/" }`, "s"}, []string{string(raw), signature}, name)
		}
	}
}

// An answer that is signed well and says what it cannot say is no answer.
func TestAnswersThatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	f, g := paid(t)
	trade := func() *fakeTrade { return f.trades["P1"] }
	for name, spoil := range map[string]func(){
		"no number":      func() { trade().no = "" },
		"unknown status": func() { trade().status = "TRADE_ODD" },
		"no amount":      func() { trade().amount = 0 },
		"negative":       func() { trade().amount = -1299 },
	} {
		before := *trade()
		spoil()
		_, err := g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
		require.ErrorContains(t, err, "cannot be believed", name)
		*trade() = before
	}
	stranger := *g
	stranger.public = &otherKey().PublicKey
	_, err := stranger.Query(t.Context(), payment.Ref{PaymentNo: "P404"})
	require.ErrorContains(t, err, "does not verify")
	require.NotErrorIs(t, err, payment.ErrNotFound)
}

// What a signature is over: sorted, joined, not escaped.
func TestContent(t *testing.T) {
	t.Parallel()
	f := map[string]string{"b": "2+ &=", "a": "1", "sign": "x", "c": "", "sign_type": "RSA2"}
	require.Equal(t, "a=1&b=2+ &=&c=&sign_type=RSA2", string(content(f, "sign")))
	signature, err := signed.Sign(alipayKey(), content(f, "sign"))
	require.NoError(t, err)
	require.NoError(t, signed.Verify(&alipayKey().PublicKey, content(f, "sign"), signature))
	for i, s := range []string{"", " ", "###", signature + "\n", signature[:172] + "\n" + signature[172:], signature[:340], "A" + signature[1:]} {
		if s != signature {
			require.Error(t, signed.Verify(&alipayKey().PublicKey, content(f, "sign"), s), i)
		}
	}
	require.Error(t, signed.Verify(&otherKey().PublicKey, content(f, "sign"), signature))
	require.True(t, slices.Equal(content(f), content(f)))
}
