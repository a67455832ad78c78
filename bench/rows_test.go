package main

import (
	"database/sql"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/audit"
	"orderd/internal/db"
	"orderd/internal/order"
)

// ownDatabase starts a MariaDB with orderd's schema, and opens it for raw clients and for orderd's flow.
func ownDatabase(t *testing.T) (*mariadb, *sql.DB, *db.DB) {
	t.Helper()
	m, err := startMariaDB(t.Context(), t.TempDir(), "128M")
	require.NoError(t, err)
	t.Cleanup(m.stop)
	dsn, err := m.create(t.Context(), "own")
	require.NoError(t, err)
	pool, err := openPool(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	d, err := openOrders(t.Context(), db.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return m, pool, d
}

// TestRowsAreOrderds has orderd write the same orders as a group of rows, and compares all that is stored of them.
func TestRowsAreOrderds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, pool, d := ownDatabase(t)
	f, err := newFlow(d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.close()) })
	c, err := newRaw(ctx, pool, &repeats{})
	require.NoError(t, err)
	t.Cleanup(c.close)

	r := &rows{raw: c, prefix: "by-rows-", rng: rand.New(rand.NewPCG(1, 2)), group: make([]bought, 3)}
	_, err = r.do(ctx)
	require.NoError(t, err)
	for _, o := range r.group {
		request := order.PlaceRequest{UserID: o.user, OrderNo: strings.Replace(o.no, "by-rows", "by-flow", 1)}
		for _, l := range o.lines {
			request.Lines = append(request.Lines, order.Line{SKU: l.sku, Quantity: l.quantity})
		}
		placed, err := f.Place(ctx, request)
		require.NoError(t, err)
		_, err = f.Settle(ctx, paid(placed.Order))
		require.NoError(t, err)
		want := stored(t, pool, placed.Order.OrderNo, placed.Order.Payment.PaymentNo, *placed.Order.Payment.TransactionID)
		require.Greater(t, len(want), 100)
		require.Equal(t, want, stored(t, pool, o.no, o.paymentNo, "txn_"+o.no))
	}
	found, err := audit.Run(ctx, d, time.Hour)
	require.NoError(t, err)
	require.Empty(t, found)
}

// varying is what two orders that are alike differ in, besides their numbers.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?|\b[0-9a-fh]{64}\b|http://[^ "]*`)

// stored returns all columns of an order's rows, but for the counters.
func stored(t *testing.T, pool *sql.DB, orderNo, paymentNo, transaction string) (all []string) {
	t.Helper()
	same := strings.NewReplacer(paymentNo, "PAYMENT", transaction, "TRANSACTION", orderNo, "ORDER")
	for _, from := range []string{"orders WHERE order_no = ?", "order_items WHERE order_no = ? ORDER BY sku", "order_events WHERE order_no = ? ORDER BY seq",
		"payments WHERE order_no = ?", "outbox_messages WHERE order_no = ? ORDER BY seq", "inbox_messages WHERE order_no = ?", "idempotency_keys WHERE order_no = ?",
		"stock_movements WHERE ref = ? ORDER BY sku"} {
		for _, value := range cells(t, pool, from, orderNo) {
			all = append(all, varying.ReplaceAllString(same.Replace(value), "..."))
		}
	}
	return all
}

func cells(t *testing.T, pool *sql.DB, from, orderNo string) (all []string) {
	t.Helper()
	found, err := pool.QueryContext(t.Context(), "SELECT * FROM "+from, orderNo)
	require.NoError(t, err)
	defer found.Close()
	columns, err := found.Columns()
	require.NoError(t, err)
	table, _, _ := strings.Cut(from, " ")
	for found.Next() {
		row, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		require.NoError(t, found.Scan(into...))
		for i, c := range row {
			switch {
			case columns[i] == "id":
			case c.Valid:
				all = append(all, table+"."+columns[i]+" = '"+c.String+"'")
			default:
				all = append(all, table+"."+columns[i]+" IS NULL")
			}
		}
	}
	require.NoError(t, found.Err())
	return all
}
