package order

import (
	"errors"
	"maps"
	"slices"

	"orderd/internal/batch"
	"orderd/internal/db"
	"orderd/internal/fsm"
	"orderd/internal/msg"
	"orderd/internal/stock"
)

// Money events: they change the order's money, not its status.
const (
	attemptOpened    = "attempt_opened"
	attemptFailed    = "attempt_failed"
	attemptClosed    = "attempt_closed"
	latePayment      = "late_payment"
	duplicatePayment = "duplicate_payment"
	amountMismatch   = "amount_mismatch"
	refundOpened     = "refund_opened"
	refundSucceeded  = "refund_succeeded"
	refundFailed     = "refund_failed"
)

// moneyMessages are the types of their messages. Those of a status change are order.created, order.reserved,
// order.paying, order.paid, order.shipped, order.completed, order.cancelled and order.refunded.
var moneyMessages = map[string]string{
	attemptOpened: "payment.opened", attemptFailed: "payment.failed", attemptClosed: "payment.closed",
	latePayment: "payment.late", duplicatePayment: "payment.duplicate", amountMismatch: "payment.mismatch",
	refundOpened: "refund.opened", refundSucceeded: "refund.succeeded", refundFailed: "refund.failed",
}

// event is one row of an order's history. Seq is the order's version after it: unique, so that of two transactions that
// both read version n only one can write event n+1.
type event struct {
	OrderNo    string
	Seq        int64
	Event      string
	FromStatus fsm.State
	ToStatus   fsm.State
	Actor      string // who: user:u1, admin:root, gateway:sandbox, sweeper
	Cause      string // what made it happen: the message, the request
	Detail     string
	At         db.Time
}

// TableName implements gorm's Tabler.
func (event) TableName() string { return "order_events" }

// eventData is what a message tells of an event.
type eventData struct {
	OrderNo  string    `json:"order_no"`
	UserID   string    `json:"user_id"`
	Seq      int64     `json:"seq"`
	Event    string    `json:"event"`
	From     fsm.State `json:"from"`
	To       fsm.State `json:"to"`
	Amount   int64     `json:"amount"`
	Currency string    `json:"currency"`
}

// cause says who changes an order and why. received is the queue message that asked for it, if one did.
type cause struct {
	actor, cause, detail string
	received             *msg.Received
}

// tail collects what every transaction on orders writes last, in the one order of locks that all keep: new orders,
// events, messages, movements, and stock at the very end.
type tail struct {
	orders   []*Order // created in this transaction
	events   []event
	messages []msg.Message
	moves    []stock.Movement
	stock    map[string]stock.Item // as read in this transaction
	versions map[string]int64      // of the SKUs that are taken from
	err      error                 // the first that came up while collecting
}

// catalogueTx returns what can be sold of skus, and reads only those that this transaction has not read yet: if one was
// changed meanwhile, its version tells at the end.
func (t *tail) catalogueTx(tx *db.Tx, skus []string) (map[string]stock.Item, error) {
	if t.stock == nil {
		t.stock = map[string]stock.Item{}
	}
	unread := slices.DeleteFunc(skus, func(sku string) bool { _, ok := t.stock[sku]; return ok })
	if len(unread) == 0 {
		return t.stock, nil
	}
	items, err := stock.ReadTx(tx, unread)
	maps.Copy(t.stock, items)
	return t.stock, err
}

// move notes that an order went through ev. The order's row must be, or be about to be, updated by a guarded statement
// in the same transaction, or inserted by flushTx.
func (t *tail) move(o *Order, ev fsm.Event, at db.Time, c cause) {
	to, err := fsm.Orders.Next(o.Status, ev)
	if err != nil { // the guarded statement has these very states: a defect, caught before it is committed
		t.err = errors.Join(t.err, err)
		return
	}
	t.note(o, string(ev), to, "order."+lower(to), at, c)
}

// money notes an event that leaves the order's status as it is.
func (t *tail) money(o *Order, ev string, at db.Time, c cause) {
	t.note(o, ev, o.Status, moneyMessages[ev], at, c)
}

func (t *tail) note(o *Order, ev string, to fsm.State, messageType string, at db.Time, c cause) {
	o.Version++
	t.events = append(t.events, event{OrderNo: o.OrderNo, Seq: o.Version, Event: ev, FromStatus: o.Status, ToStatus: to,
		Actor: c.actor, Cause: c.cause, Detail: c.detail, At: at})
	m, err := msg.NewMessage(o.OrderNo, o.Version, messageType, at, eventData{
		OrderNo: o.OrderNo, UserID: o.UserID, Seq: o.Version, Event: ev, From: o.Status, To: to, Amount: o.Amount, Currency: o.Currency})
	t.err = errors.Join(t.err, err)
	t.messages = append(t.messages, m)
	o.Status, o.UpdatedAt = to, at
}

func lower(s fsm.State) string {
	b := []byte(s)
	for i := range b {
		b[i] |= 0x20
	}
	return string(b)
}

// flushTx writes all of it.
func (s *Service) flushTx(tx *db.Tx, t *tail) error {
	if t.err != nil {
		return t.err
	}
	if err := insertOrdersTx(tx, t.orders); err != nil {
		return err
	}
	if len(t.events) > 0 {
		if err := tx.Create(&t.events).Error; err != nil {
			return err
		}
	}
	if err := msg.AppendTx(tx, t.messages); err != nil {
		return err
	}
	if err := stock.MoveTx(tx, t.moves, t.versions); err != nil {
		if errors.Is(err, stock.ErrVersion) {
			s.Metrics.VersionConflicts.Inc()
		}
		return err
	}
	batch.Pass(tx.Statement.Context) // what is left is COMMIT
	return nil
}

// MoneyEvents are the events that leave an order's status as it is.
var MoneyEvents = []string{attemptOpened, attemptFailed, attemptClosed, latePayment, duplicatePayment, amountMismatch,
	refundOpened, refundSucceeded, refundFailed}
