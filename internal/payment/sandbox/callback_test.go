package sandbox_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/sandbox/wire"
)

const genuine = `{"type":"payment.succeeded","created_at":"2026-01-02T03:04:05.000006Z",` +
	`"data":{"merchant_id":"m-1","payment_no":"p-1","transaction_id":"txn_1","amount":1299,"currency":"CNY"}}`

var now = time.Unix(1_800_000_000, 0)

func gateway(t testing.TB) *sandbox.Gateway {
	t.Helper()
	g, err := sandbox.NewGateway(sandbox.Config{
		URL: "http://gateway/", APIKey: apiKey, WebhookSecrets: []string{secret}, MerchantID: merchant, NotifyURL: "http://merchant/",
	})
	require.NoError(t, err)
	return g
}

// signed returns the headers that go with a body.
func signed(t testing.TB, body, timestamp string) http.Header {
	t.Helper()
	key, err := wire.ParseSecret(secret)
	require.NoError(t, err)
	h := http.Header{}
	h.Set(wire.HeaderID, "msg_1")
	h.Set(wire.HeaderTimestamp, timestamp)
	h.Set(wire.HeaderSignature, wire.Sign(key, "msg_1", timestamp, []byte(body)))
	return h
}

func seconds(offset int64) string { return strconv.FormatInt(now.Unix()+offset, 10) }

func TestGenuineCallback(t *testing.T) {
	t.Parallel()
	g := gateway(t)
	hash := sha256.Sum256([]byte(genuine))
	for _, offset := range []int64{-300, 0, 300} {
		n, err := g.VerifyCallback(signed(t, genuine, seconds(offset)), []byte(genuine), now)
		require.NoError(t, err)
		require.Equal(t, payment.Notice{
			Source: "callback:sandbox", Gateway: "sandbox", MessageID: "msg_1", PayloadHash: hex.EncodeToString(hash[:]),
			Kind: payment.PaymentSucceeded, PaymentNo: "p-1", TransactionID: "txn_1", Amount: 1299, Currency: "CNY",
		}, n)
	}
}

func TestEveryFlippedByteIsRefused(t *testing.T) {
	t.Parallel()
	g := gateway(t)
	h := signed(t, genuine, seconds(0))
	for i := range len(genuine) {
		body := []byte(genuine)
		body[i] ^= 1
		_, err := g.VerifyCallback(h, body, now)
		require.True(t, fault.Is(err, "unauthenticated"), i)
	}
}

func TestSignatureHeaders(t *testing.T) {
	t.Parallel()
	good := signed(t, genuine, seconds(0)).Get(wire.HeaderSignature)
	for name, c := range map[string]struct {
		timestamp string // signed and sent; empty: now
		change    func(http.Header)
		ok        bool
	}{
		"stale":                          {timestamp: seconds(-301)},
		"from the future":                {timestamp: seconds(301)},
		"zero":                           {timestamp: "0"},
		"negative":                       {timestamp: "-1"},
		"smallest":                       {timestamp: "-9223372036854775808"},
		"10^18":                          {timestamp: "1000000000000000000"},
		"beyond int64":                   {timestamp: "99999999999999999999"},
		"milliseconds":                   {timestamp: seconds(0) + "000"},
		"no number":                      {timestamp: "now"},
		"plus sign":                      {timestamp: "+" + seconds(0)},
		"leading zero":                   {timestamp: "0" + seconds(0)},
		"fraction":                       {timestamp: seconds(0) + ".0"},
		"timestamp changed after":        {change: func(h http.Header) { h.Set(wire.HeaderTimestamp, seconds(1)) }},
		"id changed after":               {change: func(h http.Header) { h.Set(wire.HeaderID, "msg_2") }},
		"no id":                          {change: func(h http.Header) { h.Del(wire.HeaderID) }},
		"no timestamp":                   {change: func(h http.Header) { h.Del(wire.HeaderTimestamp) }},
		"no signature":                   {change: func(h http.Header) { h.Del(wire.HeaderSignature) }},
		"empty signature":                {change: func(h http.Header) { h.Set(wire.HeaderSignature, "") }},
		"two id headers":                 {change: func(h http.Header) { h.Add(wire.HeaderID, "msg_1") }},
		"id of 129":                      {change: func(h http.Header) { h.Set(wire.HeaderID, strings.Repeat("x", 129)) }},
		"another version only":           {change: func(h http.Header) { h.Set(wire.HeaderSignature, "v2"+good[2:]) }},
		"no version":                     {change: func(h http.Header) { h.Set(wire.HeaderSignature, good[3:]) }},
		"no base64":                      {change: func(h http.Header) { h.Set(wire.HeaderSignature, "v1,###") }},
		"cut short":                      {change: func(h http.Header) { h.Set(wire.HeaderSignature, good[:len(good)-4]) }},
		"the right one among several":    {change: func(h http.Header) { h.Set(wire.HeaderSignature, "v1a,x v1,AAAA  "+good) }, ok: true},
		"the right one before another's": {change: func(h http.Header) { h.Set(wire.HeaderSignature, good+" v1,AAAA") }, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.timestamp == "" {
				c.timestamp = seconds(0)
			}
			h := signed(t, genuine, c.timestamp)
			if c.change != nil {
				c.change(h)
			}
			_, err := gateway(t).VerifyCallback(h, []byte(genuine), now)
			if c.ok {
				require.NoError(t, err)
			} else {
				require.True(t, fault.Is(err, "unauthenticated"), err)
			}
		})
	}
}

func TestSecretCanBeReplaced(t *testing.T) {
	t.Parallel()
	const next = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
	g, err := sandbox.NewGateway(sandbox.Config{
		URL: "http://gateway/", APIKey: apiKey, WebhookSecrets: []string{next, secret}, MerchantID: merchant, NotifyURL: "http://merchant/",
	})
	require.NoError(t, err)
	_, err = g.VerifyCallback(signed(t, genuine, seconds(0)), []byte(genuine), now)
	require.NoError(t, err)
}

// What a body with a good signature is taken for: a code of fault.Error, or a kind.
func TestBodies(t *testing.T) {
	t.Parallel()
	replace := func(old, new string) string {
		require.Contains(t, genuine, old)
		return strings.Replace(genuine, old, new, 1)
	}
	refund := strings.NewReplacer("payment.succeeded", "refund.succeeded", `"amount"`, `"refund_no":"r-1","refund_id":"rfd_1","amount"`).Replace(genuine)
	const invalid, ok = "invalid_request", "payment.succeeded"
	for name, c := range map[string]struct{ body, want string }{
		"odd spacing":                  {replace(`:1299,`, " :\t1299 \n, "), ok},
		"trailing newline":             {genuine + "\r\n", ok},
		"escapes":                      {replace(`"p-1"`, `"\u0070-1"`), ok},
		"escaped name":                 {replace(`"amount"`, `"\u0061mount"`), ok},
		"other order of members":       {`{"data":{"currency":"CNY","amount":1299,"transaction_id":"txn_1","payment_no":"p-1","merchant_id":"m-1"},"type":"payment.succeeded"}`, ok},
		"unknown members":              {replace(`"type"`, `"x":"<&>","x":{"amount":[1,null]},"data2":{},"type"`), ok},
		"unknown member in data":       {replace(`"currency"`, `"fee":1.5,"currency"`), ok},
		"1299.0":                       {replace("1299", "1299.0"), ok},
		"1.299e3":                      {replace("1299", "1.299e3"), ok},
		"129900E-2":                    {replace("1299", "129900E-2"), ok},
		"largest with zeros after it":  {replace("1299", "1299."+strings.Repeat("0", 5000)), ok},
		"refund":                       {refund, "refund.succeeded"},
		"payment failed":               {replace("payment.succeeded", "payment.failed"), "payment.failed"},
		"payment closed":               {strings.Replace(replace("payment.succeeded", "payment.closed"), `"transaction_id":"txn_1",`, "", 1), "payment.closed"},
		"unknown type":                 {replace("payment.succeeded", "payment.disputed"), "other"},
		"unknown type, no data":        {`{"type":"ping"}`, "other"},
		"unknown type, other data":     {`{"type":"ping","data":["x"]}`, "other"},
		"unknown type, no merchant":    {`{"type":"ping","data":{"amount":"?"}}`, "other"},
		"unknown type, other merchant": {`{"type":"ping","data":{"merchant_id":"m-2"}}`, "forbidden"},
		"other merchant":               {replace(`"m-1"`, `"m-2"`), "forbidden"},
		"other merchant, bad amount":   {strings.Replace(replace(`"m-1"`, `"m-2"`), "1299", "-1", 1), "forbidden"},
		"empty":                        {"", invalid},
		"no JSON":                      {"payment.succeeded", invalid},
		"null":                         {"null", invalid},
		"array":                        {"[" + genuine + "]", invalid},
		"two documents":                {genuine + genuine, invalid},
		"trailing garbage":             {genuine + "x", invalid},
		"cut short":                    {genuine[:len(genuine)-1], invalid},
		"bad UTF-8":                    {replace("p-1", "p-\xff"), invalid},
		"nested deep":                  {`{"x":` + strings.Repeat("[", 30000), invalid},
		"no type":                      {replace(`"type"`, `"kind"`), invalid},
		"type null":                    {replace(`"payment.succeeded"`, `null`), invalid},
		"data null":                    {`{"type":"payment.succeeded","data":null}`, invalid},
		"no data":                      {`{"type":"payment.succeeded"}`, invalid},
		"no merchant":                  {replace(`"merchant_id":"m-1",`, ""), invalid},
		"no payment":                   {replace(`"payment_no":"p-1",`, ""), invalid},
		"no transaction":               {replace(`"transaction_id":"txn_1",`, ""), invalid},
		"no amount":                    {replace(`"amount":1299,`, ""), invalid},
		"no refund_no":                 {strings.Replace(refund, `"refund_no":"r-1",`, "", 1), invalid},
		"payment_no a number":          {replace(`"p-1"`, "1"), invalid},
		"payment_no of 129":            {replace("p-1", strings.Repeat("p", 129)), invalid},
		"payment_no with a newline":    {replace("p-1", `p\n1`), invalid},
		"currency in small letters":    {replace("CNY", "cny"), invalid},
		"duplicate amount":             {replace(`"amount"`, `"amount":1,"amount"`), invalid},
		"duplicate amount, escaped":    {replace(`"amount"`, `"\u0061mount":1,"amount"`), invalid},
		"duplicate data":               {replace(`"data"`, `"data":{},"data"`), invalid},
		"Amount":                       {replace(`"amount"`, `"Amount"`), invalid},
		"amount and Amount":            {replace(`"amount"`, `"Amount":1,"amount"`), invalid},
		"TYPE":                         {replace(`"type"`, `"TYPE":"x","type"`), invalid},
		"amount a string":              {replace("1299", `"1299"`), invalid},
		"amount null":                  {replace("1299", "null"), invalid},
		"amount 0":                     {replace("1299", "0"), invalid},
		"amount 0.0e9":                 {replace("1299", "0.0e9"), invalid},
		"amount negative":              {replace("1299", "-1299"), invalid},
		"amount -0":                    {replace("1299", "-0.0"), invalid},
		"amount 12.99":                 {replace("1299", "12.99"), invalid},
		"amount 1e-1":                  {replace("1299", "1e-1"), invalid},
		"amount 2^63":                  {replace("1299", "9223372036854775808"), invalid},
		"amount 1e19":                  {replace("1299", "1e19"), invalid},
		"amount 1e999999999":           {replace("1299", "1e999999999"), invalid},
		"amount 1e99999999999":         {replace("1299", "1e99999999999"), invalid},
		"amount 01299":                 {replace("1299", "01299"), invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := gateway(t).VerifyCallback(signed(t, c.body, seconds(0)), []byte(c.body), now)
			if c.want == invalid || c.want == "forbidden" {
				require.True(t, fault.Is(err, c.want), err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, payment.NoticeKind(c.want), n.Kind)
			if n.Kind != payment.Other {
				require.Equal(t, []any{"p-1", int64(1299), "CNY"}, []any{n.PaymentNo, n.Amount, n.Currency})
			}
		})
	}
}

func TestLargestAmount(t *testing.T) {
	t.Parallel()
	for _, spelling := range []string{"9223372036854775807", "922337203685477580.7e1", "9223372036854775807.0"} {
		body := strings.Replace(genuine, "1299", spelling, 1)
		n, err := gateway(t).VerifyCallback(signed(t, body, seconds(0)), []byte(body), now)
		require.NoError(t, err)
		require.Equal(t, int64(9223372036854775807), n.Amount, "exactly: not by way of a float")
	}
}

// Whatever is signed, the parser neither panics nor lets through a notice that lacks what its kind needs.
func FuzzVerifyCallback(f *testing.F) {
	for _, body := range []string{
		genuine, `{}`, `null`, `{"type":"ping"}`, strings.Replace(genuine, "1299", "1.299e3", 1),
		strings.Replace(genuine, `"amount"`, `"Amount":1,"amount"`, 1), strings.Replace(genuine, "payment.succeeded", "refund.failed", 1),
	} {
		f.Add(body)
	}
	g := gateway(f)
	f.Fuzz(func(t *testing.T, body string) {
		n, err := g.VerifyCallback(signed(t, body, seconds(0)), []byte(body), now)
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
