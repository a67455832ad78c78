package e2e

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The check behind every call of the suite must itself be able to fail.
func TestContractCheckNoticesBrokenAnswers(t *testing.T) {
	t.Parallel()
	const stock = `{"sku":"TEA-250","title":"Tea","unit_price":1299,"currency":"CNY","available":5,"version":1}`
	cases := []struct {
		name, method, path, media, body string
		status                          int
		header                          map[string]string
		broken                          string
	}{
		{"a right answer", "GET", "/v1/stock/TEA-250", "application/json", stock, 200, nil, ""},
		{"a missing member", "GET", "/v1/stock/TEA-250", "application/json", `{"sku":"TEA-250"}`, 200, nil, "title"},
		{"a status that is not described", "GET", "/v1/stock/TEA-250", "application/json", stock, 299, nil, "status"},
		{"503 without Retry-After", "GET", "/v1/stock/TEA-250", "application/problem+json", `{}`, 503, nil, "Retry-After"},
		{"a path that is not described", "GET", "/v1/secret", "application/json", `{}`, 200, nil, "not in the contract"},
		{"an error as text", "GET", "/v1/secret", "text/plain", `no`, 404, nil, "text/plain"},
		{"405 without Allow", "PATCH", "/v1/orders", "application/problem+json", `{}`, 405, nil, "Allow"},
		{"no request id", "GET", "/v1/stock/TEA-250", "application/json", stock, 200, map[string]string{"X-Request-ID": ""}, "X-Request-ID"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{"Content-Type": {c.media}, "X-Request-Id": {"request-1"}, "Etag": {`"x"`}}
			for k, v := range c.header {
				h.Set(k, v)
			}
			err := keepsContract(httptest.NewRequest(c.method, c.path, http.NoBody), answer{c.status, h, []byte(c.body)})
			if c.broken == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.broken)
		})
	}
}
