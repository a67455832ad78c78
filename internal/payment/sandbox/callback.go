package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"orderd/internal/fault"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox/wire"
)

// VerifyCallback implements payment.Gateway: signature over the raw bytes (401), then the merchant (403), then the rest
// (400). Nothing is parsed that is not signed.
func (g *Gateway) VerifyCallback(header http.Header, body []byte, now time.Time) (payment.Notice, error) {
	id, err := wire.Verify(g.keys, header, body, now)
	if err != nil {
		return payment.Notice{}, &fault.Error{
			Kind: fault.Unauthenticated, Code: "unauthenticated", Message: "the callback's signature does not verify", Err: err,
		}
	}
	n, err := parse(body, g.cfg.MerchantID)
	if errors.Is(err, errOtherMerchant) {
		return payment.Notice{}, fault.New(fault.Forbidden, "forbidden", err.Error())
	}
	if err != nil {
		return payment.Notice{}, fault.New(fault.Invalid, "invalid_request", err.Error())
	}
	hash := sha256.Sum256(body)
	n.Source, n.Gateway = "callback:"+name, name
	n.MessageID, n.PayloadHash = id, hex.EncodeToString(hash[:])
	return n, nil
}

// Acknowledge implements payment.Gateway. Errors have the default form.
func (g *Gateway) Acknowledge(result string, err error) payment.Acknowledgement {
	if err != nil {
		return payment.Acknowledgement{}
	}
	return payment.Acknowledgement{
		Status: http.StatusOK, ContentType: "application/json", Body: []byte(`{"result":` + strconv.Quote(result) + `}`),
	}
}

var errOtherMerchant = errors.New("the callback is another merchant's")

// parse reads an event. Members and types that we do not know are ignored, so that the gateway may add some; the ones that
// we know must be given once and exactly, so that no two readers can see different values.
func parse(body []byte, merchantID string) (payment.Notice, error) {
	envelope, err := members(body, "type", "created_at", "data")
	if err != nil {
		return payment.Notice{}, err
	}
	kind, err := text(envelope, "type")
	if err != nil {
		return payment.Notice{}, err
	}
	known := []payment.NoticeKind{payment.PaymentSucceeded, payment.PaymentFailed, payment.PaymentClosed, payment.RefundSucceeded, payment.RefundFailed}
	n := payment.Notice{Kind: payment.NoticeKind(kind)}
	if !slices.Contains(known, n.Kind) {
		n.Kind = payment.Other
	}
	data, err := members(envelope["data"], "merchant_id", "payment_no", "transaction_id", "refund_no", "refund_id", "amount", "currency")
	if err != nil {
		if n.Kind == payment.Other && envelope["data"].Kind() != '{' {
			return n, nil // whatever it is about, it has no merchant
		}
		return payment.Notice{}, err
	}
	if n.Kind == payment.Other && data["merchant_id"] == nil {
		return n, nil
	}
	if merchant, err := text(data, "merchant_id"); err != nil {
		return payment.Notice{}, err
	} else if merchant != merchantID {
		return payment.Notice{}, errOtherMerchant
	}
	if n.Kind == payment.Other {
		return n, nil
	}
	refund := strings.HasPrefix(kind, "refund.")
	for _, m := range []struct {
		name     string
		into     *string
		required bool
	}{
		{"payment_no", &n.PaymentNo, true},
		{"transaction_id", &n.TransactionID, n.Kind == payment.PaymentSucceeded},
		{"refund_no", &n.RefundNo, refund},
		{"refund_id", &n.RefundID, refund},
		{"currency", &n.Currency, true},
	} {
		if data[m.name] == nil && !m.required {
			continue
		}
		if *m.into, err = text(data, m.name); err != nil {
			return payment.Notice{}, err
		}
	}
	if len(n.Currency) != 3 || strings.Trim(n.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return payment.Notice{}, errors.New("currency must be three capital letters")
	}
	n.Amount, err = minorUnits(data["amount"])
	return n, err
}

// members reads one JSON object, and nothing after it, into the raw values of the members that it knows.
func members(object []byte, known ...string) (map[string]jsontext.Value, error) {
	// Duplicates are looked for below, among the known names only: what we do not know, we do not judge.
	dec := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true))
	if start, err := dec.ReadToken(); err != nil || start.Kind() != '{' {
		return nil, errors.New("a JSON object is expected")
	}
	found := map[string]jsontext.Value{}
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, errors.New("malformed JSON")
		}
		member := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, errors.New("malformed JSON")
		}
		for _, k := range known {
			switch {
			case member != k && strings.EqualFold(member, k):
				return nil, fmt.Errorf("%s is spelled in another case", k)
			case member == k && found[k] != nil:
				return nil, fmt.Errorf("%s is given twice", k)
			case member == k:
				found[k] = value.Clone()
			}
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, errors.New("malformed JSON")
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the JSON object")
	}
	return found, nil
}

// text returns a member that must be a string of 1 to 128 visible ASCII characters, as every name of the protocol is.
func text(m map[string]jsontext.Value, name string) (string, error) {
	var s string
	if m[name].Kind() != '"' || json.Unmarshal(m[name], &s) != nil || s == "" || len(s) > 128 ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s must be a string of 1 to 128 visible ASCII characters", name)
	}
	return s, nil
}

// minorUnits reads a positive integral number in any of JSON's spellings (1299, 1299.0, 1.299e3), exactly: never through a
// float, and without working out what a huge exponent stands for.
func minorUnits(v jsontext.Value) (int64, error) {
	invalid := errors.New("amount must be a positive integral number")
	if v.Kind() != '0' {
		return 0, invalid
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	scale := int64(0)
	if exponent != "" {
		var err error
		if scale, err = strconv.ParseInt(exponent, 10, 32); err != nil {
			return 0, invalid
		}
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	scale -= int64(len(fraction))
	significant := strings.TrimRight(digits, "0")
	scale += int64(len(digits) - len(significant))
	if significant == "" || scale < 0 || scale > 18 {
		return 0, invalid
	}
	n, err := strconv.ParseInt(significant+strings.Repeat("0", int(scale)), 10, 64)
	if err != nil || n <= 0 {
		return 0, invalid
	}
	return n, nil
}
