package stripe

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/stripe/stripe-go/v85"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// event is what we read of an event. api_version is not looked at, on purpose: an endpoint keeps the version that it was made
// with, and what we read has the same names in all of them since 2022; refusing the others would strand payments at every
// update of either side.
type event struct {
	ID       string        `json:"id"`
	Object   string        `json:"object"`
	Account  string        `json:"account"`
	Livemode *bool         `json:"livemode"`
	Type     sdk.EventType `json:"type"`
	Data     struct {
		Object jsontext.Value `json:"object"`
	} `json:"data"`
}

// session and refund are what we read of an event's object.
type session struct {
	ID            string                           `json:"id"`
	Object        string                           `json:"object"`
	Metadata      map[string]string                `json:"metadata"`
	Status        sdk.CheckoutSessionStatus        `json:"status"`
	PaymentStatus sdk.CheckoutSessionPaymentStatus `json:"payment_status"`
	AmountTotal   int64                            `json:"amount_total"`
	Currency      string                           `json:"currency"`
}

type refund struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Metadata map[string]string `json:"metadata"`
	Status   sdk.RefundStatus  `json:"status"`
	Amount   int64             `json:"amount"`
	Currency string            `json:"currency"`
}

// VerifyCallback implements payment.Gateway: signature over the raw bytes (401), then whose event it is (403), then the rest
// (400). Events come at least once and in any order; what they say is what was, so only final states are reported, and which
// of them counts is the caller's to decide. Sessions and refunds that others made in the same account are Other.
func (g *Gateway) VerifyCallback(header http.Header, body []byte, now time.Time) (payment.Notice, error) {
	if err := verify(g.cfg.WebhookSecrets, header, body, now); err != nil {
		return payment.Notice{}, &fault.Error{Kind: fault.Unauthenticated, Code: "unauthenticated", Message: err.Error()}
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return payment.Notice{}, invalid("the event is malformed")
	}
	if e.Object != "event" || !visible(e.ID) || e.Livemode == nil || e.Type == "" {
		return payment.Notice{}, invalid("the event lacks what every event has")
	}
	// A Connect platform's endpoint also gets the events of its merchants.
	if e.Account != "" || *e.Livemode != g.live {
		return payment.Notice{}, fault.New(fault.Forbidden, "forbidden", "the event is another account's, or of the other mode")
	}
	n, err := notice(e)
	if err != nil {
		return payment.Notice{}, invalid(err.Error())
	}
	n.Source, n.Gateway, n.MessageID = "callback:"+name, name, e.ID
	n.PayloadHash = n.FactsHash() // pending_webhooks differs from one delivery to the next
	return n, nil
}

// Acknowledge implements payment.Gateway. Stripe takes any 2xx for received: the default forms will do.
func (g *Gateway) Acknowledge(string, error) payment.Acknowledgement {
	return payment.Acknowledgement{}
}

func notice(e event) (payment.Notice, error) {
	switch e.Type {
	case sdk.EventTypeCheckoutSessionCompleted, sdk.EventTypeCheckoutSessionAsyncPaymentSucceeded,
		sdk.EventTypeCheckoutSessionAsyncPaymentFailed, sdk.EventTypeCheckoutSessionExpired:
		return sessionNotice(e)
	case sdk.EventTypeRefundCreated, sdk.EventTypeRefundUpdated, sdk.EventTypeRefundFailed:
		return refundNotice(e)
	default:
		// Among them payment_intent.payment_failed: the card was declined, and the shopper may try another on the same page.
		return payment.Notice{Kind: payment.Other}, nil
	}
}

func sessionNotice(e event) (payment.Notice, error) {
	var s session
	if err := json.Unmarshal(e.Data.Object, &s); err != nil || s.Object != "checkout.session" {
		return payment.Notice{}, errors.New("the session is malformed")
	}
	number, ours := s.Metadata[paymentNo]
	if !ours {
		return payment.Notice{Kind: payment.Other}, nil
	}
	n := payment.Notice{Kind: payment.Other, PaymentNo: number, TransactionID: s.ID}
	switch {
	case e.Type == sdk.EventTypeCheckoutSessionExpired:
		n.Kind = payment.PaymentClosed
	case e.Type == sdk.EventTypeCheckoutSessionAsyncPaymentFailed:
		n.Kind = payment.PaymentFailed
	case s.PaymentStatus == sdk.CheckoutSessionPaymentStatusPaid:
		n.Kind = payment.PaymentSucceeded
	case s.PaymentStatus == sdk.CheckoutSessionPaymentStatusUnpaid: // a bank takes days: async_payment_... will tell
		return payment.Notice{Kind: payment.Other}, nil
	}
	if n.Kind == payment.Other || !visible(number) || !visible(s.ID) {
		return payment.Notice{}, errors.New("the session lacks what its event must have")
	}
	var err error
	n.Amount, n.Currency, err = fromStripe(s.AmountTotal, s.Currency)
	return n, err
}

func refundNotice(e event) (payment.Notice, error) {
	var f refund
	if err := json.Unmarshal(e.Data.Object, &f); err != nil || f.Object != "refund" {
		return payment.Notice{}, errors.New("the refund is malformed")
	}
	number, ours := f.Metadata[refundNo]
	if !ours {
		return payment.Notice{Kind: payment.Other}, nil
	}
	n := payment.Notice{PaymentNo: f.Metadata[paymentNo], RefundNo: number, RefundID: f.ID}
	switch refundStates[f.Status] {
	case fsm.Succeeded:
		n.Kind = payment.RefundSucceeded
	case fsm.Failed:
		n.Kind = payment.RefundFailed
	case fsm.Pending:
		return payment.Notice{Kind: payment.Other}, nil
	}
	if n.Kind == "" || !visible(n.PaymentNo) || !visible(number) || !visible(f.ID) {
		return payment.Notice{}, errors.New("the refund lacks what its event must have")
	}
	var err error
	n.Amount, n.Currency, err = fromStripe(f.Amount, f.Currency)
	return n, err
}

// visible reports whether s is a name of ours or Stripe's: 1 to 128 visible ASCII characters.
func visible(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func invalid(message string) error { return fault.New(fault.Invalid, "invalid_request", message) }
