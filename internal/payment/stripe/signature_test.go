package stripe

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85/webhook"
)

const (
	secret = "whsec_0123456789abcdef0123456789abcdef"
	other  = "whsec_fedcba9876543210fedcba9876543210"
)

var now = time.Unix(1_800_000_000, 0)

func TestSignatureHeader(t *testing.T) {
	t.Parallel()
	body := []byte(`{"id":"evt_1"}`)
	mac := func(at int64, secret string) string {
		return fmt.Sprintf("%x", webhook.ComputeSignature(time.Unix(at, 0), body, secret))
	}
	at := now.Unix()
	good := fmt.Sprintf("t=%d,v1=%s", at, mac(at, secret))
	for header, ok := range map[string]bool{
		good: true,
		fmt.Sprintf("v1=%s,t=%d", mac(at, secret), at):                       true,
		fmt.Sprintf("t=%d,v1=%s,v1=%s", at, mac(at, other), mac(at, secret)): true, // while a secret is rolled
		good + ",v0=00,v2=zz,x=":                                             true,
		strings.ToUpper(good):                                                false,
		fmt.Sprintf("t=%d,v1=%s", at, strings.ToUpper(mac(at, secret))):      true, // hex is hex
		fmt.Sprintf("t=%d,v1=%s", at, mac(at, other)):                        false,
		fmt.Sprintf("t=%d,v1=%s", at+1, mac(at, secret)):                     false,
		fmt.Sprintf("t=%d,v0=%s", at, mac(at, secret)):                       false,
		fmt.Sprintf("t=%d,v1=%s", at, mac(at, secret)[:62]):                  false,
		fmt.Sprintf("t=%d,t=%d,v1=%s", at, at, mac(at, secret)):              false,
		fmt.Sprintf("t=%d,v1=%s,t=1", at, mac(at, secret)):                   false,
		fmt.Sprintf("t=+%d,v1=%s", at, mac(at, secret)):                      false,
		fmt.Sprintf("t=0%d,v1=%s", at, mac(at, secret)):                      false,
		fmt.Sprintf("t= %d,v1=%s", at, mac(at, secret)):                      false,
		fmt.Sprintf("t=%d000,v1=%s", at, mac(at*1000, secret)):               false,
		fmt.Sprintf("t=%d,v1=%s", -at, mac(-at, secret)):                     false,
		fmt.Sprintf("t=0,v1=%s", mac(0, secret)):                             false,
		fmt.Sprintf("t=%d,v1=%s", int64(1e18), mac(1e18, secret)):            false,
		fmt.Sprintf("t=-9223372036854775808,v1=%s", mac(-1<<63, secret)):     false,
		"t=99999999999999999999,v1=" + mac(at, secret):                       false,
		"v1=" + mac(at, secret):                                              false,
		fmt.Sprintf("t=%d", at):                                              false,
		"":                                                                   false,
		",":                                                                  false,
		"t=,":                                                                false,
		"t":                                                                  false,
	} {
		require.Equal(t, ok, verify([]string{secret}, http.Header{"Stripe-Signature": {header}}, body, now) == nil, header)
	}
	require.Error(t, verify([]string{secret}, http.Header{"Stripe-Signature": {good, good}}, body, now), "given twice")
	require.NoError(t, verify([]string{other, secret}, http.Header{"Stripe-Signature": {good}}, body, now), "the secret before")
	require.Error(t, verify(nil, http.Header{"Stripe-Signature": {good}}, body, now))
}

// What we accept, Stripe's own library accepts; and nothing makes us panic.
func FuzzSignature(f *testing.F) {
	body := []byte(`{}`)
	good := fmt.Sprintf("t=%d,v1=%x", now.Unix(), webhook.ComputeSignature(now, body, secret))
	for _, header := range []string{good, good + ",v0=0", "v1=00," + good, "t=1,v1=", "t=,v1", good + ",t=1", "=,=", ""} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if verify([]string{secret}, http.Header{"Stripe-Signature": {header}}, body, now) != nil {
			return
		}
		if err := webhook.ValidatePayloadIgnoringTolerance(body, header, secret); err != nil {
			t.Fatalf("%q: %v", header, err)
		}
	})
}
