package idem

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"orderd/internal/metrics"
	"orderd/internal/testenv"
)

// BenchmarkPool compares redsync's own pool with the pipe: 64 goroutines, each its own order, lock and unlock.
func BenchmarkPool(b *testing.B) {
	addr := testenv.Redis(b).Addr
	for name, pool := range map[string]func(redis.UniversalClient) redsyncredis.Pool{
		"stock": goredis.NewPool,
		"pipe": func(c redis.UniversalClient) redsyncredis.Pool {
			p := newPipe(c, time.Second)
			b.Cleanup(func() { _ = p.Close() })
			return p
		},
	} {
		b.Run(name, func(b *testing.B) {
			client := redis.NewUniversalClient(options(Config{Addr: addr}, time.Second, 64))
			b.Cleanup(func() { _ = client.Close() })
			rs := redsync.New(pool(client))
			var worker atomic.Int64
			b.SetParallelism(32) // times 2 cores
			b.ReportAllocs()
			before := cpuTime()
			b.RunParallel(func(pb *testing.PB) {
				m := rs.NewMutex(fmt.Sprintf("orderd:lock:ORDER-%d", worker.Add(1)))
				for pb.Next() {
					if err := m.TryLock(); err != nil {
						b.Error(err)
					}
					if _, err := m.Unlock(); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// cpuTime is what this process has used, without the server.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLock is what the lock costs one request: with a healthy server, without one (the breaker is open after three
// requests), in the first request after the server froze, and embedded.
func BenchmarkLock(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	pair := func(b *testing.B, r *Redis, want Answer) {
		l := NewLocker(r, metrics.New(prometheus.NewRegistry()), quiet, LockOptions{})
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			lock, answer := l.Acquire(ctx, "ORDER-1", 0)
			if answer != want {
				b.Fatal(answer)
			}
			lock.Release(ctx)
		}
	}
	b.Run("healthy", func(b *testing.B) { pair(b, openWith(b, Config{Addr: testenv.Redis(b).Addr}), Held) })
	b.Run("embedded", func(b *testing.B) { pair(b, embedded(b), Held) })
	b.Run("dead", func(b *testing.B) {
		server := testenv.Redis(b)
		server.Kill()
		pair(b, openWith(b, Config{Addr: server.Addr}), Down)
	})
	b.Run("frozen", func(b *testing.B) {
		server := testenv.Redis(b)
		r := openWith(b, Config{Addr: server.Addr})
		require.NoError(b, server.Pause())
		pair(b, r, Down)
	})
	b.Run("frozen-first", func(b *testing.B) {
		server := testenv.Redis(b)
		r := openWith(b, Config{Addr: server.Addr})
		require.NoError(b, r.Ping(b.Context()))
		require.NoError(b, server.Pause())
		l := NewLocker(r, metrics.New(prometheus.NewRegistry()), quiet, LockOptions{})
		for b.Loop() {
			r.breaker = newBreaker(quiet)
			if _, answer := l.Acquire(b.Context(), "ORDER-1", 0); answer != Down {
				b.Fatal(answer)
			}
		}
	})
}
