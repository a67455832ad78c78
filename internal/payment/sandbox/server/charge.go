package server

import (
	"net/http"
	"net/url"
	"time"

	"github.com/bojanz/currency"

	"orderd/internal/payment/sandbox/wire"
)

// charge is a charge as the journal keeps it. Amounts are minor units.
type charge struct {
	Request          wire.ChargeRequest `json:"request"`
	TransactionID    string             `json:"transaction_id"`
	Status           string             `json:"status"`
	ReceivedAmount   int64              `json:"received_amount,omitzero"`
	ReceivedCurrency string             `json:"received_currency,omitzero"`
	RefundedAmount   int64              `json:"refunded_amount,omitzero"`
	PaidAt           time.Time          `json:"paid_at,omitzero"`
	StillPayable     bool               `json:"still_payable,omitzero"` // though CLOSED: the fault closed_but_payable

	end int64 // where its newest record ends in the journal
}

func (c charge) payable() bool {
	return c.Status == wire.Pending || c.Status == wire.Closed && c.StillPayable
}

// promise is the position up to which the journal must be durable before c is shown. A PENDING charge promises nothing:
// if the machine loses it, the merchant sends the same payment_no again.
func (c charge) promise() int64 {
	if c.Status == wire.Pending {
		return 0
	}
	return c.end
}

// show is the charge as the merchant sees it.
func (s *Server) show(r *http.Request, c charge) wire.Charge {
	base := s.cfg.PublicURL
	if base == "" {
		base = "http://" + r.Host
	}
	out := wire.Charge{
		PaymentNo: c.Request.PaymentNo, TransactionID: c.TransactionID, Status: c.Status,
		Amount: c.Request.Amount, Currency: c.Request.Currency,
		PayURL: base + "/pay/" + url.PathEscape(c.Request.PaymentNo), PaidAt: c.PaidAt,
	}
	if c.Status == wire.Succeeded {
		out.Amount, out.Currency = c.ReceivedAmount, c.ReceivedCurrency
	}
	return out
}

// postCharge opens a charge, once: the same again answers the charge as it is now, other values 409.
func (s *Server) postCharge(r *http.Request, body []byte, mode string) answer {
	var in wire.ChargeRequest
	if refusal, ok := decode(r, body, &in); !ok {
		return refusal
	}
	switch {
	case in.MerchantID != s.cfg.MerchantID:
		return problem(http.StatusForbidden, "forbidden", "not your merchant_id")
	case !numberForm.MatchString(in.PaymentNo), in.Amount <= 0, !currency.IsValid(in.Currency), !httpURL(in.NotifyURL),
		in.ExpiresAt.IsZero(), len(in.Subject) > 1024:
		return problem(http.StatusUnprocessableEntity, "validation_failed",
			"payment_no, a positive amount, an ISO 4217 currency, an http(s) notify_url and expires_at are required")
	}
	in.ExpiresAt = in.ExpiresAt.UTC()

	c, created, err := s.openCharge(in, mode == decline)
	if err != nil {
		return s.failed(err)
	}
	if c.Request != in {
		return problem(http.StatusConflict, "payment_no_reused", "this payment_no stands for a charge with other values")
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		if c.payable() && s.faults.draw(beforeResponse) != "" {
			if c, err = s.payBeforeResponse(r, c); err != nil {
				return s.failed(err)
			}
		}
	}
	return s.answered(c.promise(), answer{status, s.show(r, c)})
}

func (s *Server) openCharge(in wire.ChargeRequest, declined bool) (c charge, created bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, known, err := s.look(in.PaymentNo); known || err != nil {
		return c, false, err
	}
	c = charge{Request: in, TransactionID: newID("txn_"), Status: wire.Pending}
	if declined {
		c.Status = wire.Failed
	}
	if err := s.commit(record{Charge: &c}); err != nil {
		return charge{}, false, err
	}
	c, _, err = s.look(in.PaymentNo) // it may be overdue already
	return c, true, err
}

func (s *Server) payBeforeResponse(r *http.Request, c charge) (charge, error) {
	s.mu.Lock()
	c, e, err := s.settleCharge(c, wire.PayRequest{Outcome: "succeeded"})
	s.mu.Unlock()
	if err == nil && e != nil {
		s.sender.sendNow(r.Context(), *e)
	}
	return c, err
}

// getCharge answers a charge as it is now.
func (s *Server) getCharge(r *http.Request, _ []byte, mode string) answer {
	s.mu.Lock()
	c, known, err := s.look(r.PathValue("payment_no"))
	s.mu.Unlock()
	switch {
	case err != nil:
		return s.failed(err)
	case !known:
		return problem(http.StatusNotFound, "not_found", "no such charge")
	case mode == staleQuery:
		c.Status, c.PaidAt = wire.Pending, time.Time{}
	}
	return s.answered(c.promise(), answer{http.StatusOK, s.show(r, c)})
}

// closeCharge makes an unpaid charge unpayable: 200, or 409 with the charge if it was paid before.
func (s *Server) closeCharge(r *http.Request, _ []byte, mode string) answer {
	s.mu.Lock()
	c, known, err := s.look(r.PathValue("payment_no"))
	if known && err == nil && c.Status == wire.Pending {
		c, err = s.shut(c, mode == closedButPayable)
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return s.failed(err)
	case !known:
		return problem(http.StatusNotFound, "not_found", "no such charge")
	}
	status := http.StatusOK
	if c.Status == wire.Succeeded {
		status = http.StatusConflict
	}
	return s.answered(c.promise(), answer{status, s.show(r, c)})
}

// payCharge plays the shopper: 200, or 409 with the charge if it cannot be paid.
func (s *Server) payCharge(r *http.Request, body []byte, _ string) answer {
	var in wire.PayRequest
	if refusal, ok := decode(r, body, &in); !ok {
		return refusal
	}
	if in.Outcome != "succeeded" && in.Outcome != "failed" || in.Amount != nil && *in.Amount <= 0 ||
		in.Currency != nil && !currency.IsValid(*in.Currency) {
		return problem(http.StatusUnprocessableEntity, "validation_failed",
			"outcome is succeeded or failed, amount positive, currency of ISO 4217")
	}
	c, known, changed, err := s.pay(r.PathValue("payment_no"), in)
	switch {
	case err != nil:
		return s.failed(err)
	case !known:
		return problem(http.StatusNotFound, "not_found", "no such charge")
	}
	status := http.StatusOK
	if !changed {
		status = http.StatusConflict
	}
	return s.answered(c.promise(), answer{status, s.show(r, c)})
}

// pay lets the shopper pay or decline, if the charge is payable, and sends the callback.
func (s *Server) pay(paymentNo string, in wire.PayRequest) (c charge, known, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known, err = s.look(paymentNo)
	if !known || err != nil || !c.payable() {
		return c, known, false, err
	}
	c, e, err := s.settleCharge(c, in)
	if err != nil || e == nil {
		return c, true, false, err
	}
	s.sender.add(*e)
	return c, true, true, nil
}

// settleCharge books the shopper's decision. It returns the callback that is owed now, or nil if the charge had been
// decided before. The caller holds s.mu, sends the callback, and waits for the journal before it answers.
func (s *Server) settleCharge(c charge, in wire.PayRequest) (charge, *event, error) {
	current := s.charges[c.Request.PaymentNo]
	if !current.payable() {
		return current, nil, nil
	}
	c = current
	r := record{Charge: &c}
	if in.Outcome == "failed" {
		c.Status = wire.Failed
		r.Event = s.chargeEvent(wire.PaymentFailed, c)
	} else {
		c.Status, c.PaidAt = wire.Succeeded, s.now()
		c.ReceivedAmount, c.ReceivedCurrency = c.Request.Amount, c.Request.Currency
		if in.Amount != nil {
			c.ReceivedAmount = *in.Amount
		}
		if in.Currency != nil {
			c.ReceivedCurrency = *in.Currency
		}
		r.Event = s.chargeEvent(wire.PaymentSucceeded, c)
		r.Ledger = s.entry("charge", c, "", c.ReceivedAmount)
	}
	if err := s.commit(r); err != nil {
		return current, nil, err
	}
	return c, r.Event, nil
}

// look finds a charge and closes it first if it is overdue. The caller holds s.mu.
func (s *Server) look(paymentNo string) (c charge, known bool, err error) {
	c, known = s.charges[paymentNo]
	if known && c.Status == wire.Pending && !s.now().Before(c.Request.ExpiresAt) {
		c, err = s.shut(c, false)
	}
	return c, known, err
}

// shut closes a PENDING charge and sends the callback. The caller holds s.mu.
func (s *Server) shut(c charge, stillPayable bool) (charge, error) {
	before := c
	c.Status, c.StillPayable = wire.Closed, stillPayable
	r := record{Charge: &c, Event: s.chargeEvent(wire.PaymentClosed, c)}
	if err := s.commit(r); err != nil {
		return before, err
	}
	s.sender.add(*r.Event)
	return c, nil
}

func (s *Server) chargeEvent(kind string, c charge) *event {
	data := wire.EventData{
		MerchantID: c.Request.MerchantID, PaymentNo: c.Request.PaymentNo, TransactionID: c.TransactionID,
		Amount: c.Request.Amount, Currency: c.Request.Currency,
	}
	if c.Status == wire.Succeeded {
		data.Amount, data.Currency = c.ReceivedAmount, c.ReceivedCurrency
	}
	return &event{ID: newID("msg_"), NotifyURL: c.Request.NotifyURL, Payload: wire.Event{Type: kind, CreatedAt: s.now(), Data: data}}
}

func httpURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && len(s) <= 2048
}
