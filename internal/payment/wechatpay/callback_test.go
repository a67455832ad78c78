package wechatpay

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/payment"
)

func verifyBody(t *testing.T, body []byte) (payment.Notice, error) {
	t.Helper()
	return connect(t, "http://wechat.example").VerifyCallback(signedHeaders(t, platformKey(), publicID, now, body), body, now)
}

func TestGenuineCallbacks(t *testing.T) {
	t.Parallel()
	n, err := verifyBody(t, envelope(t, "EV-1", "TRANSACTION.SUCCESS", paidTransaction()))
	require.NoError(t, err)
	require.Len(t, n.PayloadHash, 64)
	n.PayloadHash = ""
	require.Equal(t, payment.Notice{
		Source: "callback:wechatpay", Gateway: "wechatpay", MessageID: "EV-1", Kind: payment.PaymentSucceeded,
		PaymentNo: "P1", TransactionID: "1217752501201407033233368018", Amount: 1299, Currency: "CNY",
	}, n)
	n, err = verifyBody(t, envelope(t, "EV-2", "REFUND.SUCCESS", doneRefund()))
	require.NoError(t, err)
	n.PayloadHash = ""
	require.Equal(t, payment.Notice{
		Source: "callback:wechatpay", Gateway: "wechatpay", MessageID: "EV-2", Kind: payment.RefundSucceeded, PaymentNo: "P1",
		TransactionID: "1217752501201407033233368018", RefundNo: "R1", RefundID: "50200207182018070300011301001", Amount: 300, Currency: "CNY",
	}, n)
}

// What a callback with a good signature is taken for: a code of fault.Error, or a kind.
func TestContents(t *testing.T) {
	t.Parallel()
	const pay, back, invalid, forbidden = "TRANSACTION.SUCCESS", "REFUND.SUCCESS", "invalid_request", "forbidden"
	p, f := paidTransaction, doneRefund
	sum := func(total string) object { return object{"total": jsontext.Value(total), "currency": "CNY"} }
	// raw is an object with more text at its start, which no encoder would write.
	raw := func(o object, more string) jsontext.Value {
		return jsontext.Value("{" + more + strings.TrimPrefix(string(encode(t, o)), "{"))
	}
	for name, c := range map[string]struct {
		event string
		plain any
		want  string
	}{
		"paid":                        {pay, p(), "payment.succeeded"},
		"unknown members":             {pay, with(p(), "x", object{"mchid": "?"}, "Amount", 1), "payment.succeeded"},
		"amount 1299.0":               {pay, with(p(), "amount", sum("1299.0")), "payment.succeeded"},
		"no currency":                 {pay, with(p(), "amount", object{"total": 1299}), "payment.succeeded"},
		"not paid":                    {pay, with(p(), "trade_state", "NOTPAY"), "other"},
		"paying":                      {pay, with(p(), "trade_state", "USERPAYING"), "other"},
		"refunded":                    {pay, with(p(), "trade_state", "REFUND"), "other"},
		"closed":                      {pay, with(p(), "trade_state", "CLOSED"), "payment.closed"},
		"revoked":                     {pay, with(p(), "trade_state", "REVOKED"), "payment.closed"},
		"failed":                      {pay, with(p(), "trade_state", "PAYERROR"), "payment.failed"},
		"unknown state":               {pay, with(p(), "trade_state", "ODD"), "other"},
		"no state":                    {pay, without(p(), "trade_state"), "other"},
		"another type":                {"PAYSCORE.USER_PAID", p(), "other"},
		"another merchant":            {pay, with(p(), "mchid", "1900000110"), forbidden},
		"another application":         {pay, with(p(), "appid", "wx0000000000000000"), forbidden},
		"no merchant":                 {pay, without(p(), "mchid"), forbidden},
		"no application":              {pay, without(p(), "appid"), forbidden},
		"another's, and malformed":    {pay, with(p(), "mchid", "1900000110", "amount", sum("-1")), forbidden},
		"no amount":                   {pay, without(p(), "amount"), invalid},
		"amount 0":                    {pay, with(p(), "amount", sum("0")), invalid},
		"amount negative":             {pay, with(p(), "amount", sum("-1299")), invalid},
		"amount with a fraction":      {pay, with(p(), "amount", sum("12.99")), invalid},
		"amount with an exponent":     {pay, with(p(), "amount", sum("1e999999999")), invalid},
		"amount beyond int64":         {pay, with(p(), "amount", sum("9223372036854775808")), invalid},
		"amount a string":             {pay, with(p(), "amount", sum(`"1299"`)), invalid},
		"amount null":                 {pay, with(p(), "amount", sum("null")), invalid},
		"amount of 400 digits":        {pay, with(p(), "amount", sum(strings.Repeat("9", 400))), invalid},
		"amount 1e3":                  {pay, with(p(), "amount", sum("1e3")), invalid},
		"amount true":                 {pay, with(p(), "amount", sum("true")), invalid},
		"amount a list":               {pay, with(p(), "amount", sum("[1299]")), invalid},
		"amount no object":            {pay, with(p(), "amount", 1299), invalid},
		"amount twice":                {pay, raw(p(), `"amount":{"total":1},`), invalid},
		"total twice":                 {pay, raw(without(p(), "amount"), `"amount":{"total":1299,"total":1,"currency":"CNY"},`), invalid},
		"Total too":                   {pay, with(p(), "amount", jsontext.Value(`{"total":1299,"Total":1,"currency":"CNY"}`)), "payment.succeeded"},
		"Total alone":                 {pay, with(p(), "amount", jsontext.Value(`{"Total":1299,"currency":"CNY"}`)), invalid},
		"mchid a number":              {pay, with(p(), "mchid", 1900000109), invalid},
		"state twice":                 {pay, raw(p(), `"trade_state":"NOTPAY",`), invalid},
		"state a number":              {pay, with(p(), "trade_state", 1), invalid},
		"transaction_id a list":       {pay, with(p(), "transaction_id", []string{"x"}), invalid},
		"bad UTF-8":                   {pay, raw(p(), "\"x\":\"\xff\","), invalid},
		"half a surrogate":            {pay, raw(p(), `"x":"\ud800",`), invalid},
		"deep":                        {pay, raw(p(), `"x":`+strings.Repeat("[", 30000)+","), invalid},
		"trailing garbage":            {pay, append(raw(p(), ""), 'x'), invalid},
		"two documents":               {pay, append(raw(p(), ""), raw(p(), "")...), invalid},
		"cut short":                   {pay, raw(p(), "")[:100], invalid},
		"refund's amount a string":    {back, with(f(), "amount", object{"refund": "300"}), invalid},
		"refund's state a list":       {back, with(f(), "refund_status", []string{"SUCCESS"}), invalid},
		"refund's number twice":       {back, raw(f(), `"out_refund_no":"R2",`), invalid},
		"currency odd":                {pay, with(p(), "amount", object{"total": 1299, "currency": "yuan"}), invalid},
		"no out_trade_no":             {pay, without(p(), "out_trade_no"), invalid},
		"out_trade_no with a newline": {pay, with(p(), "out_trade_no", "P1\n"), invalid},
		"out_trade_no a number":       {pay, with(p(), "out_trade_no", 1), invalid},
		"no transaction_id":           {pay, without(p(), "transaction_id"), invalid},
		"no object":                   {pay, []any{p()}, invalid},
		"null":                        {pay, nil, forbidden},
		"member twice":                {pay, jsontext.Value(`{"mchid":"` + mchID + `","mchid":"` + mchID + `"}`), invalid},
		"refunded to the shopper":     {back, f(), "refund.succeeded"},
		"refund closed":               {"REFUND.CLOSED", with(f(), "refund_status", "CLOSED"), "refund.failed"},
		"refund abnormal":             {"REFUND.ABNORMAL", with(f(), "refund_status", "ABNORMAL"), "other"},
		"refund under way":            {back, with(f(), "refund_status", "PROCESSING"), "other"},
		"refund of another merchant":  {back, with(f(), "mchid", "1900000110"), forbidden},
		"refund without a number":     {back, without(f(), "out_refund_no"), invalid},
		"refund without its id":       {back, without(f(), "refund_id"), invalid},
		"refund without its amount":   {back, with(f(), "amount", object{"total": 1299}), invalid},
		"payment sent as a refund":    {back, p(), "other"},
		"refund sent as a payment":    {pay, f(), forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := verifyBody(t, sealed(t, "EV-1", c.event, c.plain))
			if err != nil {
				require.NotNil(t, fault.As(err), err)
				require.Equal(t, c.want, fault.As(err).Code, err)
				return
			}
			require.Equal(t, c.want, string(n.Kind))
		})
	}
}

// sealed is envelope, and takes JSON as it is: also such that no encoder would write.
func sealed(t *testing.T, id, eventType string, plain any) []byte {
	t.Helper()
	raw, ok := plain.(jsontext.Value)
	if !ok {
		raw = encode(t, plain)
	}
	r := seal(t, raw, testNonce, "")
	return encode(t, object{"id": id, "event_type": eventType, "resource": r})
}

// Callbacks that are signed well and cannot be opened or read: 400, and no panic.
func TestSpoiltResources(t *testing.T) {
	t.Parallel()
	plain := encode(t, paidTransaction())
	good := seal(t, plain, testNonce, "transaction")
	change := func(f func(*resource)) resource { r := good; f(&r); return r }
	for name, r := range map[string]any{
		"missing":                   nil,
		"empty":                     object{},
		"no object":                 "x",
		"nonce of 3 bytes":          change(func(r *resource) { r.Nonce = "abc" }),
		"no nonce":                  change(func(r *resource) { r.Nonce = "" }),
		"nonce of 13 bytes":         change(func(r *resource) { r.Nonce += "x" }),
		"nonce of 12 runes":         change(func(r *resource) { r.Nonce = strings.Repeat("茶", 12) }),
		"another nonce":             change(func(r *resource) { r.Nonce = "000000000000" }),
		"1 KiB of associated data":  change(func(r *resource) { r.AssociatedData = strings.Repeat("x", 1024) }),
		"no associated data":        change(func(r *resource) { r.AssociatedData = "" }),
		"no ciphertext":             change(func(r *resource) { r.Ciphertext = "" }),
		"ciphertext of 1 byte":      change(func(r *resource) { r.Ciphertext = "AA==" }),
		"ciphertext of a tag":       change(func(r *resource) { r.Ciphertext = "AAAAAAAAAAAAAAAAAAAAAA==" }),
		"ciphertext cut":            change(func(r *resource) { r.Ciphertext = r.Ciphertext[:len(r.Ciphertext)-4] }),
		"ciphertext changed":        change(func(r *resource) { r.Ciphertext = "AAAA" + r.Ciphertext[4:] }),
		"ciphertext no base64":      change(func(r *resource) { r.Ciphertext = "###" }),
		"another algorithm":         change(func(r *resource) { r.Algorithm = "AEAD_SM4_GCM" }),
		"no algorithm":              change(func(r *resource) { r.Algorithm = "" }),
		"sealed with another's key": resource{"AEAD_AES_256_GCM", "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=", "transaction", testNonce},
	} {
		body := encode(t, object{"id": "EV-1", "event_type": "TRANSACTION.SUCCESS", "resource": r})
		_, err := verifyBody(t, body)
		require.True(t, fault.Is(err, "invalid_request"), "%s: %v", name, err)
	}
	for name, body := range map[string]string{
		"empty": "", "no JSON": "x", "array": "[]", "null": "null", "no id": `{"event_type":"REFUND.SUCCESS"}`, "no type": `{"id":"EV-1"}`,
		"id of 129": `{"event_type":"X","id":"` + strings.Repeat("x", 129) + `"}`, "id a number": `{"event_type":"X","id":1}`,
		"type twice": `{"id":"EV-1","event_type":"X","event_type":"X"}`, "two documents": `{"id":"EV-1","event_type":"X"}{}`,
		"deep": `{"x":` + strings.Repeat("[", 20000),
	} {
		_, err := verifyBody(t, []byte(body))
		require.True(t, fault.Is(err, "invalid_request"), "%s: %v", name, err)
	}
}

func TestSignatureHeaders(t *testing.T) {
	t.Parallel()
	body := envelope(t, "EV-1", "TRANSACTION.SUCCESS", paidTransaction())
	cheap := envelope(t, "EV-1", "TRANSACTION.SUCCESS", with(paidTransaction(), "out_trade_no", "P2"))
	at := func(timestamp string) func(http.Header) {
		return func(h http.Header) { h.Set("Wechatpay-Timestamp", timestamp) }
	}
	seconds := strconv.FormatInt(now.Unix(), 10)
	for name, change := range map[string]func(http.Header){
		"no serial":              func(h http.Header) { h.Del("Wechatpay-Serial") },
		"unknown serial":         func(h http.Header) { h.Set("Wechatpay-Serial", otherID) },
		"serial in another case": func(h http.Header) { h.Set("Wechatpay-Serial", strings.ToLower(publicID)) },
		"two serials":            func(h http.Header) { h.Add("Wechatpay-Serial", publicID) },
		"no nonce":               func(h http.Header) { h.Del("Wechatpay-Nonce") },
		"another nonce":          func(h http.Header) { h.Set("Wechatpay-Nonce", "x") },
		"nonce of 1 MiB":         func(h http.Header) { h.Set("Wechatpay-Nonce", strings.Repeat("x", 1<<20)) },
		"nonce that adds a line": func(h http.Header) { h.Set("Wechatpay-Nonce", "x\ny") },
		"no signature":           func(h http.Header) { h.Del("Wechatpay-Signature") },
		"probe":                  func(h http.Header) { h.Set("Wechatpay-Signature", probe+h.Get("Wechatpay-Signature")) },
		"probe alone":            func(h http.Header) { h.Set("Wechatpay-Signature", probe) },
		"signature no base64":    func(h http.Header) { h.Set("Wechatpay-Signature", "###") },
		"signature cut":          func(h http.Header) { h.Set("Wechatpay-Signature", h.Get("Wechatpay-Signature")[:340]) },
		"by a stranger":          func(h http.Header) { replace(h, signedHeaders(t, otherKey(), publicID, now, body)) },
		"by ourselves":           func(h http.Header) { replace(h, signedHeaders(t, merchantKey(), publicID, now, body)) },
		"a cheap order's":        func(h http.Header) { replace(h, signedHeaders(t, platformKey(), publicID, now, cheap)) },
		"signed 301 s ago": func(h http.Header) {
			replace(h, signedHeaders(t, platformKey(), publicID, now.Add(-301*time.Second), body))
		},
		"signed 301 s from now": func(h http.Header) {
			replace(h, signedHeaders(t, platformKey(), publicID, now.Add(301*time.Second), body))
		},
		"signed in 1970":          func(h http.Header) { replace(h, signedHeaders(t, platformKey(), publicID, time.Unix(0, 0), body)) },
		"signed before 1970":      func(h http.Header) { replace(h, signedHeaders(t, platformKey(), publicID, time.Unix(-1, 0), body)) },
		"no timestamp":            func(h http.Header) { h.Del("Wechatpay-Timestamp") },
		"timestamp changed after": at(strconv.FormatInt(now.Unix()+1, 10)),
		"timestamp 10^18":         at("1000000000000000000"),
		"timestamp beyond int64":  at("99999999999999999999"),
		"timestamp no number":     at("now"),
		"milliseconds":            at(seconds + "000"),
		"fraction":                at(seconds + ".0"),
		"plus sign":               at("+" + seconds),
		"space":                   at(" " + seconds),
	} {
		h := signedHeaders(t, platformKey(), publicID, now, body)
		change(h)
		_, err := connect(t, "http://wechat.example").VerifyCallback(h, body, now)
		require.True(t, fault.Is(err, "unauthenticated"), "%s: %v", name, err)
	}
}

func replace(h, from http.Header) {
	for name, values := range from {
		h[name] = values
	}
}

// A repeat is signed again, and may be encrypted anew: it is the same message. An old copy is turned away.
func TestRepeatIsTheSameMessage(t *testing.T) {
	t.Parallel()
	g := connect(t, "http://wechat.example")
	plain := encode(t, paidTransaction())
	var notices []payment.Notice
	for i, nonce := range []string{"000000000001", "000000000002"} {
		body := encode(t, object{"id": "EV-1", "event_type": "TRANSACTION.SUCCESS", "resource": seal(t, plain, nonce, "transaction")})
		later := now.Add(time.Duration(i) * time.Hour)
		h := signedHeaders(t, platformKey(), publicID, later, body)
		n, err := g.VerifyCallback(h, body, later)
		require.NoError(t, err)
		notices = append(notices, n)
		_, err = g.VerifyCallback(h, body, later.Add(6*time.Minute))
		require.True(t, fault.Is(err, "unauthenticated"))
	}
	require.Equal(t, notices[0], notices[1])
	body := envelope(t, "EV-1", "TRANSACTION.SUCCESS", with(paidTransaction(), "amount", object{"total": 1, "currency": "CNY"}))
	other, err := g.VerifyCallback(signedHeaders(t, platformKey(), publicID, now, body), body, now)
	require.NoError(t, err)
	require.NotEqual(t, notices[0].PayloadHash, other.PayloadHash)
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	g := connect(t, "http://wechat.example")
	a := g.Acknowledge("duplicate", nil)
	require.Equal(t, []any{204, ""}, []any{a.Status, string(a.Body)})
	a = g.Acknowledge("", fault.New(fault.Forbidden, "forbidden", "secret"))
	require.Equal(t, []any{403, `{"code":"FAIL","message":"Forbidden"}`}, []any{a.Status, string(a.Body)})
	a = g.Acknowledge("", http.ErrBodyNotAllowed)
	require.Equal(t, []any{500, `{"code":"FAIL","message":"Internal Server Error"}`}, []any{a.Status, string(a.Body)})
}
