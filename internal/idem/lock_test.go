package idem

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

func TestLockHasOneHolder(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		l, m, _ := locker(r, LockOptions{})
		for round := range 10 {
			orderNo := fmt.Sprintf("ORDER-%d", round)
			var lock atomic.Pointer[Lock]
			held := twins(50, func(int) bool {
				h, answer := l.Acquire(t.Context(), orderNo, 0)
				if answer == Held {
					lock.Store(h)
				}
				return answer == Held
			})
			require.Equal(t, 1, held)
			lock.Load().Release(t.Context())
		}
		require.EqualValues(t, 10, testutil.ToFloat64(m.LockAnswers.WithLabelValues("held")))
		require.EqualValues(t, 490, testutil.ToFloat64(m.LockAnswers.WithLabelValues("busy")))
		require.Zero(t, testutil.ToFloat64(m.LocksLost))
	})
}

func TestLockExcludesAndWaits(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		l, m, _ := locker(r, LockOptions{})
		var inside atomic.Int32
		held := twins(20, func(int) bool {
			lock, answer := l.Acquire(t.Context(), "ORDER-1", 20*time.Second)
			if answer != Held {
				return false
			}
			defer lock.Release(t.Context())
			defer inside.Add(-1)
			return inside.Add(1) == 1
		})
		require.Equal(t, 20, held)
		require.Zero(t, testutil.ToFloat64(m.LocksLost))
	})
}

func TestLocksOfDifferentOrdersAreIndependent(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		l, _, _ := locker(r, LockOptions{})
		require.Equal(t, 50, twins(50, func(i int) bool {
			lock, answer := l.Acquire(t.Context(), fmt.Sprintf("ORDER-%d", i), 0)
			defer lock.Release(t.Context())
			return answer == Held
		}))
	})
}

func TestReleaseWithoutALock(t *testing.T) {
	var none *Lock
	none.Release(t.Context())
	require.False(t, none.AtOnce())
}

func TestAtOnceOrAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := locker(embedded(t), LockOptions{})
		first, _ := l.Acquire(t.Context(), "ORDER-1", time.Second)
		require.True(t, first.AtOnce())
		time.AfterFunc(100*time.Millisecond, func() { first.Release(t.Context()) })
		second, answer := l.Acquire(t.Context(), "ORDER-1", time.Second)
		require.Equal(t, Held, answer)
		require.False(t, second.AtOnce())
		second.Release(t.Context())
	})
}

// A client that leaves must not leave its lock behind: neither taking nor releasing listens to it.
func TestCancelledClientLeavesNoLock(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	slow := testenv.NewProxy(t, server.Addr)
	slow.Delay(2 * time.Millisecond)
	r := open(t, slow.Addr)
	l, _, _ := locker(r, LockOptions{})

	twins(50, func(i int) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
		defer cancel()
		lock, answer := l.Acquire(ctx, fmt.Sprintf("ORDER-%d", i%25), 0)
		<-ctx.Done()
		lock.Release(ctx)
		return answer == Held
	})
	keys, err := open(t, server.Addr).keys.Keys(t.Context(), "orderd:lock:*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

func TestCancelledClientStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := locker(embedded(t), LockOptions{})
		first, _ := l.Acquire(t.Context(), "ORDER-1", 0)
		defer first.Release(t.Context())

		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, answer := l.Acquire(ctx, "ORDER-1", 2*time.Second)
		require.Equal(t, Busy, answer)
		require.Equal(t, 300*time.Millisecond, time.Since(start))

		start = time.Now()
		_, answer = l.Acquire(t.Context(), "ORDER-1", 2*time.Second)
		require.Equal(t, Busy, answer)
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

// The server carried the SET out, the answer was lost: redsync takes the lock back by its value.
func TestLostAnswerLeavesNoLock(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	proxy := testenv.NewProxy(t, server.Addr)
	l, _, _ := locker(open(t, proxy.Addr), LockOptions{})
	warm, _ := l.Acquire(t.Context(), "ORDER-0", 0)
	warm.Release(t.Context())

	proxy.CutAfter("orderd:lock:ORDER-1", 1)
	lock, answer := l.Acquire(t.Context(), "ORDER-1", 0)
	require.Equal(t, Down, answer)
	require.Nil(t, lock)
	require.Equal(t, 1, proxy.Cuts())
	n, err := open(t, server.Addr).keys.Exists(t.Context(), "orderd:lock:ORDER-1").Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestLostLockIsCounted(t *testing.T) {
	t.Parallel()
	r := open(t, testenv.Redis(t).Addr)
	l, m, text := locker(r, LockOptions{})

	lock, _ := l.Acquire(t.Context(), "ORDER-1", 0)
	require.NoError(t, r.keys.Del(t.Context(), "orderd:lock:ORDER-1").Err())
	lock.Release(t.Context())
	require.EqualValues(t, 1, testutil.ToFloat64(m.LocksLost))
	require.Contains(t, text.String(), "order_no=ORDER-1")

	// Taken over by another, whose lock stays.
	lock, _ = l.Acquire(t.Context(), "ORDER-1", 0)
	require.NoError(t, r.keys.Del(t.Context(), "orderd:lock:ORDER-1").Err())
	other, answer := l.Acquire(t.Context(), "ORDER-1", 0)
	require.Equal(t, Held, answer)
	lock.Release(t.Context())
	require.EqualValues(t, 2, testutil.ToFloat64(m.LocksLost))
	other.Release(t.Context())
	require.EqualValues(t, 2, testutil.ToFloat64(m.LocksLost))
}

func TestLockEndsByItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m, _ := locker(embedded(t), LockOptions{})
		dead, _ := l.Acquire(t.Context(), "ORDER-1", 0)
		time.Sleep(9 * time.Second)
		_, answer := l.Acquire(t.Context(), "ORDER-1", 0)
		require.Equal(t, Busy, answer)
		time.Sleep(time.Second)
		next, answer := l.Acquire(t.Context(), "ORDER-1", 0)
		require.Equal(t, Held, answer)
		dead.Release(t.Context()) // it was only asleep
		require.EqualValues(t, 1, testutil.ToFloat64(m.LocksLost))
		next.Release(t.Context())
		require.EqualValues(t, 1, testutil.ToFloat64(m.LocksLost))
	})
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Answer
	}{
		{nil, Held},
		{&redsync.ErrTaken{Nodes: []int{0}}, Busy},
		{redsync.ErrFailed, Busy},
		{errors.Join(nil, &redsync.RedisError{Err: context.DeadlineExceeded}), Down},
		{errors.Join(nil, &redsync.RedisError{Err: errors.New("OOM command not allowed when used memory > 'maxmemory'.")}), Down},
		{gobreaker.ErrOpenState, Down},
		{gobreaker.ErrTooManyRequests, Down},
		{errPipeClosed, Down},
	} {
		require.Equal(t, c.want, classify(c.err), "%v", c.err)
	}
}
