package httpapi

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxCallers bounds each generation of a limiter.
const maxCallers = 10_000

// limiter gives every caller a token bucket. It remembers callers in two generations: when the young one is full, the old
// one is dropped, and with it whoever has not called since. A forgotten caller starts with a full bucket, which is
// harmless: the limit is a courtesy between users, not a guard.
type limiter struct {
	rate       rate.Limit
	burst      int
	now        func() time.Time
	mu         sync.Mutex
	young, old map[string]*rate.Limiter
}

// newLimiter allows perSecond requests per caller and second, and bursts of twice that; 0 allows everything.
func newLimiter(perSecond int, now func() time.Time) *limiter {
	return &limiter{rate: rate.Limit(perSecond), burst: 2 * perSecond, now: now, young: map[string]*rate.Limiter{}}
}

func (l *limiter) allow(caller string) bool {
	return l.rate == 0 || l.bucket(caller).AllowN(l.now(), 1)
}

func (l *limiter) bucket(caller string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.young[caller]
	if b != nil {
		return b
	}
	if b = l.old[caller]; b == nil {
		b = rate.NewLimiter(l.rate, l.burst)
	}
	if len(l.young) >= maxCallers {
		l.old, l.young = l.young, map[string]*rate.Limiter{}
	}
	l.young[caller] = b
	return b
}
