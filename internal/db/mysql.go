package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
)

func (d *DB) openMySQL(ctx context.Context, c Config) error {
	cfg, err := mysqlConfig(ctx, c)
	if err != nil {
		return err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	if c.Wrap != nil {
		connector = c.Wrap(connector)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(c.MaxOpen)
	pool.SetMaxIdleConns(c.MaxOpen)
	pool.SetConnMaxLifetime(3 * time.Minute)
	pool.SetConnMaxIdleTime(time.Minute)
	if err := refuseLenient(ctx, pool); err != nil {
		return errors.Join(err, pool.Close())
	}
	// Without RETURNING, which MariaDB has and MySQL lacks: an insert is the same statement on both.
	dialector := gormmysql.Config{Conn: pool, DisableWithReturning: true}
	if d.write, err = gorm.Open(gormmysql.New(dialector), d.gormConfig()); err != nil {
		return errors.Join(err, pool.Close())
	}
	if d.read, err = gorm.Open(gormmysql.New(dialector), d.gormConfig()); err != nil {
		return errors.Join(err, pool.Close())
	}
	d.mysql = cfg
	return nil
}

// mysqlConfig reads the DSN and overrides in it what correctness needs.
func mysqlConfig(ctx context.Context, c Config) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(c.DSN)
	if err != nil {
		return nil, err
	}
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.InterpolateParams = true // one round trip a statement instead of three
	cfg.ClientFoundRows = true   // "0 rows" must mean "no row matched", not "nothing changed"
	cfg.RejectReadOnly = true    // a demoted primary must not look like one
	cfg.CheckConnLiveness = true // a connection that died while idle is replaced before anything is sent on it
	cfg.MultiStatements, cfg.ColumnsWithAlias, cfg.AllowAllFiles = false, false, false
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = time.Second, 5*time.Second, 5*time.Second
	cfg.Logger = mysqlLog{c.Log}
	if err := cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin"), mysql.TimeTruncate(time.Microsecond)); err != nil {
		return nil, err
	}
	isolation, err := isolationVariable(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	delete(cfg.Params, "tx_isolation")
	delete(cfg.Params, "transaction_isolation")
	cfg.Params["autocommit"] = "1"
	cfg.Params["time_zone"] = "'+00:00'"
	cfg.Params["innodb_lock_wait_timeout"] = "2"
	// READ COMMITTED: a re-read inside the transaction sees what others committed, so that 0 rows can be understood.
	cfg.Params[isolation] = "'READ-COMMITTED'"
	return cfg, nil
}

// refuseLenient returns an error when the server would cut a value that does not fit, with no more than a warning.
func refuseLenient(ctx context.Context, pool *sql.DB) error {
	var mode string
	if err := pool.QueryRowContext(ctx, "SELECT @@SESSION.sql_mode").Scan(&mode); err != nil {
		return err
	}
	if !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES") {
		return fmt.Errorf("sql_mode %q is not strict: values would be cut silently; add STRICT_TRANS_TABLES to it", mode)
	}
	return nil
}

// isolationVariable asks the server for its version: MariaDB before 11.1 knows only tx_isolation, MySQL 8 and TiDB only
// transaction_isolation.
func isolationVariable(ctx context.Context, cfg *mysql.Config) (string, error) {
	plain := cfg.Clone()
	plain.Params = nil // the DSN may set the variable of another server, which this one refuses
	connector, err := mysql.NewConnector(plain)
	if err != nil {
		return "", err
	}
	probe := sql.OpenDB(connector)
	defer probe.Close()
	var version string
	if err := probe.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", err
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("version %q of the server: %w", version, err)
	}
	if strings.Contains(version, "MariaDB") && (major < 11 || major == 11 && minor < 1) {
		return "tx_isolation", nil
	}
	return "transaction_isolation", nil
}

type mysqlLog struct{ log *slog.Logger }

// Print implements mysql.Logger. The driver reports every lost connection; InTx reports those that matter.
func (l mysqlLog) Print(v ...any) { l.log.Debug("mysql driver", "message", fmt.Sprint(v...)) }
