package server_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
)

func TestFaultsFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	outcomes := func(seed uint64) (statuses []int) {
		c := start(t, nil)
		half := 0.5
		c.must(200, http.MethodPut, "/v1/faults", wire.Faults{Seed: seed, Rules: []wire.Rule{
			{On: "query", Mode: "error_before", Rate: &half, Times: 20},
		}}, nil)
		for range 60 {
			status, _ := c.call(http.MethodGet, "/v1/charges/p-1", nil)
			statuses = append(statuses, status)
		}
		return statuses
	}
	first := outcomes(7)
	require.Equal(t, first, outcomes(7))
	require.NotEqual(t, first, outcomes(8))
	hits := 0
	for _, status := range first {
		if status == 500 {
			hits++
		}
	}
	require.Equal(t, 20, hits, "times is the limit")
	require.Equal(t, 404, first[59])
}

func TestFaultsAreChecked(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	for _, rule := range []string{
		`{"on":"charge","mode":"drop"}`, `{"on":"callback","mode":"slow"}`, `{"on":"ledger","mode":"slow"}`, `{"on":"close","mode":""}`,
		`{"on":"query","mode":"slow","rate":1.1}`, `{"on":"query","mode":"slow","rate":-1}`, `{"on":"query","mode":"slow","times":-1}`,
	} {
		c.must(422, http.MethodPut, "/v1/faults", `{"seed":1,"rules":[`+rule+`]}`, nil)
	}
	c.must(400, http.MethodPut, "/v1/faults", `{"seed":1,"rules":[{"on":"query","mode":"slow","often":3}]}`, nil)
	c.must(200, http.MethodPut, "/v1/faults", `{"seed":1,"rules":[{"on":"query","mode":"error_before","rate":0},{"on":"query","mode":"error_after"}]}`, nil)
	c.must(500, http.MethodGet, "/v1/charges/p-1", nil, nil)
	c.must(200, http.MethodPut, "/v1/faults", `{"seed":1,"rules":[]}`, nil)
	c.must(404, http.MethodGet, "/v1/charges/p-1", nil, nil)
}

func TestCallbackGapsGrow(t *testing.T) {
	t.Parallel()
	const base = 20 * time.Millisecond
	url, arrivals := merchant(t, func(n int) int {
		return []int{500, 302, 404, 204}[min(n, 3)]
	})
	c := start(t, func(cfg *server.Config) { cfg.CallbackBase = base })
	c.must(201, http.MethodPost, "/v1/charges", charge("p-1", url), nil)
	c.must(200, http.MethodPost, "/v1/charges/p-1/pay", `{"outcome":"succeeded"}`, nil)
	first := next(t, arrivals)
	verify(t, first)
	last := first
	for i := range 3 {
		a := next(t, arrivals)
		verify(t, a)
		require.Equal(t, first.body, a.body)
		require.Equal(t, first.header.Get(wire.HeaderID), a.header.Get(wire.HeaderID))
		// Both arrivals are noted after the answers, so a little may be missing.
		require.Greater(t, a.at.Sub(last.at), base<<i-base/2)
		last = a
	}
}

func TestCallbackIsSignedAfreshAtEachTry(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	clock := time.Now()
	url, arrivals := merchant(t, func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		clock = clock.Add(time.Hour)
		return []int{500, 200}[min(n, 1)]
	})
	c := start(t, func(cfg *server.Config) {
		cfg.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return clock
		}
	})
	in := charge("p-1", url)
	in.ExpiresAt = in.ExpiresAt.Add(100 * time.Hour)
	c.must(201, http.MethodPost, "/v1/charges", in, nil)
	c.must(200, http.MethodPost, "/v1/charges/p-1/pay", `{"outcome":"failed"}`, nil)
	first, second := next(t, arrivals), next(t, arrivals)
	require.NotEqual(t, first.header.Get(wire.HeaderTimestamp), second.header.Get(wire.HeaderTimestamp))
	require.NotEqual(t, first.header.Get(wire.HeaderSignature), second.header.Get(wire.HeaderSignature))
	require.Equal(t, first.body, second.body)
}

// Close does not wait for a merchant that never answers, nor for a caller whose answer never comes.
func TestCloseCutsOff(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-leave
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(leave) })
	c := start(t, nil)
	c.must(201, http.MethodPost, "/v1/charges", charge("p-1", slow.URL), nil)
	c.must(200, http.MethodPost, "/v1/charges/p-1/pay", `{"outcome":"succeeded"}`, nil)
	<-entered
	c.must(200, http.MethodPut, "/v1/faults", `{"seed":1,"rules":[{"on":"query","mode":"timeout_before"}]}`, nil)
	hanging := make(chan error, 1)
	go func() {
		req, err := http.NewRequest(http.MethodGet, c.url+"/v1/charges/p-1", nil)
		if err != nil {
			hanging <- err
			return
		}
		req.Header.Set("Authorization", "Bearer "+apiKey)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		_, err = client.Do(req)
		hanging <- err
	}()
	start := time.Now()
	c.close()
	require.Error(t, <-hanging)
	require.Less(t, time.Since(start), 4*time.Second)
}
