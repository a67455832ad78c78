package payment

import (
	"context"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Breaker settings: after breakerTrips failures in a row a gateway counts as away, and one call each breakerRecheck asks
// whether it is back. Until then calls fail at once, which for a payment is the same as any lost answer: UNKNOWN.
const (
	breakerTrips   = 5
	breakerRecheck = time.Second
)

// broken is a Gateway behind a circuit breaker: a gateway that is away must not hold up every request for its deadline.
type broken struct {
	Gateway
	breaker *gobreaker.CircuitBreaker[any]
}

// WithBreaker puts a circuit breaker before a gateway's calls.
func WithBreaker(g Gateway) Gateway {
	b := broken{g, gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name:        g.Name(),
		Timeout:     breakerRecheck,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerTrips },
		// Not to know a payment, or to refuse a refund, is an answer; that a client hung up says nothing about the gateway.
		IsSuccessful: func(err error) bool {
			return err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused) || errors.Is(err, context.Canceled)
		},
	})}
	if l, ok := g.(Ledger); ok {
		return brokenLedger{b, l}
	}
	return b
}

// brokenLedger keeps the listing of a gateway that has one; it is for people, who wait.
type brokenLedger struct {
	broken
	Ledger
}

func through[T any](b broken, call func() (T, error)) (T, error) {
	v, err := b.breaker.Execute(func() (any, error) { return call() })
	answer, _ := v.(T)
	return answer, err
}

func (b broken) Charge(ctx context.Context, r ChargeRequest) (Charge, error) {
	return through(b, func() (Charge, error) { return b.Gateway.Charge(ctx, r) })
}

func (b broken) Query(ctx context.Context, of Ref) (Charge, error) {
	return through(b, func() (Charge, error) { return b.Gateway.Query(ctx, of) })
}

func (b broken) Close(ctx context.Context, of Ref) (Charge, error) {
	return through(b, func() (Charge, error) { return b.Gateway.Close(ctx, of) })
}

func (b broken) Refund(ctx context.Context, r RefundRequest) (RefundAnswer, error) {
	return through(b, func() (RefundAnswer, error) { return b.Gateway.Refund(ctx, r) })
}

func (b broken) QueryRefund(ctx context.Context, refundNo string, of Ref) (RefundAnswer, error) {
	return through(b, func() (RefundAnswer, error) { return b.Gateway.QueryRefund(ctx, refundNo, of) })
}
