package gatewaytest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/payment"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// notice is what a callback of the kind says.
func (h Harness) notice(kind payment.NoticeKind) payment.Notice {
	n := payment.Notice{Kind: kind, PaymentNo: "P1", TransactionID: h.TransactionID, Amount: amount, Currency: h.Currency}
	if kind == payment.RefundSucceeded || kind == payment.RefundFailed {
		n.RefundNo, n.RefundID, n.Amount = "R1", "refund_1", 300
	}
	return n
}

func (h Harness) callback(t testing.TB, kind payment.NoticeKind, id string, flaw Flaw) (http.Header, []byte) {
	t.Helper()
	return h.Callback(t, Callback{Notice: h.notice(kind), At: now, ID: id, Flaw: flaw})
}

func genuine(t *testing.T, h Harness) {
	g := h.Connect(t, "http://127.0.0.1:1")
	require.Contains(t, h.Kinds, payment.PaymentSucceeded)
	ids := map[string]bool{}
	for _, kind := range h.Kinds {
		header, body := h.callback(t, kind, "m-"+string(kind), None)
		n, err := g.VerifyCallback(header, body, now)
		require.NoError(t, err, kind)
		want := h.notice(kind)
		require.Equal(t, []any{kind, "callback:" + h.Name, h.Name, want.PaymentNo, want.RefundNo},
			[]any{n.Kind, n.Source, n.Gateway, n.PaymentNo, n.RefundNo}, kind)
		require.Regexp(t, "^[0-9a-f]{64}$", n.PayloadHash, kind)
		if kind == payment.PaymentSucceeded || kind == payment.RefundSucceeded {
			require.Equal(t, []any{want.Amount, want.Currency}, []any{n.Amount, n.Currency}, kind)
			require.NotEmpty(t, n.TransactionID+n.RefundID, kind)
		}
		require.LessOrEqual(t, len(n.MessageID), 128, kind)
		require.NotEmpty(t, n.MessageID, kind)
		require.False(t, ids[n.MessageID], "two messages, one id")
		ids[n.MessageID] = true

		again, err := g.VerifyCallback(header, body, now.Add(time.Minute))
		require.NoError(t, err, kind)
		require.Equal(t, n, again, "the message sent again is the same message")
		resent := Callback{Notice: want, At: now.Add(time.Minute), ID: "m-" + string(kind)}
		header, body = h.Callback(t, resent)
		again, err = g.VerifyCallback(header, body, now.Add(time.Minute))
		require.NoError(t, err, kind)
		require.Equal(t, n, again, "the message signed anew is the same message")
		resent.Amount++
		header, body = h.Callback(t, resent)
		other, err := g.VerifyCallback(header, body, now.Add(time.Minute))
		require.NoError(t, err, kind)
		require.Equal(t, n.MessageID, other.MessageID, kind)
		if n.Amount != 0 { // it says an amount
			require.NotEqual(t, n.PayloadHash, other.PayloadHash, "the same id with another content is a conflict")
		}
	}
}

func unauthenticated(t *testing.T, err error, message string, args ...any) {
	t.Helper()
	require.Error(t, err, append([]any{message}, args...)...)
	require.Equal(t, fault.Unauthenticated, fault.As(err).Kind, append([]any{message}, args...)...)
}

func altered(t *testing.T, h Harness) {
	g := h.Connect(t, "http://127.0.0.1:1")
	header, body := h.callback(t, payment.PaymentSucceeded, "m-1", None)
	for i := range body {
		spoilt := append([]byte(nil), body...)
		spoilt[i] ^= 1
		_, err := g.VerifyCallback(header, spoilt, now)
		unauthenticated(t, err, "byte %d of %q", i, body)
	}
	for name, spoilt := range map[string][]byte{
		"empty": nil, "cut short": body[:len(body)-1], "longer": append(append([]byte(nil), body...), ' '), "twice": append(append([]byte(nil), body...), body...),
	} {
		_, err := g.VerifyCallback(header, spoilt, now)
		unauthenticated(t, err, name)
	}
	if h.SignsBody {
		return
	}
	_, err := g.VerifyCallback(http.Header{}, body, now)
	unauthenticated(t, err, "no headers")
	other, _ := h.callback(t, payment.PaymentSucceeded, "m-1", Malformed)
	_, err = g.VerifyCallback(other, body, now)
	unauthenticated(t, err, "the headers of another message")
}

func dated(t *testing.T, h Harness) {
	if h.Undated {
		return
	}
	g := h.Connect(t, "http://127.0.0.1:1")
	for _, c := range []struct {
		signed time.Duration // before or after now
		fresh  bool
	}{
		{-100 * 365 * 24 * time.Hour, false}, {-time.Hour, false}, {-301 * time.Second, false}, {-300 * time.Second, true}, {0, true},
		{300 * time.Second, true}, {301 * time.Second, false}, {time.Hour, false}, {100 * 365 * 24 * time.Hour, false},
	} {
		header, body := h.Callback(t, Callback{Notice: h.notice(payment.PaymentSucceeded), At: now.Add(c.signed), ID: "m-1"})
		_, err := g.VerifyCallback(header, body, now)
		if c.fresh {
			require.NoError(t, err, c.signed)
		} else {
			unauthenticated(t, err, "signed at %v", c.signed)
		}
	}
}

func flawed(t *testing.T, h Harness) {
	g := h.Connect(t, "http://127.0.0.1:1")
	for flaw, want := range map[Flaw]fault.Kind{OtherMerchant: fault.Forbidden, Malformed: fault.Invalid} {
		header, body := h.callback(t, payment.PaymentSucceeded, "m-1", flaw)
		_, err := g.VerifyCallback(header, body, now)
		require.Error(t, err, flaw)
		require.Equal(t, want, fault.As(err).Kind, "%s: %v", flaw, err)
		// The signature is looked at first: nothing else is said to whoever did not sign.
		body[len(body)/2] ^= 1
		_, err = g.VerifyCallback(header, body, now)
		unauthenticated(t, err, string(flaw))
	}
	header, body := h.callback(t, payment.PaymentSucceeded, "m-1", UnknownType)
	n, err := g.VerifyCallback(header, body, now)
	require.NoError(t, err)
	require.Equal(t, payment.Other, n.Kind)
}

func acknowledges(t *testing.T, h Harness) {
	g := h.Connect(t, "http://127.0.0.1:1")
	for _, result := range []string{"applied", "duplicate", "ignored", "refund_opened"} {
		a := g.Acknowledge(result, nil)
		if a.Status == 0 { // the default form
			a = payment.Acknowledgement{Status: http.StatusOK, ContentType: "application/json", Body: []byte(`{"result":"` + result + `"}`)}
		}
		require.True(t, h.Acknowledged(a), result)
	}
	for kind, status := range map[fault.Kind]int{
		fault.Internal: 500, fault.Invalid: 400, fault.Unauthenticated: 401, fault.Forbidden: 403, fault.NotFound: 404, fault.Conflict: 409, fault.Unavailable: 503,
	} {
		a := g.Acknowledge("", fault.New(kind, "internal", "message with success, SUCCESS and 200 in it"))
		if a.Status == 0 {
			a = payment.Acknowledgement{Status: status, ContentType: "application/problem+json", Body: []byte(`{"status":` + http.StatusText(status) + `}`)}
		}
		require.False(t, h.Acknowledged(a), "an error of kind %d", kind)
		require.NotContains(t, string(a.Body), "message with", "it says nothing of what went on inside")
	}
	a := g.Acknowledge("", errors.New("an internal matter"))
	require.NotContains(t, string(a.Body), "internal matter")
}
