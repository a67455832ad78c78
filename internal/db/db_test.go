package db_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/testenv"
)

var dialects = []string{"mysql", "sqlite"}

// open opens an empty database.
func open(t *testing.T, dialect string, changes ...func(*db.Config)) *db.DB {
	t.Helper()
	c := db.Config{}
	if dialect == "mysql" {
		c.DSN = testenv.Database(t)
	} else {
		c.Path = filepath.Join(t.TempDir(), "orderd 100%?.db") // a path, not a URL
	}
	for _, change := range changes {
		change(&c)
	}
	d, err := db.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// each runs a test on an empty database of either dialect.
func each(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, dialect))
		})
	}
}

func exec(t *testing.T, d *db.DB, statement string, args ...any) {
	t.Helper()
	_, err := d.Exec(t.Context(), "test", statement, args...)
	require.NoError(t, err)
}

// number reads one number.
func number(t *testing.T, d *db.DB, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, d.Read(t.Context()).Raw(query, args...).Row().Scan(&n))
	return n
}

// within fails a test that hangs, instead of letting it wait for the test binary's own limit.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	require.Less(t, time.Since(began), limit, what)
}
