package idem

import (
	"context"
	"errors"
	"sync"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// maxFlight is the most commands that one pipeline carries.
const maxFlight = 128

var errPipeClosed = errors.New("idem: lock connections are closed")

// pipe is redsync's connection pool, sending commands together: one goroutine takes whatever has queued while the last
// pipeline was in the air and sends it as the next. No timers: a lone command leaves at once.
type pipe struct {
	client  redis.UniversalClient
	stock   redsyncredis.Pool // for the commands that locking does not use
	timeout time.Duration     // of one flight
	queue   chan *pipeCall
	closed  chan struct{}
	wg      sync.WaitGroup
}

// pipeCall is one queued command.
type pipeCall struct {
	ctx  context.Context
	add  func(redis.Pipeliner) // adds the command to a pipeline and keeps it, to read its result after landed
	done chan struct{}
}

func newPipe(client redis.UniversalClient, timeout time.Duration) *pipe {
	p := &pipe{
		client: client, stock: goredis.NewPool(client), timeout: timeout,
		queue: make(chan *pipeCall, maxFlight), closed: make(chan struct{}),
	}
	p.wg.Go(p.fly)
	return p
}

// fly sends pipelines, one at a time, until the pipe is closed.
func (p *pipe) fly() {
	flight := make([]*pipeCall, 0, maxFlight)
	for {
		flight = flight[:0]
		select {
		case c := <-p.queue:
			flight = append(flight, c)
		case <-p.closed:
			return
		}
		for queued := true; queued && len(flight) < maxFlight; {
			select {
			case c := <-p.queue:
				flight = append(flight, c)
			default:
				queued = false
			}
		}
		p.send(flight)
	}
}

func (p *pipe) send(flight []*pipeCall) {
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	commands := p.client.Pipeline()
	for _, c := range flight {
		// Nobody waits for it any more, so a lock taken now would have no owner.
		if c.ctx.Err() == nil {
			c.add(commands)
		}
	}
	_, _ = commands.Exec(ctx) // every command has its own error
	for _, c := range flight {
		close(c.done)
	}
}

// do queues a command and waits until it was sent and answered, or until ctx ends: then its outcome is unknown.
func (p *pipe) do(ctx context.Context, add func(redis.Pipeliner)) error {
	c := &pipeCall{ctx: ctx, add: add, done: make(chan struct{})}
	select {
	case p.queue <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return errPipeClosed
	}
	select {
	case <-c.done:
		return ctx.Err() // an ended ctx may have kept the command from being sent
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return errPipeClosed
	}
}

// Close stops sending; commands still queued fail.
func (p *pipe) Close() error {
	close(p.closed)
	p.wg.Wait()
	return nil
}

// Get implements redsync's Pool.
func (p *pipe) Get(ctx context.Context) (redsyncredis.Conn, error) {
	conn, err := p.stock.Get(ctx)
	return pipeConn{Conn: conn, pipe: p, ctx: ctx}, err
}

// pipeConn sends the two commands of locking and unlocking through the pipe.
type pipeConn struct {
	redsyncredis.Conn
	pipe *pipe
	ctx  context.Context
}

func (c pipeConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	var cmd *redis.BoolCmd
	if err := c.pipe.do(c.ctx, func(p redis.Pipeliner) { cmd = p.SetNX(c.ctx, name, value, expiry) }); err != nil {
		return false, err
	}
	return cmd.Result()
}

func (c pipeConn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	keys := make([]string, script.KeyCount)
	for i := range keys {
		keys[i] = keysAndArgs[i].(string)
	}
	args := keysAndArgs[script.KeyCount:]
	var cmd *redis.Cmd
	if err := c.pipe.do(c.ctx, func(p redis.Pipeliner) { cmd = p.EvalSha(c.ctx, script.Hash, keys, args...) }); err != nil {
		return nil, err
	}
	// A server that was started anew has forgotten the script.
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		if err := c.pipe.do(c.ctx, func(p redis.Pipeliner) { cmd = p.Eval(c.ctx, script.Src, keys, args...) }); err != nil {
			return nil, err
		}
	}
	return cmd.Result()
}
