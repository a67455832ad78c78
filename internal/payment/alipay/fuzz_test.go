package alipay

import (
	"bytes"
	"testing"

	"orderd/internal/payment/signed/signedtest"
)

// FuzzCallback: no body but one that says what Alipay signed is believed.
func FuzzCallback(f *testing.F) {
	genuine := signedtest.Alipay(f, alipayKey(), paidFields())
	f.Add(genuine)
	f.Add(bytes.Replace(genuine, []byte("12.99"), []byte("12.98"), 1))
	f.Add([]byte("sign_type=RSA2&sign=AAAA&a=1&a=2"))
	g := connect(f, "http://alipay.example")
	want := content(paidFields(), "sign_type")
	f.Fuzz(func(t *testing.T, body []byte) {
		fields, err := verify(g, body)
		if err == nil && !bytes.Equal(content(fields, "sign", "sign_type"), want) {
			t.Fatalf("%q was believed", body)
		}
	})
}

// FuzzEnvelope: what is verified is a part of the answer as it came.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"alipay_trade_query_response":{ "code":"10000" },"sign":"AAAA"}`))
	f.Add([]byte(`{"sign":"AAAA","alipay_trade_query_response":{"a":"}\"{"}}`))
	f.Add([]byte(`{"error_response":{"code":"40002"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, _, err := envelope(body, "alipay.trade.query")
		if err == nil && (!bytes.Contains(body, raw) || raw[0] != '{' || raw[len(raw)-1] != '}') {
			t.Fatalf("%q was taken out of %q", raw, body)
		}
	})
}
