package idem

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/testenv"
)

// requireAway checks that everything on r says at once that Redis is away, and that the breaker learnt it.
func requireAway(t *testing.T, r *Redis, l *Locker, tokens *Tokens) {
	t.Helper()
	require.Zero(t, twins(50, func(int) bool {
		lock, answer := l.Acquire(t.Context(), "ORDER-1", 0)
		lock.Release(t.Context())
		return answer != Down
	}))
	require.Equal(t, gobreaker.StateOpen, r.breaker.State())

	requireDown := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, ErrDown)
		require.Equal(t, fault.Unavailable, fault.As(err).Kind)
	}
	_, _, err := tokens.Issue(t.Context(), "u1", "ORDER-2")
	requireDown(err)
	taken, err := tokens.Take(t.Context(), "ORDER-1."+tokens.sign("u1", "ORDER-1"), "u1")
	requireDown(err)
	require.Equal(t, Taken{OrderNo: "ORDER-1"}, taken) // enough to look the order up
	_, err = tokens.Take(t.Context(), "ORDER-1."+tokens.sign("u1", "ORDER-1"), "u2")
	require.True(t, fault.Is(err, "token_expired")) // needs no Redis
	_, _, err = NewWindows(r).Claim(t.Context(), "hash", "ORDER-1")
	requireDown(err)
	requireDown(NewWindows(r).Free(t.Context(), "hash", "ORDER-1"))
	requireDown(r.Ping(t.Context()))
}

// requireBack waits until the breaker has noticed.
func requireBack(t *testing.T, r *Redis, l *Locker, tokens *Tokens) {
	t.Helper()
	eventually(t, func() bool {
		lock, answer := l.Acquire(t.Context(), "ORDER-9", 0)
		lock.Release(t.Context())
		return answer == Held
	})
	token, _, err := tokens.Issue(t.Context(), "u1", "ORDER-9")
	require.NoError(t, err)
	taken, err := tokens.Take(t.Context(), token, "u1")
	require.NoError(t, err)
	require.True(t, taken.First)
	require.NoError(t, tokens.Back(t.Context(), token))
	require.NoError(t, r.Ping(t.Context()))
}

func TestRedisPausedKilledAndRestarted(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	r := openWith(t, Config{Addr: server.Addr})
	l, m, text := locker(r, LockOptions{})
	tokens := newTokens(t, r)
	requireBack(t, r, l, tokens)

	held, answer := l.Acquire(t.Context(), "ORDER-7", 0)
	require.Equal(t, Held, answer)
	require.NoError(t, server.Pause())
	requireAway(t, r, l, tokens)
	held.Release(t.Context()) // does not hang; whether the lock is lost is not known
	require.Contains(t, text.String(), "it ends by its TTL")
	require.NoError(t, server.Resume())
	requireBack(t, r, l, tokens)

	server.Kill()
	requireAway(t, r, l, tokens)
	require.NoError(t, server.Restart()) // empty: it has forgotten the scripts, too
	requireBack(t, r, l, tokens)
	require.Zero(t, testutil.ToFloat64(m.LocksLost))
	require.NotZero(t, testutil.ToFloat64(m.LockAnswers.WithLabelValues("down")))
}

// A server that answers, but not the question, is as good as away.
func TestRefusingRedisIsDownNotBusy(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]any{
		"OOM":      {"config", "set", "maxmemory", "1"},
		"READONLY": {"replicaof", "127.0.0.1", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, testenv.Redis(t).Addr)
			l, _, _ := locker(r, LockOptions{})
			require.NoError(t, r.keys.Do(t.Context(), command...).Err())
			for range 5 {
				_, answer := l.Acquire(t.Context(), "ORDER-1", 0)
				require.Equal(t, Down, answer)
			}
			_, _, err := NewWindows(r).Claim(t.Context(), "hash", "ORDER-1")
			require.ErrorIs(t, err, ErrDown)
		})
	}
}

// The client leaving is no failure of Redis.
func TestLeavingClientsDoNotOpenTheBreaker(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		l, _, _ := locker(r, LockOptions{})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 10 {
			_, first, err := NewWindows(r).Claim(gone, "hash", "ORDER-1")
			require.NoError(t, err)
			require.True(t, first)
			lock, answer := l.Acquire(gone, "ORDER-1", 0)
			require.Equal(t, Held, answer, i)
			lock.Release(gone)
		}
		require.Equal(t, gobreaker.StateClosed, r.breaker.State())
	})
}

func TestOpenRefusesAnythingButOneAddress(t *testing.T) {
	for _, addr := range []string{"", "localhost", "a:1,b:2", "redis://a:1"} {
		_, err := Open(Config{Addr: addr}, nil)
		require.Error(t, err, addr)
	}
}
