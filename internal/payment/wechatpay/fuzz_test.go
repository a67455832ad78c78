package wechatpay

import (
	"bytes"
	"math/big"
	"net/http"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzDecrypt: whatever comes, there is no panic, and only what was sealed comes out.
func FuzzDecrypt(f *testing.F) {
	plain := []byte(`{"mchid":"1900000109"}`)
	good := seal(f, plain, testNonce, "transaction")
	f.Add(good.Algorithm, good.Nonce, good.AssociatedData, good.Ciphertext)
	f.Add(good.Algorithm, "abc", good.AssociatedData, good.Ciphertext)
	f.Add(good.Algorithm, good.Nonce, "", "AA==")
	g := connect(f, "http://wechat.example")
	f.Fuzz(func(t *testing.T, algorithm, nonce, associated, ciphertext string) {
		got, err := decrypt(g.aead, resource{Algorithm: algorithm, Nonce: nonce, AssociatedData: associated, Ciphertext: ciphertext})
		if err == nil && !bytes.Equal(got, plain) {
			t.Fatalf("%q came out", got)
		}
	})
}

// FuzzSignature: no headers and body but the ones that were signed are believed.
func FuzzSignature(f *testing.F) {
	body := []byte(`{"id":"EV-1"}`)
	h := signedHeaders(f, platformKey(), publicID, now, body)
	nonce, timestamp, signature := h.Get("Wechatpay-Nonce"), h.Get("Wechatpay-Timestamp"), h.Get("Wechatpay-Signature")
	f.Add(publicID, timestamp, nonce, signature, body)
	f.Add(publicID, timestamp, nonce, probe+signature, body)
	f.Add(otherID, "0"+timestamp, nonce, signature, body)
	g := connect(f, "http://wechat.example")
	f.Fuzz(func(t *testing.T, serial, at, n, s string, b []byte) {
		h := http.Header{"Wechatpay-Serial": {serial}, "Wechatpay-Timestamp": {at}, "Wechatpay-Nonce": {n}, "Wechatpay-Signature": {s}}
		if g.verify(h, b, now) == nil && (at != timestamp || n != nonce || s != signature || !bytes.Equal(b, body)) {
			t.Fatalf("%q %q was believed", h, b)
		}
	})
}

// FuzzFen: what is accepted is exactly the number that it says.
func FuzzFen(f *testing.F) {
	for _, s := range []string{"1299", "1299.0", "1e9", "-1", "9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := jsontext.Value(s)
		if !v.IsValid() {
			return
		}
		if n, ok := fen(v); ok {
			if says, ok := new(big.Rat).SetString(s); !ok || says.Cmp(new(big.Rat).SetInt64(n)) != 0 || n <= 0 {
				t.Fatalf("%q was read as %d", s, n)
			}
		}
	})
}
