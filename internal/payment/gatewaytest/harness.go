// Package gatewaytest is the contract that every payment.Gateway keeps, as tests. An adapter's own test describes its company
// in a Harness and calls Run.
package gatewaytest

import (
	"net/http"
	"testing"
	"time"

	"orderd/internal/payment"
)

// Harness is one company, as far as the contract needs it. Functions fail the test themselves.
type Harness struct {
	// Name is what the adapter's Name must say.
	Name string
	// Currency is one that the company charges in, with two decimals.
	Currency string
	// NotTaken are, of each kind of money that the company cannot take, one.
	NotTaken []Money
	// TransactionID has the form of the company's own numbers of charges.
	TransactionID string

	// Start starts the company's side, which knows no charges yet. It ends with the test.
	Start func(t testing.TB) Company
	// Connect returns an adapter that calls url (without a slash at its end): the company, a proxy before it, or a stranger.
	Connect func(t testing.TB, url string) payment.Gateway
	// Callback returns a callback as the company sends it: genuine, and signed at c.At. Asked again for the same ID it
	// returns what the company would send when the first was not received: often not the same bytes.
	Callback func(t testing.TB, c Callback) (http.Header, []byte)
	// Kinds are what the company reports by callbacks.
	Kinds []payment.NoticeKind
	// Acknowledged says whether the company takes the answer to a callback for received; if not, it sends it again.
	Acknowledged func(a payment.Acknowledgement) bool

	// How companies differ. Each is false unless the company leaves no choice; say why where it is set.

	// ChargesLocally: Charge calls nobody, it only signs the address of the pay page.
	ChargesLocally bool
	// SignsAnswers: answers to calls are signed. Else they are believed because TLS says who answers.
	SignsAnswers bool
	// SignsBody: a callback's signature is in its body, not in headers.
	SignsBody bool
	// AskedOnly: the company lists nothing, it can only be asked about one payment or refund at a time.
	AskedOnly bool
	// Undated: a callback does not say when it was signed.
	Undated bool
}

// Money is an amount in minor units.
type Money struct {
	Amount   int64
	Currency string
}

// Company is a running company.
type Company struct {
	// URL is what Connect is given, without a slash at its end.
	URL string
	// Open plays the shopper who opens the pay page. Nil if a charge exists from the start.
	Open func(t testing.TB, c payment.Charge)
	// Pay plays the shopper who pays. The company received amount (minor units of Harness.Currency).
	Pay func(t testing.TB, c payment.Charge, amount int64)
	// Decline plays the shopper whose bank says no. Nil if the company knows no such end: the shopper may try until the
	// charge is over.
	Decline func(t testing.TB, c payment.Charge)
}

// Flaw is what is wrong with a callback that is signed well.
type Flaw string

const (
	// None: it is as it should be.
	None Flaw = ""
	// OtherMerchant: it is signed with the same key, and about another merchant's payment.
	OtherMerchant Flaw = "another merchant's"
	// UnknownType: it is of a type that the adapter has never heard of.
	UnknownType Flaw = "unknown type"
	// Malformed: it lacks what its type must have.
	Malformed Flaw = "malformed"
)

// Callback is what a callback shall say. Notice has Kind, PaymentNo, TransactionID, RefundNo, RefundID, Amount and Currency.
type Callback struct {
	payment.Notice
	At   time.Time // when it is signed
	ID   string    // of the message, if the company's messages have one; unique
	Flaw Flaw
}
