package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/order"
)

// TestStatementsUseIndexes runs the flow on a database of twenty thousand orders and asks MariaDB how it finds the rows of
// every statement that it was sent. They are taken from the server's own log, so no statement can be forgotten.
func TestStatementsUseIndexes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m, pool, d := ownDatabase(t)
	require.NoError(t, fillTo(ctx, pool, 2*chunk, func(int) {}))
	execute(t, pool, "ANALYZE TABLE orders, order_items, order_events, payments, refunds, outbox_messages, inbox_messages, idempotency_keys, stock, stock_movements")

	f, err := newFlow(d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.close()) })
	execute(t, m.admin, "SET GLOBAL log_output = 'TABLE'")
	execute(t, m.admin, "SET GLOBAL general_log = ON")
	runEverything(t, f, pool)
	execute(t, m.admin, "SET GLOBAL general_log = OFF")

	seen := map[string]bool{}
	for _, statement := range logged(t, m.admin) {
		if shape := shapeOf(statement); !seen[shape] {
			seen[shape] = true
			for _, fault := range explain(t, pool, statement) {
				t.Errorf("%s\n%s", fault, statement)
			}
		}
	}
	require.Greater(t, len(seen), 40, "most of the statements are missing from the log")
}

// runEverything makes the services run each of their statements at least once.
func runEverything(t *testing.T, f *flow, pool *sql.DB) {
	t.Helper()
	ctx := t.Context()
	place := func(request order.PlaceRequest) order.Order {
		request.UserID = f.user.UserID
		r, err := f.Place(ctx, request)
		require.NoError(t, err)
		return r.Order
	}
	lines := []order.Line{{SKU: skuName(1), Quantity: 1}, {SKU: skuName(2), Quantity: 2}}
	bought := order.PlaceRequest{OrderNo: "explain-1", Key: "explain-key", Lines: lines}
	first := place(bought)
	place(bought)                                                 // known by its number and key
	place(order.PlaceRequest{OrderNo: "explain-2", Lines: lines}) // cancelled below
	late := place(order.PlaceRequest{OrderNo: "explain-3", Lines: lines})
	forgotten := place(order.PlaceRequest{OrderNo: "explain-4", Lines: lines})

	for range 2 { // the second time it is a duplicate
		_, err := f.Settle(ctx, paid(first))
		require.NoError(t, err)
	}
	unheard := place(order.PlaceRequest{OrderNo: "explain-5", Lines: lines}) // its callback comes first, and tells of the charge
	execute(t, pool, "UPDATE payments SET status = 'UNKNOWN', transaction_id = NULL WHERE order_no = '"+unheard.OrderNo+"'")
	_, err := f.Settle(ctx, paid(unheard))
	require.NoError(t, err)
	_, err = f.Ship(ctx, f.admin, first.OrderNo, "TRACK-1")
	require.NoError(t, err)
	_, err = f.Refund(ctx, f.admin, order.RefundRequest{OrderNo: first.OrderNo, RefundNo: "explain-r", Amount: 1})
	require.NoError(t, err)
	_, err = f.Cancel(ctx, f.user, "explain-2", "")
	require.NoError(t, err)

	for _, status := range []string{"", "PAID", "CANCELLED"} {
		require.NoError(t, errors.Join(f.list(ctx, f.user, status)(), f.list(ctx, f.admin, status)()))
	}
	_, page, err := f.List(ctx, f.user, order.ListQuery{Limit: 5})
	require.NoError(t, err)
	_, _, err = f.List(ctx, f.user, order.ListQuery{Limit: 5, Cursor: page})
	require.NoError(t, err)
	_, err = f.Timeline(ctx, f.user, first.OrderNo)
	require.NoError(t, err)
	_, err = f.Refunds(ctx, f.user, first.OrderNo)
	require.NoError(t, err)
	_, err = f.Key(ctx, f.user, "explain-key")
	require.NoError(t, err)

	// Work for every part of the sweeper: an order that expires, and a payment to ask about.
	execute(t, pool, "UPDATE orders SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE order_no = '"+late.OrderNo+"'")
	execute(t, pool, "UPDATE payments SET next_check_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE order_no = '"+forgotten.OrderNo+"'")
	execute(t, pool, "UPDATE refunds SET next_check_at = UTC_TIMESTAMP(6), lease_until = NULL WHERE status <> 'SUCCEEDED'")
	for _, round := range []func(context.Context) (int, error){f.Sweep, f.SendRefunds, f.relay.RunOnce} {
		_, err := round(ctx)
		require.NoError(t, err)
	}
	n, err := msg.Prune(ctx, f.db, time.Hour)
	require.NoError(t, err)
	require.Positive(t, n)
	keys, err := idem.PruneKeys(ctx, f.db, 100)
	require.NoError(t, err)
	require.Positive(t, keys)
}

func execute(t *testing.T, pool *sql.DB, statement string) {
	t.Helper()
	_, err := pool.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

var explainable = regexp.MustCompile(`(?is)^\s*(SELECT|UPDATE|DELETE)\s.*\b(orders|order_items|order_events|payments|refunds|outbox_messages|inbox_messages|idempotency_keys|stock|stock_movements)\b`)

// logged returns what the server was sent.
func logged(t *testing.T, admin *sql.DB) (statements []string) {
	t.Helper()
	rows, err := admin.QueryContext(t.Context(), "SELECT argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var statement string
		require.NoError(t, rows.Scan(&statement))
		if explainable.MatchString(statement) {
			statements = append(statements, statement)
		}
	}
	require.NoError(t, rows.Err())
	return statements
}

var (
	values = regexp.MustCompile(`'(?:[^'\\]|\\.|'')*'|\b\d+\b`)
	lists  = regexp.MustCompile(`\?(\s*,\s*\?)+`)
)

// shapeOf is a statement without its values.
func shapeOf(statement string) string {
	return lists.ReplaceAllString(values.ReplaceAllString(statement, "?"), "?")
}

const fewRows = 2000 // of twenty thousand orders: more is no longer a part of the table

// explain returns what is wrong with the way that the server finds a statement's rows.
func explain(t *testing.T, pool *sql.DB, statement string) (faults []string) {
	t.Helper()
	rows, err := pool.QueryContext(t.Context(), "EXPLAIN "+statement)
	require.NoError(t, err, statement)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		cells := map[string]*sql.NullString{}
		into := make([]any, len(columns))
		for i, name := range columns {
			cells[name] = &sql.NullString{}
			into[i] = cells[name]
		}
		require.NoError(t, rows.Scan(into...))
		table, access, extra := cells["table"].String, cells["type"].String, cells["Extra"].String
		n := 0
		if cell := cells["rows"].String; cell != "" {
			first, _, _ := strings.Cut(cell, " ") // "12 (3%)" where MariaDB filters by a second index
			n, err = strconv.Atoi(first)
			require.NoError(t, err)
		}
		switch {
		case access == "ALL" && !strings.HasPrefix(table, "<"):
			faults = append(faults, fmt.Sprintf("reads all of %s (%d rows):", table, n))
		case access == "index" && n > fewRows:
			faults = append(faults, fmt.Sprintf("reads all of an index of %s (%d rows):", table, n))
		case access == "index" && strings.Contains(statement, "user_id = "): // who has few orders would have all read
			faults = append(faults, fmt.Sprintf("looks for a user's rows in all of %s:", table))
		case strings.Contains(extra, "filesort") && n > fewRows:
			faults = append(faults, fmt.Sprintf("sorts %d rows of %s:", n, table))
		}
	}
	require.NoError(t, rows.Err())
	return faults
}
