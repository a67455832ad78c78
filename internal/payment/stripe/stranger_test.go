package stripe_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// serve runs a stranger that answers everything the same.
func serve(t testing.TB, status int, body string) string {
	t.Helper()
	return sequence(t, answer{status, body})
}

type answer struct {
	status int
	body   string
}

// sequence runs a stranger that gives one answer after the other, the last for ever.
func sequence(t testing.TB, answers ...answer) string {
	t.Helper()
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answers[0].status)
		_, _ = io.WriteString(w, answers[0].body)
		if len(answers) > 1 {
			answers = answers[1:]
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// lose runs a way to the fake on which the answers to POST are lost: before they take effect, or after.
func lose(t testing.TB, f *fake, after bool) string {
	t.Helper()
	target, err := url.Parse(f.url)
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			if r.In.Method == http.MethodPost && !after {
				panic(http.ErrAbortHandler)
			}
			r.SetURL(target)
		},
		ModifyResponse: func(res *http.Response) error {
			if res.Request.Method == http.MethodPost {
				panic(http.ErrAbortHandler)
			}
			return nil
		},
	})
	t.Cleanup(s.Close)
	return s.URL
}
