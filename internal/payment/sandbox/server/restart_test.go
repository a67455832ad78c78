package server_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
)

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "sandbox.jsonl")
	persistent := func(c *server.Config) { c.Journal, c.PublicURL = journal, "https://pay.example/" }
	url, arrivals := merchant(t, accept)
	paths := []string{"/v1/charges/paid", "/v1/charges/open", "/v1/charges/closed", "/v1/charges/failed", "/v1/refunds/r-1", "/v1/ledger"}

	c := start(t, persistent)
	for _, no := range []string{"paid", "open", "closed", "failed"} {
		c.must(201, http.MethodPost, "/v1/charges", charge(no, url), nil)
	}
	c.must(200, http.MethodPost, "/v1/charges/paid/pay", `{"outcome":"succeeded","amount":1000,"currency":"EUR"}`, nil)
	c.must(200, http.MethodPost, "/v1/charges/failed/pay", `{"outcome":"failed"}`, nil)
	c.must(200, http.MethodPost, "/v1/charges/closed/close", nil, nil)
	c.must(201, http.MethodPost, "/v1/refunds", refund("r-1", "paid", 600, url), nil)
	for range 4 {
		verify(t, next(t, arrivals))
	}
	before := map[string]string{}
	for _, path := range paths {
		_, before[path] = c.call(http.MethodGet, path, nil)
	}
	c.close()

	// What a crash leaves: the beginning of a line that nobody was answered for. Then it is run over a whole start.
	for _, torn := range []string{"", `{"charge":{"request":{"merch`, "{\"ledger\n"} {
		f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString(torn)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		c = start(t, persistent)
		for _, path := range paths {
			_, after := c.call(http.MethodGet, path, nil)
			require.Equal(t, before[path], after)
		}
		c.must(200, http.MethodPost, "/v1/charges", charge("open", url), nil)
		c.must(200, http.MethodPost, "/v1/refunds", refund("r-1", "paid", 600, url), nil)
		c.must(422, http.MethodPost, "/v1/refunds", refund("r-2", "paid", 401, url), nil)
		c.close()
	}
	c = start(t, persistent)
	c.must(201, http.MethodPost, "/v1/refunds", refund("r-2", "paid", 400, url), nil)
	require.Equal(t, int64(3), c.ledger()[2].Seq)
	require.Contains(t, next(t, arrivals).body, "r-2", "nothing acknowledged is sent again")
	require.Empty(t, arrivals)
}

func TestRestartGoesOnWithCallbacks(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "sandbox.jsonl")
	persistent := func(c *server.Config) { c.Journal = journal }
	url, arrivals := merchant(t, func(n int) int {
		if n == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	})
	c := start(t, func(c *server.Config) { persistent(c); c.CallbackBase = time.Hour })
	c.must(201, http.MethodPost, "/v1/charges", charge("p-1", url), nil)
	c.must(200, http.MethodPost, "/v1/charges/p-1/pay", `{"outcome":"succeeded"}`, nil)
	first := next(t, arrivals)
	c.close()

	start(t, persistent)
	second := next(t, arrivals)
	verify(t, second)
	require.Equal(t, first.body, second.body)
	require.Equal(t, first.header.Get(wire.HeaderID), second.header.Get(wire.HeaderID))
}

func TestUnreadableJournal(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "sandbox.jsonl")
	const text = "{\"acked\":\"a\"}\n{\"ack\n{\"acked\":\"b\"}\n"
	require.NoError(t, os.WriteFile(journal, []byte(text), 0o600))
	_, err := server.New(server.Config{MerchantID: "m", APIKey: "k", WebhookSecret: secret, Journal: journal})
	require.ErrorContains(t, err, "line 2")
	left, err := os.ReadFile(journal)
	require.NoError(t, err)
	require.Equal(t, text, string(left), "a file that is not understood is not touched")
}

func TestJournalHasOneOwner(t *testing.T) {
	t.Parallel()
	cfg := server.Config{MerchantID: "m-1", APIKey: apiKey, WebhookSecret: secret, Journal: filepath.Join(t.TempDir(), "j")}
	first, err := server.New(cfg)
	require.NoError(t, err)
	_, err = server.New(cfg)
	require.ErrorContains(t, err, "another process")
	require.NoError(t, first.Close())
	second, err := server.New(cfg)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

func TestNothingIsDoneAfterClose(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{MerchantID: "m-1", APIKey: apiKey, WebhookSecret: secret, Journal: filepath.Join(t.TempDir(), "j"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	c := serve(t, s)
	c.must(500, http.MethodPost, "/v1/charges", charge("p-1", "http://merchant/"), nil)
	c.must(404, http.MethodGet, "/v1/charges/p-1", nil, nil)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, cfg := range []server.Config{
		{APIKey: "k", WebhookSecret: secret}, {MerchantID: "m", WebhookSecret: secret}, {MerchantID: "m", APIKey: "k", WebhookSecret: "x"},
	} {
		_, err := server.New(cfg)
		require.Error(t, err)
	}
}
