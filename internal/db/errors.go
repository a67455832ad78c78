package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrConflict is returned by the body of a transaction whose guarded statement matched fewer rows than it had just read:
// somebody else was there in between. InTx then runs the body again, which reads afresh and decides anew.
var ErrConflict = errors.New("db: the rows changed in between")

// class says what an error means for the transaction it ended, and so what to do.
type class string

const (
	classNone        class = ""            // committed
	classOther       class = "other"       // the body's own refusal, or a defect: not run again
	classConflict    class = "conflict"    // ErrConflict: run again
	classDuplicate   class = "duplicate"   // a unique key caught what the read before it had missed: run again, the read sees it now
	classRefused     class = "refused"     // deadlock, lock wait, busy: rolled back as a whole; run again
	classNotSent     class = "not_sent"    // the connection failed before COMMIT was sent: nothing happened
	classUnknown     class = "unknown"     // the connection failed during COMMIT: run the same again, the unique keys tell
	classUnavailable class = "unavailable" // the server refuses for now: read-only, full, too many connections
)

// mysqlClasses lists server errors by number: duplicates; deadlock, lock wait timeout, record changed, group replication's
// refusal, TiDB's write conflicts; then too many connections, shutting down, read-only, killed, time limit, no primary
// (Galera), disk full, lock table full.
var mysqlClasses = map[uint16]class{
	1062: classDuplicate, 1586: classDuplicate,
	1213: classRefused, 1205: classRefused, 1020: classRefused, 3101: classRefused,
	9007: classRefused, 8002: classRefused, 8005: classRefused, 8022: classRefused, 8028: classRefused,
	1040: classUnavailable, 1203: classUnavailable, 1226: classUnavailable, 1053: classUnavailable, 1290: classUnavailable,
	1836: classUnavailable, 1792: classUnavailable, 1927: classUnavailable, 4031: classUnavailable, 1317: classUnavailable,
	1969: classUnavailable, 3024: classUnavailable, 1047: classUnavailable, 1021: classUnavailable, 1114: classUnavailable,
	1152: classUnavailable, 1129: classUnavailable, 1206: classUnavailable, 1637: classUnavailable,
}

// classify looks at an error that came before COMMIT was sent.
func classify(err error) class {
	var my *mysql.MySQLError
	var lite *sqlite.Error
	switch {
	case err == nil:
		return classNone
	case errors.Is(err, ErrConflict):
		return classConflict
	case errors.As(err, &my):
		if c, ok := mysqlClasses[my.Number]; ok {
			return c
		}
		return classOther
	case errors.As(err, &lite):
		return classifySQLite(lite.Code())
	case lost(err):
		return classNotSent
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, sql.ErrTxDone):
		return classUnavailable // our own time limit: the transaction was rolled back
	}
	return classOther
}

// classifyCommit looks at the answer to COMMIT. A server that was killed or lost its disk in the middle of it may have
// committed: only an answer that says so means that it did not.
func classifyCommit(err error) class {
	var my *mysql.MySQLError
	c := classify(err)
	switch {
	case c == classRefused, c == classNone, errors.Is(err, driver.ErrBadConn): // the last: nothing was written
		return c
	case errors.As(err, &my), lost(err):
		return classUnknown
	}
	return c // our time limit, before COMMIT was sent; SQLite, which lives in this process and rolled back
}

// classifySingle looks at the answer to a statement that commits by itself.
func classifySingle(err error) class {
	var network *net.OpError
	switch c := classify(err); {
	case errors.Is(err, driver.ErrBadConn), errors.As(err, &network) && network.Op == "dial":
		return classNotSent
	case lost(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return classUnknown // MySQL goes on with a statement whose client has left
	default:
		return c
	}
}

func classifySQLite(code int) class {
	switch {
	case slices.Contains([]int{sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID}, code):
		return classDuplicate
	case slices.Contains([]int{sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}, code&0xff):
		return classRefused
	case slices.Contains([]int{sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_CANTOPEN}, code&0xff):
		return classUnavailable
	}
	return classOther
}

// lost reports whether err means that the connection is gone or was never there.
func lost(err error) bool {
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, sql.ErrConnDone) ||
		(errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled))
}

// IsDuplicate reports whether err is a violation of a unique key.
func IsDuplicate(err error) bool { return classify(err) == classDuplicate }

var errAway = errors.New("db: the database is away")

// Away reports whether err means that the database itself did not answer, or not for now: whoever asks at the same moment
// fares the same.
func Away(err error) bool { return errors.Is(err, errAway) }
