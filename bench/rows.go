package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"orderd/internal/db"
	"orderd/internal/msg"
)

// rows writes the very rows that orderd writes for an order that is placed and paid, into orderd's own schema, by the same
// kinds of transactions: place, the gateway's acceptance, settle. One order per transaction, raw and prepared SQL, and
// none of the reads and checks that make it safe to repeat.
type rows struct {
	*raw
	prefix string
	n      int
	rng    *rand.Rand

	no, user, paymentNo string
	lines               []line
	amount              int64
}

type line struct {
	sku      string
	quantity int64
	version  int64
}

func (r *rows) warm(ctx context.Context) error {
	_, err := r.do(ctx)
	return err
}

func (r *rows) do(stop context.Context) (refused int, err error) {
	r.n++
	r.no = r.prefix + strconv.Itoa(r.n)
	r.paymentNo = "P" + r.no
	r.user = fmt.Sprintf("user-%d", r.rng.IntN(userCount))
	r.choose()
	if err := r.inTx(stop, r.readStock, r.place); err != nil {
		return 0, err
	}
	ctx := context.WithoutCancel(stop)
	err = r.exec(ctx, 1, `UPDATE payments SET status = 'PENDING', transaction_id = ?, pay_url = ?, next_check_at = UTC_TIMESTAMP(6) + INTERVAL 5 SECOND,
		lease_owner = NULL, lease_until = NULL, updated_at = UTC_TIMESTAMP(6) WHERE payment_no = ? AND status IN ('INIT', 'UNKNOWN')`,
		r.transaction(), "http://127.0.0.1:65535/pay/"+r.paymentNo, r.paymentNo)
	if err != nil {
		return 0, err
	}
	return 0, r.inTx(ctx, readNothing, r.settle)
}

func (r *rows) choose() {
	first := r.rng.IntN(skuCount)
	r.lines = append(r.lines[:0], line{sku: skuName(first), quantity: 1})
	if r.rng.IntN(2) == 0 {
		r.lines = append(r.lines, line{sku: skuName((first + 1 + r.rng.IntN(skuCount-1)) % skuCount), quantity: 2})
	}
	slices.SortFunc(r.lines, func(a, b line) int { return strings.Compare(a.sku, b.sku) })
	r.amount = 0
	for _, l := range r.lines {
		r.amount += l.quantity * unitPrice
	}
}

func (r *rows) transaction() string { return "txn_" + r.no }

func (r *rows) readStock(ctx context.Context) error {
	for i := range r.lines {
		if err := r.scan(ctx, &r.lines[i].version, readVersion, r.lines[i].sku); err != nil {
			return err
		}
	}
	return nil
}

// place writes what orderd's transaction "place" writes: three stages, each with its event and message, and the stock last.
func (r *rows) place(ctx context.Context) error {
	now := db.At(time.Now())
	err := r.exec(ctx, 1, `INSERT INTO orders (order_no, user_id, status, fingerprint, gateway, currency, amount, note, cancel_reason, tracking_no, version,
		expires_at, created_at, updated_at) VALUES (?, ?, 'CREATED', ?, 'sandbox', 'CNY', ?, '', '', '', 3, ?, ?, ?)`,
		r.no, r.user, strings.Repeat("f", 64), r.amount, now.Add(24*time.Hour), now.Time, now.Time)
	if err != nil {
		return err
	}
	var items, moves []any
	for _, l := range r.lines {
		items = append(items, r.no, l.sku, "Item "+l.sku, l.quantity, unitPrice, l.quantity*unitPrice)
		moves = append(moves, l.sku, "RESERVE", r.no, -l.quantity, "", now.Time)
	}
	if err := r.insert(ctx, "order_items (order_no, sku, title, quantity, unit_price, amount)", 6, items); err != nil {
		return err
	}
	if err := r.exec(ctx, 1, "UPDATE orders SET status = 'RESERVED', updated_at = ? WHERE order_no = ? AND status = 'CREATED'", now.Time, r.no); err != nil {
		return err
	}
	err = r.exec(ctx, 1, `INSERT INTO payments (payment_no, order_no, attempt, gateway, amount, currency, status, open_slot, next_check_at, lease_owner, lease_until,
		created_at, updated_at) VALUES (?, ?, 1, 'sandbox', ?, 'CNY', 'INIT', 1, ?, 'bench', ?, ?, ?)`,
		r.paymentNo, r.no, r.amount, now.Add(4*time.Second), now.Add(4*time.Second), now.Time, now.Time)
	if err != nil {
		return err
	}
	if err := r.exec(ctx, 1, "UPDATE orders SET status = 'PAYING', attempts = 1, updated_at = ? WHERE order_no = ? AND status = 'RESERVED'", now.Time, r.no); err != nil {
		return err
	}
	who := "user:" + r.user
	err = r.history(ctx, now, event{1, "create", "", "CREATED", who, "order_no"}, event{2, "reserve", "CREATED", "RESERVED", who, "order_no"},
		event{3, "open_payment", "RESERVED", "PAYING", who, "order_no"})
	if err != nil {
		return err
	}
	if err := r.insert(ctx, "stock_movements (sku, kind, ref, delta, reason, at)", 6, moves); err != nil {
		return err
	}
	for _, l := range r.lines {
		err := r.exec(ctx, 1, `UPDATE stock SET available = available - ?, version = version + 1, updated_at = ?
			WHERE sku = ? AND version = ? AND available >= ?`, l.quantity, now.Time, l.sku, l.version, l.quantity)
		if err != nil {
			return err
		}
	}
	return nil
}

// settle writes what orderd's transaction "settle" writes.
func (r *rows) settle(ctx context.Context) error {
	now := db.At(time.Now())
	message := "msg-" + r.no
	err := r.exec(ctx, 1, `INSERT INTO inbox_messages (source, message_id, payload_hash, order_no, kind, outcome, received_at)
		VALUES ('callback:sandbox', ?, ?, ?, 'payment.succeeded', 'applied', ?)`, message, strings.Repeat("h", 64), r.no, now.Time)
	if err != nil {
		return err
	}
	err = r.exec(ctx, 1, `UPDATE payments SET status = 'SUCCEEDED', received_amount = amount, received_currency = currency, open_slot = NULL, applied = 1,
		next_check_at = NULL, updated_at = ? WHERE payment_no = ? AND status = 'PENDING'`, now.Time, r.paymentNo)
	if err != nil {
		return err
	}
	err = r.exec(ctx, 1, `UPDATE orders SET status = 'PAID', paid_amount = amount, paid_at = ?, version = version + 1, updated_at = ?
		WHERE order_no = ? AND status = 'PAYING'`, now.Time, now.Time, r.no)
	if err != nil {
		return err
	}
	return r.history(ctx, now, event{4, "pay", "PAYING", "PAID", "gateway:sandbox", "callback:sandbox " + message})
}

// event is one event of an order.
type event struct {
	seq                           int64
	event, from, to, actor, cause string
}

// history writes events and their messages.
func (r *rows) history(ctx context.Context, now db.Time, all ...event) error {
	var events, messages []any
	for _, s := range all {
		m, err := msg.NewMessage(r.no, s.seq, "order."+strings.ToLower(s.to), now, map[string]any{"order_no": r.no, "user_id": r.user, "seq": s.seq,
			"event": s.event, "from": s.from, "to": s.to, "amount": r.amount, "currency": "CNY"})
		if err != nil {
			return err
		}
		events = append(events, r.no, s.seq, s.event, s.from, s.to, s.actor, s.cause, "", now.Time)
		messages = append(messages, r.no, s.seq, m.Event, m.Payload, now.Time)
	}
	err := r.insert(ctx, "order_events (order_no, seq, event, from_status, to_status, actor, cause, detail, at)", 9, events)
	if err != nil {
		return err
	}
	return r.insert(ctx, "outbox_messages (order_no, seq, event, payload, created_at)", 5, messages)
}

// insert writes several rows of the given number of columns by one statement.
func (r *rows) insert(ctx context.Context, into string, columns int, values []any) error {
	n := len(values) / columns
	row := ", (?" + strings.Repeat(", ?", columns-1) + ")"
	return r.exec(ctx, int64(n), "INSERT INTO "+into+" VALUES "+strings.Repeat(row, n)[2:], values...)
}
