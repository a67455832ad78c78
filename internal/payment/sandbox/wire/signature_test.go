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

func TestParseSecret(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8G", "whsec_!!!"} {
		_, err := wire.ParseSecret(s)
		require.Error(t, err, s)
	}
}
