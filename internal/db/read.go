package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"orderd/internal/fault"
)

// Read returns a handle for reading outside a transaction. On SQLite it cannot write. A database that does not answer is
// a 503 fault: nothing was changed, whatever was asked.
func (d *DB) Read(ctx context.Context) *gorm.DB { return d.read.WithContext(ctx) }

// explainReads makes the errors of g's queries faults, where they are no defects.
func explainReads(g *gorm.DB) error {
	explain := func(g *gorm.DB) { g.Error = explainRead(g.Error) }
	return errors.Join(
		g.Callback().Query().After("*").Register("orderd:explain", explain),
		g.Callback().Row().After("*").Register("orderd:explain", explain),
		g.Callback().Raw().After("*").Register("orderd:explain", explain))
}

func explainRead(err error) error {
	switch classify(err) {
	case classNotSent, classUnavailable, classRefused:
		if errors.Is(err, context.Canceled) { // the client has gone
			return err
		}
		if classify(err) != classRefused {
			err = fmt.Errorf("%w: %w", errAway, err)
		}
		return fault.Busy("unavailable", "the database does not answer; send the same request again", time.Second, err)
	}
	return err
}
