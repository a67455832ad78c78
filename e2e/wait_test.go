package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"orderd/internal/testenv"
)

// settleLimit bounds every wait for something that happens by itself.
const settleLimit = time.Minute

// settled polls until done returns nil, and fails the test with its last error after a minute.
func settled(t testing.TB, done func() error) {
	t.Helper()
	if err := poll(t, done); err != nil {
		t.Fatalf("not settled: %v", err)
	}
}

// poll is settled for goroutines other than the test's: it returns the last error.
func poll(t testing.TB, done func() error) error {
	ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
	defer cancel()
	return testenv.Poll(ctx, nil, func(context.Context) error { return done() })
}

// together runs f(0) .. f(n-1) in goroutines that a barrier releases at once, and waits for all.
func together(n int, f func(i int)) {
	barrier := make(chan struct{})
	var ready, all sync.WaitGroup
	for i := range n {
		ready.Add(1)
		all.Go(func() {
			ready.Done()
			<-barrier
			f(i)
		})
	}
	ready.Wait()
	close(barrier)
	all.Wait()
}

// gather is together for calls with a result, in the order of i.
func gather[T any](n int, f func(i int) T) []T {
	results := make([]T, n)
	together(n, func(i int) { results[i] = f(i) })
	return results
}
