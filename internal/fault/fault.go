// Package fault defines the errors that a client may see. Everything else that goes wrong is internal: it is logged
// once, at the edge, and answered with a masked 500.
package fault

import (
	"errors"
	"time"
)

// Kind says what sort of refusal an error is; httpapi holds the one table from Kind to HTTP status.
type Kind int

const (
	Internal        Kind = iota // a defect of ours; never shown
	Invalid                     // the request cannot be read: syntax, types, headers, query
	Unauthenticated             // no credentials, or ones that do not verify
	Forbidden                   // known, but not allowed to
	NotFound                    // absent, or another user's
	Gone                        // was there, is over
	Conflict                    // the state of the resource forbids it
	Unprocessable               // well-formed, but its values are not acceptable
	Limited                     // too much from this caller
	Unavailable                 // try again: nothing is lost
)

// Field is one faulty member of a request. Field is a JSON path ("items[0].quantity") or a header's or parameter's name.
type Field struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is a refusal with a stable code (the table in api/openapi.yaml). Err, the cause, is for the log only.
type Error struct {
	Kind       Kind
	Code       string
	Message    string
	Fields     []Field
	RetryAfter time.Duration // 0: retrying does not help
	OrderNo    string        // set where the client needs it to go on, as in out_of_stock
	Err        error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Code + ": " + e.Message + ": " + e.Err.Error()
	}
	return e.Code + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// New returns a refusal with the given kind, code and message.
func New(kind Kind, code, message string, fields ...Field) *Error {
	return &Error{Kind: kind, Code: code, Message: message, Fields: fields}
}

// Unprocessed returns a 422 validation_failed that names the faulty fields.
func Unprocessed(fields ...Field) *Error {
	return New(Unprocessable, "validation_failed", "the request has values that are not acceptable", fields...)
}

// Busy returns a 503 with a stable code that asks for a retry after d.
func Busy(code, message string, d time.Duration, cause error) *Error {
	return &Error{Kind: Unavailable, Code: code, Message: message, RetryAfter: d, Err: cause}
}

// As returns the fault in err's chain, or nil.
func As(err error) *Error {
	var f *Error
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// Is reports whether err is a fault with this code.
func Is(err error, code string) bool {
	f := As(err)
	return f != nil && f.Code == code
}
