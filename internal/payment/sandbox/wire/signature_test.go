package wire_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/sandbox/wire"
)

// The example of the Standard Webhooks reference implementations.
func TestReferenceVector(t *testing.T) {
	t.Parallel()
	key, err := wire.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	const id, timestamp, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	require.Equal(t, want, wire.Sign(key, id, timestamp, []byte(body)))
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", timestamp)
	h.Set("webhook-signature", want)
	got, err := wire.Verify([][]byte{key}, h, []byte(body), time.Unix(1614265330, 0))
	require.NoError(t, err)
	require.Equal(t, id, got)
	_, err = wire.Verify(nil, h, []byte(body), time.Unix(1614265330, 0))
	require.ErrorIs(t, err, wire.ErrSignature)
}

// No headers and body are believed but those that together say what was signed, at the time that was signed; and nothing
// makes us panic.
func FuzzVerify(f *testing.F) {
	key, err := wire.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(f, err)
	const id, timestamp, body = "msg_1", "1614265330", `{"type":"ping"}`
	good := wire.Sign(key, id, timestamp, []byte(body))
	for _, signature := range []string{good, "v1a,AAAA " + good, good + " v1,", "v1,AAAA", "v1," + good, "", ",", " \t\n"} {
		f.Add(id, timestamp, signature, []byte(body))
	}
	f.Add("msg_1.1614265330", "1614265330", good, []byte(body))
	f.Add("msg_1", "01614265330", good, []byte(body))
	f.Add("msg_1", "-9223372036854775808", good, []byte(body))
	f.Fuzz(func(t *testing.T, gotID, gotTimestamp, signature string, got []byte) {
		h := http.Header{}
		h.Set("webhook-id", gotID)
		h.Set("webhook-timestamp", gotTimestamp)
		h.Set("webhook-signature", signature)
		if _, err := wire.Verify([][]byte{key}, h, got, time.Unix(1614265330, 0)); err != nil {
			require.ErrorIs(t, err, wire.ErrSignature)
			return
		}
		require.Equal(t, id+"."+timestamp+"."+body, gotID+"."+gotTimestamp+"."+string(got))
	})
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8G", "whsec_!!!"} {
		_, err := wire.ParseSecret(s)
		require.Error(t, err, s)
	}
}
