package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// client is one of many in a closed loop: it has one request under way at a time.
type client interface {
	// warm makes what the client needs beforehand, and opens its connections.
	warm(ctx context.Context) error
	// do runs one operation, and says how often it was refused because the service was too busy. It ends with errStopped if
	// ctx ended before it could be done.
	do(ctx context.Context) (refused int, err error)
	close()
}

var errStopped = errors.New("stopped")

// load is what a number of clients did.
type load struct {
	done      int             // operations
	refused   int             // and answers that were 503 with Retry-After
	rate      float64         // done per second
	latencies []time.Duration // of those that were done
}

// times counts the operations where each call of a client's did several at once. The latencies remain those of the calls.
func (l load) times(each int) load {
	l.done, l.rate = l.done*each, l.rate*float64(each)
	return l
}

// together runs f for every client at once, and returns the first error.
func together(ctx context.Context, clients []client, f func(ctx context.Context, c client, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	barrier := make(chan struct{})
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			<-barrier
			if err := f(ctx, c, i); err != nil {
				cancel(err)
			}
		})
	}
	close(barrier)
	all.Wait()
	return context.Cause(ctx)
}

// warmUp lets every client do what comes before measuring.
func warmUp(ctx context.Context, clients []client) error {
	return together(ctx, clients, func(ctx context.Context, c client, _ int) error { return c.warm(ctx) })
}

// rampUp is the share of a measurement that is not counted in the rate: until every client has its first answer.
const rampUp = 5

// drive runs all clients for d and lets each finish what it has begun. The rate is of the last four fifths of d; all
// else is of everything that was done.
func drive(ctx context.Context, clients []client, d time.Duration) (load, error) {
	stop, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	type one struct {
		latencies []time.Duration
		inWindow  int
		refused   int
	}
	each := make([]one, len(clients))
	began := time.Now()
	err := together(ctx, clients, func(ctx context.Context, c client, i int) error {
		mine := &each[i]
		for stop.Err() == nil && ctx.Err() == nil {
			sent := time.Now()
			refused, err := c.do(stop)
			now := time.Now()
			mine.refused += refused
			if errors.Is(err, errStopped) {
				return nil
			}
			if err != nil {
				return err
			}
			mine.latencies = append(mine.latencies, now.Sub(sent))
			if after := now.Sub(began); after >= d/rampUp && after < d {
				mine.inWindow++
			}
		}
		return nil
	})
	elapsed := time.Since(began)
	var l load
	inWindow := 0
	for _, m := range each {
		l.done += len(m.latencies)
		l.refused += m.refused
		inWindow += m.inWindow
		l.latencies = append(l.latencies, m.latencies...)
	}
	l.rate = float64(inWindow) / (d - d/rampUp).Seconds()
	if inWindow < len(clients) { // too few for a window: everybody's first and last operation counts in full
		l.rate = float64(l.done) / elapsed.Seconds()
	}
	return l, err
}
