package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Orders that are filled in come in twenty kinds, by their number modulo 20; all but the first four are simply PAID.
const (
	kinds         = 20
	kindCancelled = 0
	kindPaying    = 1
	kindCompleted = 2
	kindRefunded  = 3 // in part
)

// history is what happens to each kind; seq counts within the order.
var history = []struct {
	seq, firstKind, lastKind     int
	event, from, to, messageType string
}{
	{1, 0, kinds - 1, "create", "", "CREATED", "order.created"},
	{2, 0, kinds - 1, "reserve", "CREATED", "RESERVED", "order.reserved"},
	{3, 0, kinds - 1, "open_payment", "RESERVED", "PAYING", "order.paying"},
	{4, kindCancelled, kindCancelled, "cancel", "PAYING", "CANCELLED", "order.cancelled"},
	{4, kindCompleted, kinds - 1, "pay", "PAYING", "PAID", "order.paid"},
	{5, kindCompleted, kindCompleted, "ship", "PAID", "SHIPPED", "order.shipped"},
	{6, kindCompleted, kindCompleted, "complete", "SHIPPED", "COMPLETED", "order.completed"},
	{5, kindRefunded, kindRefunded, "refund_opened", "PAID", "PAID", "refund.opened"},
	{6, kindRefunded, kindRefunded, "refund_succeeded", "PAID", "PAID", "refund.succeeded"},
}

// chunk is how many orders one transaction fills in. Twenty in a row, one of each kind, are one user's and of one SKU.
const chunk = 10_000

// fillTo fills orders in until there are total, by bulk SQL, and calls progress after every chunk. It goes on where an
// earlier run was interrupted: the count is kept in the transaction of the orders.
func fillTo(ctx context.Context, pool *sql.DB, total int, progress func(done int)) error {
	if _, err := pool.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS bench_filled (done BIGINT NOT NULL PRIMARY KEY) ENGINE = InnoDB"); err != nil {
		return err
	}
	for {
		done, err := filled(ctx, pool)
		if err != nil || done >= total {
			return err
		}
		if err := fillChunk(ctx, pool, done); err != nil {
			return err
		}
		progress(done + chunk)
	}
}

// filled returns how many orders were filled in.
func filled(ctx context.Context, pool *sql.DB) (done int, err error) {
	return done, pool.QueryRowContext(ctx, "SELECT COALESCE(MAX(done), 0) FROM bench_filled").Scan(&done)
}

func fillChunk(ctx context.Context, pool *sql.DB, done int) error {
	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after COMMIT there is nothing to roll back
	if _, err := tx.ExecContext(ctx, "SET @at = UTC_TIMESTAMP(6) - INTERVAL 1 DAY"); err != nil {
		return err
	}
	for _, statement := range fillStatements(done) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%w in: %s", err, statement)
		}
	}
	return tx.Commit()
}

// fillStatements insert the orders done+1 to done+chunk, with all that belongs to them.
func fillStatements(done int) []string {
	from := fmt.Sprintf(" FROM seq_%d_to_%d q", done+1, done+chunk)
	replace := strings.NewReplacer(
		"{no}", "CONCAT('g', LPAD(q.seq, 11, '0'))", "{kind}", fmt.Sprintf("MOD(q.seq, %d)", kinds), "{price}", fmt.Sprint(unitPrice),
		"{user}", fmt.Sprintf("CONCAT('user-', MOD(q.seq DIV %d, %d))", kinds, userCount), "{sku}", fmt.Sprintf("CONCAT('SKU-', LPAD(MOD(q.seq DIV %d, %d), 4, '0'))", kinds, skuCount),
		"{at}", "@at + INTERVAL MOD(q.seq, 1000000) MICROSECOND", "{paid}", fmt.Sprintf("MOD(q.seq, %d) > %d", kinds, kindPaying),
		"{cancelled}", fmt.Sprint(kindCancelled), "{paying}", fmt.Sprint(kindPaying), "{completed}", fmt.Sprint(kindCompleted),
		"{refunded}", fmt.Sprint(kindRefunded), "{from}", from, "{history}", from+" JOIN ("+historyTable()+") h ON MOD(q.seq, "+fmt.Sprint(kinds)+") BETWEEN h.first AND h.last")
	statements := []string{
		`INSERT INTO orders (order_no, user_id, status, fingerprint, gateway, currency, amount, paid_amount, refunded_amount, attempts, note, cancel_reason, tracking_no, version,
			expires_at, paid_at, created_at, updated_at)
			SELECT {no}, {user}, CASE {kind} WHEN {cancelled} THEN 'CANCELLED' WHEN {paying} THEN 'PAYING' WHEN {completed} THEN 'COMPLETED' ELSE 'PAID' END,
			SHA2(q.seq, 256), 'sandbox', 'CNY', {price}, IF({paid}, {price}, 0), IF({kind} = {refunded}, 100, 0), 1, '', IF({kind} = {cancelled}, 'changed my mind', ''),
			IF({kind} = {completed}, 'TRACK', ''), CASE {kind} WHEN {paying} THEN 3 WHEN {completed} THEN 6 WHEN {refunded} THEN 6 ELSE 4 END,
			{at} + INTERVAL 365 DAY, IF({paid}, {at}, NULL), {at}, {at}{from}`,
		"INSERT INTO order_items SELECT {no}, {sku}, CONCAT('Item ', {sku}), 1, {price}, {price}{from}",
		`INSERT INTO payments (payment_no, order_no, attempt, gateway, transaction_id, amount, currency, received_amount, received_currency, status, open_slot, applied,
			refund_held, next_check_at, created_at, updated_at)
			SELECT CONCAT('P', {no}), {no}, 1, 'sandbox', CONCAT('txn_', {no}), {price}, 'CNY', IF({paid}, {price}, 0), IF({paid}, 'CNY', ''),
			CASE {kind} WHEN {cancelled} THEN 'CLOSED' WHEN {paying} THEN 'PENDING' ELSE 'SUCCEEDED' END, IF({kind} = {paying}, 1, NULL), IF({paid}, 1, NULL),
			IF({kind} = {refunded}, 100, 0), IF({kind} = {paying}, {at} + INTERVAL 365 DAY, NULL), {at}, {at}{from}`,
		`INSERT INTO refunds (refund_no, payment_no, order_no, gateway, amount, currency, reason, note, status, refund_id, created_at, updated_at)
			SELECT CONCAT('R', {no}), CONCAT('P', {no}), {no}, 'sandbox', 100, 'CNY', 'CUSTOMER', '', 'SUCCEEDED', CONCAT('re_', {no}), {at}, {at}{from} WHERE {kind} = {refunded}`,
		`INSERT INTO order_events SELECT {no}, h.seq, h.event, h.from_status, h.to_status, CONCAT('user:', {user}),
			IF(h.event = 'pay', CONCAT('callback:sandbox msg-', {no}), 'order_no'), '', {at}{history}`,
		`INSERT INTO outbox_messages (order_no, seq, event, payload, created_at, published_at)
			SELECT {no}, h.seq, h.type, CONCAT('{"specversion":"1.0","id":"', {no}, '-', h.seq, '","source":"/orderd","type":"', h.type,
			'","subject":"', {no}, '","datacontenttype":"application/json","data":{"order_no":"', {no}, '","event":"', h.event, '","amount":{price},"currency":"CNY"}}'),
			{at}, {at}{history}`,
		`INSERT INTO inbox_messages (source, message_id, payload_hash, order_no, kind, outcome, received_at)
			SELECT 'callback:sandbox', CONCAT('msg-', {no}), SHA2(q.seq, 256), {no}, 'payment.succeeded', 'applied', {at}{from} WHERE {paid}`,
		`INSERT INTO idempotency_keys SELECT {user}, CONCAT('key-', {no}), {no}, SHA2(q.seq, 256), {at}, {at} + INTERVAL 1 DAY{from} WHERE MOD(q.seq, 5) = 0`,
		"INSERT INTO stock_movements SELECT {sku}, 'RESERVE', {no}, -1, '', {at}{from}",
		"INSERT INTO stock_movements SELECT {sku}, 'RELEASE', {no}, 1, '', {at}{from} WHERE {kind} = {cancelled}",
		`UPDATE stock s JOIN (SELECT {sku} AS sku, SUM(IF({kind} = {cancelled}, 0, 1)) AS taken{from} GROUP BY 1) t ON t.sku = s.sku
			SET s.available = s.available - t.taken, s.version = s.version + 1`,
		fmt.Sprintf("INSERT INTO bench_filled VALUES (%d)", done+chunk),
	}
	for i := range statements {
		statements[i] = replace.Replace(statements[i])
	}
	return statements
}

// historyTable is history as a derived table.
func historyTable() string {
	rows := make([]string, len(history))
	for i, h := range history {
		rows[i] = fmt.Sprintf("SELECT %d AS seq, %d AS first, %d AS last, '%s' AS event, '%s' AS from_status, '%s' AS to_status, '%s' AS type",
			h.seq, h.firstKind, h.lastKind, h.event, h.from, h.to, h.messageType)
	}
	return strings.Join(rows, " UNION ALL ")
}
