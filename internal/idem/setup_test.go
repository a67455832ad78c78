package idem

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"orderd/internal/metrics"
	"orderd/internal/testenv"
)

func TestMain(m *testing.M) {
	LogTo(slog.New(slog.DiscardHandler)) // dead servers are dialled on purpose here
	goleak.VerifyTestMain(m)
}

// onEach runs the test on a real server and on the embedded one.
func onEach(t *testing.T, test func(t *testing.T, r *Redis)) {
	t.Parallel()
	t.Run("server", func(t *testing.T) { test(t, open(t, testenv.Redis(t).Addr)) })
	t.Run("embedded", func(t *testing.T) { test(t, embedded(t)) })
}

func open(t testing.TB, addr string) *Redis {
	t.Helper()
	// Patient, for tests in which the server is there and the machine busy.
	return openWith(t, Config{Addr: addr, LockTimeout: 5 * time.Second, KeyTimeout: 5 * time.Second})
}

func openWith(t testing.TB, cfg Config) *Redis {
	t.Helper()
	r, err := Open(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func embedded(t testing.TB) *Redis {
	r := Embedded(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// locker returns a Locker on r with its metrics and what it logs.
func locker(r *Redis, o LockOptions) (*Locker, *metrics.Metrics, *logText) {
	m, text := metrics.New(prometheus.NewRegistry()), &logText{}
	return NewLocker(r, m, slog.New(slog.NewTextHandler(text, nil)), o), m, text
}

type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// twins runs f n times at once, released by a barrier, and returns how often it said yes.
func twins(n int, f func(i int) bool) (yes int) {
	barrier := make(chan struct{})
	said := make(chan bool, n)
	for i := range n {
		go func() {
			<-barrier
			said <- f(i)
		}()
	}
	close(barrier)
	for range n {
		if <-said {
			yes++
		}
	}
	return yes
}

// eventually asks again until ok.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.NoError(t, testenv.Poll(t.Context(), nil, func(context.Context) error {
		if ok() {
			return nil
		}
		return ErrDown
	}))
}
