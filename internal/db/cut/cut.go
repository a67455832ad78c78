// Package cut breaks MySQL connections at an exact place: just before or after a statement or a COMMIT takes effect. It is
// for tests of what a caller does when it cannot know whether its transaction was committed, and of what is sent at all.
//
//	cuts := &cut.Point{}
//	d, err := db.Open(ctx, db.Config{DSN: dsn, Wrap: cuts.Wrap})
//	cuts.Arm(cut.AfterCommit, 1)
//	err = service.Place(ctx, ...)   // must be as if nothing had happened
//	if cuts.Disarm() != 1 { ... }   // the cut did take place
package cut

import (
	"context"
	"database/sql/driver"
	"sync"

	"github.com/go-sql-driver/mysql"
)

// Where says at which moment a connection breaks.
type Where struct {
	commit bool
	after  bool
	k      int
}

// BeforeCommit breaks the connection before COMMIT reaches the server: the transaction is rolled back.
var BeforeCommit = Where{commit: true}

// AfterCommit breaks the connection when COMMIT was carried out, before its answer is read.
var AfterCommit = Where{commit: true, after: true}

// BeforeStatement breaks the connection before the k-th statement (from 1, over all connections, since it was armed)
// reaches the server. BEGIN, COMMIT and ROLLBACK are not counted.
func BeforeStatement(k int) Where { return Where{k: k} }

// AfterStatement breaks the connection when the k-th statement was carried out, before its answer is read.
func AfterStatement(k int) Where { return Where{k: k, after: true} }

// Point is a place where connections break once it is armed. The zero value is ready; it is safe for concurrent use.
type Point struct {
	// Sending, if set before the database is opened, is called before each statement, BEGIN and COMMIT is sent.
	Sending func(statement string)

	mu         sync.Mutex
	where      Where
	left       int // cuts still to be made
	made       int
	statements int // seen since it was armed
}

// Wrap is a db.Config.Wrap.
func (p *Point) Wrap(c driver.Connector) driver.Connector { return connector{c, p} }

// Arm makes the next n passes of where break their connection. For a statement it is the k-th and the n-1 that follow.
func (p *Point) Arm(where Where, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.where, p.left, p.made, p.statements = where, n, 0, 0
}

// Disarm lets everything pass again and returns how many connections were broken.
func (p *Point) Disarm() (made int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = 0
	return p.made
}

func (p *Point) sending(statement string) {
	if p.Sending != nil {
		p.Sending(statement)
	}
}

// pass reports whether the connection breaks at this statement or COMMIT, and on which side of it.
func (p *Point) pass(commit bool) (before, after bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !commit {
		p.statements++
	}
	if p.left == 0 || commit != p.where.commit || p.statements < p.where.k {
		return false, false
	}
	p.left--
	p.made++
	return !p.where.after, p.where.after
}

type connector struct {
	driver.Connector
	point *Point
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{inner.(mysqlConn), c.point}, nil
}

// mysqlConn is all that database/sql uses of the driver's connection; what conn does not override passes through.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type conn struct {
	mysqlConn
	point *Point
}

// errCut is what the driver returns when a connection is lost under a command: it cannot tell which side of it.
var errCut = mysql.ErrInvalidConn

func cutAround[T any](c *conn, commit bool, do func() (T, error)) (T, error) {
	var none T
	before, after := c.point.pass(commit)
	if before {
		_ = c.Close() // the server rolls back
		return none, errCut
	}
	v, err := do()
	if after && err == nil {
		if rows, ok := any(v).(driver.Rows); ok {
			_ = rows.Close() // read to its end, or the server might not have carried it out
		}
		_ = c.Close()
		return none, errCut
	}
	return v, err
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.point.sending(query)
	return cutAround(c, false, func() (driver.Result, error) { return c.mysqlConn.ExecContext(ctx, query, args) })
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.point.sending(query)
	return cutAround(c, false, func() (driver.Rows, error) { return c.mysqlConn.QueryContext(ctx, query, args) })
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.point.sending("BEGIN")
	inner, err := c.mysqlConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return tx{inner, c}, nil
}

type tx struct {
	driver.Tx
	conn *conn
}

func (t tx) Commit() error {
	t.conn.point.sending("COMMIT")
	_, err := cutAround(t.conn, true, func() (struct{}, error) { return struct{}{}, t.Tx.Commit() })
	return err
}
