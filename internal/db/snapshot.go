package db

import (
	"context"
	"database/sql"

	"gorm.io/gorm"
)

// Snapshot runs body on one consistent view of the whole database, for reading.
func (d *DB) Snapshot(ctx context.Context, body func(q *gorm.DB) error) error {
	o := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	if d.Dialect == "sqlite" { // a transaction there is a snapshot as it is
		o = &sql.TxOptions{ReadOnly: true}
	}
	return d.Read(ctx).Transaction(body, o)
}
