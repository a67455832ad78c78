package httpapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forged signs claims: the valid ones with changes (nil removes a claim).
func forged(t *testing.T, method jwt.SigningMethod, key any, change map[string]any, head map[string]any) string {
	t.Helper()
	all := jwt.MapClaims{"sub": "u1", "aud": "orderd", "exp": time.Now().Add(time.Hour).Unix(), "scope": "orders"}
	for name, v := range change {
		if all[name] = v; v == nil {
			delete(all, name)
		}
	}
	token := jwt.NewWithClaims(method, all)
	maps.Copy(token.Header, head)
	s, err := token.SignedString(key)
	require.NoError(t, err)
	return s
}

func pemOf(t *testing.T, key any) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func bearer(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }

func TestUnauthenticated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hs := func(change, head map[string]any) string {
		return forged(t, jwt.SigningMethodHS256, secret, change, head)
	}
	good := hs(nil, nil)
	now := time.Now()
	tests := map[string][]func(*http.Request){
		"none":                {},
		"empty":               {header("Authorization", "")},
		"two":                 {bearer(good), bearer(good)},
		"basic":               {header("Authorization", "Basic dTE6cHc=")},
		"no scheme":           {header("Authorization", good)},
		"malformed":           {bearer("a.b.c")},
		"two spaces":          {bearer(" " + good)},
		"cut":                 {bearer(good[:len(good)-2])},
		"alg none":            {bearer(forged(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil))},
		"HS384":               {bearer(forged(t, jwt.SigningMethodHS384, secret, nil, nil))},
		"another secret":      {bearer(forged(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), nil, nil))},
		"no exp":              {bearer(hs(map[string]any{"exp": nil}, nil))},
		"expired":             {bearer(hs(map[string]any{"exp": now.Add(-31 * time.Second).Unix()}, nil))},
		"not yet":             {bearer(hs(map[string]any{"nbf": now.Add(time.Minute).Unix()}, nil))},
		"no aud":              {bearer(hs(map[string]any{"aud": nil}, nil))},
		"another aud":         {bearer(hs(map[string]any{"aud": "billing"}, nil))},
		"no sub":              {bearer(hs(map[string]any{"sub": nil}, nil))},
		"sub with newline":    {bearer(hs(map[string]any{"sub": "u1\n"}, nil))},
		"sub too long":        {bearer(hs(map[string]any{"sub": strings.Repeat("u", 65)}, nil))},
		"sub a number":        {bearer(hs(map[string]any{"sub": 1}, nil))},
		"scope not a text":    {bearer(hs(map[string]any{"scope": []string{"admin"}}, nil))},
		"critical header":     {bearer(hs(nil, map[string]any{"crit": []string{"b64"}, "b64": false}))},
		"exp by another name": {bearer(hs(map[string]any{"exp": nil, "EXP": now.Add(time.Hour).Unix()}, nil))},
		"token in the query":  {},
	}
	for name, change := range tests {
		target := "/v1/orders/abcdef"
		if name == "token in the query" {
			target += "?access_token=" + good
		}
		w := b.call("GET", target, "", change...)
		assert.Equal(t, "unauthenticated", refusal(t, w, 401).Code, name)
		assert.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"), name)
	}
	assert.NotContains(t, b.logs.String(), good)
}

// A claim by another spelling of its name is another claim, and no scope.
func TestClaimsAreReadExactly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := forged(t, jwt.SigningMethodHS256, secret, map[string]any{"scope": "orders", "Scope": "orders admin"}, nil)
	w := b.call("PUT", "/v1/stock/TEA-1", `{"title":"Tea","unit_price":1,"currency":"CNY"}`, bearer(token))
	require.Equal(t, "forbidden", refusal(t, w, 403).Code)
}

// TestKnownTokensTime: the signature of a token is looked at once, its time whenever it comes.
func TestKnownTokensTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	auth, err := NewAuth(AuthConfig{Secret: secret, Now: func() time.Time { return now }})
	require.NoError(t, err)
	b := setup(t, func(c *Config, _ *Deps) { c.Auth = auth })
	token := forged(t, jwt.SigningMethodHS256, secret, map[string]any{"nbf": now.Add(10 * time.Minute).Unix(), "exp": now.Add(time.Hour).Unix()}, nil)
	for _, tt := range []struct {
		after  time.Duration
		status int
	}{{0, 401}, {20 * time.Minute, 404}, {30 * time.Minute, 404}, {20 * time.Minute, 401}} {
		now = now.Add(tt.after)
		refusal(t, b.call("GET", "/v1/orders/x", "", bearer(token)), tt.status)
	}
	require.Equal(t, 1, auth.known.Len())
	refusal(t, b.call("GET", "/v1/orders/x", "", bearer(token[:len(token)-2]+"xx")), 401)
	require.Equal(t, 1, auth.known.Len(), "only good ones are remembered")
}

// TestKeyHintsAreIgnored: what a token says of its key fetches nothing and changes nothing.
func TestKeyHintsAreIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, head := range []map[string]any{{"kid": "unknown"}, {"kid": "../../x"}, {"jku": "http://127.0.0.1:1/keys"}, {"jwk": map[string]any{"kty": "oct", "k": "AAAA"}}} {
		refusal(t, b.call("GET", "/v1/orders/x", "", bearer(forged(t, jwt.SigningMethodHS256, secret, nil, head))), 404)
		other := []byte(strings.Repeat("x", 32))
		refusal(t, b.call("GET", "/v1/orders/x", "", bearer(forged(t, jwt.SigningMethodHS256, other, nil, head))), 401)
	}
}

func TestPublicKeys(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		method  jwt.SigningMethod
		private any
		public  []byte
	}{
		"RS256": {jwt.SigningMethodRS256, rsaKey, pemOf(t, &rsaKey.PublicKey)},
		"ES256": {jwt.SigningMethodES256, ecKey, pemOf(t, &ecKey.PublicKey)},
	} {
		auth, err := NewAuth(AuthConfig{PublicKey: tt.public, Issuer: "https://login.example", Now: time.Now})
		require.NoError(t, err, name)
		b := setup(t, func(c *Config, _ *Deps) { c.Auth = auth })
		issuer := map[string]any{"iss": "https://login.example"}
		refusal(t, b.call("GET", "/v1/orders/x", "", bearer(forged(t, tt.method, tt.private, issuer, nil))), 404)
		refusal(t, b.call("GET", "/v1/orders/x", "", bearer(forged(t, tt.method, tt.private, nil, nil))), 401)
		// The public key is public: a token signed with it as if it were a secret proves nothing.
		refusal(t, b.call("GET", "/v1/orders/x", "", bearer(forged(t, jwt.SigningMethodHS256, tt.public, issuer, nil))), 401)
		_, err = auth.Mint("u1", nil, time.Hour)
		assert.Error(t, err)
	}
}

func TestNewAuthRefusesWeakKeys(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	for name, cfg := range map[string]AuthConfig{
		"nothing": {}, "31 bytes": {Secret: secret[:31]}, "both": {Secret: secret, PublicKey: []byte("x")}, "no PEM": {PublicKey: []byte("x")},
		"RSA 1024": {PublicKey: pemOf(t, &small.PublicKey)}, "P-384": {PublicKey: pemOf(t, &p384.PublicKey)},
		"no key": {PublicKey: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})},
	} {
		_, err := NewAuth(cfg)
		assert.Error(t, err, name)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stock := `{"title":"Tea","unit_price":1,"currency":"CNY"}`
	for _, tt := range []struct{ method, path, body, has string }{
		{"POST", "/v1/orders/abcdef/ship", `{"tracking_no":"T1"}`, "orders"},
		{"PUT", "/v1/stock/TEA", stock, "orders"},
		{"POST", "/v1/stock/TEA/adjustments", `{}`, "orders"},
		{"POST", "/v1/orders", `{}`, "admin"},
		{"POST", "/v1/order-tokens", ``, "admin"},
		{"GET", "/v1/orders/abcdef", ``, "other"},
		{"GET", "/v1/stock", ``, ""},
		{"GET", "/v1/stock", ``, "Orders"},
	} {
		assert.Equal(t, "forbidden", refusal(t, b.call(tt.method, tt.path, tt.body, b.as("u1", tt.has)), 403).Code, tt.path)
	}
	_, err := b.auth.Mint("u 1", nil, time.Hour)
	assert.Error(t, err)
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config, _ *Deps) { c.RateLimit = 5 })
		ask := func(change ...func(*http.Request)) int { return b.call("GET", "/v1/orders/x", "", change...).Code }
		u1, u2 := b.as("u1", "orders"), b.as("u2", "orders")
		for range 10 {
			require.Equal(t, 404, ask(u1))
		}
		w := b.call("GET", "/v1/orders/x", "", u1)
		assert.Equal(t, "rate_limited", refusal(t, w, 429).Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.Equal(t, 404, ask(u2), "another user is not affected")

		// Who does not authenticate is known by the socket; what a client says of its address changes nothing.
		for range 10 {
			require.Equal(t, 401, ask())
		}
		for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP"} {
			require.Equal(t, 429, ask(header(name, "10.1.2.3")), name)
		}
		assert.Equal(t, 401, ask(func(r *http.Request) { r.RemoteAddr = "198.51.100.7:1" }))
		assert.Equal(t, 404, b.call("POST", "/v1/payments/callbacks/none", "{}").Code, "callbacks are not counted")

		time.Sleep(time.Second) // virtual: the bubble's clock
		for range 5 {
			require.Equal(t, 404, ask(u1))
		}
		assert.Equal(t, 429, ask(u1))
	})
}

func TestLimiterForgetsWhoDoesNotCall(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newLimiter(1, func() time.Time { return now })
	for range 2 {
		require.True(t, l.allow("u1"))
	}
	for i := range 3 * maxCallers {
		l.allow(strings.Repeat("x", i%7) + time.Duration(i).String())
		if i%1000 == 0 {
			require.False(t, l.allow("u1"), "who calls is remembered")
		}
	}
	assert.LessOrEqual(t, len(l.young)+len(l.old), 2*maxCallers)
}
