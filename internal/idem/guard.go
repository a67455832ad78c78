// Package idem holds the doors through which one request may come twice, and the lock behind them: the server-issued
// token, the Idempotency-Key row, the repeat window and the lock per order. Every door leads to an order_no; what then
// stops the second execution is the database. Redis only saves work and answers politely.
package idem

// Guard names the scheme that first recognised a request as a repeat. It is the value of the response header
// Idempotency-Guard and the label of orderd_duplicates_stopped_total.
type Guard string

const (
	// GuardToken: the server-issued token had been taken before.
	GuardToken Guard = "token"
	// GuardKey: the Idempotency-Key stood for an order already.
	GuardKey Guard = "key"
	// GuardWindow: the same body came from the same user moments ago.
	GuardWindow Guard = "window"
	// GuardLock: a twin was at work on the order and finished it while this request waited for the lock.
	GuardLock Guard = "lock"
	// GuardUniqueIndex: only the unique index on order_no noticed.
	GuardUniqueIndex Guard = "unique-index"
	// GuardState: the order, found by its order_no, was already at or past the state that was asked for.
	GuardState Guard = "state"
	// GuardStatusSQL: the guarded UPDATE (... WHERE status = ...) changed no row: another had changed it first.
	GuardStatusSQL Guard = "status-sql"
	// GuardInbox: the message's id was in the inbox.
	GuardInbox Guard = "inbox"
)
