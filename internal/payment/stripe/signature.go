package stripe

import (
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"
)

// tolerance is how far a timestamp may lie from now, either way and inclusive. The SDK's own check reads the real clock, and
// lets any timestamp from the future pass.
const tolerance = 300 // seconds

var errSignature = errors.New("the callback's signature does not verify")

// verify checks that one of the secrets signed the raw body, at a time that is not far from now. The header is
// "t=<Unix seconds>,v1=<hex>", with any number of v1 (https://docs.stripe.com/webhooks#verify-manually).
func verify(secrets []string, header http.Header, body []byte, now time.Time) error {
	values := header.Values("Stripe-Signature")
	if len(values) != 1 {
		return errSignature
	}
	at, signatures, err := parseSignature(values[0])
	// Compared without subtracting from the sender's number, which could overflow.
	if err != nil || at < now.Unix()-tolerance || at > now.Unix()+tolerance {
		return errSignature
	}
	for _, secret := range secrets {
		want := webhook.ComputeSignature(time.Unix(at, 0), body, secret)
		for _, got := range signatures {
			if hmac.Equal(got, want) {
				return nil
			}
		}
	}
	return errSignature
}

// parseSignature reads a header: one time, in its canonical spelling, and the signatures of the scheme v1. Other schemes are
// passed over, as Stripe demands.
func parseSignature(header string) (at int64, signatures [][]byte, err error) {
	timed := false
	for part := range strings.SplitSeq(header, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			return 0, nil, errSignature
		case key == "t":
			at, err = strconv.ParseInt(value, 10, 64)
			if err != nil || timed || strconv.FormatInt(at, 10) != value {
				return 0, nil, errSignature
			}
			timed = true
		case key == "v1":
			if signature, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, signature)
			}
		}
	}
	if !timed || len(signatures) == 0 {
		return 0, nil, errSignature
	}
	return at, signatures, nil
}
