package idem

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/go-redis/v9"
)

// clockTick is how often the embedded server's time moves on. A key may end up to one tick early.
const clockTick = 200 * time.Millisecond

// Embedded starts a Redis inside this process, for running without any server. Nothing in it survives the process.
func Embedded(log *slog.Logger) *Redis {
	server := miniredis.NewMiniRedis()
	const timeout = 5 * time.Second // it can be slow on a busy machine, but not away
	o := options(Config{Addr: "embedded"}, timeout, 8)
	o.Dialer = func(context.Context, string, string) (net.Conn, error) { return server.Dial() } // a pipe, no port
	keys := redis.NewUniversalClient(o)
	stopClock := moveClock(server)
	return &Redis{
		keys: keys, keyTimeout: timeout,
		locks: &localLocks{entries: map[string]localLock{}}, lockTimeout: timeout,
		breaker: newBreaker(log),
		closers: []func() error{keys.Close, stopClock, func() error { server.Close(); return nil }},
	}
}

// moveClock lets the server's keys expire, which they do not do by themselves. (Its ClockTTL mode does the same at
// every command, at a cost that grows with the number of keys.)
func moveClock(server *miniredis.Miniredis) (stop func() error) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(clockTick)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case now := <-tick.C:
				server.FastForward(now.Sub(last))
				last = now
			case <-done:
				return
			}
		}
	})
	return func() error {
		close(done)
		wg.Wait()
		return nil
	}
}

// localLocks is redsync's connection pool over a map: the embedded server would build a new Lua machine at every unlock.
type localLocks struct {
	mu      sync.Mutex
	entries map[string]localLock
}

type localLock struct {
	value string
	until time.Time
}

var errNoSuchCommand = errors.New("idem: the in-process lock table does not know this command")

func (l *localLocks) Get(context.Context) (redsyncredis.Conn, error) { return localConn{l}, nil }

type localConn struct{ *localLocks }

func (c localConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[name]; ok && time.Now().Before(e.until) {
		return false, nil
	}
	c.entries[name] = localLock{value, time.Now().Add(expiry)}
	return true, nil
}

// Eval runs the one script that locking and unlocking use: delete name if it holds value. 1: deleted, 0: another's,
// -1: gone.
func (c localConn) Eval(_ *redsyncredis.Script, args ...any) (any, error) {
	if len(args) != 2 { // the scripts that extend a lock have three
		return nil, errNoSuchCommand
	}
	name, value := args[0].(string), args[1].(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[name]
	switch {
	case !ok || !time.Now().Before(e.until):
		return int64(-1), nil
	case e.value != value:
		return int64(0), nil
	}
	delete(c.entries, name)
	return int64(1), nil
}

func (c localConn) Get(string) (string, error)            { return "", errNoSuchCommand }
func (c localConn) Set(string, string) (bool, error)      { return false, errNoSuchCommand }
func (c localConn) ScriptLoad(*redsyncredis.Script) error { return errNoSuchCommand }
func (c localConn) PTTL(string) (time.Duration, error)    { return 0, errNoSuchCommand }
func (c localConn) Close() error                          { return nil }
