package idem

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"

	"orderd/internal/metrics"
)

// Answer is what asking for a lock came to.
type Answer string

const (
	// Held: the lock is ours until Release or its TTL, whichever is first.
	Held Answer = "held"
	// Busy: another holds it. Answer "in progress", or go on where the work must be done.
	Busy Answer = "busy"
	// Down: Redis cannot say. Go on without the lock; the database judges anyway.
	Down Answer = "down"
)

// LockOptions tune the lock. The zero value is right for production.
type LockOptions struct {
	TTL time.Duration // a dead holder's lock ends by itself after this; default 10 s
}

// Locker gives out one lock per order. The lock is a courtesy: twins wait for each other instead of doing the same work
// and losing at the database. It is never trusted, for it can be lost: its TTL passes while the holder is paused, or
// Redis fails over to a replica that has not heard of it.
type Locker struct {
	redis   *Redis
	redsync *redsync.Redsync
	ttl     time.Duration
	metrics *metrics.Metrics
	log     *slog.Logger
}

// NewLocker makes a Locker on r.
func NewLocker(r *Redis, m *metrics.Metrics, log *slog.Logger, o LockOptions) *Locker {
	return &Locker{redis: r, redsync: redsync.New(r.locks), ttl: cmp.Or(o.TTL, 10*time.Second), metrics: m, log: log}
}

// Acquire asks for the lock of orderNo and waits for it up to wait, or until ctx ends. wait 0 asks once. The Lock is nil
// unless the answer is Held. An unresponsive Redis costs at most two of Config.LockTimeout, and nothing once the breaker is open.
//
// Dying here leaves the lock behind; so does Redis when it was frozen in the middle of a try and carries it out on
// waking. Either way the order is busy for at most the TTL.
func (l *Locker) Acquire(ctx context.Context, orderNo string, wait time.Duration) (*Lock, Answer) {
	lock, answer := l.acquire(ctx, orderNo, time.Now().Add(wait))
	l.metrics.LockAnswers.WithLabelValues(string(answer)).Inc()
	return lock, answer
}

func (l *Locker) acquire(ctx context.Context, orderNo string, deadline time.Time) (*Lock, Answer) {
	mutex := l.redsync.NewMutex("orderd:lock:"+orderNo,
		redsync.WithExpiry(l.ttl),
		redsync.WithTimeoutFactor(float64(l.redis.lockTimeout)/float64(l.ttl)), // each round trip gets this long
	)
	for n := 0; ; n++ {
		_, err := l.redis.breaker.Execute(func() (struct{}, error) {
			// Not the caller's ctx: redsync undoes a failed try on the same context, and a cancelled one would leave
			// an orphan lock until its TTL.
			return struct{}{}, mutex.TryLockContext(context.WithoutCancel(ctx))
		})
		switch classify(err) {
		case Held:
			return &Lock{locker: l, mutex: mutex, orderNo: orderNo, atOnce: n == 0}, Held
		case Down:
			return nil, Down
		}
		pause := min(delay(n), time.Until(deadline))
		if pause <= 0 {
			return nil, Busy
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, Busy
		}
	}
}

// delay grows from 5 ms to 50 ms; half of it is random, so that waiting twins do not come back together.
func delay(n int) time.Duration {
	d := min(5*time.Millisecond<<min(n, 4), 50*time.Millisecond)
	return d/2 + rand.N(d/2)
}

// classify reads redsync's answer to one try.
func classify(err error) Answer {
	var taken *redsync.ErrTaken // a pointer: the value type compiles here and never matches
	switch {
	case err == nil:
		return Held
	case errors.As(err, &taken):
		return Busy
	case errors.Is(err, redsync.ErrFailed): // taken, but so slowly that it had expired: redsync gave it back
		return Busy
	default: // no connection, timeout, OOM, READONLY, LOADING, breaker open: no answer to the question
		return Down
	}
}

// Lock is a lock that was taken.
type Lock struct {
	locker  *Locker
	mutex   *redsync.Mutex
	orderNo string
	atOnce  bool
}

// AtOnce reports whether nobody else held the lock when it was asked for. Of a nil Lock nobody can say: false.
func (h *Lock) AtOnce() bool { return h != nil && h.atOnce }

// Release gives the lock back. Neither the client nor a deadline of ctx can stop it. A lock that was no longer ours is
// counted and logged, for the work since may have run beside another's. Release of a nil Lock does nothing.
func (h *Lock) Release(ctx context.Context) {
	if h == nil {
		return
	}
	// Past the breaker: this holds something. Two flights: one may be in the air.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*h.locker.redis.lockTimeout)
	defer cancel()
	ok, err := h.mutex.UnlockContext(ctx)
	if ok {
		return
	}
	log := h.locker.log.With("order_no", h.orderNo, "error", err)
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) || time.Now().After(h.mutex.Until()) {
		h.locker.metrics.LocksLost.Inc()
		log.WarnContext(ctx, "lock was lost before its release")
		return
	}
	log.WarnContext(ctx, "lock not released: it ends by its TTL")
}
