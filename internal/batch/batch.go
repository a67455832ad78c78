// Package batch is group commit: while one transaction runs, the requests that arrive queue up, and the next
// transaction takes them all. There is no timer: an idle service commits a batch of one at once.
package batch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"orderd/internal/fault"
)

// Group runs one batch at a time. Use one Group per use case.
type Group[T any] struct {
	max, bound int
	turn       *Turn
	size       prometheus.Observer
	hopeless   func(error) bool
	run        func(ctx context.Context, items []T) error

	mu    sync.Mutex
	busy  bool // a batch is running
	queue []*call[T]
}

type call[T any] struct {
	item T
	turn chan bool // true: lead the next batch, of which you are the first; false: you were in a batch that is done
	err  error
}

// New returns a Group that calls run with up to max items in their order of arrival; at most bound items wait, the next
// is refused with 503. run reports an item's own failure in the item; its error means that the whole batch failed.
// hopeless says of a batch's error that its items need not be tried one by one. turn may be nil. A max of 1 turns grouping
// off: every call runs at once, beside the others, without a turn.
func New[T any](max, bound int, turn *Turn, size prometheus.Observer, hopeless func(error) bool, run func(ctx context.Context, items []T) error) *Group[T] {
	return &Group[T]{max: max, bound: bound, turn: turn, size: size, hopeless: hopeless, run: run}
}

// Do runs item in a batch and returns the batch's error. If ctx ends while the item still waits, it is taken back and
// ctx's error returned; once in a batch it is waited for. If ctx has ended before, nothing is begun.
func (g *Group[T]) Do(ctx context.Context, item T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.max == 1 {
		return g.runAll(ctx, []T{item})[0]
	}
	c := &call[T]{item: item, turn: make(chan bool, 1)}
	g.mu.Lock()
	if len(g.queue) >= g.bound {
		g.mu.Unlock()
		return fault.Busy("unavailable", "too many requests are waiting; nothing was changed, send the same request again", time.Second, nil)
	}
	g.queue = append(g.queue, c)
	lead := !g.busy
	g.busy = true
	g.mu.Unlock()
	if !lead {
		select {
		case lead = <-c.turn:
		case <-ctx.Done():
			if g.takeBack(c) {
				return ctx.Err()
			}
			lead = <-c.turn
		}
	}
	if lead {
		return g.lead(ctx)
	}
	return c.err
}

// takeBack removes a call that still waits, unless it was just chosen to lead: then it must.
func (g *Group[T]) takeBack(c *call[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range g.queue {
		if q == c && len(c.turn) == 0 {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			return true
		}
	}
	return false
}

// lead runs the batch at the head of the queue, hands the lead to the next that waits, and wakes those that are done. A
// leader whose ctx ends before it has the turn leaves the queue instead.
func (g *Group[T]) lead(ctx context.Context) error {
	held, done, err := g.turn.take(ctx)
	g.mu.Lock()
	if err != nil {
		g.queue = g.queue[1:] // it is the first itself
		g.handOn()
		g.mu.Unlock()
		return err
	}
	defer done()
	n := min(len(g.queue), g.max)
	batch := g.queue[:n:n]
	g.queue = g.queue[n:]
	g.mu.Unlock()

	items := make([]T, n)
	for i, c := range batch {
		items[i] = c.item
	}
	// The batch is everybody's: the leader's client may hang up, the others' have not.
	errs := g.runAll(context.WithoutCancel(held), items)

	g.mu.Lock()
	g.handOn()
	g.mu.Unlock()
	for i, c := range batch[1:] { // the first is the leader itself
		c.err = errs[i+1]
		c.turn <- false
	}
	return errs[0]
}

// handOn gives the lead to the first that waits.
func (g *Group[T]) handOn() {
	if len(g.queue) > 0 {
		g.queue[0].turn <- true
	} else {
		g.busy = false
	}
}

// runAll runs the batch. One that fails as a whole is run again item by item, all at once, so that nobody fails for a
// neighbour and nobody waits for one; unless its error means that single items would only fail the same way.
func (g *Group[T]) runAll(ctx context.Context, items []T) []error {
	errs := make([]error, len(items))
	err := g.runOnce(ctx, items)
	if err == nil || len(items) == 1 || g.hopeless(err) {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	Pass(ctx)
	var all sync.WaitGroup
	for i := range items {
		all.Go(func() { errs[i] = g.runOnce(ctx, items[i:i+1]) })
	}
	all.Wait()
	return errs
}

func (g *Group[T]) runOnce(ctx context.Context, items []T) (err error) {
	g.size.Observe(float64(len(items)))
	defer func() { // a panic must not take the queue behind it along
		if p := recover(); p != nil {
			err = fmt.Errorf("batch: panic: %v", p)
		}
	}()
	return g.run(ctx, items)
}
