package batch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/batch"
)

// twoGroups share a turn; each has its gate.
func twoGroups() (a, b *batch.Group[int], one, other *gate) {
	turn, one, other := batch.NewTurn(), newGate(), newGate()
	return batch.New(9, 9, turn, size(), never, one.run), batch.New(9, 9, turn, size(), never, other.run), one, other
}

func TestGroupsWithOneTurnRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, one, other := twoGroups()
		first := do(t, a, t.Context(), 1)
		var gathered []<-chan error
		for i := range 3 {
			gathered = append(gathered, do(t, b, t.Context(), i))
		}
		again := do(t, a, t.Context(), 2)
		require.Equal(t, []int{1}, <-one.started)
		require.Empty(t, other.started, "it is the other's turn")
		one.open <- struct{}{}
		require.NoError(t, <-first)
		require.Equal(t, []int{0, 1, 2}, <-other.started, "what has gathered meanwhile")
		synctest.Wait()
		require.Empty(t, one.started, "who asked first is first")
		close(other.open)
		close(one.open)
		for _, c := range append(gathered, again) {
			require.NoError(t, <-c)
		}
	})
}

func TestTurnIsPassedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turn, other, committed := batch.NewTurn(), newGate(), make(chan struct{})
		a := batch.New(9, 9, turn, size(), never, func(ctx context.Context, _ []int) error {
			batch.Pass(ctx)
			batch.Pass(ctx) // of a transaction that is run again
			<-committed
			return nil
		})
		b := batch.New(9, 9, turn, size(), never, other.run)
		first, second := do(t, a, t.Context(), 1), do(t, b, t.Context(), 2)
		require.Equal(t, []int{2}, <-other.started, "while the first only waits")
		third := do(t, batch.New(9, 9, turn, size(), never, other.run), t.Context(), 3)
		close(committed)
		require.NoError(t, <-first)
		synctest.Wait()
		require.Empty(t, other.started, "the end of the first gives on nothing that it no longer has")
		close(other.open)
		require.NoError(t, <-second)
		require.NoError(t, <-third)
	})
}

func TestTurnIsNotKeptForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, one, other := twoGroups()
		stuck, free := do(t, a, t.Context(), 1), do(t, b, t.Context(), 2)
		require.Empty(t, other.started)
		time.Sleep(time.Second) //nolint:forbidigo // virtual time: the first hangs on a locked row
		synctest.Wait()
		require.Equal(t, []int{2}, <-other.started)
		close(one.open)
		close(other.open)
		require.NoError(t, <-stuck)
		require.NoError(t, <-free)
	})
}

// A batch that failed is run again item by item: what takes long then concerns nobody else.
func TestTurnIsPassedOnBeforeItemsAreRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turn, gate, ran := batch.NewTurn(), newGate(), make(chan struct{})
		a := batch.New(9, 9, turn, size(), never, func(ctx context.Context, items []int) error {
			if len(items) > 1 {
				return errors.New("together it does not work")
			}
			return gate.run(ctx, items)
		})
		b := batch.New(9, 9, turn, size(), never, func(context.Context, []int) error { close(ran); return nil })
		calls := []<-chan error{do(t, a, t.Context(), 0), do(t, a, t.Context(), 1), do(t, a, t.Context(), 2)}
		require.Equal(t, []int{0}, <-gate.started)
		gate.open <- struct{}{}
		require.NoError(t, <-calls[0])
		synctest.Wait()
		require.NoError(t, b.Do(t.Context(), 9))
		<-ran
		require.Len(t, gate.started, 2, "they are still at it")
		close(gate.open)
		require.NoError(t, <-calls[1])
		require.NoError(t, <-calls[2])
	})
}

func TestLeaderWhoseContextEndsBeforeItsTurnLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, one, other := twoGroups()
		working := do(t, a, t.Context(), 0)
		ctx, cancel := context.WithCancel(t.Context())
		leader, follower := do(t, b, ctx, 1), do(t, b, t.Context(), 2)
		cancel()
		require.ErrorIs(t, <-leader, context.Canceled)
		close(one.open)
		close(other.open)
		require.NoError(t, <-working)
		require.NoError(t, <-follower)
		require.Equal(t, []int{2}, <-other.started)
		last, stop := context.WithCancel(t.Context())
		one.open = make(chan struct{})
		working = do(t, a, t.Context(), 3)
		alone := do(t, b, last, 4)
		stop()
		require.ErrorIs(t, <-alone, context.Canceled)
		close(one.open)
		require.NoError(t, <-working)
		require.NoError(t, b.Do(t.Context(), 5), "nobody leads, so the next that comes does")
	})
}

func TestTurnSurvivesAPanic(t *testing.T) {
	t.Parallel()
	turn, ran := batch.NewTurn(), false
	a := batch.New(9, 9, turn, size(), never, func(context.Context, []int) error { panic("a defect") })
	b := batch.New(9, 9, turn, size(), never, func(context.Context, []int) error { ran = true; return nil })
	require.ErrorContains(t, a.Do(t.Context(), 1), "a defect")
	require.NoError(t, b.Do(t.Context(), 1))
	require.True(t, ran)
}
