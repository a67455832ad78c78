package db_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/metrics"
	"orderd/internal/testenv"
)

func thingTable(t *testing.T, d *db.DB) {
	t.Helper()
	exec(t, d, "CREATE TABLE things (name VARCHAR(32) PRIMARY KEY, n BIGINT NOT NULL)")
}

func insert(tx *db.Tx, name string, n int) error {
	return tx.Exec("INSERT INTO things VALUES (?, ?)", name, n).Error
}

func count(t *testing.T, d *db.DB) int64 {
	t.Helper()
	return number(t, d, "SELECT COUNT(*) FROM things")
}

func TestInTx(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		thingTable(t, d)
		ctx := t.Context()

		require.NoError(t, d.InTx(ctx, "test", func(tx *db.Tx) error { return insert(tx, "a", 1) }))
		require.EqualValues(t, 1, count(t, d))

		refusal := errors.New("refused")
		runs := 0
		err := d.InTx(ctx, "test", func(tx *db.Tx) error {
			runs++
			return errors.Join(insert(tx, "b", 1), refusal)
		})
		require.ErrorIs(t, err, refusal)
		require.Equal(t, 1, runs, "the body's own refusal is final")
		require.EqualValues(t, 1, count(t, d), "and undoes its work")

		require.PanicsWithValue(t, "defect", func() {
			_ = d.InTx(ctx, "test", func(tx *db.Tx) error {
				require.NoError(t, insert(tx, "c", 1))
				panic("defect")
			})
		})
		require.EqualValues(t, 1, count(t, d), "a panic undoes its work")
		require.Zero(t, d.Pool().Stats().InUse, "and gives its connection back")

		// Conditions of one statement must not leak into the next one made from the same handle.
		require.NoError(t, d.InTx(ctx, "test", func(tx *db.Tx) error {
			var none, all int64
			err := tx.Table("things").Where("name = ?", "nobody").Count(&none).Error
			err = errors.Join(err, tx.Table("things").Count(&all).Error)
			require.Equal(t, []int64{0, 1}, []int64{none, all})
			return err
		}))
	})
}

// A client that hangs up before the start stops everything; afterwards nothing.
func TestClientGone(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		thingTable(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, d.InTx(ctx, "test", func(tx *db.Tx) error {
			cancel()
			return insert(tx, "a", 1)
		}))
		require.EqualValues(t, 1, count(t, d))

		err := d.InTx(ctx, "test", func(*db.Tx) error { panic("must not run") })
		require.ErrorIs(t, err, context.Canceled)
		_, err = d.Exec(ctx, "test", "DELETE FROM things")
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 1, count(t, d))
	})
}

func TestConflictRunsAgain(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		runs := 0
		require.NoError(t, d.InTx(t.Context(), "test", func(*db.Tx) error {
			if runs++; runs < 3 {
				return db.ErrConflict
			}
			return nil
		}))
		require.Equal(t, 3, runs)

		runs = 0
		err := d.InTx(t.Context(), "test", func(*db.Tx) error { runs++; return db.ErrConflict })
		require.True(t, fault.Is(err, "unavailable"), "%v", err)
		require.ErrorIs(t, err, db.ErrConflict)
		require.Equal(t, 8, runs)
	})
}

// Twins that both read "not there" and then insert: the loser runs again, and its read sees the winner's row.
func TestDuplicateRunsAgain(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		thingTable(t, d)
		exec(t, d, "INSERT INTO things VALUES ('a', 1)")
		runs := 0
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			runs++
			if runs > 1 {
				return nil // the read finds it
			}
			return insert(tx, "a", 2) // the read had missed it
		}))
		require.Equal(t, 2, runs)

		err := d.InTx(t.Context(), "test", func(tx *db.Tx) error { return insert(tx, "a", 2) })
		require.True(t, db.IsDuplicate(err), "a body that never looks is a defect, shown as it is: %v", err)
		require.Nil(t, fault.As(err))
		_, err = d.Exec(t.Context(), "test", "INSERT INTO things VALUES ('a', 3)")
		require.True(t, db.IsDuplicate(err))
	})
}

// Two transactions that lock each other's next row: one is chosen as the victim, runs again, and both succeed.
func TestDeadlockRunsAgain(t *testing.T) {
	t.Parallel()
	m := metrics.New(prometheus.NewRegistry())
	d := open(t, "mysql", func(c *db.Config) { c.Metrics = m })
	thingTable(t, d)
	exec(t, d, "INSERT INTO things VALUES ('a', 0), ('b', 0)")
	var both sync.WaitGroup
	both.Add(2)
	crosswise := func(first, second string) error {
		met := sync.OnceFunc(func() { both.Done(); both.Wait() }) // each holds its first row
		return d.InTx(t.Context(), "cross", func(tx *db.Tx) error {
			if err := tx.Exec("UPDATE things SET n = n + 1 WHERE name = ?", first).Error; err != nil {
				return err
			}
			met()
			return tx.Exec("UPDATE things SET n = n + 1 WHERE name = ?", second).Error
		})
	}
	var g errgroup.Group
	g.Go(func() error { return crosswise("a", "b") })
	g.Go(func() error { return crosswise("b", "a") })
	require.NoError(t, g.Wait())
	require.EqualValues(t, 2, number(t, d, "SELECT MIN(n) FROM things"))
	require.EqualValues(t, 2, number(t, d, "SELECT MAX(n) FROM things"))
	require.GreaterOrEqual(t, testutil.ToFloat64(m.TxRetries.WithLabelValues("cross", "refused")), 1.0)
}

// A lock wait timeout undoes only its own statement on the server: a COMMIT after it would keep the half before.
func TestLockWaitTimeoutUndoesAll(t *testing.T) {
	t.Parallel()
	d := open(t, "mysql")
	thingTable(t, d)
	exec(t, d, "INSERT INTO things VALUES ('a', 0)")
	holder := d.Read(t.Context()).Begin()
	require.NoError(t, holder.Exec("UPDATE things SET n = 1").Error)
	runs := 0
	err := d.InTx(t.Context(), "test", func(tx *db.Tx) error {
		if runs++; runs == 2 {
			require.EqualValues(t, 0, number(t, d, "SELECT COUNT(*) FROM things WHERE name LIKE 'half%'"), "the half is undone before the next run")
			return errors.New("seen enough")
		}
		return errors.Join(insert(tx, "half", 1), tx.Exec("UPDATE things SET n = 2 WHERE name = 'a'").Error)
	})
	require.EqualError(t, err, "seen enough")
	require.NoError(t, holder.Rollback().Error)
	require.EqualValues(t, 1, count(t, d))
}

// All connections are busy with transactions, none of which may need a second one.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			d := open(t, dialect, func(c *db.Config) { c.MaxOpen = 1 })
			require.NoError(t, d.Migrate(t.Context()))
			thingTable(t, d)
			exec(t, d, "INSERT INTO things VALUES ('a', 0)")
			var g errgroup.Group
			for range 8 {
				g.Go(func() error {
					for range 5 {
						err := d.InTx(t.Context(), "test", func(tx *db.Tx) error { return tx.Exec("UPDATE things SET n = n + 1").Error })
						_, err2 := d.Exec(t.Context(), "test", "UPDATE things SET n = n + 1")
						if err := errors.Join(err, err2, d.Ping(t.Context())); err != nil {
							return err
						}
					}
					return nil
				})
			}
			within(t, 10*time.Second, "waiting for each other", func() { require.NoError(t, g.Wait()) })
			require.EqualValues(t, 80, number(t, d, "SELECT n FROM things"))
		})
	}
}

// Eight workers insert the same keys, in one transaction with an update. On InnoDB that deadlocks now and then: the losers
// of a duplicate key hold a shared lock on its row, which two of them then want to make exclusive. InTx hides it.
func TestSameKeyRaces(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		thingTable(t, d)
		const workers, rounds = 8, 25
		for round := range rounds {
			name := "k" + strings.Repeat("x", round)
			start := make(chan struct{})
			var g errgroup.Group
			for range workers {
				g.Go(func() error {
					<-start
					return d.InTx(t.Context(), "race", func(tx *db.Tx) error {
						if err := insert(tx, name, 0); err != nil && !db.IsDuplicate(err) {
							return err
						}
						return tx.Exec("UPDATE things SET n = n + 1 WHERE name = ?", name).Error
					})
				})
			}
			close(start)
			require.NoError(t, g.Wait())
		}
		require.EqualValues(t, rounds, count(t, d))
		require.EqualValues(t, workers, number(t, d, "SELECT MIN(n) FROM things"))
		require.EqualValues(t, workers, number(t, d, "SELECT MAX(n) FROM things"))
	})
}

// Without a server the answer is "unavailable", soon; with the server back everything goes on, without a restart.
func TestServerDown(t *testing.T) {
	t.Parallel()
	server := testenv.OwnMariaDB(t)
	d := open(t, "mysql", func(c *db.Config) { c.DSN = server.Database(t) })
	thingTable(t, d)
	server.Kill()
	runs := 0
	body := func(tx *db.Tx) error { runs++; return insert(tx, "a", 1) }
	within(t, 2*time.Second, "server down", func() {
		err := d.InTx(t.Context(), "test", body)
		require.True(t, fault.Is(err, "unavailable"), "%v", err)
		require.Equal(t, fault.Unavailable, fault.As(err).Kind)
	})
	within(t, 2*time.Second, "server down", func() {
		_, err := d.Exec(t.Context(), "test", "INSERT INTO things VALUES ('b', 1)")
		require.True(t, fault.Is(err, "unavailable"), "%v", err)
	})
	require.Zero(t, runs)
	require.Error(t, d.Ping(t.Context()))
	require.NoError(t, server.Restart())
	require.NoError(t, d.InTx(t.Context(), "test", body))
	exec(t, d, "INSERT INTO things VALUES ('b', 1)")
	require.EqualValues(t, 2, count(t, d))
}

// A server that takes no writes (a demoted primary, a full disk) is "unavailable" too, and nothing is left behind.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := testenv.OwnMariaDB(t)
	dsn := server.Database(t)
	root := openSQL(t, dsn)
	for _, s := range []string{"CREATE TABLE things (name VARCHAR(32) PRIMARY KEY, n BIGINT NOT NULL)",
		"CREATE USER app@'%'", "GRANT SELECT, INSERT, UPDATE ON *.* TO app@'%'", "SET GLOBAL read_only = 1"} {
		_, err := root.ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
	d := open(t, "mysql", func(c *db.Config) { c.DSN = strings.Replace(dsn, "root@", "app@", 1) })
	body := func(tx *db.Tx) error { return insert(tx, "a", 1) }
	err := d.InTx(t.Context(), "test", body)
	require.True(t, fault.Is(err, "unavailable"), "%v", err)
	_, err = d.Exec(t.Context(), "test", "INSERT INTO things VALUES ('b', 1)")
	require.True(t, fault.Is(err, "unavailable"), "%v", err)
	require.Zero(t, count(t, d), "reads go on")
	_, err = root.ExecContext(t.Context(), "SET GLOBAL read_only = 0")
	require.NoError(t, err)
	require.NoError(t, d.InTx(t.Context(), "test", body))
}
