package order

import (
	"context"
	"sync"

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

// remembered is how many payments a process knows the facts of, at most: those of the last minutes, whose callbacks are
// on their way, in a few MiB.
const remembered = 16_384

// memory keeps the facts of the payments that were noted last. It saves the read for a callback of a payment which this
// process has opened, and for all that repeat one. Nothing rests on it: a payment that is not in it is read, and what is
// booked is decided in the transaction, by the rows. A success that it does not know of costs a lock, one that the
// database has lost again saves one.
//
// Only what is committed may be noted.
type memory struct {
	mu          sync.Mutex
	newer, rest map[string]facts // when newer is full it becomes the rest, and the rest is forgotten
}

func (m *memory) note(paymentNo string, f facts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newer == nil || len(m.newer) == remembered/2 {
		m.newer, m.rest = map[string]facts{}, m.newer
	}
	m.newer[paymentNo] = f
}

func (m *memory) get(paymentNo string) (facts, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.newer[paymentNo]
	if !ok {
		f, ok = m.rest[paymentNo]
	}
	return f, ok
}

// note remembers a payment as it was read or committed.
func (s *Service) note(p *payment.Payment) facts {
	f := facts{orderNo: p.OrderNo, gateway: p.Gateway, amount: p.Amount, currency: p.Currency, succeeded: p.Status == fsm.Succeeded}
	s.known.note(p.PaymentNo, f)
	return f
}

// facts returns what is known for ever of a payment, and whether there is one.
func (s *Service) facts(ctx context.Context, paymentNo string) (facts, bool, error) {
	if f, ok := s.known.get(paymentNo); ok {
		return f, true, nil
	}
	p, err := s.findPayment(ctx, paymentNo)
	if err != nil || p == nil {
		return facts{}, false, err
	}
	return s.note(p), true, nil
}
