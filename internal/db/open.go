// Package db opens the database (MySQL, MariaDB or TiDB; SQLite when embedded) and runs transactions: InTx is the one
// way to write more than one row. What differs between the dialects is in here and in the migrations, nowhere else.
package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/libtnb/sqlite"
	"github.com/prometheus/client_golang/prometheus"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"orderd/internal/metrics"
)

// Config says which database to open. Exactly one of DSN and Path is used.
type Config struct {
	DSN     string                                  // go-sql-driver/mysql form; settings that correctness needs are overridden
	Path    string                                  // SQLite file, used when DSN is empty
	MaxOpen int                                     // MySQL connections; default 32
	Now     func() time.Time                        // the clock of SQLite, which has no server of its own; default time.Now
	Wrap    func(driver.Connector) driver.Connector // tests cut MySQL connections in here
	Log     *slog.Logger                            // default: none
	Metrics *metrics.Metrics                        // default: some that nobody reads
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	Dialect string // "mysql" or "sqlite"
	write   *gorm.DB
	read    *gorm.DB
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics.Metrics
	mysql   *mysql.Config // what migrations connect with; nil on SQLite
}

// Open connects to the database and checks that its settings are those that correctness needs.
func Open(ctx context.Context, c Config) (*DB, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MaxOpen == 0 {
		c.MaxOpen = 32
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New(prometheus.NewRegistry())
	}
	d := &DB{now: c.Now, log: c.Log, metrics: c.Metrics}
	var err error
	if c.DSN != "" {
		d.Dialect = "mysql"
		err = d.openMySQL(ctx, c)
	} else {
		d.Dialect = "sqlite"
		err = d.openSQLite(c)
	}
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return d, explainReads(d.read)
}

func (d *DB) openSQLite(c Config) (err error) {
	// Times are kept as integer microseconds: text times would compare by their spelling.
	params := url.Values{"_txlock": {"immediate"}, "_inttotime": {"1"}, "_time_integer_format": {"unix_micro"},
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}
	file := "file:" + (&url.URL{Path: c.Path}).EscapedPath() + "?" // a path may hold a ? or a %
	// One writer: a queue in front of the file is fairer and faster than SQLite's own busy handler.
	if d.write, err = d.openFile(file+params.Encode(), 1); err != nil {
		return err
	}
	params["_pragma"] = append(params["_pragma"], "query_only(1)")
	params["_txlock"] = []string{"deferred"} // a reading transaction must not wait for the writer
	if d.read, err = d.openFile(file+params.Encode(), 4); err != nil {
		return errors.Join(err, d.Pool().Close())
	}
	return nil
}

func (d *DB) openFile(dsn string, connections int) (*gorm.DB, error) {
	pool, err := sql.Open(sqlite.DriverName, dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	g, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}), d.gormConfig())
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return g, nil
}

func (d *DB) gormConfig() *gorm.Config {
	return &gorm.Config{
		SkipDefaultTransaction:   true,  // InTx opens transactions; a hook must not open another
		PrepareStmt:              false, // a bounded pool and gorm's statement cache can wait for each other for ever
		TranslateError:           false, // would drop the name of the violated key
		DisableNestedTransaction: true,
		NowFunc:                  func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) },
		Logger:                   slowOnly{logger.NewSlogLogger(d.log, logger.Config{SlowThreshold: slow, LogLevel: logger.Warn})},
	}
}

// Now returns the database's clock: the server's on MySQL, the configured one on SQLite.
func (d *DB) Now(ctx context.Context) (time.Time, error) {
	now, err := d.clock(d.Read(ctx))
	return now, explainRead(err)
}

func (d *DB) clock(g *gorm.DB) (time.Time, error) {
	if d.Dialect == "sqlite" {
		return At(d.now()).Time, nil
	}
	var now time.Time
	err := g.Raw("SELECT UTC_TIMESTAMP(6)").Row().Scan(&now)
	return now, err
}

// Pool returns the writing connection pool, for migrations and statistics.
func (d *DB) Pool() *sql.DB {
	pool, err := d.write.DB()
	if err != nil {
		panic(err) // only if gorm had been given no pool
	}
	return pool
}

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.Read(ctx).Exec("SELECT 1").Error }

// Close closes the connections.
func (d *DB) Close() error {
	err := d.Pool().Close()
	reader, e := d.read.DB() // on MySQL the same pool: closing it twice does no harm
	err = errors.Join(err, e, reader.Close())
	return err
}

// slow is the duration from which on a statement is logged.
const slow = 500 * time.Millisecond

// slowOnly logs slow statements, without their values, which are users' data. Errors go up: many are lost races, which the
// caller understands, and the rest is logged once, at the edge.
type slowOnly struct{ logger.Interface }

// Trace implements logger.Interface. It forms the statement's text only for the log: for every statement that would cost as
// much as sending it.
func (l slowOnly) Trace(ctx context.Context, begin time.Time, text func() (string, int64), _ error) {
	if time.Since(begin) > slow {
		l.Interface.Trace(ctx, begin, text, nil)
	}
}

// ParamsFilter implements gorm's ParamsFilter.
func (slowOnly) ParamsFilter(_ context.Context, statement string, _ ...any) (string, []any) {
	return statement, nil
}

// LogMode implements logger.Interface.
func (l slowOnly) LogMode(level logger.LogLevel) logger.Interface {
	return slowOnly{l.Interface.LogMode(level)}
}
