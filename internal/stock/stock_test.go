package stock_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/db/cut"
	"orderd/internal/fault"
	"orderd/internal/stock"
	"orderd/internal/testenv"
)

// each runs a test on an empty, migrated database of either engine.
func each(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Parallel()
	for _, engine := range []string{"mysql", "sqlite"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			var c db.Config
			if engine == "mysql" {
				c.DSN = testenv.Database(t)
			} else {
				c.Path = filepath.Join(t.TempDir(), "orderd.db")
			}
			d, err := db.Open(t.Context(), c)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			require.NoError(t, d.Migrate(t.Context()))
			test(t, d)
		})
	}
}

func put(t *testing.T, s *stock.Service, sku string, available int64) {
	t.Helper()
	_, created, err := s.Put(t.Context(), stock.Item{SKU: sku, Title: "T", UnitPrice: 100, Currency: "CNY"}, &available)
	require.NoError(t, err)
	require.True(t, created)
}

// books returns what is left of a SKU, and checks that it is the sum of its movements.
func books(t *testing.T, d *db.DB, sku string) int64 {
	t.Helper()
	var available, sum int64
	require.NoError(t, d.Read(t.Context()).Raw("SELECT available, (SELECT SUM(delta) FROM stock_movements m WHERE m.sku = s.sku) FROM stock s WHERE sku = ?",
		sku).Row().Scan(&available, &sum))
	require.Equal(t, sum, available, sku)
	return available
}

var errSoldOut = errors.New("sold out")

// reserve takes one of each SKU, as an order does: read, decide, write under the versions read.
func reserve(t *testing.T, d *db.DB, ref string, skus ...string) error {
	return d.InTx(t.Context(), "test", func(tx *db.Tx) error {
		items, err := stock.ReadTx(tx, skus)
		if err != nil {
			return err
		}
		versions := map[string]int64{}
		var moves []stock.Movement
		for _, sku := range skus {
			if items[sku].Available < 1 {
				return errSoldOut
			}
			versions[sku] = items[sku].Version
			moves = append(moves, stock.Movement{SKU: sku, Kind: stock.Reserve, Ref: ref, Delta: -1, At: tx.Now})
		}
		return stock.MoveTx(tx, moves, versions)
	})
}

func TestConcurrentReservationsNeverOversell(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		put(t, s, "A", 10)
		put(t, s, "B", 100)
		var sold, busy atomic.Int64
		var wg sync.WaitGroup
		barrier := make(chan struct{})
		for c := range 8 {
			wg.Go(func() {
				<-barrier
				for i := range 4 {
					skus := []string{"A", "B"}
					if c%2 == 0 { // the order in which a client names them must not matter
						skus = []string{"B", "A"}
					}
					switch err := reserve(t, d, fmt.Sprintf("order-%d-%d", c, i), skus...); {
					case err == nil:
						sold.Add(1)
					case fault.Is(err, "unavailable"): // eight versions missed in a row; nothing was changed
						busy.Add(1)
					case !errors.Is(err, errSoldOut):
						t.Errorf("reserve: %v", err)
					}
				}
			})
		}
		close(barrier)
		wg.Wait()
		require.Equal(t, 10-sold.Load(), books(t, d, "A"))
		require.Equal(t, 100-sold.Load(), books(t, d, "B"))
		if busy.Load() == 0 {
			require.EqualValues(t, 10, sold.Load())
		}
		for n := sold.Load(); n < 10; n++ { // whatever was left can still be sold, and no more than that
			require.NoError(t, reserve(t, d, fmt.Sprint("last-", n), "A", "B"))
		}
		require.ErrorIs(t, reserve(t, d, "one-too-many", "A", "B"), errSoldOut)
	})
}

func TestAnotherVersionIsAConflict(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		put(t, s, "A", 10)
		put(t, s, "B", 10)
		move := func(ref string, delta int64, versions map[string]int64) (err error) {
			// Once: a conflict would be run again, and this test's versions are as stale then.
			first := true
			_ = d.InTx(t.Context(), "test", func(tx *db.Tx) error {
				if !first {
					return errors.New("enough")
				}
				first = false
				err = stock.MoveTx(tx, []stock.Movement{
					{SKU: "B", Kind: stock.Adjust, Ref: ref, Delta: delta, At: tx.Now},
					{SKU: "A", Kind: stock.Adjust, Ref: ref, Delta: delta, At: tx.Now},
				}, versions)
				return err
			})
			return err
		}
		require.NoError(t, move("m1", -1, map[string]int64{"A": 1, "B": 1}))
		err := move("m2", -1, map[string]int64{"A": 2, "B": 1})
		require.ErrorIs(t, err, stock.ErrVersion, "one of two is enough")
		require.ErrorIs(t, err, db.ErrConflict, "so that the transaction is run again")
		require.ErrorIs(t, move("m3", -10, map[string]int64{"A": 2, "B": 2}), stock.ErrVersion, "below zero")
		require.ErrorIs(t, move("m4", -10, nil), stock.ErrVersion, "below zero")
		require.NoError(t, move("m5", 5, nil), "giving back needs no version")
		require.EqualValues(t, 14, books(t, d, "A"))
		require.EqualValues(t, 14, books(t, d, "B"))
	})
}

// An unlucky reader's transaction runs again and succeeds: the conflict is never a client's.
func TestConflictIsRunAgain(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		put(t, s, "A", 10)
		stale := true
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			items, err := stock.ReadTx(tx, []string{"A"})
			if err != nil {
				return err
			}
			version := items["A"].Version
			if stale {
				stale, version = false, version-1
			}
			return stock.MoveTx(tx, []stock.Movement{{SKU: "A", Kind: stock.Reserve, Ref: "order-1", Delta: -1, At: tx.Now}}, map[string]int64{"A": version})
		}))
		require.EqualValues(t, 9, books(t, d, "A"))
	})
}

func TestMovementHappensOnce(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		put(t, stock.NewService(d), "A", 10)
		require.NoError(t, reserve(t, d, "order-1", "A"))
		require.True(t, db.IsDuplicate(reserve(t, d, "order-1", "A")))
		require.EqualValues(t, 9, books(t, d, "A"))
	})
}

func TestAdjustmentsAreIdempotent(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		put(t, s, "A", 10)
		put(t, s, "B", 10)
		it, created, err := s.Adjust(t.Context(), "A", "adj-1", 5, "delivery")
		require.NoError(t, err)
		require.True(t, created)
		require.EqualValues(t, 15, it.Available)
		require.EqualValues(t, 2, it.Version)

		again, created, err := s.Adjust(t.Context(), "A", "adj-1", 5, "delivery")
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, it.Available, again.Available)
		require.Equal(t, it.Version, again.Version)

		_, _, err = s.Adjust(t.Context(), "A", "adj-1", 6, "delivery")
		require.True(t, fault.Is(err, "adjustment_no_reused"), "%v", err)
		_, created, err = s.Adjust(t.Context(), "B", "adj-1", 6, "the number is the SKU's own")
		require.NoError(t, err)
		require.True(t, created)
		_, _, err = s.Adjust(t.Context(), "A", "adj-2", -16, "lost")
		require.True(t, fault.Is(err, "out_of_stock"), "%v", err)
		_, _, err = s.Adjust(t.Context(), "NONE", "adj-1", 1, "what?")
		require.True(t, fault.Is(err, "not_found"), "%v", err)
		_, created, err = s.Adjust(t.Context(), "A", "adj-2", -15, "a refused number is free again")
		require.NoError(t, err)
		require.True(t, created)
		require.EqualValues(t, 0, books(t, d, "A"))
	})
}

func TestConcurrentTwinsOfAnAdjustment(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		put(t, s, "A", 10)
		for round := range 5 {
			var created atomic.Int64
			var wg sync.WaitGroup
			barrier := make(chan struct{})
			for range 6 {
				wg.Go(func() {
					<-barrier
					it, first, err := s.Adjust(t.Context(), "A", fmt.Sprint("adj-", round), 1, "r")
					if err != nil || it.Available != int64(11+round) {
						t.Errorf("adjust: %v, %d available", err, it.Available)
					}
					if first {
						created.Add(1)
					}
				})
			}
			close(barrier)
			wg.Wait()
			require.EqualValues(t, 1, created.Load())
			require.EqualValues(t, 11+round, books(t, d, "A"))
		}
	})
}

func TestPut(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		item := stock.Item{SKU: "A", Title: "Tea", UnitPrice: 100, Currency: "CNY"}
		_, _, err := s.Put(t.Context(), stock.Item{SKU: "A", Title: "Tea", UnitPrice: 100, Currency: "XYZ"}, nil)
		require.True(t, fault.Is(err, "validation_failed"), "%v", err)
		it, created, err := s.Put(t.Context(), item, nil)
		require.NoError(t, err)
		require.True(t, created)
		require.EqualValues(t, 0, it.Available, "none, unless it is said")
		require.EqualValues(t, 0, books(t, d, "A"))

		item.Title, item.UnitPrice = "Green tea", 120
		it, created, err = s.Put(t.Context(), item, nil)
		require.NoError(t, err)
		require.False(t, created)
		require.EqualValues(t, 2, it.Version)
		stored, err := s.Get(t.Context(), "A")
		require.NoError(t, err)
		require.Equal(t, "Green tea", stored.Title)
		require.EqualValues(t, 120, stored.UnitPrice)
		require.Equal(t, it.Version, stored.Version)

		five := int64(5)
		item.Currency = "JPY"
		_, _, err = s.Put(t.Context(), item, &five)
		f := fault.As(err)
		require.NotNil(t, f)
		require.Equal(t, fault.Unprocessable, f.Kind)
		require.Len(t, f.Fields, 2, "all faults at once")
		require.Equal(t, "available", f.Fields[0].Field)
		require.Equal(t, "currency", f.Fields[1].Field)
		unchanged, err := s.Get(t.Context(), "A")
		require.NoError(t, err)
		require.Equal(t, stored, unchanged)
	})
}

func TestConcurrentPutsMakeOneSKU(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		var created atomic.Int64
		var wg sync.WaitGroup
		barrier := make(chan struct{})
		five := int64(5)
		for range 6 {
			wg.Go(func() {
				<-barrier
				_, first, err := s.Put(t.Context(), stock.Item{SKU: "A", Title: "T", UnitPrice: 100, Currency: "CNY"}, &five)
				if first {
					created.Add(1)
				} else if !fault.Is(err, "validation_failed") {
					t.Errorf("put: %v", err)
				}
			})
		}
		close(barrier)
		wg.Wait()
		require.EqualValues(t, 1, created.Load())
		require.EqualValues(t, 5, books(t, d, "A"))
	})
}

// The answer to a COMMIT is lost: the transaction runs again, meets its own SKU, and must not take it for a rival's.
func TestPutWhoseCommitWasNotAnswered(t *testing.T) {
	t.Parallel()
	var point cut.Point
	d, err := db.Open(t.Context(), db.Config{DSN: testenv.Database(t), Wrap: point.Wrap})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.Migrate(t.Context()))
	s := stock.NewService(d)
	for i, where := range []cut.Where{cut.BeforeCommit, cut.AfterCommit} {
		sku := fmt.Sprint("SKU-", i)
		point.Arm(where, 1)
		put(t, s, sku, 7)
		require.Equal(t, 1, point.Disarm(), "nothing was cut")
		require.EqualValues(t, 7, books(t, d, sku))
	}
}

func TestListIsPagedByName(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		s := stock.NewService(d)
		for _, sku := range []string{"b", "A", "C", "a"} {
			put(t, s, sku, 1)
		}
		var all []string
		cursor := ""
		for pages := 1; ; pages++ {
			items, next, err := s.List(t.Context(), 3, cursor)
			require.NoError(t, err)
			for _, it := range items {
				all = append(all, it.SKU)
			}
			if cursor = next; cursor == "" {
				require.Equal(t, 2, pages)
				break
			}
		}
		require.Equal(t, []string{"A", "C", "a", "b"}, all, "by bytes: letters of either case are different SKUs")
		for _, forged := range []string{"*", "IiBPUiAxPTE", "AA"} {
			_, _, err := s.List(t.Context(), 3, forged)
			require.True(t, fault.Is(err, "invalid_request"), "%s: %v", forged, err)
		}
	})
}
