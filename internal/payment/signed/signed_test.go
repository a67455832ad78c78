package signed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
)

func rsaKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return key
}

func block(t *testing.T, kind string, der []byte, err error) []byte {
	t.Helper()
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	good, weak := rsaKey(t, 2048), rsaKey(t, 1024)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return block(t, "PRIVATE KEY", der, err)
	}
	pkix := func(key any) []byte {
		der, err := x509.MarshalPKIXPublicKey(key)
		return block(t, "PUBLIC KEY", der, err)
	}

	for _, file := range [][]byte{pkcs8(good), block(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(good), nil)} {
		key, err := PrivateKey(file)
		require.NoError(t, err)
		require.True(t, key.Equal(good))
	}
	key, serial, err := PublicKey(pkix(&good.PublicKey))
	require.NoError(t, err)
	require.True(t, key.Equal(&good.PublicKey))
	require.Empty(t, serial)
	for name, file := range map[string][]byte{
		"empty": nil, "text": []byte("MIIEvQ"), "weak": pkcs8(weak), "curve": pkcs8(curve), "garbage": block(t, "PRIVATE KEY", []byte("x"), nil),
		"public": pkix(&good.PublicKey), "cut": pkcs8(good)[:800],
	} {
		_, err := PrivateKey(file)
		require.Error(t, err, name)
	}
	for name, file := range map[string][]byte{
		"empty": nil, "text": []byte("MIIBIj"), "weak": pkix(&weak.PublicKey), "curve": pkix(&curve.PublicKey), "garbage": block(t, "CERTIFICATE", []byte("x"), nil),
		"private": pkcs8(good),
	} {
		_, _, err := PublicKey(file)
		require.Error(t, err, name)
	}
}

func TestSignature(t *testing.T) {
	t.Parallel()
	key, other := rsaKey(t, 2048), rsaKey(t, 2048)
	message := []byte("app_id=1&total_amount=12.99")
	signature, err := Sign(key, message)
	require.NoError(t, err)
	require.NoError(t, Verify(&key.PublicKey, message, signature))
	require.Error(t, Verify(&other.PublicKey, message, signature))
	require.Error(t, Verify(&key.PublicKey, message[1:], signature))
	for _, spelling := range []string{"", "=", "###", signature + "\n", "\r\n" + signature, signature[:100] + "\n" + signature[100:], strings.TrimRight(signature, "="), signature + signature} {
		require.Error(t, Verify(&key.PublicKey, message, spelling), "%q", spelling)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := MaxAnswer
		if r.URL.Path == "/more" {
			size++
		}
		_, _ = w.Write([]byte(strings.Repeat("x", size)))
	}))
	defer s.Close()
	client := NewClient()
	defer client.CloseIdleConnections()
	for path, ok := range map[string]bool{"/": true, "/more": false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		require.NoError(t, err)
		_, _, body, err := Do(client, req)
		require.Equal(t, ok, err == nil, path)
		require.Equal(t, ok, len(body) == MaxAnswer, path)
	}
}

func TestHTTPURL(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"https://api.example", "http://127.0.0.1:1/gateway.do"} {
		require.True(t, HTTPURL(s), s)
	}
	for _, s := range []string{"", "api.example", "/x", "ftp://api.example", "javascript:alert(1)", "https://", "https://api.example?x=1", "https://api.example#x", "http://%zz", "https://api.example/" + strings.Repeat("x", 256)} {
		require.False(t, HTTPURL(s), s)
	}
}

// No refusal may look like a receipt.
func TestStatus(t *testing.T) {
	t.Parallel()
	require.Equal(t, 500, Status(errors.New("x")))
	for kind := fault.Internal; kind <= fault.Unavailable; kind++ {
		require.GreaterOrEqual(t, Status(fault.New(kind, "x", "x")), 400)
	}
}
