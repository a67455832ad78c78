package batch

import (
	"context"
	"sync"
	"time"
)

// turnTime is how long a batch may have the turn. A transaction takes some milliseconds; one that waits for a row which
// somebody has locked, or is run again and again, must not keep those waiting that want other rows.
const turnTime = 500 * time.Millisecond

// Turn is shared by groups that write to one database: their batches run one after the other, and while one does, the
// requests of all gather. Half-full transactions side by side would cost as much as full ones, and none of them would be
// done sooner. It only saves work: nothing rests on nobody else's having it.
type Turn struct{ taken chan struct{} } // a mutex that is given in the order of asking

// NewTurn returns a turn that nobody has.
func NewTurn() *Turn { return &Turn{make(chan struct{}, 1)} }

type passing struct{}

// take waits for the turn, or until ctx ends. done gives it on, unless Pass did so before, or turnTime is over.
func (t *Turn) take(ctx context.Context) (held context.Context, done func(), err error) {
	if t == nil {
		return ctx, func() {}, nil
	}
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	give := sync.OnceFunc(func() { <-t.taken })
	limit := time.AfterFunc(turnTime, give)
	done = func() { limit.Stop(); give() }
	return context.WithValue(ctx, passing{}, done), done, nil
}

// Pass gives the turn on before the batch is done: what only waits from here on, as for the disk at COMMIT, holds up
// nobody. ctx is what the batch runs with; without a turn in it, or called again, Pass does nothing.
func Pass(ctx context.Context) {
	if done, ok := ctx.Value(passing{}).(func()); ok {
		done()
	}
}
