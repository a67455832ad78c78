package payment_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
)

// A gateway that is away is not called any more, but for one call a second; the first good answer ends that.
func TestBreaker(t *testing.T) {
	var calls, status atomic.Int64
	status.Store(http.StatusInternalServerError)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte(`{"code":"not_found"}`))
	})
	synctest.Test(t, func(t *testing.T) {
		raw, err := sandbox.NewGateway(sandbox.Config{URL: "http://gateway", APIKey: "k", MerchantID: "m", NotifyURL: "http://us",
			WebhookSecrets: []string{"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}, Client: &http.Client{Transport: inProcess{h}}})
		require.NoError(t, err)
		g := payment.WithBreaker(raw)
		require.Implements(t, (*payment.Ledger)(nil), g)
		query := func() error {
			_, err := g.Query(t.Context(), payment.Ref{PaymentNo: "P1"})
			return err
		}
		for range 20 {
			require.Error(t, query())
		}
		require.EqualValues(t, 5, calls.Load(), "the sixth is not sent")
		time.Sleep(1100 * time.Millisecond)
		require.Error(t, query())
		require.Error(t, query())
		require.EqualValues(t, 6, calls.Load(), "one asks whether it is back")
		status.Store(http.StatusNotFound)
		time.Sleep(1100 * time.Millisecond)
		for range 20 {
			require.ErrorIs(t, query(), payment.ErrNotFound, "an answer, not a failure")
		}
		require.EqualValues(t, 26, calls.Load())
	})
}

// inProcess serves a client's calls without a network, which virtual time needs.
type inProcess struct{ h http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w.Result(), nil
}
