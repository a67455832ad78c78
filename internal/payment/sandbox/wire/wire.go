// Package wire is the sandbox gateway's protocol: the JSON that goes over the line, and the signature of its callbacks
// (Standard Webhooks). It is all that the gateway and its merchants share.
package wire

import "time"

// Statuses of a charge; a refund is never CLOSED.
const (
	Pending   = "PENDING"
	Succeeded = "SUCCEEDED"
	Failed    = "FAILED"
	Closed    = "CLOSED"
)

// Types of callbacks.
const (
	PaymentSucceeded = "payment.succeeded"
	PaymentFailed    = "payment.failed"
	PaymentClosed    = "payment.closed"
	RefundSucceeded  = "refund.succeeded"
	RefundFailed     = "refund.failed"
)

// Problem is an error's body, application/problem+json (RFC 9457).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitzero"`
	Code   string `json:"code"` // not_found, unauthenticated, ...: stable
}

// ChargeRequest opens a charge of Amount minor units. PaymentNo is the merchant's own number and the idempotency key.
type ChargeRequest struct {
	MerchantID string    `json:"merchant_id"`
	PaymentNo  string    `json:"payment_no"`
	Amount     int64     `json:"amount"`
	Currency   string    `json:"currency"` // ISO 4217
	Subject    string    `json:"subject"`
	NotifyURL  string    `json:"notify_url"` // where the callbacks go
	ExpiresAt  time.Time `json:"expires_at"` // unpayable from then on
}

// Charge is a charge as it is now. Amount and Currency of a SUCCEEDED one are what was really received.
type Charge struct {
	PaymentNo     string    `json:"payment_no"`
	TransactionID string    `json:"transaction_id"`
	Status        string    `json:"status"`
	Amount        int64     `json:"amount"`
	Currency      string    `json:"currency"`
	PayURL        string    `json:"pay_url,omitzero"`
	PaidAt        time.Time `json:"paid_at,omitzero"`
}

// PayRequest plays the shopper. Amount (minor units) and Currency, if given, are paid instead of what is asked for.
type PayRequest struct {
	Outcome  string  `json:"outcome"` // "succeeded" or "failed"
	Amount   *int64  `json:"amount,omitzero"`
	Currency *string `json:"currency,omitzero"`
}

// RefundRequest sends Amount minor units of a payment back. RefundNo is the idempotency key.
type RefundRequest struct {
	MerchantID string `json:"merchant_id"`
	RefundNo   string `json:"refund_no"`
	PaymentNo  string `json:"payment_no"`
	Amount     int64  `json:"amount"`
	NotifyURL  string `json:"notify_url"`
}

// Refund is a refund as it is now.
type Refund struct {
	RefundNo string `json:"refund_no"`
	RefundID string `json:"refund_id"`
	Status   string `json:"status"`
	Amount   int64  `json:"amount"`
}

// Ledger is a part of the ledger.
type Ledger struct {
	Entries []LedgerEntry `json:"entries"`
}

// LedgerEntry is one movement of money: in for the kind "charge", out for "refund". Amount is in minor units.
type LedgerEntry struct {
	Seq           int64     `json:"seq"` // 1, 2, 3 ... without a gap
	Kind          string    `json:"kind"`
	PaymentNo     string    `json:"payment_no"`
	RefundNo      string    `json:"refund_no,omitzero"`
	TransactionID string    `json:"transaction_id"`
	Amount        int64     `json:"amount"`
	Currency      string    `json:"currency"`
	At            time.Time `json:"at"`
}

// Faults replaces the faults that the gateway commits. The draws follow from Seed: rule i decides on the n-th call it
// sees by the n-th number of its own sequence.
type Faults struct {
	Seed  uint64 `json:"seed"`
	Rules []Rule `json:"rules"` // the first that fires decides
}

// Rule is one kind of fault.
type Rule struct {
	On    string   `json:"on"`            // charge, query, close, refund or callback
	Mode  string   `json:"mode"`          // see the server's list of modes
	Rate  *float64 `json:"rate,omitzero"` // 0..1, the share of the calls that it hits; left out: all
	Times int      `json:"times"`         // it fires at most so often; 0: no limit
}

// Event is the body of a callback.
type Event struct {
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
	Data      EventData `json:"data"`
}

// EventData is what an event is about. Amount is in minor units.
type EventData struct {
	MerchantID    string `json:"merchant_id"`
	PaymentNo     string `json:"payment_no"`
	TransactionID string `json:"transaction_id"`
	RefundNo      string `json:"refund_no,omitzero"`
	RefundID      string `json:"refund_id,omitzero"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
}
