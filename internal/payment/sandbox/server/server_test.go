package server_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
)

func TestKeyIsRequired(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	for _, key := range []string{"", apiKey, "Bearer " + apiKey + "x", "Bearer ", "bearer " + apiKey} {
		for method, path := range map[string]string{
			"GET": "/v1/ledger", "PUT": "/v1/faults", "POST": "/v1/charges/p-1/pay",
		} {
			req, err := http.NewRequest(method, c.url+path, nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", key)
			status, answer := c.do(req)
			require.Equal(t, 401, status)
			require.Contains(t, answer, "unauthenticated")
			require.NotContains(t, answer, apiKey)
		}
	}
}

func TestRequestsAreReadStrictly(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	const good = `{"merchant_id":"m-1","payment_no":"p-1","amount":1,"currency":"CNY","subject":"s","notify_url":"http://merchant/","expires_at":"2100-01-01T00:00:00Z"}`
	for name, test := range map[string]struct {
		body   string
		status int
	}{
		"empty":            {"", 400},
		"two documents":    {good + good, 400},
		"unknown member":   {strings.Replace(good, "{", `{"x":1,`, 1), 400},
		"duplicate member": {strings.Replace(good, "{", `{"amount":1,`, 1), 400},
		"other case":       {strings.Replace(good, "amount", "Amount", 1), 400},
		"amount 1.5":       {strings.Replace(good, ":1,", ":1.5,", 1), 400},
		"amount a string":  {strings.Replace(good, ":1,", `:"1",`, 1), 400},
		"amount 0":         {strings.Replace(good, ":1,", ":0,", 1), 422},
		"amount negative":  {strings.Replace(good, ":1,", ":-1,", 1), 422},
		"no currency":      {strings.Replace(good, "CNY", "XYZ", 1), 422},
		"no http":          {strings.Replace(good, "http://merchant/", "file:///etc/passwd", 1), 422},
		"bad number":       {strings.Replace(good, "p-1", "p/1", 1), 422},
		"no expiry":        {strings.Replace(good, `,"expires_at":"2100-01-01T00:00:00Z"`, "", 1), 422},
		"other merchant":   {strings.Replace(good, "m-1", "m-2", 1), 403},
		"too long":         {strings.Repeat(" ", 64<<10) + good, 413},
	} {
		status, answer := c.call(http.MethodPost, "/v1/charges", test.body)
		require.Equal(t, test.status, status, name+answer)
	}
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
		req, err := http.NewRequest(http.MethodPost, c.url+"/v1/charges", strings.NewReader(good))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+apiKey)
		req.Header.Set("Content-Type", contentType)
		status, _ := c.do(req)
		require.Equal(t, 415, status)
	}
	c.must(201, http.MethodPost, "/v1/charges", good, nil)
	for body, want := range map[string]int{
		`{"outcome":"maybe"}`: 422, `{"outcome":"succeeded","amount":0}`: 422, `{"outcome":"succeeded","currency":"X"}`: 422, `[]`: 400,
	} {
		c.must(want, http.MethodPost, "/v1/charges/p-1/pay", body, nil)
	}
	c.must(404, http.MethodPost, "/v1/charges/p-2/pay", `{"outcome":"succeeded"}`, nil)
	c.must(422, http.MethodPost, "/v1/refunds", refund("r-1", "p-1", 0, "http://merchant/"), nil)
	c.must(403, http.MethodPost, "/v1/refunds", wire.RefundRequest{MerchantID: "m-2"}, nil)
	c.must(400, http.MethodGet, "/v1/ledger?after=x", nil, nil)
	c.must(405, http.MethodDelete, "/v1/charges/p-1", nil, nil)
	require.Empty(t, c.ledger())
}

func TestOverdueChargeClosesItself(t *testing.T) {
	t.Parallel()
	var skew atomic.Int64
	url, arrivals := merchant(t, accept)
	c := start(t, func(cfg *server.Config) {
		cfg.Now = func() time.Time { return expiry.Add(time.Duration(skew.Load())) }
	})
	skew.Store(-1000) // a microsecond before
	for _, no := range []string{"asked", "paid", "reopened", "intime"} {
		c.must(201, http.MethodPost, "/v1/charges", charge(no, url), nil)
	}
	c.must(200, http.MethodPost, "/v1/charges/intime/pay", `{"outcome":"succeeded"}`, nil)
	require.Contains(t, next(t, arrivals).body, wire.PaymentSucceeded)
	skew.Store(0)
	var got wire.Charge
	c.must(200, http.MethodGet, "/v1/charges/asked", nil, &got)
	require.Equal(t, wire.Closed, got.Status)
	c.must(409, http.MethodPost, "/v1/charges/paid/pay", `{"outcome":"succeeded"}`, &got)
	require.Equal(t, wire.Closed, got.Status)
	c.must(200, http.MethodPost, "/v1/charges", charge("reopened", url), &got)
	require.Equal(t, wire.Closed, got.Status)
	for range 3 {
		require.Contains(t, next(t, arrivals).body, wire.PaymentClosed)
	}
	c.must(200, http.MethodGet, "/v1/charges/intime", nil, &got)
	require.Equal(t, wire.Succeeded, got.Status)
	require.False(t, got.PaidAt.IsZero())
	require.Len(t, c.ledger(), 1)
}

// atOnce releases n calls from a barrier and counts the statuses.
func atOnce(n int, call func(i int) int) map[int]int {
	var done sync.WaitGroup
	barrier, statuses := make(chan struct{}), make(chan int, n)
	for i := range n {
		done.Go(func() {
			<-barrier
			statuses <- call(i)
		})
	}
	close(barrier)
	done.Wait()
	close(statuses)
	counts := map[int]int{}
	for status := range statuses {
		counts[status]++
	}
	return counts
}

func TestRaces(t *testing.T) {
	t.Parallel()
	url, _ := merchant(t, accept)
	for range 5 {
		c := start(t, nil)
		created := atOnce(20, func(int) int {
			status, _ := c.call(http.MethodPost, "/v1/charges", charge("p-1", url))
			return status
		})
		require.Equal(t, map[int]int{201: 1, 200: 19}, created)
		paid := atOnce(20, func(int) int {
			status, _ := c.call(http.MethodPost, "/v1/charges/p-1/pay", `{"outcome":"succeeded"}`)
			return status
		})
		require.Equal(t, map[int]int{200: 1, 409: 19}, paid)
		// 60 % each: one fits.
		over := atOnce(20, func(i int) int {
			status, _ := c.call(http.MethodPost, "/v1/refunds", refund("r-"+string(rune('a'+i)), "p-1", 780, url))
			return status
		})
		require.Equal(t, map[int]int{201: 1, 422: 19}, over)
		same := atOnce(20, func(int) int {
			status, _ := c.call(http.MethodPost, "/v1/refunds", refund("rest", "p-1", 519, url))
			return status
		})
		require.Equal(t, map[int]int{201: 1, 200: 19}, same)
		entries := c.ledger()
		require.Len(t, entries, 3)
		require.Equal(t, entries[0].Amount, entries[1].Amount+entries[2].Amount)
	}
}

func TestPayAgainstClose(t *testing.T) {
	t.Parallel()
	url, _ := merchant(t, accept)
	c := start(t, nil)
	for i := range 20 {
		no := "p-" + string(rune('a'+i))
		c.must(201, http.MethodPost, "/v1/charges", charge(no, url), nil)
		counts := atOnce(2, func(i int) int {
			path, body := "/close", ""
			if i == 0 {
				path, body = "/pay", `{"outcome":"succeeded"}`
			}
			status, _ := c.call(http.MethodPost, "/v1/charges/"+no+path, body)
			return status
		})
		require.Equal(t, map[int]int{200: 1, 409: 1}, counts, "one of them wins")
	}
}

func TestLedgerPages(t *testing.T) {
	t.Parallel()
	url, _ := merchant(t, accept)
	c := start(t, nil)
	for _, no := range []string{"p-1", "p-2", "p-3"} {
		c.must(201, http.MethodPost, "/v1/charges", charge(no, url), nil)
		c.must(200, http.MethodPost, "/v1/charges/"+no+"/pay", `{"outcome":"succeeded"}`, nil)
	}
	for query, want := range map[string][]string{
		"": {"p-1", "p-2", "p-3"}, "?after=0": {"p-1", "p-2", "p-3"}, "?after=2": {"p-3"}, "?after=3": nil, "?after=99": nil, "?after=1&limit=1": {"p-2"},
	} {
		var l wire.Ledger
		c.must(200, http.MethodGet, "/v1/ledger"+query, nil, &l)
		var got []string
		for _, e := range l.Entries {
			got = append(got, e.PaymentNo)
		}
		require.Equal(t, want, got, query)
	}
	_, empty := c.call(http.MethodGet, "/v1/ledger?after=3", nil)
	require.JSONEq(t, `{"entries":[]}`, empty)
}
