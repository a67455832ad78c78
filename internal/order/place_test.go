package order_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/db/cut"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/order"
)

func eachCommit(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	for _, commit := range []order.StageCommit{order.Together, order.Each} {
		for _, size := range []int{1, 128} {
			t.Run(fmt.Sprintf("%s/%d", commit, size), func(t *testing.T) {
				each(t, test, func(o *options) { o.order.StageCommit, o.order.BatchSize = commit, size })
			})
		}
	}
}

// Twins of one order, and orders for the last unit, released at once: one of each, however stages are committed and
// grouped.
func TestTwinsAndTheLastUnit(t *testing.T) {
	eachCommit(t, func(t *testing.T, b *bundle) {
		for range 5 {
			sku, orderNo := b.sku(1299, 2), no("ord")
			created := b.race(20, func(int) order.PlaceRequest { return request(orderNo, sku, 2) }, "")
			require.Len(t, created, 1)
			require.Zero(t, b.left(sku))

			last := b.sku(1299, 1)
			created = b.race(20, func(int) order.PlaceRequest { return request(no("ord"), last, 1) }, "out_of_stock")
			require.Len(t, created, 1)
			require.Zero(t, b.left(last))

			keyed := b.sku(1299, 10)
			key := no("key")
			created = b.race(20, func(int) order.PlaceRequest {
				r := request("", keyed, 1)
				r.Key = key
				return r
			}, "")
			require.Len(t, created, 1)
			require.EqualValues(t, 9, b.left(keyed))
		}
		b.clean()
	})
}

// race places n requests at once and returns the orders that one of them created. Others may be refused with allowed.
func (b *bundle) race(n int, make_ func(i int) order.PlaceRequest, allowed string) []string {
	b.t.Helper()
	start := make(chan struct{})
	var mu sync.Mutex
	var created []string
	var all sync.WaitGroup
	for i := range n {
		r := make_(i)
		all.Go(func() {
			<-start
			res, err := b.Place(b.t.Context(), r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && !fault.Is(err, "order_in_progress") && (allowed == "" || !fault.Is(err, allowed)):
				b.t.Error(err)
			case err == nil && res.Created:
				created = append(created, res.Order.OrderNo)
			case err == nil && res.Guard == "":
				b.t.Error("a repeat without a guard")
			}
		})
	}
	close(start)
	all.Wait()
	return created
}

// The connection breaks at every statement of placing, before or after it took effect, and around every COMMIT. Whatever
// the caller hears, sending the same again ends with one order, reserved and charged once.
func TestPlacingSurvivesEveryCut(t *testing.T) {
	for _, commit := range []order.StageCommit{order.Together, order.Each} {
		t.Run(string(commit), func(t *testing.T) {
			t.Parallel()
			cuts := &cut.Point{}
			b := setup(t, "mysql", func(o *options) { o.order.StageCommit, o.db.Wrap = commit, cuts.Wrap })
			sku := b.sku(1299, 100000)
			left := b.left(sku)
			hits := func(where cut.Where) bool {
				r := request(no("ord"), sku, 2)
				cuts.Arm(where, 1)
				_, err := b.Place(t.Context(), r)
				made := cuts.Disarm()
				if err != nil {
					f := fault.As(err)
					require.NotNil(t, f, "%+v: %v", where, err)
					require.Equal(t, fault.Unavailable, f.Kind, "%+v: %v", where, err)
				}
				b.due("payments") // a lease whose holder heard nothing
				res, err := b.Place(t.Context(), r)
				require.NoError(t, err, "%+v", where)
				require.Equal(t, fsm.Pending, res.Order.Payment.Status, "%+v", where)
				left -= 2
				require.Equal(t, left, b.left(sku), "%+v", where)
				return made == 1
			}
			require.True(t, hits(cut.BeforeCommit))
			require.True(t, hits(cut.AfterCommit))
			k := 1
			for hits(cut.BeforeStatement(k)) && hits(cut.AfterStatement(k)) {
				k++
			}
			require.Greater(t, k, 11, "statements of placing an order")
			b.clean()
		})
	}
}

// The database goes away at some statement of placing and stays away: who hears that nothing was changed, has no order.
func TestNothingWasChangedIsTrue(t *testing.T) {
	for _, commit := range []order.StageCommit{order.Together, order.Each} {
		t.Run(string(commit), func(t *testing.T) {
			t.Parallel()
			cuts := &cut.Point{}
			b := setup(t, "mysql", func(o *options) { o.order.StageCommit, o.db.Wrap = commit, cuts.Wrap })
			sku := b.sku(1299, 100)
			stored := 0
			for k := 1; ; k++ {
				r := request(no("ord"), sku, 1)
				cuts.Arm(cut.BeforeStatement(k), 1<<30)
				_, err := b.Place(t.Context(), r)
				cuts.Disarm()
				if err == nil {
					require.Greater(t, k, 5, "statements of placing an order")
					break
				}
				f := fault.As(err)
				require.NotNil(t, f, "statement %d: %v", k, err)
				require.Equal(t, fault.Unavailable, f.Kind, "statement %d: %v", k, err)
				_, err = b.Get(t.Context(), order.Actor{UserID: r.UserID}, r.OrderNo)
				if err == nil {
					stored++
					require.NotContains(t, f.Message, "nothing was changed", "statement %d", k)
				} else {
					require.True(t, fault.Is(err, "not_found"), "%v", err)
				}
			}
			require.Equal(t, commit == order.Each, stored > 0)
			b.clean()
		})
	}
}

// A price that changes between a request and its repeat does not change the order.
func TestPricesAreOfTheFirstMoment(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 10)
		r := request(no("ord"), sku, 2)
		expected := int64(2 * 1300)
		r.ExpectedAmount = &expected
		_, err := b.Place(t.Context(), r)
		require.True(t, fault.Is(err, "amount_changed"), "%v", err)
		expected = 2 * 1299
		first, err := b.Place(t.Context(), r)
		require.NoError(t, err)
		b.reprice(sku, 1)
		again, err := b.Place(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, first.Order.Items, again.Order.Items)
		require.Equal(t, first.Order.Amount, again.Order.Amount)
		b.clean()
	})
}

// A pool of one connection must not deadlock: nothing inside a transaction may ask for a second one.
func TestOneConnectionIsEnough(t *testing.T) {
	b := setup(t, "mysql", func(o *options) { o.db.MaxOpen = 1 })
	sku := b.sku(1299, 100)
	created := b.race(20, func(int) order.PlaceRequest { return request(no("ord"), sku, 1) }, "")
	require.Len(t, created, 20)
	b.clean()
}

// A key stands for its order for a day, and not longer: the reaper removes those past their time and no other, and one
// that it has not come to yet is as good as gone.
func TestAKeyEnds(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		sku := b.sku(1299, 100)
		place := func(key string) order.Order {
			r := request("", sku, 1)
			r.Key = key
			res, err := b.Place(t.Context(), r)
			require.NoError(t, err)
			return res.Order
		}
		past := func(key string) {
			_, err := b.db.Exec(t.Context(), "test", "UPDATE idempotency_keys SET expires_at = ? WHERE idempotency_key = ?", b.db.SQLNowPlus(-time.Second), key)
			require.NoError(t, err)
		}
		live, reaped, overdue := place("live"), place("reaped"), place("overdue")
		past("reaped")
		n, err := idem.PruneKeys(t.Context(), b.db, 100)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		past("overdue")
		require.Equal(t, live.OrderNo, place("live").OrderNo)
		require.NotEqual(t, reaped.OrderNo, place("reaped").OrderNo)
		require.NotEqual(t, overdue.OrderNo, place("overdue").OrderNo)
		_, err = b.Key(t.Context(), user, "nobody's")
		require.True(t, fault.Is(err, "not_found"), "%v", err)
		b.clean()
	})
}
