package batch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"orderd/internal/batch"
)

func TestReaderAsksOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var reads [][]string
		r := batch.NewReader(10, 10, size(), never, func(_ context.Context, keys []string) (map[string]int, error) {
			reads = append(reads, slices.Clone(keys))
			<-hold
			return map[string]int{"a": 1, "b": 2}, nil
		})
		type answer struct {
			value int
			found bool
		}
		var answers []chan answer
		for _, key := range []string{"a", "a", "b", "a", "c"} {
			c := make(chan answer, 1)
			answers = append(answers, c)
			go func() {
				v, ok, err := r.Get(t.Context(), key)
				require.NoError(t, err)
				c <- answer{v, ok}
			}()
			synctest.Wait()
		}
		close(hold)
		for i, want := range []answer{{1, true}, {1, true}, {2, true}, {1, true}, {0, false}} {
			require.Equal(t, want, <-answers[i])
		}
		require.Equal(t, [][]string{{"a"}, {"a", "b", "c"}}, reads, "what came after a read had begun is read anew, each key once")
	})
}

func TestReaderKeepsABadKeyApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad, hold := errors.New("bad"), make(chan struct{})
		r := batch.NewReader(10, 10, size(), never, func(_ context.Context, keys []string) (map[string]int, error) {
			<-hold
			if slices.Contains(keys, "bad") {
				return nil, bad
			}
			return map[string]int{"a": 1}, nil
		})
		var errs []chan error
		for _, key := range []string{"a", "bad", "a"} {
			c := make(chan error, 1)
			errs = append(errs, c)
			go func() { _, _, err := r.Get(t.Context(), key); c <- err }()
			synctest.Wait()
		}
		close(hold)
		require.NoError(t, <-errs[0])
		require.ErrorIs(t, <-errs[1], bad)
		require.NoError(t, <-errs[2])
	})
}
