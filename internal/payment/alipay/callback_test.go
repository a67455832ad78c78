package alipay

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/payment"
	"orderd/internal/payment/signed/signedtest"
)

func verifyBody(t *testing.T, body []byte) (payment.Notice, error) {
	t.Helper()
	return connect(t, "http://alipay.example").VerifyCallback(http.Header{}, body, now)
}

func TestPaidCallback(t *testing.T) {
	t.Parallel()
	n, err := verifyBody(t, signedtest.Alipay(t, alipayKey(), paidFields()))
	require.NoError(t, err)
	require.Len(t, n.PayloadHash, 64)
	n.PayloadHash = ""
	require.Equal(t, payment.Notice{
		Source: "callback:alipay", Gateway: "alipay", MessageID: "ac05099524730693a8b330c5ecf72da978", Kind: payment.PaymentSucceeded,
		PaymentNo: "P1", TransactionID: "2026030422001004330000121536", Amount: 1299, Currency: "CNY",
	}, n)
}

// What a callback with a good signature is taken for: a code of fault.Error, or a kind.
func TestFields(t *testing.T) {
	t.Parallel()
	const invalid, forbidden = "invalid_request", "forbidden"
	f := paidFields
	for name, c := range map[string]struct {
		fields map[string]string
		want   string
	}{
		"paid":                        {f(), "payment.succeeded"},
		"finished":                    {with(f(), "trade_status", "TRADE_FINISHED"), "payment.succeeded"},
		"partly refunded":             {with(f(), "refund_fee", "3.00", "gmt_refund", "2026-03-05 00:00:00", "out_biz_no", "R1"), "payment.succeeded"},
		"whole yuan":                  {with(f(), "total_amount", "20"), "payment.succeeded"},
		"unknown field":               {with(f(), "x_new", "<&=+%>"), "payment.succeeded"},
		"empty field":                 {with(f(), "body", ""), "payment.succeeded"},
		"waiting":                     {with(f(), "trade_status", "WAIT_BUYER_PAY"), "other"},
		"closed, never paid":          {with(f(), "trade_status", "TRADE_CLOSED"), "payment.closed"},
		"closed by a full refund":     {with(f(), "trade_status", "TRADE_CLOSED", "refund_fee", "12.99"), "other"},
		"closed by a refund, by date": {with(f(), "trade_status", "TRADE_CLOSED", "gmt_refund", "2026-03-05 00:00:00"), "other"},
		"unknown status":              {with(f(), "trade_status", "TRADE_PENDING"), "other"},
		"status in small letters":     {with(f(), "trade_status", "trade_success"), "other"},
		"another type":                {with(f(), "notify_type", "dut_user_sign"), "other"},
		"no type":                     {without(f(), "notify_type"), "other"},
		"another application":         {with(f(), "app_id", "2021000000000002"), forbidden},
		"another seller":              {with(f(), "seller_id", "2088000000000002"), forbidden},
		"no application":              {without(f(), "app_id"), forbidden},
		"no seller":                   {without(f(), "seller_id"), forbidden},
		"another's, and malformed":    {with(f(), "seller_id", "2088000000000002", "total_amount", "x"), forbidden},
		"no status":                   {without(f(), "trade_status"), invalid},
		"no notify_id":                {without(f(), "notify_id"), invalid},
		"notify_id of 129":            {with(f(), "notify_id", strings.Repeat("x", 129)), invalid},
		"no out_trade_no":             {without(f(), "out_trade_no"), invalid},
		"out_trade_no with a newline": {with(f(), "out_trade_no", "P1\n"), invalid},
		"no trade_no":                 {without(f(), "trade_no"), invalid},
		"no amount":                   {without(f(), "total_amount"), invalid},
		"amount 0":                    {with(f(), "total_amount", "0.00"), invalid},
		"amount negative":             {with(f(), "total_amount", "-12.99"), invalid},
		"amount of three decimals":    {with(f(), "total_amount", "12.990"), invalid},
		"amount with an exponent":     {with(f(), "total_amount", "1e2"), invalid},
		"amount with a comma":         {with(f(), "total_amount", "1,299.00"), invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := verifyBody(t, signedtest.Alipay(t, alipayKey(), c.fields))
			if err != nil {
				require.NotNil(t, fault.As(err), err)
				require.Equal(t, c.want, fault.As(err).Code, err)
				return
			}
			require.Equal(t, c.want, string(n.Kind))
		})
	}
}

// Bodies that nobody may believe, whatever they say.
func TestForgedCallbacks(t *testing.T) {
	t.Parallel()
	genuine := string(signedtest.Alipay(t, alipayKey(), paidFields()))
	edit := func(old, new string) string {
		require.Contains(t, genuine, old)
		return strings.Replace(genuine, old, new, 1)
	}
	sig := "sign=" + url.QueryEscape(func() string { v, _ := url.ParseQuery(genuine); return v.Get("sign") }())
	require.Contains(t, genuine, sig)
	for name, body := range map[string]string{
		"a cheap order's, sent again for a dear one": edit("out_trade_no=P1", "out_trade_no=P2"),
		"another amount":                 edit("total_amount=12.99", "total_amount=12.98"),
		"another spelling of the amount": edit("total_amount=12.99", "total_amount=12.990"),
		"status changed":                 edit("TRADE_SUCCESS", "TRADE_FINISHED"),
		"field added":                    genuine + "&x=1",
		"empty field added":              genuine + "&x=",
		"field removed":                  edit("version=1.0", ""),
		"field given twice":              genuine + "&total_amount=12.99",
		"sign given twice":               genuine + "&" + sig,
		"no signature":                   edit(sig, ""),
		"empty signature":                edit(sig, "sign="),
		"signature cut short":            edit(sig, sig[:100]),
		"signature with spaces for plus": edit(sig, "sign="+strings.Repeat("%20", 344)),
		"sign_type RSA":                  edit("sign_type=RSA2", "sign_type=RSA"),
		"no sign_type":                   edit("sign_type=RSA2", ""),
		"of a stranger":                  string(signedtest.Alipay(t, otherKey(), paidFields())),
		"signed with our own key":        string(signedtest.Alipay(t, appKey(), paidFields())),
		"two fields for one":             edit("subject=", "subject%3Dx%26seller_id="),
		"bad escape":                     genuine + "&x=%zz",
		"semicolon":                      genuine + ";x=1",
		"JSON":                           `{"trade_status":"TRADE_SUCCESS"}`,
		"empty":                          "",
		"only ampersands":                "&&&",
	} {
		_, err := verifyBody(t, []byte(body))
		require.True(t, fault.Is(err, "unauthenticated"), "%s: %v", name, err)
	}
	_, err := verifyBody(t, []byte(strings.ReplaceAll(genuine, "%20", "+")))
	require.NoError(t, err, "another escape of the same text is the same text")
}

// Alipay sends a message again with another notify_time, and another signature for that; the inbox must know it again.
func TestRepeatIsTheSameMessage(t *testing.T) {
	t.Parallel()
	first, err := verifyBody(t, signedtest.Alipay(t, alipayKey(), paidFields()))
	require.NoError(t, err)
	again, err := verifyBody(t, signedtest.Alipay(t, alipayKey(), with(paidFields(), "notify_time", "2026-03-05 13:06:07")))
	require.NoError(t, err)
	require.Equal(t, first, again)
	other, err := verifyBody(t, signedtest.Alipay(t, alipayKey(), with(paidFields(), "total_amount", "13.00")))
	require.NoError(t, err)
	require.NotEqual(t, first.PayloadHash, other.PayloadHash)
}

// The receipt is the word and nothing else; an error never has it, not even if its own text does.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	g := connect(t, "http://alipay.example")
	for _, result := range []string{"applied", "duplicate", "ignored", "refund_opened"} {
		a := g.Acknowledge(result, nil)
		require.Equal(t, []any{200, "text/plain; charset=utf-8", "success"}, []any{a.Status, a.ContentType, string(a.Body)})
	}
	for kind, status := range map[fault.Kind]int{
		fault.Invalid: 400, fault.Unauthenticated: 401, fault.Forbidden: 403, fault.NotFound: 404, fault.Conflict: 409, fault.Unavailable: 503, fault.Internal: 500,
	} {
		a := g.Acknowledge("", fault.New(kind, "x", "success"))
		require.Equal(t, []any{status, "fail"}, []any{a.Status, string(a.Body)})
	}
	require.Equal(t, 500, g.Acknowledge("", http.ErrBodyNotAllowed).Status)
}
