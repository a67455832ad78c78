// Package payment keeps payment attempts and refunds, and defines the port to the payment gateways.
// It knows an order only by its number.
package payment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"orderd/internal/fsm"
)

// ErrNotFound is a gateway's verified answer that it does not know the payment or refund.
// Every other error of a Gateway call means that the outcome is UNKNOWN: it may or may not have happened.
var ErrNotFound = errors.New("payment: the gateway does not know it")

// ErrRefused is in the chain of an error that is a gateway's verified refusal of one call. What became of the payment or
// refund is UNKNOWN all the same; but the gateway is there, and other calls may go through.
var ErrRefused = errors.New("payment: the gateway refuses the call")

// Gateway is a payment company. payment_no and refund_no are its idempotency keys: sending one again never charges or
// refunds twice. Calls must respect ctx's deadline, follow no redirect and read at most 1 MiB.
type Gateway interface {
	Name() string
	// Takes reports whether the gateway can charge, or send back, amount minor units of an ISO 4217 currency. Not every
	// gateway takes every currency, nor every amount of one; what it does not take is refused before anything is written.
	Takes(amount int64, currency string) bool
	// Charge opens a charge. The returned state is Pending, Succeeded (paid at once) or Failed (declined).
	Charge(ctx context.Context, r ChargeRequest) (Charge, error)
	// Query asks for a charge: Pending, Succeeded (Amount and Currency are what was really received), Failed, Closed, or ErrNotFound.
	Query(ctx context.Context, of Ref) (Charge, error)
	// Close makes an unpaid charge unpayable. It answers the charge as it is then: Closed, Failed, or Succeeded if it
	// was paid before; ErrNotFound if there is none.
	Close(ctx context.Context, of Ref) (Charge, error)
	// Refund sends money back. The returned state is Pending, Succeeded or Failed: refused for good, nothing went back, and
	// nothing will under this number. A refusal that passes (our balance is too low) is an error: the same number goes again.
	Refund(ctx context.Context, r RefundRequest) (RefundAnswer, error)
	// QueryRefund asks for a refund of a charge, or ErrNotFound.
	QueryRefund(ctx context.Context, refundNo string, of Ref) (RefundAnswer, error)
	// VerifyCallback authenticates the raw body by the gateway's own scheme and only then parses it. now is the process
	// clock: signatures have a freshness of +-5 minutes. Errors are fault.Error: Unauthenticated (signature), Forbidden
	// (another merchant's), Invalid (malformed after verification).
	VerifyCallback(header http.Header, body []byte, now time.Time) (Notice, error)
	// Acknowledge forms the answer that this gateway demands. result is one of "applied", "duplicate", "ignored",
	// "refund_opened"; err is nil then.
	Acknowledge(result string, err error) Acknowledgement
}

// Ref names a charge: by our number and, once the gateway told it, by theirs ("" before). Some gateways find a charge by
// either, others only by their own.
type Ref struct {
	PaymentNo     string
	TransactionID string
}

// ChargeRequest opens a charge. Amount is in minor units of the ISO 4217 currency.
type ChargeRequest struct {
	PaymentNo string
	Amount    int64
	Currency  string
	Subject   string
	ExpiresAt time.Time
}

// Charge is what the gateway says of a charge. Amount (minor units) and Currency of a Succeeded one are what was received.
type Charge struct {
	PaymentNo     string
	TransactionID string
	State         fsm.State // Pending, Succeeded, Failed or Closed
	Amount        int64
	Currency      string
	PayURL        string
}

// RefundRequest sends Amount (minor units) of a payment back, of the Total that it brought.
type RefundRequest struct {
	RefundNo      string
	PaymentNo     string
	TransactionID string
	Amount        int64
	Total         int64
	Currency      string
}

// RefundAnswer is what the gateway says of a refund.
type RefundAnswer struct {
	RefundNo string
	RefundID string
	State    fsm.State // Pending, Succeeded or Failed
	Amount   int64
}

// NoticeKind says what a verified notice reports.
type NoticeKind string

const (
	PaymentSucceeded NoticeKind = "payment.succeeded"
	PaymentFailed    NoticeKind = "payment.failed"
	PaymentClosed    NoticeKind = "payment.closed"
	RefundSucceeded  NoticeKind = "refund.succeeded"
	RefundFailed     NoticeKind = "refund.failed"
	// Other is a type we do not act on: it is answered "ignored".
	Other NoticeKind = "other"
)

// Notice is a verified report about a payment or refund, from a callback, a query or a direct answer.
type Notice struct {
	Source        string // the inbox source: "callback:sandbox", or "answer:sandbox" for what a call of ours was told
	Gateway       string
	MessageID     string // unique within Source
	PayloadHash   string // hex SHA-256 of what it says: the same id with another hash is a conflict
	Kind          NoticeKind
	PaymentNo     string
	TransactionID string
	RefundNo      string
	RefundID      string
	Amount        int64 // minor units
	Currency      string
}

// FactsHash is a PayloadHash for gateways that do not repeat a message byte for byte, but with another nonce, counter or
// time of sending in it. The hash is over what the message is about.
func (n Notice) FactsHash() string {
	facts := fmt.Sprintf("%q", []string{string(n.Kind), n.PaymentNo, n.TransactionID, n.RefundNo, n.RefundID, strconv.FormatInt(n.Amount, 10), n.Currency})
	hash := sha256.Sum256([]byte(facts))
	return hex.EncodeToString(hash[:])
}

// Acknowledgement is the HTTP answer to a callback. A zero Status asks for httpapi's default form (problem+json by the kind
// of the error).
type Acknowledgement struct {
	Status      int
	ContentType string
	Body        []byte
}
