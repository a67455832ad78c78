package batch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"orderd/internal/batch"
	"orderd/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func size() prometheus.Observer {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "size"})
}

// gate is a batch function whose runs end when the test says so.
type gate struct {
	started chan []int    // one per run
	open    chan struct{} // one per run, or closed
	running atomic.Int32
	most    atomic.Int32
}

func newGate() *gate { return &gate{started: make(chan []int, 100), open: make(chan struct{}, 100)} }

func (g *gate) run(_ context.Context, items []int) error {
	g.most.Store(max(g.most.Load(), g.running.Add(1)))
	defer g.running.Add(-1)
	g.started <- slices.Clone(items)
	<-g.open
	return nil
}

// do starts a call in the background and returns once it runs or waits.
func do(t *testing.T, g *batch.Group[int], ctx context.Context, item int) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- g.Do(ctx, item) }()
	synctest.Wait()
	return done
}

func TestBatchTakesWhatHasQueuedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := newGate()
		g := batch.New(3, 10, nil, size(), never, run.run)
		var calls []<-chan error
		for i := range 6 {
			calls = append(calls, do(t, g, t.Context(), i))
		}
		close(run.open)
		for _, c := range calls {
			require.NoError(t, <-c)
		}
		require.Equal(t, []int{0}, <-run.started, "the first does not wait for company")
		require.Equal(t, []int{1, 2, 3}, <-run.started)
		require.Equal(t, []int{4, 5}, <-run.started)
		require.EqualValues(t, 1, run.most.Load(), "one batch at a time")

		require.NoError(t, g.Do(t.Context(), 6))
		require.Equal(t, []int{6}, <-run.started, "afterwards it is idle, not stuck")
	})
}

func TestNobodyFailsForANeighbour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		var mu sync.Mutex
		var runs [][]int
		hold := make(chan struct{})
		g := batch.New(10, 10, nil, size(), never, func(_ context.Context, items []int) error {
			mu.Lock()
			runs = append(runs, slices.Clone(items))
			mu.Unlock()
			<-hold
			if slices.Contains(items, 2) {
				return bad
			}
			return nil
		})
		var calls []<-chan error
		for i := range 4 {
			calls = append(calls, do(t, g, t.Context(), i))
		}
		close(hold)
		for i, c := range calls {
			if err := <-c; i == 2 {
				require.ErrorIs(t, err, bad)
			} else {
				require.NoError(t, err, i)
			}
		}
		slices.SortFunc(runs[2:], func(a, b []int) int { return a[0] - b[0] }) // single items run at once
		require.Equal(t, [][]int{{0}, {1, 2, 3}, {1}, {2}, {3}}, runs)
	})
}

// While the database is away, a batch of a hundred fails once, not a hundred times one after the other.
func TestAHopelessBatchIsNotTriedItemByItem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var runs atomic.Int32
		hold := make(chan struct{})
		g := batch.New(100, 100, nil, size(), func(err error) bool { return errors.Is(err, away) }, func(context.Context, []int) error {
			<-hold
			runs.Add(1)
			return away
		})
		var calls []<-chan error
		for i := range 50 {
			calls = append(calls, do(t, g, t.Context(), i))
		}
		close(hold)
		for _, c := range calls {
			require.ErrorIs(t, <-c, away)
		}
		require.EqualValues(t, 2, runs.Load(), "the first, and the 49 that waited")
	})
}

// One item that takes long to fail holds up nobody but itself.
func TestSingleItemsRunBesideEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		g := batch.New(100, 100, nil, size(), never, func(_ context.Context, items []int) error {
			if len(items) > 1 {
				return errors.New("as a whole")
			}
			<-hold
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			return nil
		})
		var calls []<-chan error
		for i := range 50 {
			calls = append(calls, do(t, g, t.Context(), i))
		}
		began := time.Now()
		close(hold)
		for _, c := range calls {
			require.NoError(t, <-c)
		}
		require.Equal(t, 2*time.Second, time.Since(began), "the first, and then 49 at once")
	})
}

func TestPanicDoesNotStopTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		g := batch.New(10, 10, nil, size(), never, func(_ context.Context, items []int) error {
			<-hold
			if slices.Contains(items, 1) {
				panic("one")
			}
			return nil
		})
		first, second, third := do(t, g, t.Context(), 0), do(t, g, t.Context(), 1), do(t, g, t.Context(), 2)
		close(hold)
		require.NoError(t, <-first)
		require.ErrorContains(t, <-second, "panic: one")
		require.NoError(t, <-third)
		require.NoError(t, g.Do(t.Context(), 3))
	})
}

func TestCallWhoseContextEndsWhileItWaitsIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := newGate()
		g := batch.New(10, 10, nil, size(), never, run.run)
		first := do(t, g, t.Context(), 0)
		ctx, cancel := context.WithCancel(t.Context())
		second, third := do(t, g, ctx, 1), do(t, g, t.Context(), 2)
		cancel()
		require.ErrorIs(t, <-second, context.Canceled, "it does not wait for the batch before it")
		close(run.open)
		require.NoError(t, <-first)
		require.NoError(t, <-third)
		require.Equal(t, []int{0}, <-run.started)
		require.Equal(t, []int{2}, <-run.started, "what was taken back never runs")
	})
}

// Once a batch has begun, its calls wait for it whatever their contexts do: only then do they know the outcome.
func TestLeaderThatHangsUpHurtsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		started, hold := make(chan struct{}, 9), make(chan struct{})
		g := batch.New(10, 10, nil, size(), never, func(ctx context.Context, items []int) error {
			started <- struct{}{}
			<-hold
			if ctx.Value(key{}) != "leader" && items[0] == 1 {
				return errors.New("the leader's values are lost")
			}
			return ctx.Err()
		})
		first := do(t, g, t.Context(), 0)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "leader"))
		leader, other := do(t, g, ctx, 1), do(t, g, t.Context(), 2)
		<-started
		hold <- struct{}{} // the first batch ends: the second one, led by 1, begins
		<-started
		cancel()
		synctest.Wait()
		require.Empty(t, leader, "it is waited for")
		close(hold)
		require.NoError(t, <-first)
		require.NoError(t, <-leader)
		require.NoError(t, <-other)
	})
}

// A context that ends just when its call is chosen to lead must not lose the lead: the queue behind it would hang.
func TestLeadIsNeverLost(t *testing.T) {
	t.Parallel()
	turn := batch.NewTurn()
	groups := make([]*batch.Group[int], 2)
	for i := range groups {
		groups[i] = batch.New(2, 1000, turn, size(), never, func(context.Context, []int) error { return nil })
	}
	for round := range 300 {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		barrier := make(chan struct{})
		for i := range 8 {
			wg.Go(func() {
				<-barrier
				g := groups[i/4]
				if i%2 == 0 {
					if err := g.Do(ctx, i); err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("round %d: %v", round, err)
					}
				} else if err := g.Do(context.Background(), i); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		close(barrier)
		cancel()
		wg.Wait()
	}
}

func TestOneTooManyIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := newGate()
		g := batch.New(10, 2, nil, size(), never, run.run)
		calls := []<-chan error{do(t, g, t.Context(), 0), do(t, g, t.Context(), 1), do(t, g, t.Context(), 2)}
		f := fault.As(g.Do(t.Context(), 3))
		require.NotNil(t, f)
		require.Equal(t, fault.Unavailable, f.Kind)
		require.Equal(t, "unavailable", f.Code)
		require.Equal(t, time.Second, f.RetryAfter)
		close(run.open)
		for _, c := range calls {
			require.NoError(t, <-c, "those that waited are served")
		}
		require.NoError(t, g.Do(t.Context(), 4), "and there is room again")
	})
}

func TestMaxOfOneRunsCallsBesideEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run := newGate()
		g := batch.New(1, 1, nil, size(), never, run.run)
		var calls []<-chan error
		for i := range 5 {
			calls = append(calls, do(t, g, t.Context(), i))
		}
		require.EqualValues(t, 5, run.running.Load())
		close(run.open)
		for _, c := range calls {
			require.NoError(t, <-c)
		}
	})
}

// Every item runs exactly once, in one batch, and nobody gets another's result.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	odd := errors.New("odd")
	var ran [2000]atomic.Int32
	type item struct {
		n   int
		err error
	}
	g := batch.New(16, 5000, nil, size(), never, func(_ context.Context, items []*item) error {
		for _, it := range items {
			ran[it.n].Add(1)
			if it.n%2 == 1 {
				it.err = odd
			}
		}
		return nil
	})
	var wg sync.WaitGroup
	for c := range 50 {
		wg.Go(func() {
			for i := range 40 {
				it := &item{n: c*40 + i}
				if err := g.Do(context.Background(), it); err != nil || (it.err != nil) != (it.n%2 == 1) {
					t.Errorf("item %d: %v, %v", it.n, err, it.err)
				}
			}
		})
	}
	wg.Wait()
	for i := range ran {
		require.EqualValues(t, 1, ran[i].Load(), i)
	}
}

// never says that single items are worth a try.
func never(error) bool { return false }
