package idem

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindowHasOneFirst(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		w := NewWindows(r)
		for round := range 5 {
			hash := fmt.Sprintf("hash-%d", round)
			held := make(chan string, 50)
			require.Equal(t, 1, twins(50, func(i int) bool {
				orderNo, first, err := w.Claim(t.Context(), hash, fmt.Sprintf("ORDER-%d", i))
				held <- orderNo
				return err == nil && first
			}))
			winner := <-held
			require.NotEmpty(t, winner)
			for range 49 {
				require.Equal(t, winner, <-held) // every repeat goes on with the first one's order
			}
		}
	})
}

// The answer to our SET was lost, and we ask again: what we read back is ours.
func TestWindowKnowsItsOwn(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		w := NewWindows(r)
		for range 2 {
			held, first, err := w.Claim(t.Context(), "hash", "ORDER-1")
			require.NoError(t, err)
			require.True(t, first)
			require.Equal(t, "ORDER-1", held)
		}
	})
}

func TestWindowIsFreedByItsOwnerOnly(t *testing.T) {
	onEach(t, func(t *testing.T, r *Redis) {
		w := NewWindows(r)
		claim := func(orderNo string) bool {
			_, first, err := w.Claim(t.Context(), "hash", orderNo)
			require.NoError(t, err)
			return first
		}
		require.True(t, claim("ORDER-1"))
		require.NoError(t, w.Free(t.Context(), "hash", "ORDER-2"))
		require.False(t, claim("ORDER-2"))
		require.NoError(t, w.Free(t.Context(), "hash", "ORDER-1"))
		require.NoError(t, w.Free(t.Context(), "hash", "ORDER-1"))
		require.True(t, claim("ORDER-3"))
	})
}

func TestWindowCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWindows(embedded(t))
		_, first, err := w.Claim(t.Context(), "hash", "ORDER-1")
		require.NoError(t, err)
		require.True(t, first)
		time.Sleep(windowTTL - 2*clockTick)
		held, first, err := w.Claim(t.Context(), "hash", "ORDER-2")
		require.NoError(t, err)
		require.False(t, first)
		require.Equal(t, "ORDER-1", held)
		time.Sleep(2 * clockTick)
		_, first, err = w.Claim(t.Context(), "hash", "ORDER-2")
		require.NoError(t, err)
		require.True(t, first)
	})
}
