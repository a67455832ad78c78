// Package order is the flow: place, pay, settle, cancel, ship, refund. Each use case is one exported method in the file
// named for it. It opens the transactions; the functions ending in Tx take the caller's.
package order

import (
	"orderd/internal/db"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/payment"
)

// Order is an order as stored and as the API shows it. Amounts are integer minor units of Currency; times are UTC.
type Order struct {
	ID             int64            `json:"-" gorm:"primaryKey"`
	OrderNo        string           `json:"order_no"`
	UserID         string           `json:"user_id"`
	Status         fsm.State        `json:"status"`
	Fingerprint    string           `json:"-"` // see fingerprint.go
	Gateway        string           `json:"-"`
	Currency       string           `json:"currency"`
	Amount         int64            `json:"amount"`
	PaidAmount     int64            `json:"paid_amount"`     // 0 or Amount
	RefundedAmount int64            `json:"refunded_amount"` // succeeded customer refunds only
	Items          []Item           `json:"items" gorm:"-"`
	Payment        *payment.Payment `json:"payment" gorm:"-"` // the newest attempt
	Refunds        []payment.Refund `json:"refunds" gorm:"-"`
	Attempts       int64            `json:"-"` // payment attempts opened so far
	Note           string           `json:"note"`
	CancelReason   string           `json:"cancel_reason"`
	TrackingNo     string           `json:"tracking_no"`
	Version        int64            `json:"version"` // the number of its events
	RefusedAt      *db.Time         `json:"-"`       // set while the stock did not suffice
	CreatedAt      db.Time          `json:"created_at"`
	UpdatedAt      db.Time          `json:"updated_at"`
	ExpiresAt      db.Time          `json:"expires_at"`
	PaidAt         *db.Time         `json:"paid_at"`
}

// Item is one line of an order. Amount = Quantity * UnitPrice.
type Item struct {
	OrderNo   string `json:"-"`
	SKU       string `json:"sku" gorm:"column:sku"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	Amount    int64  `json:"amount"`
}

// TableName implements gorm's Tabler.
func (Item) TableName() string { return "order_items" }

// Result is what a use case answers: the order as it is now, and how it came to be so.
type Result struct {
	Order Order
	// Created says that this very call created what was asked for (the order, the new attempt).
	Created bool
	// Guard names the scheme that first recognised the call as a repeat; empty when it was none.
	Guard idem.Guard
}

// Actor is who asks. Admin may see and change every user's orders.
type Actor struct {
	UserID string
	Admin  bool
}

// PlaceRequest asks for an order. Its identity is the strongest of OrderNo, Token, Key and Window that is given; all
// that are given must agree.
type PlaceRequest struct {
	UserID         string
	OrderNo        string
	Token          string // from POST /v1/order-tokens
	Key            string // the Idempotency-Key header, unquoted
	Window         string // hash of user, method, path and canonical body: used when there is no other identity
	Lines          []Line
	Gateway        string // empty: the configured one
	Note           string
	ExpectedAmount *int64 // minor units; refused with amount_changed when the server's own sum differs

	// Received is the queue message that asks, nil for a request: its row in the inbox is written first in the
	// transaction that creates the order, and names the order from then on.
	Received *msg.Received
}

// Line asks for a quantity of a SKU.
type Line struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// ListQuery selects orders, newest first.
type ListQuery struct {
	Status string // empty: all
	UserID string // admin only; empty: all users' for an admin, the own ones for a user
	Limit  int    // 1..100
	Cursor string // from the previous page; empty: the first page
}

// TimelineEntry is one entry of an order's history: an order event, or a callback that was received for it.
type TimelineEntry struct {
	At     db.Time   `json:"at"`
	Kind   string    `json:"kind"` // event, callback, answer or queue
	From   fsm.State `json:"from"`
	To     fsm.State `json:"to"`
	Event  string    `json:"event"`
	Actor  string    `json:"actor"`
	Detail string    `json:"detail"`
}

// KeyView is what an idempotency key stands for.
type KeyView struct {
	Key         string    `json:"key"`
	OrderNo     string    `json:"order_no"`
	OrderStatus fsm.State `json:"order_status"`
	CreatedAt   db.Time   `json:"created_at"`
	ExpiresAt   db.Time   `json:"expires_at"`
}

// Token is a server-issued token for one order.
type Token struct {
	Token     string  `json:"token"`
	OrderNo   string  `json:"order_no"`
	ExpiresAt db.Time `json:"expires_at"`
}
