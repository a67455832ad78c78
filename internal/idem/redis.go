package idem

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/sony/gobreaker/v2"

	"orderd/internal/fault"
)

const (
	breakerTrips   = 3           // failures in a row until Redis counts as away
	breakerRecheck = time.Second // an absent Redis is asked again this often, by one request
)

// ErrDown is in the chain of every error that means: Redis did not answer, so nothing is known. The error itself is a
// 503 "unavailable" fault.
var ErrDown = errors.New("redis is away")

// Config says where Redis is.
type Config struct {
	Addr     string // host:port of the one server
	Username string // empty: the default user
	Password string // empty: none
	DB       int    // number of the database; 0 is the default one
	TLS      bool   // encrypt, and verify the server by the system's roots

	LockTimeout time.Duration // of one round trip of the lock; a try and its undoing take two at most; default 100 ms
	KeyTimeout  time.Duration // of one call for a token or a window; default 300 ms
}

// Redis is what the doors and the lock share: connections, and one breaker that learns once for all of them that the
// server is away.
type Redis struct {
	keys        redis.UniversalClient // tokens and windows
	keyTimeout  time.Duration
	locks       redsyncredis.Pool // the lock's own connections: a slow token must not hold up a lock
	lockTimeout time.Duration
	breaker     *gobreaker.CircuitBreaker[struct{}]
	closers     []func() error // in the order to be called
}

// Open prepares the connections to a Redis server. It does not dial: an absent Redis must not stop the service.
func Open(cfg Config, log *slog.Logger) (*Redis, error) {
	if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
		return nil, fmt.Errorf("redis address %q: want host:port: %w", cfg.Addr, err)
	}
	lockTimeout := cmp.Or(cfg.LockTimeout, 100*time.Millisecond)
	keyTimeout := cmp.Or(cfg.KeyTimeout, 300*time.Millisecond)
	keys := redis.NewUniversalClient(options(cfg, keyTimeout, 32))
	// The pipe has one flight in the air, so a few connections are plenty.
	locks := redis.NewUniversalClient(options(cfg, lockTimeout, 4))
	pipe := newPipe(locks, lockTimeout)
	return &Redis{
		keys: keys, keyTimeout: keyTimeout,
		locks: pipe, lockTimeout: lockTimeout,
		breaker: newBreaker(log),
		closers: []func() error{pipe.Close, locks.Close, keys.Close},
	}, nil
}

// options sets everything that matters explicitly: the library's defaults wait 5 s, dial 5 times and ignore deadlines.
func options(cfg Config, timeout time.Duration, conns int) *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs:    []string{cfg.Addr}, // exactly one: two would silently mean Cluster
		Username: cfg.Username, Password: cfg.Password, DB: cfg.DB,

		ContextTimeoutEnabled: true, // else a context's deadline is ignored while waiting for an answer
		DialTimeout:           time.Second,
		DialerRetries:         1,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		PoolTimeout:           timeout,
		PoolSize:              conns,
		PipelinePoolSize:      -1, // no second pool for pipelines
		// Never send a command twice: a SET NX whose answer was lost would then be refused by its own success, and an
		// unlock would report a lost lock.
		MaxRetries:               -1,
		DisableIdentity:          true, // both would fail on servers that do not know them
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if cfg.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o
}

func newBreaker(log *slog.Logger) *gobreaker.CircuitBreaker[struct{}] {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     breakerRecheck,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTrips },
		// A missing key and a taken lock are answers, not failures.
		IsSuccessful: func(err error) bool { return errors.Is(err, redis.Nil) || classify(err) != Down },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			switch to {
			case gobreaker.StateOpen:
				log.Warn("redis is away: going on without it")
			case gobreaker.StateClosed:
				log.Info("redis is back")
			}
		},
	})
}

// do runs one call for a token or window. The client cannot cancel it (a cancelled call is an unknown outcome, and would
// look like a failure of Redis); Config.KeyTimeout bounds it. Its errors are redis.Nil and ErrDown.
func (r *Redis) do(ctx context.Context, call func(ctx context.Context) error) error {
	_, err := r.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.keyTimeout)
		defer cancel()
		return struct{}{}, call(ctx)
	})
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	return fault.Busy("unavailable", "the service cannot do this just now", time.Second, fmt.Errorf("%w: %w", ErrDown, err))
}

// Ping asks whether Redis answers; the error is ErrDown.
func (r *Redis) Ping(ctx context.Context) error {
	return r.do(ctx, func(ctx context.Context) error { return r.keys.Ping(ctx).Err() })
}

// Close ends the connections. Nothing may use r afterwards.
func (r *Redis) Close() error {
	var errs []error
	for _, c := range r.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// LogTo sends the client library's own messages (failed dials and the like) to log instead of stderr. The library has
// one logger for the whole process, so only main calls this, once, and no constructor does.
func LogTo(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.WarnContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
