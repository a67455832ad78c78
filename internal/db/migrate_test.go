package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"orderd/internal/db"
	"orderd/internal/testenv"
)

func TestMigrate(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		err := d.CheckSchema(ctx)
		require.ErrorContains(t, err, "00001_orders.sql")
		require.ErrorContains(t, err, "`orderd migrate up`")
		list, err := d.MigrationStatus(ctx)
		require.NoError(t, err)
		require.Nil(t, list[0].AppliedAt, "and looking made no table")

		require.NoError(t, d.Migrate(ctx))
		require.NoError(t, d.Migrate(ctx), "again does nothing")
		require.NoError(t, d.CheckSchema(ctx))
		list, err = d.MigrationStatus(ctx)
		require.NoError(t, err)
		now, err := d.Now(ctx)
		require.NoError(t, err)
		for i, m := range list {
			require.EqualValues(t, i+1, m.Version)
			require.NotEmpty(t, m.Name)
			require.WithinDuration(t, now, m.AppliedAt.Time, 60e9)
		}

		exec(t, d, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
		err = d.CheckSchema(ctx)
		require.ErrorContains(t, err, "migration 999")
		require.ErrorContains(t, err, "`orderd migrate up`")
		require.NoError(t, d.CheckMigrated(ctx), "who is serving goes on")
		exec(t, d, "DELETE FROM goose_db_version WHERE version_id = 1")
		require.ErrorContains(t, d.CheckMigrated(ctx), "00001_orders.sql")
	})
}

// Replicas that start at once: one works, the others wait.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	replicas := make([]*db.DB, 4)
	for i := range replicas {
		replicas[i] = open(t, "mysql", func(c *db.Config) { c.DSN = dsn })
	}
	var g errgroup.Group
	for _, d := range replicas {
		g.Go(func() error { return d.Migrate(t.Context()) })
	}
	require.NoError(t, g.Wait())
	require.NoError(t, replicas[0].CheckSchema(t.Context()))
	list, err := replicas[0].MigrationStatus(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(list), number(t, replicas[0], "SELECT COUNT(*) FROM goose_db_version WHERE version_id > 0"), "each once")
}

// A process that died between a CREATE TABLE and the note of it leaves the table: the next one goes on from there.
func TestMigrateResumes(t *testing.T) {
	t.Parallel()
	d := open(t, "mysql")
	require.NoError(t, d.Migrate(t.Context()))
	exec(t, d, "DELETE FROM goose_db_version WHERE version_id >= 4")
	require.Error(t, d.CheckSchema(t.Context()))
	require.NoError(t, d.Migrate(t.Context()))
	require.NoError(t, d.CheckSchema(t.Context()))
}
