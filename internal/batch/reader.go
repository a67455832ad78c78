package batch

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// Reader reads by key, and takes those who ask at the same moment together: one query for all of them. A read begins
// after it was asked for, so nobody is answered with what was true before.
type Reader[K comparable, V any] struct{ group *Group[*reading[K, V]] }

type reading[K comparable, V any] struct {
	key   K
	value V
	found bool
}

// NewReader returns a Reader whose read returns the values of the keys that exist. The other arguments are those of New.
func NewReader[K comparable, V any](max, bound int, size prometheus.Observer, hopeless func(error) bool,
	read func(ctx context.Context, keys []K) (map[K]V, error)) *Reader[K, V] {
	return &Reader[K, V]{New(max, bound, nil, size, hopeless, func(ctx context.Context, rs []*reading[K, V]) error {
		keys := make([]K, 0, len(rs))
		asked := make(map[K]bool, len(rs))
		for _, r := range rs {
			if !asked[r.key] {
				asked[r.key] = true
				keys = append(keys, r.key)
			}
		}
		values, err := read(ctx, keys)
		if err != nil {
			return err
		}
		for _, r := range rs {
			r.value, r.found = values[r.key]
		}
		return nil
	})}
}

// Get returns the value of key and whether there is one. Who asked for the same key at the same moment gets the same
// value: what it points to must not be written to. Errors are those of read, and 503 when too many wait.
func (r *Reader[K, V]) Get(ctx context.Context, key K) (V, bool, error) {
	x := &reading[K, V]{key: key}
	err := r.group.Do(ctx, x)
	return x.value, x.found, err
}
