package db_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
)

type row map[string]any

func (r row) with(changes row) row {
	c := maps.Clone(r)
	maps.Copy(c, changes)
	return c
}

func (r row) insertInto(t *testing.T, d *db.DB, table string) error {
	t.Helper()
	var args []any
	columns := slices.Sorted(maps.Keys(r))
	for _, c := range columns {
		args = append(args, r[c])
	}
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ")
	_, err := d.Exec(t.Context(), "test", "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES ("+marks+")", args...)
	return err
}

var at = db.At(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))

// good holds one acceptable row a table.
var good = map[string]row{
	"orders": {"order_no": "O", "user_id": "u", "status": "CREATED", "fingerprint": "f", "gateway": "g", "currency": "CNY", "amount": 100,
		"note": "", "cancel_reason": "", "tracking_no": "", "version": 1, "expires_at": at, "created_at": at, "updated_at": at},
	"order_items": {"order_no": "O", "sku": "A", "title": "", "quantity": 2, "unit_price": 50, "amount": 100},
	"order_events": {"order_no": "O", "seq": 1, "event": "create", "from_status": "", "to_status": "CREATED", "actor": "u", "cause": "",
		"detail": "", "at": at},
	"stock":           {"sku": "A", "title": "", "unit_price": 50, "currency": "CNY", "available": 0, "version": 1, "created_at": at, "updated_at": at},
	"stock_movements": {"sku": "A", "kind": "RESERVE", "ref": "O", "delta": -2, "reason": "", "at": at},
	"payments": {"payment_no": "P", "order_no": "O", "attempt": 1, "gateway": "g", "amount": 100, "currency": "CNY", "status": "INIT",
		"open_slot": 1, "created_at": at, "updated_at": at},
	"refunds": {"refund_no": "R", "payment_no": "P", "order_no": "O", "gateway": "g", "amount": 1, "currency": "CNY", "reason": "CUSTOMER",
		"note": "", "status": "PENDING", "created_at": at, "updated_at": at},
	"idempotency_keys": {"user_id": "u", "idempotency_key": "k", "order_no": "O", "fingerprint": "f", "created_at": at, "expires_at": at},
	"inbox_messages": {"source": "s", "message_id": "m", "payload_hash": "h", "order_no": "O", "kind": "payment", "outcome": "applied",
		"received_at": at},
	"outbox_messages": {"order_no": "O", "seq": 1, "event": "order.created", "payload": "{}", "created_at": at},
}

var succeeded = row{"status": "SUCCEEDED", "open_slot": nil, "received_amount": 100, "received_currency": "CNY"}

// bad lists, for each CHECK, rows that it alone, or it first, must refuse.
var bad = []struct {
	table, check string
	change       row
}{
	{"orders", "ck_orders_status", row{"status": "OPEN"}},
	{"orders", "ck_orders_status", row{"status": "created"}},
	{"orders", "ck_orders_amount", row{"amount": 0}},
	{"orders", "ck_orders_amount", row{"amount": 100_000_000_001}},
	{"orders", "ck_orders_paid", row{"paid_amount": 50, "paid_at": at}},
	{"orders", "ck_orders_paid_at", row{"paid_amount": 100}},
	{"orders", "ck_orders_paid_at", row{"paid_at": at}},
	{"orders", "ck_orders_refunded", row{"refunded_amount": 1}},
	{"orders", "ck_orders_refunded", row{"refunded_amount": 101, "paid_amount": 100, "paid_at": at}},
	{"orders", "ck_orders_refunded", row{"refunded_amount": -1}},
	{"orders", "ck_orders_version", row{"version": 0}},
	{"orders", "ck_orders_version", row{"attempts": -1}},
	{"order_items", "ck_order_items_quantity", row{"quantity": 0, "amount": 0}},
	{"order_items", "ck_order_items_quantity", row{"quantity": 10_000, "amount": 500_000}},
	{"order_items", "ck_order_items_amount", row{"amount": 99}},
	{"order_items", "ck_order_items_amount", row{"unit_price": 0, "amount": 0}},
	{"order_events", "ck_order_events_seq", row{"seq": 0}},
	{"stock", "ck_stock_available", row{"available": -1}},
	{"stock", "ck_stock_price", row{"unit_price": 0}},
	{"stock", "ck_stock_price", row{"unit_price": 10_000_000_001}},
	{"stock", "ck_stock_version", row{"version": 0}},
	{"stock_movements", "ck_stock_movements_kind", row{"kind": "LOST"}},
	{"stock_movements", "ck_stock_movements_delta", row{"delta": 2}},
	{"stock_movements", "ck_stock_movements_delta", row{"kind": "RELEASE"}},
	{"stock_movements", "ck_stock_movements_delta", row{"kind": "RETURN"}},
	{"stock_movements", "ck_stock_movements_delta", row{"kind": "OPENING"}},
	{"payments", "ck_payments_status", row{"status": "PAID", "open_slot": nil}},
	{"payments", "ck_payments_amount", row{"amount": 0}},
	{"payments", "ck_payments_amount", row{"received_amount": -1}},
	{"payments", "ck_payments_open", row{"open_slot": nil}}, // a CHECK that comes out as NULL passes: each case names NULL
	{"payments", "ck_payments_open", row{"open_slot": 2}},
	{"payments", "ck_payments_open", row{"status": "CLOSED"}},
	{"payments", "ck_payments_applied", row{"applied": 1}},
	{"payments", "ck_payments_applied", succeeded.with(row{"applied": 2})},
	{"payments", "ck_payments_received", row{"received_amount": 100}},
	{"payments", "ck_payments_received", succeeded.with(row{"received_amount": 0})},
	{"payments", "ck_payments_refund_held", row{"refund_held": 1}},
	{"payments", "ck_payments_refund_held", succeeded.with(row{"refund_held": 101})},
	{"payments", "ck_payments_refund_held", succeeded.with(row{"refund_held": -1})},
	{"refunds", "ck_refunds_status", row{"status": "INIT"}},
	{"refunds", "ck_refunds_amount", row{"amount": 0}},
	{"refunds", "ck_refunds_reason", row{"reason": "WHIM", "automatic": 1}},
	{"refunds", "ck_refunds_automatic", row{"automatic": 1}},
	{"refunds", "ck_refunds_automatic", row{"reason": "LATE_PAYMENT"}},
	{"refunds", "ck_refunds_automatic", row{"reason": "LATE_PAYMENT", "automatic": 2}},
}

func TestChecks(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		require.NoError(t, d.Migrate(t.Context()))
		tested := map[string]bool{}
		for _, b := range bad {
			err := good[b.table].with(b.change).insertInto(t, d, b.table)
			require.ErrorContains(t, err, b.check, "%v", b.change)
			tested[b.check] = true
		}
		for table, r := range good {
			require.NoError(t, r.insertInto(t, d, table), table)
		}
		if d.Dialect == "mysql" {
			names := slices.Concat(query(t, d, "SELECT constraint_name FROM information_schema.check_constraints WHERE constraint_schema = DATABASE()")...)
			require.ElementsMatch(t, names, slices.Collect(maps.Keys(tested)), "a constraint without a test, or the reverse")
		}
	})
}

// One attempt of an order may be open and one may have paid it; of the closed ones there may be many.
func TestPaymentSlots(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		require.NoError(t, d.Migrate(t.Context()))
		add := func(no string, attempt int, change row) error {
			return good["payments"].with(row{"payment_no": no, "attempt": attempt}).with(change).insertInto(t, d, "payments")
		}
		closed := row{"status": "CLOSED", "open_slot": nil}
		require.NoError(t, add("P1", 1, closed))
		require.NoError(t, add("P2", 2, closed))
		require.NoError(t, add("P3", 3, nil))
		require.True(t, db.IsDuplicate(add("P4", 4, nil)), "a second open attempt")
		require.NoError(t, add("P5", 5, succeeded.with(row{"applied": 1, "transaction_id": "T1"})))
		require.True(t, db.IsDuplicate(add("P6", 6, succeeded.with(row{"applied": 1, "transaction_id": "T2"}))), "a second one that pays")
		require.True(t, db.IsDuplicate(add("P7", 7, succeeded.with(row{"transaction_id": "T1"}))), "one transaction booked twice")
		require.NoError(t, add("P8", 8, succeeded.with(row{"transaction_id": "T2"})))
	})
}

// A gateway's refund is booked once; of those that have no number yet there may be many, and another gateway counts for itself.
func TestRefundIDs(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		require.NoError(t, d.Migrate(t.Context()))
		add := func(no string, change row) error {
			return good["refunds"].with(row{"refund_no": no}).with(change).insertInto(t, d, "refunds")
		}
		require.NoError(t, add("R1", nil))
		require.NoError(t, add("R2", nil))
		require.NoError(t, add("R3", row{"refund_id": "re_1"}))
		require.True(t, db.IsDuplicate(add("R4", row{"refund_id": "re_1"})))
		require.NoError(t, add("R4", row{"refund_id": "RE_1"}), "capitals count")
		require.NoError(t, add("R5", row{"refund_id": "re_1", "gateway": "h"}))
	})
}

// Every column refuses what does not fit: MySQL by its types in strict mode, SQLite by a CHECK on each.
func TestColumnsRefuseWhatDoesNotFit(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		require.NoError(t, d.Migrate(t.Context()))
		var tables map[string]table
		if d.Dialect == "mysql" {
			tables = mysqlSchema(t, d)
		} else {
			tables = sqliteSchema(t, d)
		}
		for name, table := range tables {
			for column, definition := range table.columns {
				refused := func(value any) {
					t.Helper()
					require.Error(t, good[name].with(row{column: value}).insertInto(t, d, name), "%s.%s = %v", name, column, value)
				}
				kind, _, _ := strings.Cut(definition, " ")
				switch n := length(kind); {
				case n > 0:
					refused(strings.Repeat("x", n+1))
				case kind != "text":
					refused("x")
					refused("12abc")
					refused("9223372036854775808") // one more than fits: SQLite would keep it as a rounded REAL
					if d.Dialect == "sqlite" {
						refused(1.5)
					}
				}
				if strings.HasSuffix(definition, "NOT NULL") && column != "id" {
					refused(nil)
				}
			}
		}
	})
}
