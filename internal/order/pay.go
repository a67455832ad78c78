package order

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orderd/internal/batch"
	"orderd/internal/db"
	"orderd/internal/failpoint"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// callGateway brings an INIT or UNKNOWN attempt of o to its gateway, outside of any lock and transaction, under the
// payment's lease. leased says that the caller has it since it opened the attempt: nobody has sent it. Somebody else having
// the lease is no error: o stays as it is.
//
// Dying before the call or after it looks the same: the lease runs out, and whoever takes it next does not know whether the
// charge was sent. It asks first. A lost answer is UNKNOWN, never a failure: the money may be there.
func (s *Service) callGateway(ctx context.Context, o *Order, leased bool, limit time.Duration) error {
	p := o.Payment
	s.note(p) // it is committed, and its callback will come
	if !leased {
		ok, err := payment.Lease(ctx, s.DB, p.PaymentNo, s.cfg.Owner, []fsm.State{fsm.Init, fsm.Unknown}, limit+leaseReserve)
		if err != nil || !ok {
			return err
		}
	}
	charge, err := s.charge(ctx, o, leased, limit)
	if errors.Is(err, errSettled) {
		return s.reread(ctx, o)
	}
	if errors.Is(err, errNotSure) {
		p.Status = fsm.Unknown
		return nil
	}
	if err != nil {
		s.Log.WarnContext(ctx, "payment outcome unknown", "payment_no", p.PaymentNo, "order_no", o.OrderNo, "error", err)
		p.Status = fsm.Unknown
		lost, err := payment.Lose(ctx, s.DB, *p)
		if err == nil && !lost { // a callback came first
			return s.reread(ctx, o)
		}
		return err
	}
	if charge.State != fsm.Pending { // paid or declined at once
		if _, err := s.Settle(ctx, answer(p.Gateway, charge)); err != nil {
			return err
		}
		return s.reread(ctx, o)
	}
	a := &accepting{charge: charge}
	err = s.accepts.Do(ctx, a)
	if db.IsDuplicate(err) {
		s.alert(ctx, "message_conflict", "payment_no", p.PaymentNo, "transaction_id", charge.TransactionID)
		return errMessageConflict("this transaction_id stands for another payment")
	}
	if err != nil {
		return err
	}
	if a.ok {
		p.Status, p.PayURL = fsm.Pending, &charge.PayURL
		if charge.TransactionID != "" { // some gateways give a number only once it is paid
			p.TransactionID = &charge.TransactionID
		}
		return nil
	}
	return s.afterLostRace(ctx, o, charge)
}

// accepting is a charge that its gateway has, on its way into the books.
type accepting struct {
	charge payment.Charge
	ok     bool // it is PENDING
}

// runAccept is the batch function of what follows a gateway's answer. Run again, it finds its own PENDING.
func (s *Service) runAccept(ctx context.Context, as []*accepting) error {
	charges := make([]payment.Charge, len(as))
	for i, a := range as {
		charges[i] = a.charge
	}
	batch.Pass(ctx) // one statement, which commits itself
	accepted, err := payment.Accept(ctx, s.DB, charges)
	for _, a := range as {
		a.ok = accepted[a.charge.PaymentNo]
	}
	return err
}

// errNotSure says that the gateway does not know a charge, and that this does not count yet: see payment.Missing.
var errNotSure = &fault.Error{Kind: fault.Unavailable, Code: "outcome_unknown", RetryAfter: payment.SureAfter,
	Message: "it is not known yet whether the payment gateway has this payment; nothing was changed, send the same request again"}

// charge asks the gateway for the charge; unless this is the first time, whether it has it already.
func (s *Service) charge(ctx context.Context, o *Order, first bool, limit time.Duration) (payment.Charge, error) {
	booking := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p := o.Payment
	gateway, ok := s.Gateways[p.Gateway]
	if !ok {
		return payment.Charge{}, fmt.Errorf("gateway %q is not configured", p.Gateway)
	}
	if !first {
		charge, err := s.query(ctx, gateway, p.Ref())
		// Some gateways tell the pay page by the charge alone. It is repeated then; it stays one charge.
		pageless := err == nil && charge.State == fsm.Pending && charge.PayURL == ""
		if errors.Is(err, payment.ErrNotFound) {
			if err := s.missing(booking, p); err != nil {
				return charge, err
			}
		} else if !pageless {
			return charge, err
		}
	}
	failpoint.Here("gateway_charge.call")
	charge, err := gateway.Charge(ctx, payment.ChargeRequest{PaymentNo: p.PaymentNo, Amount: p.Amount, Currency: p.Currency,
		Subject: "Order " + o.OrderNo, ExpiresAt: o.ExpiresAt.Time})
	failpoint.Here("gateway_charge.called")
	s.called(p.Gateway, "charge", charge.State, err)
	return charge, err
}

// errSettled says that there is nothing to send: a callback has told meanwhile what became of the charge.
var errSettled = errors.New("order: the payment is settled")

// missing judges a gateway's answer that it does not know a charge which may have been sent: nil when that counts.
func (s *Service) missing(ctx context.Context, p *payment.Payment) error {
	sure, settled, err := payment.Missing(ctx, s.DB, p.PaymentNo)
	switch {
	case err != nil:
		return err
	case settled:
		return errSettled
	case !sure:
		return errNotSure
	}
	return nil
}

func (s *Service) query(ctx context.Context, g payment.Gateway, of payment.Ref) (payment.Charge, error) {
	failpoint.Here("gateway_query.call")
	charge, err := g.Query(ctx, of)
	failpoint.Here("gateway_query.called")
	s.called(g.Name(), "query", charge.State, err)
	return charge, err
}

// called counts a gateway call by its outcome.
func (s *Service) called(gateway, call string, state fsm.State, err error) {
	outcome := lower(state)
	if errors.Is(err, payment.ErrNotFound) {
		outcome = "not_found"
	} else if err != nil {
		outcome = "unknown"
	}
	s.Metrics.GatewayCalls.WithLabelValues(gateway, call, outcome).Inc()
}

// afterLostRace deals with a charge that the gateway has, while its payment is no longer waiting for it: the order was
// cancelled or paid in between. A payment that we closed must not stay payable.
func (s *Service) afterLostRace(ctx context.Context, o *Order, charge payment.Charge) error {
	if err := s.reread(ctx, o); err != nil {
		return err
	}
	stored, err := s.findPayment(ctx, charge.PaymentNo)
	if err != nil || stored == nil || stored.Status != fsm.Closed && stored.Status != fsm.Failed {
		return err
	}
	stored.TransactionID = &charge.TransactionID // Accept did not book it
	_, err = s.closeAtGateway(ctx, stored, gatewayTime)
	if err != nil {
		s.alert(ctx, "charge_left_open", "payment_no", charge.PaymentNo, "error", err)
	}
	return nil
}

// reread brings o up to date.
func (s *Service) reread(ctx context.Context, o *Order) error {
	now, err := s.find(ctx, o.OrderNo)
	if err == nil && now == nil {
		err = fmt.Errorf("order %s has vanished", o.OrderNo)
	}
	if err == nil {
		*o = *now
	}
	return err
}

// answer is a gateway's answer to a call of ours, as a notice. Answers share one source: the same state of a payment
// counts once, whichever call it came from.
func answer(gateway string, c payment.Charge) payment.Notice {
	kind := map[fsm.State]payment.NoticeKind{fsm.Succeeded: payment.PaymentSucceeded, fsm.Failed: payment.PaymentFailed, fsm.Closed: payment.PaymentClosed}[c.State]
	return payment.Notice{Source: "answer:" + gateway, Gateway: gateway, MessageID: c.PaymentNo + ":" + string(c.State), Kind: kind,
		PaymentNo: c.PaymentNo, TransactionID: c.TransactionID, Amount: c.Amount, Currency: c.Currency}
}

// closeAtGateway makes a charge unpayable at its gateway and says what it is then: Closed, Failed or Succeeded. A charge
// that the gateway does not know counts as closed: the caller has the payment's lease, so nobody is sending it. If it may
// have been sent before, that answer must come twice.
func (s *Service) closeAtGateway(ctx context.Context, p *payment.Payment, limit time.Duration) (payment.Charge, error) {
	booking := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	gateway, ok := s.Gateways[p.Gateway]
	if !ok {
		return payment.Charge{}, errGateway(fmt.Errorf("gateway %q is not configured", p.Gateway))
	}
	of := p.Ref()
	if of.TransactionID == "" { // p may be from before the lease, when the charge had no number yet
		stored, err := s.findPayment(ctx, p.PaymentNo)
		if err != nil {
			return payment.Charge{}, err
		}
		if stored != nil {
			of = stored.Ref()
		}
	}
	failpoint.Here("gateway_close.call")
	charge, err := gateway.Close(ctx, of)
	failpoint.Here("gateway_close.called")
	s.called(p.Gateway, "close", charge.State, err)
	if errors.Is(err, payment.ErrNotFound) {
		err := s.missing(booking, p)
		if errors.Is(err, errSettled) { // what the caller writes next is guarded by its status
			err = nil
		}
		return payment.Charge{PaymentNo: p.PaymentNo, State: fsm.Closed}, err
	}
	if err != nil {
		return charge, errGateway(err)
	}
	return charge, nil
}

func errGateway(err error) error {
	return fault.Busy("gateway_unavailable", "the payment gateway does not answer; nothing was changed, send the same request again", 2*time.Second, err)
}
