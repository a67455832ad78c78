package audit

import (
	"orderd/internal/db"
	"orderd/internal/order"
)

// Checks returns the invariants. Messages of events since keptSince must still be there.
func Checks(keptSince db.Time) []Check {
	edges, edgeArgs := legalEdges()
	// An order that was reserved once: it is past CREATED, or was cancelled after that.
	const reserved = "EXISTS (SELECT 1 FROM order_events e WHERE e.order_no = o.order_no AND e.event = 'reserve')"
	return []Check{
		{Name: "one_order_per_number", Says: "there is one order per order_no",
			Query: "SELECT order_no, COUNT(*) AS n FROM orders GROUP BY order_no HAVING COUNT(*) > 1"},
		{Name: "amount_is_sum_of_lines", Says: "an order's amount is the sum of its lines",
			Query: `SELECT o.order_no, o.amount, COALESCE(SUM(i.amount), 0) AS of_lines FROM orders o LEFT JOIN order_items i ON i.order_no = o.order_no
				GROUP BY o.order_no, o.amount HAVING o.amount <> COALESCE(SUM(i.amount), 0)`},

		{Name: "stock_adds_up", Says: "available is the sum of the movements",
			Query: `SELECT s.sku, s.available, COALESCE(SUM(m.delta), 0) AS of_movements FROM stock s LEFT JOIN stock_movements m ON m.sku = s.sku
				GROUP BY s.sku, s.available HAVING s.available <> COALESCE(SUM(m.delta), 0)`},
		{Name: "stock_not_negative", Says: "nothing is oversold",
			Query: "SELECT sku, available FROM stock WHERE available < 0"},
		{Name: "line_reserved_once", Says: "each line of an order past CREATED is reserved, with its quantity",
			Query: `SELECT o.order_no, i.sku, i.quantity, m.delta FROM orders o JOIN order_items i ON i.order_no = o.order_no
				LEFT JOIN stock_movements m ON m.sku = i.sku AND m.kind = 'RESERVE' AND m.ref = o.order_no
				WHERE ` + reserved + ` AND (m.delta IS NULL OR m.delta <> -i.quantity)`},
		{Name: "line_released_iff_cancelled", Says: "a reserved line is given back if and only if its order was cancelled",
			Query: `SELECT o.order_no, o.status, i.sku, i.quantity, m.delta FROM orders o JOIN order_items i ON i.order_no = o.order_no
				LEFT JOIN stock_movements m ON m.sku = i.sku AND m.kind = 'RELEASE' AND m.ref = o.order_no
				WHERE (o.status = 'CANCELLED' AND ` + reserved + ` AND (m.delta IS NULL OR m.delta <> i.quantity))
				OR (m.delta IS NOT NULL AND (o.status <> 'CANCELLED' OR NOT ` + reserved + `))`},
		{Name: "movement_has_its_line", Says: "only stock that exists moves, for an order's lines only, and it comes back with their quantity",
			Query: `SELECT m.ref, m.sku, m.kind, m.delta FROM stock_movements m LEFT JOIN stock s ON s.sku = m.sku
				LEFT JOIN order_items i ON i.order_no = m.ref AND i.sku = m.sku
				LEFT JOIN order_events e ON e.order_no = m.ref AND e.event = 'reserve'
				WHERE s.sku IS NULL OR (m.kind IN ('RESERVE', 'RELEASE', 'RETURN') AND (i.sku IS NULL OR e.seq IS NULL))
				OR (m.kind = 'RETURN' AND m.delta <> i.quantity)`},
		{Name: "line_returned_iff_restocked", Says: "a line comes back if and only if all of its order's money went back, with a refund that says so",
			Query: `SELECT i.order_no, i.sku, m.delta, r.refund_no FROM order_items i JOIN orders o ON o.order_no = i.order_no
				LEFT JOIN stock_movements m ON m.sku = i.sku AND m.kind = 'RETURN' AND m.ref = i.order_no
				LEFT JOIN refunds r ON r.order_no = i.order_no AND r.restock = 1 AND r.status = 'SUCCEEDED'
				WHERE (m.delta IS NULL) <> (r.refund_no IS NULL OR o.status <> 'REFUNDED')`},

		{Name: "history_has_no_gap", Says: "the events are numbered 1 to version",
			Query: `SELECT o.order_no, o.version, COUNT(e.seq) AS events, MAX(e.seq) AS last_seq FROM orders o LEFT JOIN order_events e ON e.order_no = o.order_no
				GROUP BY o.order_no, o.version HAVING COUNT(e.seq) <> o.version OR COALESCE(MAX(e.seq), 0) <> o.version`},
		{Name: "history_starts_at_create", Says: "event 1 creates the order",
			Query: "SELECT order_no, seq, event FROM order_events WHERE (seq = 1) <> (event = 'create')"},
		{Name: "history_is_legal", Says: "every event is an edge of the state machine, or a money event that leaves the status",
			Query: "SELECT order_no, seq, event, from_status, to_status FROM order_events WHERE NOT (" + edges +
				" OR (event IN ? AND from_status = to_status))",
			Args: append(edgeArgs, order.MoneyEvents)},
		{Name: "history_is_a_chain", Says: "each event starts where the one before it ended",
			Query: `SELECT b.order_no, b.seq, a.to_status, b.from_status FROM order_events b JOIN order_events a ON a.order_no = b.order_no AND a.seq = b.seq - 1
				WHERE a.to_status <> b.from_status`},
		{Name: "status_is_of_last_event", Says: "an order's status is where its last event led",
			Query: `SELECT o.order_no, o.status, e.to_status FROM orders o JOIN order_events e ON e.order_no = o.order_no AND e.seq = o.version
				WHERE o.status <> e.to_status`},
		{Name: "event_has_its_order", Says: "there is no history without its order",
			Query: "SELECT e.order_no, e.seq FROM order_events e LEFT JOIN orders o ON o.order_no = e.order_no WHERE o.order_no IS NULL"},

		{Name: "paid_by_one_payment", Says: "a paid order has one applied payment of its amount and currency, an unpaid one none",
			Query: `SELECT o.order_no, o.status, o.paid_amount, COUNT(p.payment_no) AS applied FROM orders o
				LEFT JOIN payments p ON p.order_no = o.order_no AND p.applied = 1 AND p.status = 'SUCCEEDED'
				AND p.received_amount = o.amount AND p.received_currency = o.currency
				GROUP BY o.order_no, o.status, o.paid_amount
				HAVING COUNT(p.payment_no) <> CASE WHEN o.status IN ('PAID', 'SHIPPED', 'COMPLETED', 'REFUNDED') THEN 1 ELSE 0 END
				OR (o.paid_amount > 0) <> (o.status IN ('PAID', 'SHIPPED', 'COMPLETED', 'REFUNDED'))`},
		{Name: "applied_matches", Says: "no payment is applied to an order whose amount or currency it does not have",
			Query: `SELECT p.payment_no, p.received_amount, p.received_currency, o.amount, o.currency FROM payments p LEFT JOIN orders o ON o.order_no = p.order_no
				WHERE p.applied = 1 AND (o.order_no IS NULL OR p.received_amount <> o.amount OR p.received_currency <> o.currency)`},

		{Name: "money_is_applied_or_refunded", Says: "every succeeded payment pays its order, or all of it goes back",
			Query: `SELECT p.payment_no, p.received_amount, r.amount AS refund FROM payments p LEFT JOIN refunds r ON r.payment_no = p.payment_no AND r.automatic = 1
				WHERE p.status = 'SUCCEEDED' AND ((p.applied IS NULL AND (r.amount IS NULL OR r.amount <> p.received_amount OR r.currency <> p.received_currency))
				OR (p.applied = 1 AND r.amount IS NOT NULL))`},
		{Name: "refunds_are_held", Says: "what is promised back is held, and never more than came in",
			Query: `SELECT p.payment_no, p.received_amount, p.refund_held, COALESCE(SUM(r.amount), 0) AS refunds FROM payments p
				LEFT JOIN refunds r ON r.payment_no = p.payment_no AND (r.automatic = 1 OR r.status <> 'FAILED')
				GROUP BY p.payment_no, p.received_amount, p.refund_held
				HAVING p.refund_held <> COALESCE(SUM(r.amount), 0) OR p.refund_held > p.received_amount`},
		{Name: "refund_is_of_its_payment", Says: "a refund goes back by the payment of its order, at its gateway, in the currency that came in",
			Query: `SELECT r.refund_no, r.order_no, r.payment_no, r.currency FROM refunds r LEFT JOIN payments p ON p.payment_no = r.payment_no
				WHERE p.payment_no IS NULL OR p.order_no <> r.order_no OR p.received_currency <> r.currency OR p.gateway <> r.gateway`},
		{Name: "refunded_amount_adds_up", Says: "refunded_amount is the sum of the succeeded customer refunds, and all of it means REFUNDED",
			Query: `SELECT o.order_no, o.status, o.refunded_amount, COALESCE(SUM(r.amount), 0) AS refunds FROM orders o
				LEFT JOIN refunds r ON r.order_no = o.order_no AND r.automatic IS NULL AND r.status = 'SUCCEEDED'
				GROUP BY o.order_no, o.status, o.refunded_amount, o.paid_amount
				HAVING o.refunded_amount <> COALESCE(SUM(r.amount), 0)
				OR (o.status = 'REFUNDED') <> (o.paid_amount > 0 AND o.refunded_amount = o.paid_amount)`},

		{Name: "transaction_booked_once", Says: "a gateway's transaction is booked once",
			Query: `SELECT transaction_id, gateway, COUNT(*) AS n FROM payments WHERE transaction_id IS NOT NULL
				GROUP BY gateway, transaction_id HAVING COUNT(*) > 1`},
		{Name: "refund_booked_once", Says: "a gateway's refund is booked once",
			Query: `SELECT refund_id, gateway, COUNT(*) AS n FROM refunds WHERE refund_id IS NOT NULL
				GROUP BY gateway, refund_id HAVING COUNT(*) > 1`},
		{Name: "one_open_attempt", Says: "an order has at most one open attempt",
			Query: `SELECT order_no, COUNT(*) AS n FROM payments WHERE status IN ('INIT', 'PENDING', 'UNKNOWN') GROUP BY order_no HAVING COUNT(*) > 1`},
		{Name: "attempts_are_counted", Says: "an order's attempts are numbered 1 to attempts",
			Query: `SELECT o.order_no, o.attempts, COUNT(p.payment_no) AS payments FROM orders o LEFT JOIN payments p ON p.order_no = o.order_no
				GROUP BY o.order_no, o.attempts HAVING COUNT(p.payment_no) <> o.attempts OR COALESCE(MAX(p.attempt), 0) <> o.attempts`},

		{Name: "key_has_its_order", Says: "an idempotency key stands for an order of its user, with the fingerprint of its request",
			Query: `SELECT k.user_id, k.idempotency_key, k.order_no FROM idempotency_keys k LEFT JOIN orders o ON o.order_no = k.order_no
				WHERE o.order_no IS NULL OR o.user_id <> k.user_id OR o.fingerprint <> k.fingerprint`},

		{Name: "event_has_its_message", Says: "every event has its message",
			Query: `SELECT e.order_no, e.seq, e.event FROM order_events e LEFT JOIN outbox_messages m ON m.order_no = e.order_no AND m.seq = e.seq
				WHERE e.at > ? AND m.seq IS NULL`, Args: []any{keptSince}},
		{Name: "message_has_its_event", Says: "every message tells of an event",
			Query: `SELECT m.order_no, m.seq FROM outbox_messages m LEFT JOIN order_events e ON e.order_no = m.order_no AND e.seq = m.seq WHERE e.seq IS NULL`},
		{Name: "messages_go_out_in_order", Says: "a message is not published before the one before it",
			Query: `SELECT b.order_no, b.seq FROM outbox_messages b JOIN outbox_messages a ON a.order_no = b.order_no AND a.seq = b.seq - 1
				WHERE b.published_at IS NOT NULL AND a.published_at IS NULL`},
		{Name: "received_had_its_effect", Says: "what the inbox says was applied has its event",
			Query: `SELECT i.message_id, i.source, i.order_no, i.outcome FROM inbox_messages i
				LEFT JOIN order_events e ON e.order_no = i.order_no AND e.cause = CONCAT(i.source, ' ', i.message_id)
				WHERE i.outcome IN ('applied', 'refund_opened') AND e.seq IS NULL`},
	}
}
