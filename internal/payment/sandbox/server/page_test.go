package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/sandbox/wire"
)

// browse sends a request as the shopper's browser does: without the key, following redirects.
func (c *company) browse(method, path, form string) (status int, page string) {
	c.t.Helper()
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(form))
	require.NoError(c.t, err)
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", c.url)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	return c.do(req)
}

func TestShopperPays(t *testing.T) {
	t.Parallel()
	notify, arrivals := merchant(t, accept)
	c := start(t, nil)
	in := charge("p-1", notify)
	in.Subject = `<script>alert("tea")</script>`
	var made wire.Charge
	c.must(201, http.MethodPost, "/v1/charges", in, &made)
	link, err := url.Parse(made.PayURL)
	require.NoError(t, err)
	require.Equal(t, c.url, "http://"+link.Host)

	status, page := c.browse(http.MethodGet, link.Path, "")
	require.Equal(t, 200, status)
	require.Contains(t, page, "12.99")
	require.Contains(t, page, `value="succeeded">Pay<`)
	require.Contains(t, page, `value="failed">Decline<`)
	require.NotContains(t, page, "<script")
	require.NotContains(t, page, apiKey)

	status, page = c.browse(http.MethodPost, link.Path, "outcome=succeeded")
	require.Equal(t, 200, status)
	require.Contains(t, page, `data-status="SUCCEEDED"`)
	require.NotContains(t, page, "<button")
	require.Contains(t, next(t, arrivals).body, wire.PaymentSucceeded)
	_, page = c.browse(http.MethodPost, link.Path, "outcome=failed") // too late
	require.Contains(t, page, `data-status="SUCCEEDED"`)
	require.Len(t, c.ledger(), 1)
}

func TestShopperDeclinesOrComesTooLate(t *testing.T) {
	t.Parallel()
	notify, _ := merchant(t, accept)
	c := start(t, nil)
	c.must(201, http.MethodPost, "/v1/charges", charge("p-1", notify), nil)
	_, page := c.browse(http.MethodPost, "/pay/p-1", "outcome=failed")
	require.Contains(t, page, `data-status="FAILED"`)
	c.must(201, http.MethodPost, "/v1/charges", charge("p-2", notify), nil)
	c.must(200, http.MethodPost, "/v1/charges/p-2/close", nil, nil)
	_, page = c.browse(http.MethodPost, "/pay/p-2", "outcome=succeeded")
	require.Contains(t, page, `data-status="CLOSED"`)
	require.Empty(t, c.ledger())
}

func TestPageKeepsStrangersOut(t *testing.T) {
	t.Parallel()
	notify, _ := merchant(t, accept)
	c := start(t, nil)
	c.must(201, http.MethodPost, "/v1/charges", charge("p-1", notify), nil)
	status, page := c.browse(http.MethodGet, "/pay/unknown", "")
	require.Equal(t, 404, status)
	require.Contains(t, page, "No such payment")
	status, _ = c.browse(http.MethodPost, "/pay/p-1", "outcome=maybe")
	require.Equal(t, 422, status)
	status, _ = c.browse(http.MethodPost, "/pay/p-1", "outcome="+strings.Repeat("x", 70<<10))
	require.Equal(t, 422, status)

	req, err := http.NewRequest(http.MethodPost, c.url+"/pay/p-1", strings.NewReader("outcome=succeeded"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", "https://elsewhere.example")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	status, _ = c.do(req)
	require.Equal(t, 403, status)
	require.Empty(t, c.ledger())

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(c.url + "/pay/p-1")
	require.NoError(t, err)
	defer res.Body.Close()
	policy := res.Header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.Contains(t, policy, "frame-ancestors 'none'")
	status, css := c.browse(http.MethodGet, "/pay.css", "")
	require.Equal(t, 200, status)
	require.Contains(t, css, "button")
}

func TestAmountsInTheCurrencysOwnForm(t *testing.T) {
	t.Parallel()
	notify, _ := merchant(t, accept)
	c := start(t, nil)
	for code, want := range map[string]string{"CNY": "12.99", "JPY": "1,299", "KRW": "1,299", "KWD": "1.299", "USD": "$12.99"} {
		in := charge("p-"+code, notify)
		in.Currency = code
		c.must(201, http.MethodPost, "/v1/charges", in, nil)
		_, page := c.browse(http.MethodGet, "/pay/p-"+code, "")
		require.Contains(t, page, want+"</p>", code)
	}
}
