package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/db/cut"
	"orderd/internal/fault"
	"orderd/internal/testenv"
)

// pay is what a well-made body looks like: it reads first, uses ids that were made outside, and changes with a guard.
func pay(d *db.DB, t *testing.T, name string) (runs int, err error) {
	err = d.InTx(t.Context(), "pay", func(tx *db.Tx) error {
		runs++
		var known int64
		if err := tx.Raw("SELECT COUNT(*) FROM things WHERE name = ?", name).Scan(&known).Error; err != nil || known > 0 {
			return err
		}
		if err := insert(tx, name, 1); err != nil {
			return err
		}
		r := tx.Exec("UPDATE things SET n = n - 1 WHERE name = 'stock' AND n > 0")
		if r.Error == nil && r.RowsAffected == 0 {
			return db.ErrConflict
		}
		return r.Error
	})
	return runs, err
}

func TestCommitCut(t *testing.T) {
	t.Parallel()
	cuts := &cut.Point{}
	d := open(t, "mysql", func(c *db.Config) { c.Wrap = cuts.Wrap })
	thingTable(t, d)
	exec(t, d, "INSERT INTO things VALUES ('stock', 1000)")
	paid := int64(0)
	check := func(t *testing.T, where cut.Where, times int) (reached bool) {
		cuts.Arm(where, times)
		runs, err := pay(d, t, fmt.Sprintf("order-%d", paid))
		made := cuts.Disarm()
		require.NoError(t, err)
		require.LessOrEqual(t, runs, made+1, "each cut costs one run at most")
		paid++
		require.Equal(t, paid+1, count(t, d))
		require.Equal(t, 1000-paid, number(t, d, "SELECT n FROM things WHERE name = 'stock'"))
		require.Zero(t, d.Pool().Stats().InUse)
		return made == times
	}
	for name, where := range map[string]cut.Where{"before": cut.BeforeCommit, "after": cut.AfterCommit} {
		for times := 1; times <= 3; times++ {
			// After a COMMIT that took effect the next run only reads; its own COMMIT can be cut as well.
			t.Run(fmt.Sprintf("%s commit, %d times", name, times), func(t *testing.T) { require.True(t, check(t, where, times)) })
		}
	}
	for name, where := range map[string]func(int) cut.Where{"before": cut.BeforeStatement, "after": cut.AfterStatement} {
		t.Run(name+" each statement", func(t *testing.T) {
			k := 1
			for check(t, where(k), 1) {
				k++
			}
			require.Equal(t, 5, k, "the clock, the read, the insert and the update")
		})
	}
	t.Run("for ever", func(t *testing.T) {
		cuts.Arm(cut.AfterCommit, 1000)
		_, err := pay(d, t, "for-ever")
		require.Greater(t, cuts.Disarm(), 1)
		require.True(t, fault.Is(err, "outcome_unknown"), "%v", err)
		cuts.Arm(cut.BeforeStatement(1), 1000)
		_, err = pay(d, t, "for-ever-2")
		cuts.Disarm()
		require.True(t, fault.Is(err, "unavailable"), "%v", err)
		require.EqualValues(t, 0, number(t, d, "SELECT COUNT(*) FROM things WHERE name = 'for-ever-2'"))
	})
}

// A single statement that may have been carried out is not sent again: the caller has to look.
func TestExecCut(t *testing.T) {
	t.Parallel()
	cuts := &cut.Point{}
	d := open(t, "mysql", func(c *db.Config) { c.Wrap = cuts.Wrap })
	thingTable(t, d)
	exec(t, d, "INSERT INTO things VALUES ('a', 0)")
	for i, where := range []cut.Where{cut.BeforeStatement(1), cut.AfterStatement(1)} {
		cuts.Arm(where, 1)
		_, err := d.Exec(t.Context(), "test", "UPDATE things SET n = n + 1")
		require.Equal(t, 1, cuts.Disarm())
		require.True(t, fault.Is(err, "outcome_unknown"), "%v", err)
		require.EqualValues(t, i, number(t, d, "SELECT n FROM things"))
	}
}

// Once some COMMIT got no answer, "nothing was changed" would be a lie, however the later runs end.
func TestUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	server := testenv.OwnMariaDB(t)
	cuts := &cut.Point{}
	d := open(t, "mysql", func(c *db.Config) { c.DSN, c.Wrap = server.Database(t), cuts.Wrap })
	thingTable(t, d)
	cuts.Arm(cut.AfterCommit, 1)
	runs := 0
	err := d.InTx(t.Context(), "test", func(tx *db.Tx) error {
		if runs++; runs > 1 {
			server.Kill()
		}
		return insert(tx, "a", 1)
	})
	require.Equal(t, 2, runs)
	require.True(t, fault.Is(err, "outcome_unknown"), "%v", err)
	require.NoError(t, server.Restart())
	require.EqualValues(t, 1, count(t, d))
}

// The same on the wire: what the driver itself makes of a connection that is reset around COMMIT.
func TestCommitCutOnTheWire(t *testing.T) {
	t.Parallel()
	server := testenv.OwnMariaDB(t)
	dsn := server.Database(t)
	proxy := testenv.NewProxy(t, server.Addr)
	d := open(t, "mysql", func(c *db.Config) { c.DSN = strings.Replace(dsn, server.Addr, proxy.Addr, 1) })
	thingTable(t, d)
	exec(t, d, "INSERT INTO things VALUES ('stock', 10)")
	for i, fail := range []func(string, int){proxy.CutBefore, proxy.CutAfter} {
		fail("COMMIT", 1)
		_, err := pay(d, t, fmt.Sprintf("order-%d", i))
		require.NoError(t, err)
		require.Equal(t, i+1, proxy.Cuts())
		require.EqualValues(t, 2+i, count(t, d))
		require.EqualValues(t, 9-i, number(t, d, "SELECT n FROM things WHERE name = 'stock'"))
	}
	// A black hole swallows everything: each wait is bounded.
	proxy.BlackHole()
	within(t, 5*time.Second, "black hole", func() {
		_, err := pay(d, t, "order-3")
		require.True(t, fault.Is(err, "unavailable"), "%v", err)
	})
	proxy.Restore()
	_, err := pay(d, t, "order-3")
	require.NoError(t, err)
	require.EqualValues(t, 7, number(t, d, "SELECT n FROM things WHERE name = 'stock'"))
}
