// Package audit holds the invariants of the books as data: each is a query that finds the rows which break it. The
// command `orderd audit`, the metric and the tests use the same list.
package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"orderd/internal/db"
	"orderd/internal/fsm"
)

// Check is one invariant. Query selects what breaks it; its first column names the row.
type Check struct {
	Name  string // stable, as "stock_adds_up"
	Says  string // what must hold
	Query string
	Args  []any
}

// Violation is a row that breaks a check.
type Violation struct {
	Check string
	Row   string // "order_no=X amount=1 lines=2"
}

// limit is how many rows of one check are reported.
const limit = 20

// Run looks at one snapshot of the database, so that what is under way does not look broken, and returns what is. keep
// is how long published messages are kept: older ones may be gone.
func Run(ctx context.Context, d *db.DB, keep time.Duration) ([]Violation, error) {
	now, err := d.Now(ctx)
	if err != nil {
		return nil, err
	}
	var all []Violation
	err = d.Snapshot(ctx, func(q *gorm.DB) error {
		for _, c := range Checks(db.At(now.Add(-keep))) {
			found, err := c.run(q)
			if err != nil {
				return fmt.Errorf("check %s: %w", c.Name, err)
			}
			all = append(all, found...)
		}
		return nil
	})
	return all, err
}

func (c Check) run(q *gorm.DB) ([]Violation, error) {
	rows, err := q.Raw(c.Query+fmt.Sprintf(" LIMIT %d", limit), c.Args...).Rows()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var found []Violation
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		found = append(found, Violation{c.Name, describe(columns, values)})
	}
	return found, rows.Err()
}

func describe(columns []string, values []any) string {
	parts := make([]string, len(columns))
	for i, name := range columns {
		v := *values[i].(*any)
		if b, ok := v.([]byte); ok {
			v = string(b)
		}
		parts[i] = fmt.Sprintf("%s=%v", name, v)
	}
	return strings.Join(parts, " ")
}

// legalEdges forms a condition on order_events that holds for the edges of the state machine.
func legalEdges() (sql string, args []any) {
	var edges []string
	for _, e := range fsm.Orders.Edges {
		for _, from := range e.From {
			edges = append(edges, "(event = ? AND from_status = ? AND to_status = ?)")
			args = append(args, e.Event, from, e.To)
		}
	}
	return strings.Join(edges, " OR "), args
}
