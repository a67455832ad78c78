package main

import (
	"cmp"
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

// rows writes the very rows that orderd writes for orders that are placed and paid, into orderd's own schema, by the same
// statements in the same transactions: place, the gateway's acceptance, settle. Raw SQL, and none of the reads and checks
// that make it safe to repeat. Its client takes a group of orders through all three, and then the next.
type rows struct {
	*raw
	prefix string
	n      int
	rng    *rand.Rand

	group []bought
	moves []move // of the group, ordered by SKU

	skus            []string // of the moves, each once
	taken, versions []int64  // of the skus
}

// bought is an order of the group under way.
type bought struct {
	no, user, paymentNo string
	lines               []move
	amount              int64
}

// move is a line of an order.
type move struct {
	sku, orderNo string
	quantity     int64
}

func (r *rows) warm(ctx context.Context) error {
	_, err := r.do(ctx)
	return err
}

func (r *rows) do(stop context.Context) (refused int, err error) {
	r.choose()
	if err := r.inTx(stop, r.readStock, r.place); err != nil {
		return 0, err
	}
	ctx := context.WithoutCancel(stop)
	if err := r.accept(ctx); err != nil {
		return 0, err
	}
	return 0, r.inTx(ctx, readNothing, r.settle)
}

// choose makes up the next group, of one or two SKUs each.
func (r *rows) choose() {
	r.moves, r.skus, r.taken = r.moves[:0], r.skus[:0], r.taken[:0]
	for i := range r.group {
		r.n++
		o := &r.group[i]
		o.no = r.prefix + strconv.Itoa(r.n)
		o.paymentNo = "P" + o.no
		o.user = fmt.Sprintf("user-%d", r.rng.IntN(userCount))
		first := r.rng.IntN(skuCount)
		o.lines, o.amount = append(o.lines[:0], move{skuName(first), o.no, 1}), unitPrice
		if r.rng.IntN(2) == 0 {
			o.lines, o.amount = append(o.lines, move{skuName((first + 1 + r.rng.IntN(skuCount-1)) % skuCount), o.no, 2}), 3*unitPrice
		}
		r.moves = append(r.moves, o.lines...)
	}
	slices.SortFunc(r.moves, func(a, b move) int {
		return cmp.Or(strings.Compare(a.sku, b.sku), strings.Compare(a.orderNo, b.orderNo))
	})
	for i, m := range r.moves {
		if i == 0 || m.sku != r.moves[i-1].sku {
			r.skus, r.taken = append(r.skus, m.sku), append(r.taken, 0)
		}
		r.taken[len(r.taken)-1] += m.quantity
	}
}

func (r *rows) readStock(ctx context.Context) error {
	found, err := r.query(ctx, "SELECT version FROM stock WHERE sku IN "+list(len(r.skus))+" ORDER BY sku", anys(r.skus)...)
	if err != nil {
		return err
	}
	defer found.Close()
	r.versions = r.versions[:0]
	for found.Next() {
		var version int64
		if err := found.Scan(&version); err != nil {
			return err
		}
		r.versions = append(r.versions, version)
	}
	return found.Err()
}

// place writes what orderd's transaction "place" writes: the orders as what its three stages have made of them, an event
// and a message for each stage, and the stock last.
func (r *rows) place(ctx context.Context) error {
	now := db.At(time.Now())
	lease := now.Add(4 * time.Second)
	var payments, orders, items, moves []any
	for _, o := range r.group {
		payments = append(payments, o.paymentNo, o.no, o.amount, lease, leaseOwner, lease, now.Time, now.Time)
		orders = append(orders, o.no, o.user, strings.Repeat("f", 64), o.amount, now.Add(24*time.Hour), now.Time, now.Time)
		for _, l := range o.lines {
			items = append(items, o.no, l.sku, "Item "+l.sku, l.quantity, unitPrice, l.quantity*unitPrice)
		}
	}
	for _, m := range r.moves {
		moves = append(moves, m.sku, "RESERVE", m.orderNo, -m.quantity, "", now.Time)
	}
	err := r.insert(ctx, `payments (payment_no, order_no, attempt, gateway, amount, currency, status, open_slot, next_check_at, lease_owner, lease_until,
		created_at, updated_at)`, "(?, ?, 1, 'sandbox', ?, 'CNY', 'INIT', 1, ?, ?, ?, ?, ?)", payments)
	if err != nil {
		return err
	}
	err = r.insert(ctx, `orders (order_no, user_id, status, fingerprint, gateway, currency, amount, attempts, note, cancel_reason, tracking_no, version,
		expires_at, created_at, updated_at)`, "(?, ?, 'PAYING', ?, 'sandbox', 'CNY', ?, 1, '', '', '', 3, ?, ?, ?)", orders)
	if err != nil {
		return err
	}
	if err := r.insert(ctx, "order_items (order_no, sku, title, quantity, unit_price, amount)", "(?, ?, ?, ?, ?, ?)", items); err != nil {
		return err
	}
	err = r.history(ctx, now, event{1, "create", "", "CREATED"}, event{2, "reserve", "CREATED", "RESERVED"}, event{3, "open_payment", "RESERVED", "PAYING"})
	if err != nil {
		return err
	}
	if err := r.insert(ctx, "stock_movements (sku, kind, ref, delta, reason, at)", "(?, ?, ?, ?, ?, ?)", moves); err != nil {
		return err
	}
	which := choice("sku", len(r.skus))
	args := slices.Concat(chosen(r.skus, r.taken), []any{now.Time}, anys(r.skus), chosen(r.skus, r.taken), chosen(r.skus, r.versions))
	return r.exec(ctx, len(r.skus), "UPDATE stock SET available = available - "+which+", version = version + 1, updated_at = ? WHERE sku IN "+
		list(len(r.skus))+" AND available >= "+which+" AND version = "+which, args...)
}

const leaseOwner = "bench-01JDZZZZZZZZZZZZZZZZZZZZZZ" // as long as a process's name in orderd

// accept writes that the gateway has the charges.
func (r *rows) accept(ctx context.Context) error {
	nos, transactions := r.payments()
	pages := make([]string, len(nos))
	for i, no := range nos {
		pages[i] = "http://127.0.0.1:65535/pay/" + no
	}
	which := choice("payment_no", len(nos))
	return r.exec(ctx, len(nos), "UPDATE payments SET status = 'PENDING', transaction_id = NULLIF("+which+", ''), pay_url = "+which+`,
		next_check_at = UTC_TIMESTAMP(6) + INTERVAL 5 SECOND, lease_owner = NULL, lease_until = NULL, updated_at = UTC_TIMESTAMP(6)
		WHERE payment_no IN `+list(len(nos))+" AND status IN ('INIT', 'UNKNOWN')",
		slices.Concat(chosen(nos, transactions), chosen(nos, pages), anys(nos))...)
}

// settle writes what orderd's transaction "settle" writes.
func (r *rows) settle(ctx context.Context) error {
	now := db.At(time.Now())
	var inbox []any
	var orderNos []string
	for _, o := range r.group {
		inbox = append(inbox, "msg-"+o.no, strings.Repeat("h", 64), o.no, now.Time)
		orderNos = append(orderNos, o.no)
	}
	err := r.insert(ctx, "inbox_messages (source, message_id, payload_hash, order_no, kind, outcome, received_at)",
		"('callback:sandbox', ?, ?, ?, 'payment.succeeded', 'applied', ?)", inbox)
	if err != nil {
		return err
	}
	nos, transactions := r.payments()
	err = r.exec(ctx, len(nos), "UPDATE payments SET status = 'SUCCEEDED', transaction_id = "+choice("payment_no", len(nos))+`,
		received_amount = amount, received_currency = currency, open_slot = NULL, applied = 1,
		next_check_at = NULL, lease_owner = NULL, lease_until = NULL, updated_at = ?
		WHERE payment_no IN `+list(len(nos))+" AND status IN ('INIT', 'PENDING', 'UNKNOWN', 'FAILED', 'CLOSED')",
		slices.Concat(chosen(nos, transactions), []any{now.Time}, anys(nos))...)
	if err != nil {
		return err
	}
	err = r.exec(ctx, len(orderNos), `UPDATE orders SET status = 'PAID', paid_amount = amount, paid_at = ?, version = version + 1, updated_at = ?
		WHERE order_no IN `+list(len(orderNos))+" AND status = 'PAYING'", slices.Concat([]any{now.Time, now.Time}, anys(orderNos))...)
	if err != nil {
		return err
	}
	return r.history(ctx, now, event{4, "pay", "PAYING", "PAID"})
}

// payments returns the numbers of the group's payments, and of their transactions.
func (r *rows) payments() (nos, transactions []string) {
	for _, o := range r.group {
		nos, transactions = append(nos, o.paymentNo), append(transactions, "txn_"+o.no)
	}
	return nos, transactions
}

// event happens to each order of the group.
type event struct {
	seq             int64
	event, from, to string
}

// eventData is what a message tells of an event.
type eventData struct {
	OrderNo  string `json:"order_no"`
	UserID   string `json:"user_id"`
	Seq      int64  `json:"seq"`
	Event    string `json:"event"`
	From     string `json:"from"`
	To       string `json:"to"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// history writes events and their messages.
func (r *rows) history(ctx context.Context, now db.Time, happened ...event) error {
	var events, messages []any
	for _, e := range happened {
		for _, o := range r.group {
			m, err := msg.NewMessage(o.no, e.seq, "order."+strings.ToLower(e.to), now, eventData{o.no, o.user, e.seq, e.event, e.from, e.to, o.amount, "CNY"})
			if err != nil {
				return err
			}
			actor, cause, detail := "user:"+o.user, "order_no", ""
			if e.event == "pay" {
				actor, cause, detail = "gateway:sandbox", "callback:sandbox msg-"+o.no, o.paymentNo
			}
			events = append(events, o.no, e.seq, e.event, e.from, e.to, actor, cause, detail, now.Time)
			messages = append(messages, o.no, e.seq, m.Event, m.Payload, now.Time)
		}
	}
	err := r.insert(ctx, "order_events (order_no, seq, event, from_status, to_status, actor, cause, detail, at)", "(?, ?, ?, ?, ?, ?, ?, ?, ?)", events)
	if err != nil {
		return err
	}
	return r.insert(ctx, "outbox_messages (order_no, seq, event, payload, created_at)", "(?, ?, ?, ?, ?)", messages)
}
