package idem

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

// A SET NX whose caller has left while it queued would lock the order for nobody.
func TestAbandonedCommandIsNotSent(t *testing.T) {
	t.Parallel()
	r := open(t, testenv.Redis(t).Addr)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	call := func(ctx context.Context, key string) *pipeCall {
		return &pipeCall{ctx: ctx, add: func(p redis.Pipeliner) { p.SetNX(ctx, key, "v", 0) }, done: make(chan struct{})}
	}
	r.locks.(*pipe).send([]*pipeCall{call(gone, "gone"), call(t.Context(), "here")})
	keys, err := r.keys.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{"here"}, keys)
}

func TestClosedPipeIsDown(t *testing.T) {
	t.Parallel()
	r := open(t, testenv.Redis(t).Addr)
	l, _, _ := locker(r, LockOptions{})
	lock, answer := l.Acquire(t.Context(), "ORDER-1", 0)
	require.Equal(t, Held, answer)
	require.NoError(t, r.locks.(*pipe).Close())
	r.closers = r.closers[1:]
	lock.Release(t.Context())
	_, answer = l.Acquire(t.Context(), "ORDER-2", 0)
	require.Equal(t, Down, answer)
}
