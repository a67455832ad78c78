package db

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"orderd/internal/failpoint"
	"orderd/internal/fault"
)

const (
	waitTimeout = 4 * time.Second // for a connection of the pool
	txTimeout   = 3 * time.Second // one run of a transaction; longer than innodb_lock_wait_timeout (2 s)
	maxRuns     = 8               // runs of one transaction in all
	maxElapsed  = 5 * time.Second // no new run after this: the request has 8 s
	maxDown     = time.Second     // no new run without a server after this: "unavailable" is answered in under 2 s
	firstPause  = 5 * time.Millisecond
	lostPause   = 50 * time.Millisecond
)

// Tx is a running transaction. Now is the database's clock when it began, frozen: all its rows carry the same time.
type Tx struct {
	*gorm.DB
	Now Time
}

// InTx runs body in one transaction and commits it. op names the use case in metrics and in the failpoints op.begin,
// op.commit (before COMMIT) and op.committed.
//
// The body may run several times: after a deadlock or lock wait, after ErrConflict or a duplicate key, and after a lost
// connection. It must therefore read afresh, use ids made outside of it, return every error that it gets (after a deadlock
// there is no transaction any more, and further statements would commit one by one), and have no effect but its SQL. After a
// connection lost during COMMIT nobody knows whether it was applied; then the same body runs again, and meets its own
// rows if it was. A plain SELECT could not tell: the old transaction may still be on its way to being committed.
//
// It detaches from the caller's cancellation: once begun, a client's hanging up does not cut it in half. Errors are the
// body's own, or fault unavailable (nothing was done) or outcome_unknown.
func (d *DB) InTx(ctx context.Context, op string, body func(tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	again := []class{classConflict, classDuplicate, classRefused, classNotSent, classUnknown}
	return d.repeat(op, again, func() (class, error) { return d.once(ctx, op, body) })
}

// repeat calls once until it ends in a class that is not worth another run.
func (d *DB) repeat(op string, again []class, once func() (class, error)) error {
	began := time.Now()
	unknown := false // some run's COMMIT got no answer: from then on nobody may say that nothing was changed
	for run := 1; ; run++ {
		c, err := once()
		if c == classNone || c == classOther {
			return err
		}
		unknown = unknown || c == classUnknown
		elapsed := time.Since(began)
		if !slices.Contains(again, c) || run == maxRuns || elapsed > maxElapsed || c == classNotSent && elapsed > maxDown {
			if unknown {
				c = classUnknown
			}
			return giveUp(op, c, err)
		}
		d.metrics.TxRetries.WithLabelValues(op, string(c)).Inc()
		pause(run, c)
	}
}

// once makes one run and says how it ended.
func (d *DB) once(ctx context.Context, op string, body func(tx *Tx) error) (c class, err error) {
	failpoint.Here(op, ".begin")
	err = d.connection(ctx, func(g *gorm.DB) error {
		c, err = d.run(g, op, body)
		return err
	})
	if c == "" && err != nil { // no connection
		c = classify(err)
	}
	return c, err
}

// connection waits for a connection, up to waitTimeout, and gives body another txTimeout with it. On SQLite, which has
// one for writing, this is where all wait.
func (d *DB) connection(ctx context.Context, body func(g *gorm.DB) error) error {
	waiting, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	return d.write.WithContext(waiting).Connection(func(g *gorm.DB) error {
		ctx, cancel := context.WithTimeout(ctx, txTimeout)
		defer cancel()
		return body(g.WithContext(ctx))
	})
}

func (d *DB) run(g *gorm.DB, op string, body func(tx *Tx) error) (c class, err error) {
	g = g.Begin()
	if g.Error != nil {
		return classify(g.Error), g.Error
	}
	done := false
	defer func() { // also when body panics: a transaction left open would keep its locks
		if !done {
			g.Rollback()
		}
	}()
	tx := &Tx{DB: g}
	now, err := d.clock(g)
	if err == nil {
		tx.Now = At(now)
		err = body(tx)
	}
	if err != nil {
		// Any error ends the whole transaction: after a lock wait timeout a COMMIT would keep half of it.
		return classify(err), err
	}
	failpoint.Here(op, ".commit")
	done = true
	err = g.Commit().Error
	failpoint.Here(op, ".committed")
	return classifyCommit(err), err
}

// Exec runs one guarded statement by itself and returns the number of rows that it matched. It is run again after a
// deadlock or without a connection, not after one that was lost meanwhile: then nobody knows, and the caller's next read
// decides. Errors are as those of InTx.
func (d *DB) Exec(ctx context.Context, op, statement string, args ...any) (rows int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	ctx = context.WithoutCancel(ctx)
	err = d.repeat(op, []class{classRefused, classNotSent}, func() (class, error) {
		failpoint.Here(op, ".commit")
		sent := false
		err := d.connection(ctx, func(g *gorm.DB) error {
			sent = true
			r := g.Exec(statement, args...)
			rows = r.RowsAffected
			return r.Error
		})
		failpoint.Here(op, ".committed")
		if !sent || d.Dialect == "sqlite" { // no connection was free in time; and SQLite rolls back what it interrupts
			return classify(err), err
		}
		return classifySingle(err), err
	})
	return rows, err
}

// Exactly makes another number of rows than a guarded statement was to match an ErrConflict: read again and decide anew.
func Exactly(rows int, r *gorm.DB) error {
	if r.Error == nil && r.RowsAffected != int64(rows) {
		return ErrConflict
	}
	return r.Error
}

// SQLNow is the database's clock as an argument of a statement: evaluated by the server on MySQL.
func (d *DB) SQLNow() any { return d.SQLNowPlus(0) }

// SQLNowPlus is SQLNow moved by delta.
func (d *DB) SQLNowPlus(delta time.Duration) any {
	if d.Dialect == "sqlite" {
		return At(d.now().Add(delta))
	}
	return clause.Expr{SQL: "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND", Vars: []any{delta.Microseconds()}}
}

func giveUp(op string, c class, err error) error {
	if fault.As(err) != nil || c == classDuplicate { // a key that stays violated is a defect of ours
		return err
	}
	err = fmt.Errorf("%s: %s: %w", op, c, err)
	if c == classNotSent || c == classUnavailable || c == classUnknown {
		err = fmt.Errorf("%w: %w", errAway, err)
	}
	if c == classUnknown {
		return fault.Busy("outcome_unknown", "it is not known whether this was stored; send the same request again", time.Second, err)
	}
	return fault.Busy("unavailable", "the database cannot do this now; nothing was changed, send the same request again", time.Second, err)
}

func pause(run int, c class) {
	d := firstPause << min(run-1, 4)
	if c == classNotSent || c == classUnknown {
		d = lostPause
	}
	time.Sleep(d/2 + rand.N(d)) //nolint:forbidigo // spreads rivals apart; at most 120 ms
}
