package db_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/testenv"
)

// A DSN may ask for the opposite of everything that the service relies on.
func TestSettingsOverrideTheDSN(t *testing.T) {
	t.Parallel()
	d := open(t, "mysql", func(c *db.Config) {
		c.DSN += "?clientFoundRows=false&parseTime=false&loc=Asia%2FShanghai&interpolateParams=false&multiStatements=true" +
			"&charset=latin1&collation=latin1_swedish_ci&columnsWithAlias=true&checkConnLiveness=false&rejectReadOnly=false" +
			"&timeout=1h&readTimeout=1h&autocommit=0&innodb_lock_wait_timeout=50&time_zone=%27%2B05%3A00%27" +
			"&transaction_isolation=%27SERIALIZABLE%27&tx_isolation=%27SERIALIZABLE%27"
	})
	var isolation, collation, charset, zone string
	var wait, auto int
	require.NoError(t, d.Read(t.Context()).Raw("SELECT @@tx_isolation, @@collation_connection, @@character_set_client, @@time_zone, "+
		"@@innodb_lock_wait_timeout, @@autocommit").Row().Scan(&isolation, &collation, &charset, &zone, &wait, &auto))
	require.Equal(t, []any{"READ-COMMITTED", "utf8mb4_bin", "utf8mb4", "+00:00", 2, 1}, []any{isolation, collation, charset, zone, wait, auto})

	exec(t, d, "CREATE TABLE things (name VARCHAR(32) PRIMARY KEY, n BIGINT NOT NULL) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	exec(t, d, "INSERT INTO things VALUES ('a', 1), ('A', 2), (?, 3)", "\U0001F600\U00020BB7'\\\"")
	rows, err := d.Exec(t.Context(), "test", "UPDATE things SET n = 1 WHERE name = 'a'")
	require.NoError(t, err)
	require.EqualValues(t, 1, rows, "rows that match, also when nothing changes")
	require.EqualValues(t, 3, number(t, d, "SELECT n FROM things WHERE name = ?", "\U0001F600\U00020BB7'\\\""))
	_, err = d.Exec(t.Context(), "test", "UPDATE things SET n = 5; UPDATE things SET n = 6")
	require.Error(t, err, "one statement a call")
	now, err := d.Now(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), now, 5*time.Second)
}

func TestLenientServerRefused(t *testing.T) {
	t.Parallel()
	_, err := db.Open(t.Context(), db.Config{DSN: testenv.Database(t) + "?sql_mode=%27%27"})
	require.ErrorContains(t, err, "STRICT_TRANS_TABLES")
}

// Inside a transaction a second read sees what others committed since the first. Under REPEATABLE READ it would not.
func TestReadCommitted(t *testing.T) {
	t.Parallel()
	d := open(t, "mysql")
	thingTable(t, d)
	exec(t, d, "INSERT INTO things VALUES ('a', 1)")
	require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
		var first, second int64
		if err := tx.Raw("SELECT n FROM things").Row().Scan(&first); err != nil {
			return err
		}
		exec(t, d, "UPDATE things SET n = 2") // another connection
		if err := tx.Raw("SELECT n FROM things").Row().Scan(&second); err != nil {
			return err
		}
		require.Equal(t, []int64{1, 2}, []int64{first, second})
		return nil
	}))
}

// Handles for reading cannot write where the engine can tell.
func TestSQLiteReadHandle(t *testing.T) {
	t.Parallel()
	d := open(t, "sqlite")
	thingTable(t, d)
	require.ErrorContains(t, d.Read(t.Context()).Exec("INSERT INTO things VALUES ('a', 1)").Error, "readonly")
}

func TestOpenFails(t *testing.T) {
	t.Parallel()
	_, err := db.Open(t.Context(), db.Config{DSN: "not a dsn"})
	require.Error(t, err)
	_, err = db.Open(t.Context(), db.Config{Path: t.TempDir() + "/no/such/folder/x.db"})
	require.Error(t, err)
	port, err := testenv.FreePort()
	require.NoError(t, err)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr = "tcp", "127.0.0.1:"+strconv.Itoa(port)
	within(t, 2*time.Second, "no server", func() { _, err = db.Open(t.Context(), db.Config{DSN: cfg.FormatDSN()}) })
	require.Error(t, err)
}

func openSQL(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// A slow statement is logged, without the values that it was given: they are users' data. Others are not.
func TestSlowStatementsAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := open(t, "mysql", func(c *db.Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	exec(t, d, "SELECT SLEEP(?), ?", 0, "quick")
	require.Empty(t, out.String())
	exec(t, d, "SELECT SLEEP(?), ?", 0.6, "a secret")
	require.Contains(t, out.String(), "SELECT SLEEP(?), ?")
	require.NotContains(t, out.String(), "secret")
}
