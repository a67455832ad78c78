package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a callback, by https://www.standardwebhooks.com.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp" // Unix seconds
	HeaderSignature = "Webhook-Signature" // space-separated list of "v1,<base64>"
)

// Tolerance is how far a timestamp may lie from now, either way and inclusive.
const Tolerance = 300 * time.Second

// ErrSignature is wrapped by every error of Verify.
var ErrSignature = errors.New("the callback's signature does not verify")

// ParseSecret decodes "whsec_<base64>". Fewer than 16 bytes of key are refused.
func ParseSecret(s string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(s, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < 16 {
		return nil, errors.New("wire: a webhook secret is whsec_ and the base64 of at least 16 bytes")
	}
	return key, nil
}

// Sign returns the signature header's entry for a body under the key.
func Sign(key []byte, id, timestamp string, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(mac(key, id, timestamp, body))
}

// Verify checks that one of the keys signed the raw body, within Tolerance of now, and returns the message's id. Several
// keys let a secret be replaced without losing callbacks. Every error wraps ErrSignature.
func Verify(keys [][]byte, h http.Header, body []byte, now time.Time) (id string, err error) {
	var timestamp, signatures string
	for name, value := range map[string]*string{HeaderID: &id, HeaderTimestamp: &timestamp, HeaderSignature: &signatures} {
		values := h.Values(name)
		if len(values) != 1 || values[0] == "" {
			return "", fmt.Errorf("%w: header %s must be given once", ErrSignature, name)
		}
		*value = values[0]
	}
	if len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%w: header %s must be 1 to 128 visible ASCII characters", ErrSignature, HeaderID)
	}
	// Only the canonical spelling: "+1", "01" and " 1" would be other signed contents for one and the same instant.
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || strconv.FormatInt(at, 10) != timestamp {
		return "", fmt.Errorf("%w: header %s is no number of seconds", ErrSignature, HeaderTimestamp)
	}
	// Compared without subtracting from the sender's number, which could overflow.
	tolerance := int64(Tolerance / time.Second)
	if at < now.Unix()-tolerance || at > now.Unix()+tolerance {
		return "", fmt.Errorf("%w: the timestamp is too far from now", ErrSignature)
	}
	for _, key := range keys {
		want := mac(key, id, timestamp, body)
		for entry := range strings.FieldsSeq(signatures) {
			encoded, ok := strings.CutPrefix(entry, "v1,")
			if !ok {
				continue // another version's
			}
			if got, err := base64.StdEncoding.DecodeString(encoded); err == nil && hmac.Equal(got, want) {
				return id, nil
			}
		}
	}
	return "", ErrSignature
}

func mac(key []byte, id, timestamp string, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(id + "." + timestamp + "."))
	m.Write(body)
	return m.Sum(nil)
}
