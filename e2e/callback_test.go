package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

// callback is a signed message of the sandbox gateway, made by the test itself. The zero value of every field has a
// sensible meaning, so that a test writes only what it bends.
type callback struct {
	ID     string            // webhook-id; empty: a new one
	At     time.Time         // webhook-timestamp; zero: now
	Secret string            // empty: the right one
	Type   string            // empty: payment.succeeded
	Data   obj               // the member data; merchant_id is added if absent
	Raw    []byte            // the whole body, instead of Type and Data
	Header map[string]string // replaces headers after signing; "" removes one
}

// succeeded is the message that an order's newest payment was paid as asked.
func succeeded(o orderView, transactionID string) callback {
	return callback{Data: obj{
		"payment_no": o.Payment.PaymentNo, "transaction_id": transactionID, "amount": o.Amount, "currency": o.Currency,
	}}
}

// callback signs and sends cb, as the gateway does: without a JWT.
func (c *client) callback(cb callback) answer {
	c.t.Helper()
	body, header := cb.sign(c.t)
	anonymous := *c
	anonymous.token = ""
	return anonymous.send(http.MethodPost, "/v1/payments/callbacks/sandbox", body, header)
}

// sign returns the body and the headers of Standard Webhooks (standardwebhooks.com, "Signature scheme").
func (cb callback) sign(t testing.TB) ([]byte, http.Header) {
	t.Helper()
	if cb.ID == "" {
		cb.ID = "msg_" + ulid.Make().String()
	}
	if cb.At.IsZero() {
		cb.At = time.Now()
	}
	if cb.Secret == "" {
		cb.Secret = webhookSecret
	}
	if cb.Type == "" {
		cb.Type = "payment.succeeded"
	}
	if cb.Raw == nil {
		data := obj{"merchant_id": merchantID}
		for k, v := range cb.Data {
			data[k] = v
		}
		var err error
		cb.Raw, err = json.Marshal(obj{"type": cb.Type, "created_at": cb.At.UTC().Format(time.RFC3339Nano), "data": data})
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(cb.Secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	stamp := strconv.FormatInt(cb.At.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(cb.ID + "." + stamp + "." + string(cb.Raw)))
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("webhook-id", cb.ID)
	h.Set("webhook-timestamp", stamp)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for k, v := range cb.Header {
		if h.Set(k, v); v == "" {
			h.Del(k)
		}
	}
	return cb.Raw, h
}
