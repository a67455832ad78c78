// Package signedtest plays the side of Alipay and WeChat Pay that signs, for tests: it knows nothing of the adapters.
package signedtest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/signed"
)

// Key makes an RSA key of the size that both companies ask for.
func Key(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return key
}

// PrivatePEM writes a private key as PKCS #8, PublicPEM its public half.
func PrivatePEM(t testing.TB, key *rsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func PublicPEM(t testing.TB, key *rsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Alipay signs the fields of a callback and returns them as a form. The signature is over name=value of all fields but
// sign and sign_type, by ascending name (opendocs.alipay.com, "异步通知说明").
func Alipay(t testing.TB, key *rsa.PrivateKey, fields map[string]string) []byte {
	t.Helper()
	form, pairs := url.Values{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		form.Set(name, fields[name])
		if name != "sign" && name != "sign_type" {
			pairs = append(pairs, name+"="+fields[name])
		}
	}
	signature, err := signed.Sign(key, []byte(strings.Join(pairs, "&")))
	require.NoError(t, err)
	form.Set("sign", signature)
	return []byte(form.Encode())
}

// WechatPay returns the headers of a signed answer or callback. timestamp is Unix seconds, or what a test makes of it
// (pay.weixin.qq.com, "如何使用微信支付公钥验签").
func WechatPay(t testing.TB, key *rsa.PrivateKey, serial, timestamp string, body []byte) http.Header {
	t.Helper()
	const nonce = "e63973074d9d78aff8fb62277b5f95a0"
	signature, err := signed.Sign(key, []byte(timestamp+"\n"+nonce+"\n"+string(body)+"\n"))
	require.NoError(t, err)
	h := http.Header{}
	h.Set("Wechatpay-Serial", serial)
	h.Set("Wechatpay-Timestamp", timestamp)
	h.Set("Wechatpay-Nonce", nonce)
	h.Set("Wechatpay-Signature", signature)
	return h
}

// Seal encrypts the resource of a WeChat Pay callback with the APIv3 key and returns it in base64
// (pay.weixin.qq.com, "如何解密回调报文").
func Seal(t testing.TB, apiv3Key string, plain []byte, nonce, associated string) string {
	t.Helper()
	block, err := aes.NewCipher([]byte(apiv3Key))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(aead.Seal(nil, []byte(nonce), plain, []byte(associated)))
}
