package order

import (
	"context"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// facts are what settling asks of a payment before it takes the order's lock: only what never changes again. A payment
// gets its order, gateway, amount and currency when it is opened, and nothing leads out of SUCCEEDED. So they hold however
// long ago they were read, whichever process has been at work since.
type facts struct {
	orderNo   string
	gateway   string
	amount    int64 // minor units
	currency  string
	succeeded bool // false: not as far as we know
}

// remembered is how many payments a process knows the facts of: those of the last minutes, whose callbacks are on their
// way, in a few MiB.
//
// It saves the read for a callback of a payment which this process has opened, and for all that repeat one. Nothing rests on
// it: a payment that is not known is read, and what is booked is decided in the transaction, by the rows. A success that is
// not known of costs a lock, one that the database has lost again saves one. Only what is committed may be noted.
const remembered = 8192

// note remembers a payment as it was read or committed.
func (s *Service) note(p *payment.Payment) facts {
	f := facts{orderNo: p.OrderNo, gateway: p.Gateway, amount: p.Amount, currency: p.Currency, succeeded: p.Status == fsm.Succeeded}
	s.known.Add(p.PaymentNo, f)
	return f
}

// facts returns what is known for ever of a payment, and whether there is one.
func (s *Service) facts(ctx context.Context, paymentNo string) (facts, bool, error) {
	if f, ok := s.known.Get(paymentNo); ok {
		return f, true, nil
	}
	p, err := s.findPayment(ctx, paymentNo)
	if err != nil || p == nil {
		return facts{}, false, err
	}
	return s.note(p), true, nil
}
