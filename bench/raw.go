package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// errConflict says that a guarded statement matched fewer rows than it had to.
var errConflict = errors.New("changed in between")

// repeats counts what had to be run again.
type repeats struct{ conflicts, retries atomic.Int64 }

// raw is one database connection with prepared statements, and nothing between it and the server but the driver.
type raw struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	*repeats
}

// openPool opens a database for raw clients. Each takes one connection of it and keeps it.
func openPool(dsn string) (*sql.DB, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c.ClientFoundRows, c.Loc = true, time.UTC
	if err := c.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin")); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func newRaw(ctx context.Context, pool *sql.DB, r *repeats) (*raw, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil { // as orderd's
		return nil, errors.Join(err, conn.Close())
	}
	return &raw{conn: conn, statements: map[string]*sql.Stmt{}, repeats: r}, nil
}

func (r *raw) close() {
	for _, s := range r.statements {
		_ = s.Close() // the connection ends with it
	}
	_ = r.conn.Close()
}

// prepare prepares a statement at its first use.
func (r *raw) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := r.statements[query]; ok {
		return s, nil
	}
	s, err := r.conn.PrepareContext(ctx, query)
	if err == nil {
		r.statements[query] = s
	}
	return s, err
}

// exec runs a statement that must match as many rows as it says.
func (r *raw) exec(ctx context.Context, rows int, query string, args ...any) error {
	s, err := r.prepare(ctx, query) //nolint:sqlclosecheck // kept for the next time; close closes it
	if err != nil {
		return err
	}
	result, err := s.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != int64(rows) {
		return errors.Join(err, errConflict)
	}
	return nil
}

// insert writes rows into a table by one statement. The values are those of all rows, one after the other.
func (r *raw) insert(ctx context.Context, into, row string, values []any) error {
	n := len(values) / strings.Count(row, "?")
	return r.exec(ctx, n, "INSERT INTO "+into+" VALUES "+row+strings.Repeat(", "+row, n-1), values...)
}

// scan reads one value.
func (r *raw) scan(ctx context.Context, into any, query string, args ...any) error {
	s, err := r.prepare(ctx, query) //nolint:sqlclosecheck // as above
	if err != nil {
		return err
	}
	return s.QueryRowContext(ctx, args...).Scan(into)
}

// query reads rows.
func (r *raw) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := r.prepare(ctx, query) //nolint:sqlclosecheck // as above
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// list forms (?, ?, ...).
func list(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// choice forms CASE column WHEN ? THEN ? ... END; chosen are its values.
func choice(column string, n int) string {
	return "CASE " + column + strings.Repeat(" WHEN ? THEN ?", n) + " END"
}

func chosen[T any](keys []string, values []T) []any {
	all := make([]any, 0, 2*len(keys))
	for i, k := range keys {
		all = append(all, k, values[i])
	}
	return all
}

func anys(values []string) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}

func (r *raw) do(ctx context.Context, command string) error {
	_, err := r.conn.ExecContext(ctx, command)
	return err
}

// again are the server's errors after which the whole transaction is run again: deadlock, lock wait timeout, record has
// changed since it was read.
var again = []uint16{1213, 1205, 1020}

// inTx runs body in a transaction, and read before it, until it commits or stop ends.
func (r *raw) inTx(stop context.Context, read, body func(ctx context.Context) error) error {
	ctx := context.WithoutCancel(stop) // a cancelled statement would cost the connection
	for stop.Err() == nil {
		err := r.once(ctx, read, body)
		var server *mysql.MySQLError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errConflict):
			r.conflicts.Add(1)
		case errors.As(err, &server) && slices.Contains(again, server.Number):
			r.retries.Add(1)
		default:
			return err
		}
	}
	return errStopped
}

func (r *raw) once(ctx context.Context, read, body func(ctx context.Context) error) error {
	if err := read(ctx); err != nil {
		return err
	}
	if err := r.do(ctx, "START TRANSACTION"); err != nil {
		return err
	}
	err := body(ctx)
	if err == nil {
		return r.do(ctx, "COMMIT")
	}
	return errors.Join(err, r.do(ctx, "ROLLBACK"))
}

func readNothing(context.Context) error { return nil }
