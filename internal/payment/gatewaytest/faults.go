package gatewaytest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment"
)

// call is one method of a Gateway, about a payment of ours.
type call struct {
	name string
	do   func(ctx context.Context, g payment.Gateway) error
}

func (h Harness) calls() []call {
	of := payment.Ref{PaymentNo: "P1", TransactionID: h.TransactionID}
	all := []call{
		{"query", func(ctx context.Context, g payment.Gateway) error { _, err := g.Query(ctx, of); return err }},
		{"close", func(ctx context.Context, g payment.Gateway) error { _, err := g.Close(ctx, of); return err }},
		{"query refund", func(ctx context.Context, g payment.Gateway) error { _, err := g.QueryRefund(ctx, "R1", of); return err }},
		{"refund", func(ctx context.Context, g payment.Gateway) error {
			_, err := g.Refund(ctx, payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", TransactionID: h.TransactionID, Amount: 1, Currency: h.Currency, Total: amount})
			return err
		}},
	}
	if !h.ChargesLocally {
		all = append(all, call{"charge", func(ctx context.Context, g payment.Gateway) error {
			_, err := g.Charge(ctx, h.request("P1"))
			return err
		}})
	}
	if !h.AskedOnly {
		all = append(all, call{"list", func(ctx context.Context, g payment.Gateway) error {
			_, err := g.(payment.Ledger).Entries(ctx, time.Now().Add(-time.Hour))
			return err
		}})
	}
	return all
}

// answer is a handler that answers everything the same.
func answer(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// faults: whatever goes wrong on the way, the outcome is unknown: an error, and never ErrNotFound. It comes long before a
// deadline that nothing depends on, and soon after one that does.
func faults(t *testing.T, h Harness) {
	const far, near = 20 * time.Second, 150 * time.Millisecond
	var redirected atomic.Int64
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	const problem = `{"code":"NOT_FOUND","error":{"type":"api_error"},"status":500}`
	for name, fault := range map[string]struct {
		answer http.HandlerFunc
		limit  time.Duration
	}{
		"no answer": {silent, near},
		"answer that stops halfway": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":`)
			_ = http.NewResponseController(w).Flush()
			silent(w, r)
		}, near},
		"connection reset": {reset, far},
		"connection closed in the body": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"id":`)
		}, far},
		"400":                     {answer(400, "application/json", "{}"), far},
		"401":                     {answer(401, "application/json", "{}"), far},
		"403":                     {answer(403, "application/json", "{}"), far},
		"404 of a proxy":          {answer(404, "text/html", "<h1>404 page not found</h1>"), far},
		"404 that says nothing":   {answer(404, "application/json", "{}"), far},
		"409":                     {answer(409, "application/json", "{}"), far},
		"429":                     {answer(429, "application/json", problem), far},
		"500":                     {answer(500, "application/json", problem), far},
		"502 of a proxy":          {answer(502, "text/html", "<h1>bad gateway</h1>"), far},
		"503":                     {answer(503, "application/json", problem), far},
		"empty body":              {answer(200, "application/json", ""), far},
		"empty object":            {answer(200, "application/json", "{}"), far},
		"null":                    {answer(200, "application/json", "null"), far},
		"garbage":                 {answer(200, "application/json", "\x00\xff{{{"), far},
		"another content type":    {answer(200, "text/html", "<h1>welcome to the hotel's Wi-Fi</h1>"), far},
		"no content type":         {answer(200, "", "{}"), far},
		"2 MiB":                   {answer(200, "application/json", `{"x":"`+strings.Repeat("x", 2<<20)+`"}`), far},
		"2 MiB that says failure": {answer(500, "application/json", `{"x":"`+strings.Repeat("x", 2<<20)+`"}`), far},
		"endless":                 {endless, far},
		"redirect 302":            {redirect(302, elsewhere), far},
		"redirect 307":            {redirect(307, elsewhere), far},
		"redirect 308":            {redirect(308, elsewhere), far},
	} {
		t.Run(name, func(t *testing.T) {
			g := h.Connect(t, serve(t, fault.answer))
			for _, c := range h.calls() {
				ctx, cancel := context.WithTimeout(t.Context(), fault.limit)
				start := time.Now()
				err := c.do(ctx, g)
				took := time.Since(start)
				cancel()
				require.Error(t, err, c.name)
				require.NotErrorIs(t, err, payment.ErrNotFound, c.name)
				require.Less(t, took, far/2, "%s: neither waits without end nor tries again and again", c.name)
			}
			require.Zero(t, redirected.Load(), "a redirect was followed: what we sign or authenticate would go elsewhere")
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		g := h.Connect(t, "http://"+l.Addr().String())
		for _, c := range h.calls() {
			err := c.do(t.Context(), g)
			require.Error(t, err, c.name)
			require.NotErrorIs(t, err, payment.ErrNotFound, c.name)
		}
	})
	t.Run("given up before", func(t *testing.T) {
		var calls atomic.Int64
		g := h.Connect(t, serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) })))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range h.calls() {
			err := c.do(ctx, g)
			require.ErrorIs(t, err, context.Canceled, c.name)
		}
		require.Zero(t, calls.Load())
	})
	t.Run("one call is one request", func(t *testing.T) {
		var calls atomic.Int64
		g := h.Connect(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			answer(503, "application/json", problem)(w, r)
		})))
		for _, c := range h.calls() {
			calls.Store(0)
			require.Error(t, c.do(t.Context(), g), c.name)
			require.EqualValues(t, 1, calls.Load(), "%s: trying again is the caller's business, who has a schedule", c.name)
		}
	})
}

// silent never answers. It reads the body, without which the server would not see that the client is gone.
func silent(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func reset(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

func endless(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	chunk := []byte(strings.Repeat(" ", 64<<10))
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func redirect(status int, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to+r.URL.Path, status) }
}

// proxy stands before a company. change may alter each answer's body and header.
func proxy(t *testing.T, to string, change func(res *http.Response, body []byte) []byte) string {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		ModifyResponse: func(res *http.Response) error {
			body, err := io.ReadAll(res.Body)
			if err != nil {
				return err
			}
			_ = res.Body.Close()
			body = change(res, body)
			res.Body = io.NopCloser(strings.NewReader(string(body)))
			res.ContentLength = int64(len(body))
			res.Header.Del("Content-Length")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return serve(t, p)
}

// swapped: a genuine answer about another payment is no answer about this one.
func swapped(t *testing.T, h Harness) {
	company := h.Start(t)
	var header http.Header
	var recorded []byte
	replay := false
	g := h.Connect(t, proxy(t, company.URL, func(res *http.Response, body []byte) []byte {
		if replay {
			res.Header = header.Clone()
			return recorded
		}
		header, recorded = res.Header.Clone(), body
		return body
	}))
	first, second := h.open(t, company, g, "P1"), h.open(t, company, g, "P2")
	company.Pay(t, first, amount)
	_, err := g.Query(t.Context(), ref(first))
	require.NoError(t, err)
	replay = true
	_, err = g.Query(t.Context(), ref(second))
	require.Error(t, err)
	require.NotErrorIs(t, err, payment.ErrNotFound)
}

// tampered: an answer whose signature does not fit is as good as none, whatever it says.
func tampered(t *testing.T, h Harness) {
	if !h.SignsAnswers {
		return
	}
	company := h.Start(t)
	direct := h.Connect(t, company.URL)
	c := h.open(t, company, direct, "P1")
	company.Pay(t, c, amount)
	paid, err := direct.Query(t.Context(), ref(c))
	require.NoError(t, err)
	of := ref(paid)
	for _, call := range []call{
		{"query", func(ctx context.Context, g payment.Gateway) error { _, err := g.Query(ctx, of); return err }},
		{"query of an unknown one", func(ctx context.Context, g payment.Gateway) error {
			_, err := g.Query(ctx, payment.Ref{PaymentNo: "P404"})
			return err
		}},
		{"query of an unknown refund", func(ctx context.Context, g payment.Gateway) error {
			_, err := g.QueryRefund(ctx, "R404", of)
			return err
		}},
		{"refund", func(ctx context.Context, g payment.Gateway) error {
			_, err := g.Refund(ctx, payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", TransactionID: of.TransactionID, Amount: 1, Currency: h.Currency, Total: amount})
			return err
		}},
	} {
		for _, part := range []float64{0.1, 0.3, 0.5, 0.7, 0.9} {
			altered := h.Connect(t, proxy(t, company.URL, func(_ *http.Response, body []byte) []byte {
				if len(body) > 0 {
					body[int(part*float64(len(body)))] ^= 1
				}
				return body
			}))
			err := call.do(t.Context(), altered)
			require.Error(t, err, "%s, at %v", call.name, part)
			require.NotErrorIs(t, err, payment.ErrNotFound, "%s, at %v", call.name, part)
		}
	}
}
