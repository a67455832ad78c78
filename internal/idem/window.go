package idem

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// windowTTL is how long the same body from the same user counts as a repeat, in requests without another identity.
const windowTTL = 5 * time.Second

// Windows recognises double clicks. The value kept is the order_no that the first request was given: a repeat must be
// answered with that order. (Answering "duplicate" with no order in hand is the common mistake: a client whose first
// answer was lost would never learn what became of it.)
type Windows struct{ redis *Redis }

// NewWindows returns the windows kept in r.
func NewWindows(r *Redis) *Windows { return &Windows{redis: r} }

// Claim opens the window of hash for orderNo. If it is open already, held is the order_no it was given, and the caller
// goes on as a resubmission of that order, creating it if it is not there (the first may have died). Error: ErrDown.
func (w *Windows) Claim(ctx context.Context, hash, orderNo string) (held string, first bool, err error) {
	err = w.redis.do(ctx, func(ctx context.Context) error {
		for {
			first, err := w.redis.keys.SetNX(ctx, windowKey(hash), orderNo, windowTTL).Result()
			if err != nil || first {
				held = orderNo
				return err
			}
			held, err = w.redis.keys.Get(ctx, windowKey(hash)).Result()
			if !errors.Is(err, redis.Nil) {
				return err
			}
			// It closed between the two commands: try again. ctx ends this.
		}
	})
	if err != nil {
		return "", false, err
	}
	// Reading our own order_no back means that an earlier SET of ours arrived and its answer did not.
	return held, held == orderNo, nil
}

var freeScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

// Free closes the window of hash if it still belongs to orderNo: its creation was refused, and the same body may be sent
// again at once. Error: ErrDown; the window then closes by itself within 5 s.
func (w *Windows) Free(ctx context.Context, hash, orderNo string) error {
	return w.redis.do(ctx, func(ctx context.Context) error {
		return freeScript.Run(ctx, w.redis.keys, []string{windowKey(hash)}, orderNo).Err()
	})
}

func windowKey(hash string) string { return "orderd:window:" + hash }
