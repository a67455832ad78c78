package sandbox_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"orderd/internal/payment"
	"orderd/internal/payment/gatewaytest"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
)

func TestContract(t *testing.T) {
	t.Parallel()
	gatewaytest.Run(t, gatewaytest.Harness{
		Name: "sandbox", Currency: "CNY", TransactionID: "txn_1",
		Start:    startCompany,
		Connect:  connect,
		Callback: signedCallback,
		Kinds: []payment.NoticeKind{payment.PaymentSucceeded, payment.PaymentFailed, payment.PaymentClosed,
			payment.RefundSucceeded, payment.RefundFailed},
		Acknowledged: func(a payment.Acknowledgement) bool { return a.Status/100 == 2 },
	})
}

func connect(t testing.TB, url string) payment.Gateway {
	t.Helper()
	client := sandbox.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	g, err := sandbox.NewGateway(sandbox.Config{URL: url, APIKey: apiKey, WebhookSecrets: []string{secret}, MerchantID: merchant,
		NotifyURL: "http://127.0.0.1:1/", Client: client})
	require.NoError(t, err)
	return g
}

func startCompany(t testing.TB) gatewaytest.Company {
	t.Helper()
	s, err := server.New(server.Config{MerchantID: merchant, APIKey: apiKey, WebhookSecret: secret, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	end := httptest.NewServer(s.Handler())
	t.Cleanup(end.Close)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	shopper := func(t testing.TB, c payment.Charge, how wire.PayRequest) {
		t.Helper()
		body, err := json.Marshal(how)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, end.URL+"/v1/charges/"+c.PaymentNo+"/pay", bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+apiKey)
		req.Header.Set("Content-Type", "application/json")
		res, err := end.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
	return gatewaytest.Company{URL: end.URL,
		Pay: func(t testing.TB, c payment.Charge, amount int64) {
			shopper(t, c, wire.PayRequest{Outcome: "succeeded", Amount: &amount})
		},
		Decline: func(t testing.TB, c payment.Charge) { shopper(t, c, wire.PayRequest{Outcome: "failed"}) },
	}
}

func signedCallback(t testing.TB, c gatewaytest.Callback) (http.Header, []byte) {
	t.Helper()
	e := wire.Event{Type: string(c.Kind), CreatedAt: time.Unix(1_700_000_000, 0).UTC(), Data: wire.EventData{MerchantID: merchant, PaymentNo: c.PaymentNo,
		TransactionID: c.TransactionID, RefundNo: c.RefundNo, RefundID: c.RefundID, Amount: c.Amount, Currency: c.Currency}}
	switch c.Flaw {
	case gatewaytest.OtherMerchant:
		e.Data.MerchantID = "m-2"
	case gatewaytest.UnknownType:
		e.Type = "payment.disputed"
	case gatewaytest.Malformed:
		e.Data.PaymentNo = ""
	}
	body, err := json.Marshal(e)
	require.NoError(t, err)
	key, err := wire.ParseSecret(secret)
	require.NoError(t, err)
	timestamp := strconv.FormatInt(c.At.Unix(), 10)
	h := http.Header{}
	h.Set(wire.HeaderID, c.ID)
	h.Set(wire.HeaderTimestamp, timestamp)
	h.Set(wire.HeaderSignature, wire.Sign(key, c.ID, timestamp, body))
	return h, body
}
