package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"orderd/migrations"
)

// Migration is a numbered change of the schema. AppliedAt is nil while the database lacks it; Name is empty when this
// binary does not know it.
type Migration struct {
	Version   int64
	Name      string
	AppliedAt *Time
}

// Migrate brings the schema up to date. Several processes may do so at once: one works, the others wait for it. A process
// that died in the middle is waited for as well, for the 15 s of its lease. On MySQL a statement and the note of it are
// two commits, so the migrations are written to be repeatable.
func (d *DB) Migrate(ctx context.Context) error {
	dialect, pool := goose.DialectSQLite3, d.Pool()
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger())}
	if d.mysql != nil {
		long := d.mysql.Clone()
		long.ReadTimeout, long.WriteTimeout = 0, 0 // changing a large table takes its time
		connector, err := mysql.NewConnector(long)
		if err != nil {
			return err
		}
		dialect, pool = goose.DialectMySQL, sql.OpenDB(connector)
		defer pool.Close()
		locker, err := lock.NewMySQLTableLocker(lock.WithTableLogger(d.log), lock.WithTableLeaseDuration(15*time.Second),
			lock.WithTableHeartbeatInterval(3*time.Second), lock.WithTableLockTimeout(100*time.Millisecond, 3000))
		if err != nil {
			return err
		}
		options = append(options, goose.WithLocker(locker))
	}
	provider, err := goose.NewProvider(dialect, pool, migrations.For(d.Dialect), options...)
	if err != nil {
		return err
	}
	if _, err = provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// MigrationStatus lists the migrations that this binary or the database knows, by version.
func (d *DB) MigrationStatus(ctx context.Context) ([]Migration, error) {
	applied, err := d.applied(ctx)
	if err != nil {
		return nil, fmt.Errorf("migration status: %w", err)
	}
	names, err := fs.Glob(migrations.For(d.Dialect), "*.sql")
	if err != nil {
		return nil, err
	}
	var list []Migration
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		m := Migration{Version: version, Name: name}
		if at, ok := applied[version]; ok {
			m.AppliedAt = &at
			delete(applied, version)
		}
		list = append(list, m)
	}
	for version, at := range applied {
		list = append(list, Migration{Version: version, AppliedAt: &at})
	}
	slices.SortFunc(list, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// applied reads goose's own table, without making it as goose would: a check must not write.
func (d *DB) applied(ctx context.Context) (map[int64]Time, error) {
	applied := map[int64]Time{}
	read := d.Read(ctx)
	tables, query := "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?",
		"SELECT version_id, tstamp FROM goose_db_version WHERE version_id > 0 AND is_applied"
	if d.Dialect == "sqlite" {
		tables = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
		query = "SELECT version_id, unixepoch(tstamp) * 1000000 FROM goose_db_version WHERE version_id > 0 AND is_applied"
	}
	var n int
	if err := read.Raw(tables, goose.DefaultTablename).Scan(&n).Error; err != nil || n == 0 {
		return applied, err
	}
	rows, err := read.Raw(query).Rows()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		var at Time
		if err := rows.Scan(&version, &at); err != nil {
			return nil, err
		}
		applied[version] = at
	}
	return applied, rows.Err()
}

// CheckSchema returns an error unless the database has exactly the migrations that this binary knows: what serving
// and auditing begin with.
func (d *DB) CheckSchema(ctx context.Context) error {
	list, err := d.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.Name == "" {
			err = errors.Join(err, fmt.Errorf("the database has migration %d, which this orderd does not know: "+
				"a newer one ran `orderd migrate up`; run that version", m.Version))
		}
	}
	return errors.Join(err, lacking(list))
}

// CheckMigrated returns an error while the database lacks migrations that this binary knows. Being ahead is none: whoever
// is serving while a newer release migrates goes on, until its own turn to be replaced.
func (d *DB) CheckMigrated(ctx context.Context) error {
	list, err := d.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	return lacking(list)
}

func lacking(list []Migration) error {
	var missing []string
	for _, m := range list {
		if m.AppliedAt == nil {
			missing = append(missing, m.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the database lacks %d migrations, from %s on: run `orderd migrate up`", len(missing), missing[0])
	}
	return nil
}
