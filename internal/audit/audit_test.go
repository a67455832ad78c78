package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/audit"
	"orderd/internal/db"
	"orderd/internal/payment"
)

var tables = []string{"orders", "order_items", "order_events", "stock", "stock_movements", "payments", "refunds", "idempotency_keys",
	"inbox_messages", "outbox_messages"}

// A violation breaks one check. Each ? in its statements stands for a time of last year.
type violation struct {
	check string
	row   string   // what the report names
	sql   []string // makes it
	also  []string // checks that see the same row from another side
}

var violations = []violation{
	{"one_order_per_number", "order_no=order-dropped", []string{"INSERT INTO orders SELECT * FROM kept_orders WHERE order_no = 'order-dropped'"},
		[]string{"amount_is_sum_of_lines", "history_has_no_gap"}},
	{"amount_is_sum_of_lines", "order_no=order-paying amount=401 of_lines=400", []string{"UPDATE orders SET amount = amount + 1 WHERE order_no = 'order-paying'"}, nil},
	{"amount_is_sum_of_lines", "order_no=order-dropped", []string{"DELETE FROM order_items WHERE order_no = 'order-dropped'"}, nil},

	{"stock_adds_up", "sku=TEA", []string{"UPDATE stock SET available = available + 1 WHERE sku = 'TEA'"}, nil},
	{"stock_not_negative", "sku=RARE available=-1", []string{move("RARE", "ADJUST", "adjust-2", -2)}, nil},
	{"line_reserved_once", "order_no=order-paying sku=TEA", []string{
		"DELETE FROM stock_movements WHERE kind = 'RESERVE' AND ref = 'order-paying' AND sku = 'TEA'"}, nil},
	{"line_reserved_once", "order_no=order-refunded sku=CUP quantity=2 delta=-1", []string{
		"UPDATE stock_movements SET delta = -1 WHERE kind = 'RESERVE' AND ref = 'order-refunded' AND sku = 'CUP'"}, nil},
	{"line_released_iff_cancelled", "order_no=order-cancelled", []string{"DELETE FROM stock_movements WHERE kind = 'RELEASE' AND ref = 'order-cancelled'"}, nil},
	{"line_released_iff_cancelled", "order_no=order-late", []string{"UPDATE stock_movements SET delta = 1 WHERE kind = 'RELEASE' AND ref = 'order-late'"}, nil},
	{"line_released_iff_cancelled", "order_no=order-paid", []string{move("TEA", "RELEASE", "order-paid", 2)}, nil},
	{"line_released_iff_cancelled", "order_no=order-dropped", []string{move("TEA", "RELEASE", "order-dropped", 2)}, []string{"movement_has_its_line"}},
	{"movement_has_its_line", "ref=nobody", []string{move("TEA", "RESERVE", "nobody", -1)}, nil},
	{"movement_has_its_line", "ref=order-refused", []string{move("TEA", "RESERVE", "order-refused", -2)}, nil},
	{"movement_has_its_line", "ref=order-shipped sku=TEA kind=RETURN delta=3", []string{move("TEA", "RETURN", "order-shipped", 3)}, []string{"line_returned_iff_restocked"}},
	{"movement_has_its_line", "sku=GHOST", []string{"INSERT INTO stock_movements (sku, kind, ref, delta, reason, at) VALUES ('GHOST', 'ADJUST', 'adjust-3', 1, '', ?)"}, nil},
	{"line_returned_iff_restocked", "order_no=order-shipped sku=TEA", []string{move("TEA", "RETURN", "order-shipped", 2)}, nil},
	{"line_returned_iff_restocked", "order_no=order-refunded sku=CUP", []string{"DELETE FROM stock_movements WHERE kind = 'RETURN' AND ref = 'order-refunded' AND sku = 'CUP'"}, nil},
	{"line_returned_iff_restocked", "order_no=order-returned sku=TEA", []string{"UPDATE refunds SET restock = 0 WHERE order_no = 'order-returned'"}, nil},

	{"history_has_no_gap", "order_no=order-paying version=4 events=3", []string{"UPDATE orders SET version = 4 WHERE order_no = 'order-paying'"}, nil},
	{"history_has_no_gap", "order_no=order-paying", []string{"DELETE FROM order_events WHERE order_no = 'order-paying' AND seq = 2"},
		[]string{"message_has_its_event", "movement_has_its_line"}},
	{"history_starts_at_create", "order_no=order-refused seq=1", []string{
		"UPDATE order_events SET event = 'attempt_opened', from_status = 'CREATED' WHERE order_no = 'order-refused'"}, nil},
	{"history_is_legal", "order_no=order-paid seq=4 event=ship", []string{"UPDATE order_events SET event = 'ship' WHERE order_no = 'order-paid' AND event = 'pay'"}, nil},
	{"history_is_legal", "event=late_payment", []string{"UPDATE order_events SET event = 'late_payment' WHERE order_no = 'order-paid' AND event = 'pay'"}, nil},
	{"history_is_a_chain", "order_no=order-cancelled seq=4", []string{
		"UPDATE order_events SET from_status = 'RESERVED' WHERE order_no = 'order-cancelled' AND event = 'cancel'"}, nil},
	{"status_is_of_last_event", "order_no=order-paying status=RESERVED to_status=PAYING", []string{"UPDATE orders SET status = 'RESERVED' WHERE order_no = 'order-paying'"}, nil},
	{"event_has_its_order", "order_no=nobody", []string{"INSERT INTO order_events (order_no, seq, event, from_status, to_status, actor, cause, detail, at) " +
		"VALUES ('nobody', 1, 'create', '', 'CREATED', '', '', '', ?)"}, nil},

	{"paid_by_one_payment", "order_no=order-paying", []string{"UPDATE orders SET paid_amount = amount WHERE order_no = 'order-paying'"}, nil},
	{"paid_by_one_payment", "order_no=order-paid", []string{"UPDATE payments SET applied = NULL WHERE order_no = 'order-paid'"}, []string{"money_is_applied_or_refunded"}},
	{"paid_by_one_payment", "applied=2", []string{"UPDATE payments SET applied = 1, refund_held = 0 WHERE order_no = 'order-twice'",
		"DELETE FROM refunds WHERE order_no = 'order-twice'"}, nil},
	{"applied_matches", "received_amount=401", []string{"UPDATE payments SET received_amount = 401 WHERE order_no = 'order-paid'"}, []string{"paid_by_one_payment"}},
	{"applied_matches", "received_currency=JPY", []string{"UPDATE payments SET received_currency = 'JPY' WHERE order_no = 'order-paid'"}, []string{"paid_by_one_payment"}},

	{"money_is_applied_or_refunded", "received_amount=400", []string{"UPDATE payments SET refund_held = 0 WHERE order_no = 'order-late'",
		"DELETE FROM refunds WHERE order_no = 'order-late'"}, nil},
	{"money_is_applied_or_refunded", "refund=398", []string{"UPDATE payments SET refund_held = 398 WHERE order_no = 'order-odd' AND refund_held > 0",
		"UPDATE refunds SET amount = 398 WHERE order_no = 'order-odd'"}, nil},
	{"refunds_are_held", "refund_held=1 refunds=0", []string{"UPDATE payments SET refund_held = 1 WHERE order_no = 'order-paid'"}, nil},
	{"refunds_are_held", "received_amount=200 refund_held=400", []string{"UPDATE payments SET received_amount = 200 WHERE order_no = 'order-refunded'"},
		[]string{"paid_by_one_payment", "applied_matches"}},
	{"refund_is_of_its_payment", "refund_no=refund-1", []string{"UPDATE refunds SET currency = 'JPY' WHERE refund_no = 'refund-1'"}, nil},
	{"refund_is_of_its_payment", "order_no=order-paid", []string{"UPDATE refunds SET order_no = 'order-paid' WHERE order_no = 'order-late'"}, nil},
	{"refund_is_of_its_payment", "refund_no=refund-1", []string{"UPDATE refunds SET gateway = 'stripe' WHERE refund_no = 'refund-1'"}, nil},
	{"refund_is_of_its_payment", "payment_no=nothing", []string{"UPDATE refunds SET payment_no = 'nothing', status = 'FAILED' WHERE refund_no = 'refund-1'"},
		[]string{"refunds_are_held", "refunded_amount_adds_up"}},
	{"refunded_amount_adds_up", "order_no=order-paid status=PAID refunded_amount=1 refunds=0", []string{"UPDATE orders SET refunded_amount = 1 WHERE order_no = 'order-paid'"}, nil},
	{"refunded_amount_adds_up", "order_no=order-refunded", []string{"UPDATE orders SET status = 'PAID' WHERE order_no = 'order-refunded'"},
		[]string{"status_is_of_last_event", "line_returned_iff_restocked"}},

	{"transaction_booked_once", "transaction_id=same", []string{"UPDATE payments SET transaction_id = 'same' WHERE order_no IN ('order-paid', 'order-paying')"}, nil},
	{"refund_booked_once", "refund_id=same n=2", []string{"UPDATE refunds SET refund_id = 'same' WHERE refund_no IN ('refund-1', 'refund-3')"}, nil},
	{"one_open_attempt", "order_no=order-second n=2", []string{"UPDATE payments SET status = 'UNKNOWN' WHERE order_no = 'order-second' AND attempt = 1"}, nil},
	{"attempts_are_counted", "order_no=order-paying attempts=2 payments=1", []string{"UPDATE orders SET attempts = 2 WHERE order_no = 'order-paying'"}, nil},
	{"attempts_are_counted", "order_no=order-second", []string{"UPDATE payments SET attempt = 3 WHERE order_no = 'order-second' AND attempt = 2"}, nil},

	{"key_has_its_order", "idempotency_key=key-of-order-paid", []string{"UPDATE idempotency_keys SET order_no = 'nobody' WHERE order_no = 'order-paid'"}, nil},
	{"key_has_its_order", "user_id=u2", []string{"UPDATE idempotency_keys SET user_id = 'u2' WHERE order_no = 'order-paid'"}, nil},

	{"event_has_its_message", "order_no=order-paying seq=2", []string{"DELETE FROM outbox_messages WHERE order_no = 'order-paying' AND seq = 2"}, nil},
	{"message_has_its_event", "order_no=order-paying seq=9", []string{"INSERT INTO outbox_messages (id, order_no, seq, event, payload, created_at, attempts) " +
		"VALUES (9999, 'order-paying', 9, 'order.paid', '{}', ?, 0)"}, nil},
	{"messages_go_out_in_order", "order_no=order-paying seq=2", []string{"UPDATE outbox_messages SET published_at = ? WHERE order_no = 'order-paying' AND seq = 2"}, nil},
	{"received_had_its_effect", "order_no=order-paid outcome=applied", []string{"UPDATE order_events SET cause = '' WHERE order_no = 'order-paid' AND event = 'pay'"}, nil},
	{"received_had_its_effect", "outcome=refund_opened", []string{"UPDATE inbox_messages SET message_id = 'other' WHERE order_no = 'order-late'"}, nil},
}

// move forms a movement of stock.
func move(sku, kind, ref string, delta int) string {
	return fmt.Sprintf("INSERT INTO stock_movements (sku, kind, ref, delta, reason, at) VALUES ('%s', '%s', '%s', %d, '', ?)", sku, kind, ref, delta)
}

func TestEveryCheckFindsItsViolation(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		fill(t, s)
		require.Empty(t, s.audit(t), "healthy books")
		looseConstraints(t, s.db)
		require.Empty(t, s.audit(t), "healthy books without constraints")

		uncovered := map[string]bool{}
		for _, c := range audit.Checks(db.Time{}) {
			require.False(t, uncovered[c.Name], "%s is there twice", c.Name)
			require.NotEmpty(t, c.Says)
			uncovered[c.Name] = true
		}
		for _, v := range violations {
			exec(t, s.db, v.sql...)
			// Where stock was moved by hand, available follows, so that only the movement is wrong.
			if strings.Contains(strings.Join(v.sql, " "), "stock_movements") {
				exec(t, s.db, "UPDATE stock SET available = (SELECT SUM(delta) FROM stock_movements m WHERE m.sku = stock.sku)")
			}
			var fired []string
			named := false
			for _, found := range s.audit(t) {
				fired = append(fired, found.Check)
				named = named || found.Check == v.check && containsAll(found.Row, v.row)
			}
			require.True(t, named, "%s names no row with %q after %s; fired: %v", v.check, v.row, v.sql, s.audit(t))
			slices.Sort(fired)
			expected := slices.Sorted(slices.Values(append([]string{v.check}, v.also...)))
			require.Equal(t, expected, slices.Compact(fired), "%s, after %s", v.check, v.sql)
			delete(uncovered, v.check)
			restore(t, s.db)
		}
		require.Empty(t, uncovered, "checks that nothing here violates")
		require.Empty(t, s.audit(t), "healthy books again")
	})
}

// Violations are reported up to a limit: the first rows tell what is wrong.
func TestReportIsBounded(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		looseConstraints(t, s.db)
		for i := range 25 {
			exec(t, s.db, move("GHOST", "RESERVE", fmt.Sprint("order-", i), -1))
		}
		require.Len(t, s.audit(t), 20)
	})
}

// Messages of events older than the keeping time may be pruned.
func TestPrunedMessagesAreNotMissed(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.sku(t, "TEA", 10)
		s.sku(t, "CUP", 10)
		s.paying(t, "order-old")
		exec(t, s.db, "UPDATE order_events SET at = ?", "DELETE FROM outbox_messages")
		require.Empty(t, s.audit(t))
		found, err := audit.Run(t.Context(), s.db, 10*365*24*time.Hour)
		require.NoError(t, err)
		require.Len(t, found, 3)
	})
}

// An audit looks at one instant: what is under way meanwhile is never taken for a fault.
func TestNoFalseAlarmWhileOrdersAreMoving(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.sku(t, "TEA", 100_000)
		s.sku(t, "CUP", 100_000)
		stop := make(chan struct{})
		var writers sync.WaitGroup
		var placed [3]atomic.Int64
		for w := range placed {
			writers.Go(func() {
				for ; ; placed[w].Add(1) {
					select {
					case <-stop:
						return
					default:
					}
					o, err := s.place(t, fmt.Sprintf("order-%d-%d", w, placed[w].Load()), "TEA", "CUP")
					if err != nil {
						t.Errorf("place: %v", err)
						return
					}
					if w == 0 {
						_, err = s.orders.Cancel(t.Context(), buyer, o.OrderNo, "")
					} else {
						_, err = s.orders.Settle(t.Context(), payment.Notice{Source: "callback:sandbox", Gateway: "sandbox", MessageID: o.OrderNo,
							Kind: payment.PaymentSucceeded, PaymentNo: o.Payment.PaymentNo, TransactionID: *o.Payment.TransactionID, Amount: o.Amount, Currency: o.Currency})
					}
					if err != nil {
						t.Errorf("move on: %v", err)
						return
					}
				}
			})
		}
		idle := func() bool { return placed[0].Load() == 0 || placed[1].Load() == 0 || placed[2].Load() == 0 }
		for n := 0; n < 15 || idle() && !t.Failed(); n++ {
			if found := s.audit(t); len(found) > 0 {
				t.Errorf("false alarm: %v", found)
				break
			}
		}
		close(stop)
		writers.Wait()
		require.Empty(t, s.audit(t))
	})
}

// looseConstraints replaces every table by a copy without keys and checks: the schema forbids most violations. The
// originals stay, as kept_*.
func looseConstraints(t *testing.T, d *db.DB) {
	t.Helper()
	for _, table := range tables {
		exec(t, d, "ALTER TABLE "+table+" RENAME TO kept_"+table, "CREATE TABLE "+table+" AS SELECT * FROM kept_"+table)
	}
}

func restore(t *testing.T, d *db.DB) {
	t.Helper()
	require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
		for _, table := range tables {
			for _, statement := range []string{"DELETE FROM " + table, "INSERT INTO " + table + " SELECT * FROM kept_" + table} {
				if err := tx.Exec(statement).Error; err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

func exec(t *testing.T, d *db.DB, statements ...string) {
	t.Helper()
	lastYear := db.At(time.Now().AddDate(-1, 0, 0))
	for _, statement := range statements {
		args := make([]any, strings.Count(statement, "?"))
		for i := range args {
			args[i] = lastYear
		}
		_, err := d.Exec(t.Context(), "test", statement, args...)
		require.NoError(t, err, statement)
	}
}

func containsAll(row, parts string) bool {
	for part := range strings.FieldsSeq(parts) {
		if !slices.Contains(strings.Fields(row), part) {
			return false
		}
	}
	return true
}
