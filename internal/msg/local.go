package msg

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// localWorkers is how many commands are in hand at a time.
const localWorkers = 16

// Local is a broker in this process. Events go to the subscribers: one is stored when all of them took it, so that the
// outbox keeps it until then, over any crash. Commands wait in memory and end with the process: who sends one must be
// ready to send it again.
type Local struct {
	schedule Schedule

	mu          sync.Mutex
	waiting     *sync.Cond
	subscribers []func(context.Context, Message) error
	queue       []Delivery
	timers      map[*time.Timer]struct{} // of commands that are put off
	parked      []Parked
}

// NewLocal returns an empty broker.
func NewLocal(s Schedule) *Local {
	l := &Local{schedule: s.WithDefaults(), timers: map[*time.Timer]struct{}{}}
	l.waiting = sync.NewCond(&l.mu)
	return l
}

// Subscribe lets take have every event, in the order of each order; an event that it returns an error for comes again.
func (l *Local) Subscribe(take func(context.Context, Message) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers = append(l.subscribers, take)
}

// Ping implements Broker.
func (l *Local) Ping(context.Context) error { return nil }

// Publish implements Broker.
func (l *Local) Publish(ctx context.Context, events []Message) []error {
	l.mu.Lock()
	subscribers := slices.Clone(l.subscribers)
	l.mu.Unlock()
	errs := make([]error, len(events))
	for i, e := range events {
		if len(subscribers) == 0 {
			errs[i] = ErrUnroutable
		}
		for _, take := range subscribers {
			errs[i] = errors.Join(errs[i], take(ctx, e))
		}
	}
	return errs
}

// Send queues a command.
func (l *Local) Send(body []byte) { l.push(Delivery{Body: body}) }

func (l *Local) push(d Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, d)
	l.waiting.Signal()
}

// take waits for a command; ok is false when ctx has ended.
func (l *Local) take(ctx context.Context) (d Delivery, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && ctx.Err() == nil {
		l.waiting.Wait()
	}
	if ctx.Err() != nil {
		return d, false
	}
	d, l.queue = l.queue[0], l.queue[1:]
	return d, true
}

// Consume implements Broker.
func (l *Local) Consume(ctx context.Context, handle Handler) error {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting.Broadcast()
	})
	defer stop()
	var workers sync.WaitGroup
	for range localWorkers {
		workers.Go(func() {
			for {
				d, ok := l.take(ctx)
				if !ok {
					return
				}
				l.settle(d, l.schedule.Judge(ctx, handle, d))
			}
		})
	}
	workers.Wait()
	return nil
}

func (l *Local) settle(d Delivery, a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch a.do {
	case later:
		var timer *time.Timer
		timer = time.AfterFunc(l.schedule.Delay(d.Tries), func() {
			l.mu.Lock()
			_, live := l.timers[timer]
			delete(l.timers, timer)
			l.mu.Unlock()
			if live {
				l.push(Delivery{Body: d.Body, Tries: d.Tries + 1})
			}
		})
		l.timers[timer] = struct{}{}
	case park:
		l.parked = append(l.parked, Parked{Key: Key(d.Body), Reason: a.Reason, At: time.Now(), Body: d.Body})
	case done:
	}
}

// Parked implements Broker.
func (l *Local) Parked(_ context.Context, limit int) ([]Parked, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.parked[:min(limit, len(l.parked))]), nil
}

// Retry implements Broker.
func (l *Local) Retry(_ context.Context, keys ...string) (int, error) {
	found := l.unpark(keys)
	for _, p := range found {
		l.Send(p.Body)
	}
	return len(found), nil
}

// Drop implements Broker.
func (l *Local) Drop(_ context.Context, keys ...string) (int, error) { return len(l.unpark(keys)), nil }

func (l *Local) unpark(keys []string) (found []Parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked = slices.DeleteFunc(l.parked, func(p Parked) bool {
		wanted := len(keys) == 0 || slices.Contains(keys, p.Key)
		if wanted {
			found = append(found, p)
		}
		return wanted
	})
	return found
}

// Close implements Broker. Commands that are still there are lost.
func (l *Local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for timer := range l.timers {
		timer.Stop()
	}
	clear(l.timers)
	l.queue = nil
	return nil
}
