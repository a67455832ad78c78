package wechatpay

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/signed/signedtest"
)

var expiry = time.Now().Add(time.Hour)

func request() payment.ChargeRequest {
	return payment.ChargeRequest{PaymentNo: "P1", Amount: 1299, Currency: "CNY", Subject: "Order 1", ExpiresAt: expiry}
}

// paid returns a company that received 1299 fen for P1, and its adapter.
func paid(t *testing.T) (*fake, *Gateway) {
	t.Helper()
	f := startFake(t)
	g := connect(t, f.url)
	_, err := g.Charge(t.Context(), request())
	require.NoError(t, err)
	f.pay("P1", 1299)
	return f, g
}

func certificatePEM(t *testing.T, serial *big.Int) []byte {
	t.Helper()
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "Tenpay.com Root CA"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &platformKey().PublicKey, platformKey())
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NotPanics(t, func() { _, _ = NewGateway(Config{}) })
	for name, spoil := range map[string]func(*Config){
		"URL":               func(c *Config) { c.URL = "wechat" },
		"no mchid":          func(c *Config) { c.MchID = "" },
		"mchid with quotes": func(c *Config) { c.MchID = `1",nonce_str="x` },
		"no appid":          func(c *Config) { c.AppID = "" },
		"no serial":         func(c *Config) { c.SerialNo = "" },
		"no private key":    func(c *Config) { c.PrivateKey = nil },
		"keys swapped":      func(c *Config) { c.PrivateKey, c.Platform[0].PEM = c.Platform[0].PEM, c.PrivateKey },
		"APIv3 key of 31":   func(c *Config) { c.APIv3Key = apiv3Key[1:] },
		"APIv3 key of 33":   func(c *Config) { c.APIv3Key += "x" },
		"no platform key":   func(c *Config) { c.Platform = nil },
		"platform serial":   func(c *Config) { c.Platform[0].Serial = "" },
		"our own key":       func(c *Config) { c.Platform[0].PEM = signedtest.PublicPEM(t, merchantKey()) },
		"other certificate": func(c *Config) { c.Platform[0].PEM = certificatePEM(t, big.NewInt(0xABC)) },
		"no notify URL":     func(c *Config) { c.NotifyURL = "" },
		"notify with query": func(c *Config) { c.NotifyURL += "?x=1" },
	} {
		cfg := config(t, "http://wechat.example")
		spoil(&cfg)
		_, err := NewGateway(cfg)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "BEGIN", name)
		require.NotContains(t, err.Error(), apiv3Key[1:], name)
	}
}

// While WeChat Pay's key is being replaced, callbacks are signed with either: by the certificate or by the public key.
func TestPlatformKeyCanBeReplaced(t *testing.T) {
	t.Parallel()
	const serial = "00ABCDEF" // with the leading zeros of its first byte
	cfg := config(t, "http://wechat.example")
	cfg.Platform = append(cfg.Platform, PlatformKey{Serial: serial[2:], PEM: certificatePEM(t, big.NewInt(0xABCDEF))})
	g, err := NewGateway(cfg)
	require.NoError(t, err)
	body := envelope(t, "EV-1", "TRANSACTION.SUCCESS", paidTransaction())
	for _, s := range []string{publicID, serial[2:]} {
		_, err = g.VerifyCallback(signedHeaders(t, platformKey(), s, now, body), body, now)
		require.NoError(t, err, s)
	}
}

func TestSubjectKeepsTo127Bytes(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	g := connect(t, f.url)
	r := request()
	r.Subject = strings.Repeat("茶", 100) + "\xff"
	c, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(c.PayURL, "weixin://"))
	for _, s := range []string{"", "Order 1", strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("x", 126) + "茶", strings.Repeat("茶", 43)} {
		got := subject(s)
		require.LessOrEqual(t, len(got), 127)
		require.Greater(t, len(got)+4, min(len(s), 127))
		require.True(t, utf8.ValidString(got))
	}
}

// A payment_no is one charge: the same values again give a code for it, other values are refused.
func TestChargeAgain(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	g := connect(t, f.url)
	for range 2 {
		c, err := g.Charge(t.Context(), request())
		require.NoError(t, err)
		require.Equal(t, []any{fsm.Pending, "", int64(1299)}, []any{c.State, c.TransactionID, c.Amount})
	}
	dear := request()
	dear.Amount = 1300
	_, err := g.Charge(t.Context(), dear)
	require.ErrorContains(t, err, "OUT_TRADE_NO_USED")
	f.pay("P1", 1299)
	c, err := g.Charge(t.Context(), request()) // the answer to the first was lost, and the shopper paid
	require.NoError(t, err)
	require.Equal(t, []any{fsm.Succeeded, int64(1299)}, []any{c.State, c.Amount})
	other := request()
	other.PaymentNo = "P2"
	_, err = g.Charge(t.Context(), other)
	require.NoError(t, err)
	_, err = g.Close(t.Context(), payment.Ref{PaymentNo: "P2"})
	require.NoError(t, err)
	_, err = g.Charge(t.Context(), other)
	require.ErrorContains(t, err, "ORDER_CLOSED")
}

// Money that WeChat Pay cannot take is refused exactly, before anything is sent: yen have no decimals, dinars three.
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
	require.Empty(t, f.calls)
}

func TestStates(t *testing.T) {
	t.Parallel()
	f, g := paid(t)
	for state, want := range map[string]fsm.State{
		"SUCCESS": fsm.Succeeded, "REFUND": fsm.Succeeded, "NOTPAY": fsm.Pending, "USERPAYING": fsm.Pending, "CLOSED": fsm.Closed,
		"REVOKED": fsm.Closed, "PAYERROR": fsm.Failed, "ODD": "", "success": "",
	} {
		f.orders["P1"].state = state
		c, err := g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
		require.Equal(t, want == "", err != nil, "%s: %v", state, err)
		require.Equal(t, want, c.State, state)
	}
	f.orders["P1"].state, f.orders["P1"].total = "SUCCESS", 0
	_, err := g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
	require.ErrorContains(t, err, "cannot be believed", "paid, and no amount")
}

// The shopper is typing the password: the order cannot be closed now, and nobody may say that it was.
func TestCloseWhileTheShopperPays(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	g := connect(t, f.url)
	_, err := g.Charge(t.Context(), request())
	require.NoError(t, err)
	f.orders["P1"].state = "USERPAYING"
	_, err = g.Close(t.Context(), payment.Ref{PaymentNo: "P1"})
	require.Error(t, err)
	require.NotErrorIs(t, err, payment.ErrNotFound)
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	f, g := paid(t)
	r := payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", Amount: 300, Currency: "CNY", Total: 1299}
	a, err := g.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, fsm.Pending, a.State)
	for state, want := range map[string]fsm.State{
		"SUCCESS": fsm.Succeeded, "PROCESSING": fsm.Pending, "CLOSED": fsm.Failed, "ODD": "",
		"ABNORMAL": fsm.Pending, // somebody has to send it on: not a failure after which the amount may go out again
	} {
		f.refunds["R1"].state = state
		a, err := g.QueryRefund(t.Context(), "R1", payment.Ref{PaymentNo: "P1"})
		require.Equal(t, want == "", err != nil, state)
		require.Equal(t, want, a.State, state)
	}
	f.refunds["R1"].state = "PROCESSING" // the map's last may be any
	_, err = g.QueryRefund(t.Context(), "R1", payment.Ref{PaymentNo: "P2"})
	require.ErrorContains(t, err, "cannot be believed", "it is another payment's")
	for name, c := range map[string]struct {
		change func(*payment.RefundRequest)
		want   string
	}{
		"another amount under the number": {func(r *payment.RefundRequest) { r.Amount = 301 }, "with 300 fen, not 301"},
		"of an unknown payment":           {func(r *payment.RefundRequest) { r.RefundNo, r.PaymentNo = "R2", "P404" }, "RESOURCE_NOT_EXISTS"},
	} {
		spoilt := r
		c.change(&spoilt)
		_, err := g.Refund(t.Context(), spoilt)
		require.ErrorContains(t, err, c.want, name)
		require.NotErrorIs(t, err, payment.ErrNotFound, name)
	}
	for name, change := range map[string]func(*payment.RefundRequest){
		"another total":     func(r *payment.RefundRequest) { r.Total = 1300 },
		"more than is left": func(r *payment.RefundRequest) { r.Amount = 1000 },
	} {
		spoilt := r
		spoilt.RefundNo = "R2"
		change(&spoilt)
		no, err := g.Refund(t.Context(), spoilt)
		require.NoError(t, err, name)
		require.Equal(t, payment.RefundAnswer{RefundNo: "R2", State: fsm.Failed, Amount: spoilt.Amount}, no, name)
	}
	for _, code := range []string{"INVALID_REQUEST", "USER_ACCOUNT_ABNORMAL"} {
		f.refuses = code
		again, err := g.Refund(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, a.RefundID, again.RefundID, "an earlier try went through")
	}
	f.refuses = "NOT_ENOUGH"
	r.RefundNo = "R2"
	_, err = g.Refund(t.Context(), r)
	require.ErrorContains(t, err, "NOT_ENOUGH", "not Failed: the same number must be sent again")
	require.ErrorIs(t, err, payment.ErrRefused)
	f.refuses = ""
	a, err = g.Refund(t.Context(), r)
	require.NoError(t, err)
	require.EqualValues(t, 300, a.Amount)
}

// An answer counts only if WeChat Pay signed it, lately, with a key that is configured: also one that says "not found".
func TestAnswersMustBeSigned(t *testing.T) {
	t.Parallel()
	const missing = `{"code":"ORDER_NOT_EXIST","message":"订单不存在"}`
	header := make(chan http.Header, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range <-header {
			w.Header()[name] = values
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(missing))
	}))
	t.Cleanup(s.Close)
	g := connect(t, s.URL)
	good := func(at time.Duration) http.Header {
		return signedHeaders(t, platformKey(), publicID, time.Now().Add(at), []byte(missing))
	}
	ask := func(h http.Header) error {
		header <- h
		_, err := g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
		return err
	}
	require.ErrorIs(t, ask(good(0)), payment.ErrNotFound)
	probing := good(0)
	probing.Set("Wechatpay-Signature", probe+probing.Get("Wechatpay-Signature"))
	for name, h := range map[string]http.Header{
		"not signed":           {},
		"of an hour ago":       good(-time.Hour),
		"from the future":      good(time.Hour),
		"by a stranger":        signedHeaders(t, otherKey(), publicID, time.Now(), []byte(missing)),
		"by an unknown serial": signedHeaders(t, platformKey(), otherID, time.Now(), []byte(missing)),
		"of another body":      signedHeaders(t, platformKey(), publicID, time.Now(), []byte(`{}`)),
		"a probe":              probing,
	} {
		err := ask(h)
		require.ErrorContains(t, err, "cannot be believed", name)
		require.NotErrorIs(t, err, payment.ErrNotFound, name)
	}
}

// A code_url ends up behind a QR code that people point their wallets at.
func TestCodeURL(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "javascript:alert(1)", "https://evil.example/", "weixin:", "weixin://" + strings.Repeat("x", 512), "%zz"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			body := encode(t, object{"code_url": code})
			for name, values := range signedHeaders(t, platformKey(), publicID, time.Now(), body) {
				w.Header()[name] = values
			}
			_, _ = w.Write(body)
		}))
		_, err := connect(t, s.URL).Charge(t.Context(), request())
		require.ErrorContains(t, err, "code_url", code)
		s.Close()
	}
}
