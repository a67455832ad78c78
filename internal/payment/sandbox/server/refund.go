package server

import (
	"net/http"

	"orderd/internal/payment/sandbox/wire"
)

// refund is a refund as the journal keeps it: SUCCEEDED or FAILED, never in between.
type refund struct {
	Request  wire.RefundRequest `json:"request"`
	RefundID string             `json:"refund_id"`
	Status   string             `json:"status"`

	end int64 // where its newest record ends in the journal
}

func (f refund) show() wire.Refund {
	return wire.Refund{RefundNo: f.Request.RefundNo, RefundID: f.RefundID, Status: f.Status, Amount: f.Request.Amount}
}

// postRefund sends money back, once per refund_no: the same again answers the same, other values 409. Only a FAILED one
// is tried again. More than was received and is not sent back yet: 422.
func (s *Server) postRefund(r *http.Request, body []byte, mode string) answer {
	var in wire.RefundRequest
	if refusal, ok := decode(r, body, &in); !ok {
		return refusal
	}
	switch {
	case in.MerchantID != s.cfg.MerchantID:
		return problem(http.StatusForbidden, "forbidden", "not your merchant_id")
	case !numberForm.MatchString(in.RefundNo), !numberForm.MatchString(in.PaymentNo), in.Amount <= 0, !httpURL(in.NotifyURL):
		return problem(http.StatusUnprocessableEntity, "validation_failed",
			"refund_no, payment_no, a positive amount and an http(s) notify_url are required")
	}
	s.mu.Lock()
	f, e, a := s.openRefund(in, mode == decline)
	s.mu.Unlock()
	if e != nil {
		if s.faults.draw(beforeResponse) != "" {
			s.sender.sendNow(r.Context(), *e)
		} else {
			s.sender.add(*e)
		}
	}
	return s.answered(f.end, a)
}

// openRefund returns the refund, the callback owed if this call changed something, and the answer. The caller holds s.mu.
func (s *Server) openRefund(in wire.RefundRequest, declined bool) (refund, *event, answer) {
	f, known := s.refunds[in.RefundNo]
	status := http.StatusOK
	switch {
	case known && f.Request != in:
		return refund{}, nil, problem(http.StatusConflict, "refund_no_reused", "this refund_no stands for a refund with other values")
	case known && f.Status == wire.Succeeded:
		return f, nil, answer{status, f.show()}
	case !known:
		f = refund{Request: in, RefundID: newID("rfd_")}
		status = http.StatusCreated
	}
	c, known := s.charges[in.PaymentNo]
	switch {
	case !known:
		return refund{}, nil, problem(http.StatusNotFound, "not_found", "no such charge")
	case in.Amount > c.ReceivedAmount-c.RefundedAmount: // nothing is received of an unpaid one
		return refund{}, nil, problem(http.StatusUnprocessableEntity, "refund_exceeds_payment", "more than is left of the money received")
	}
	r := record{Refund: &f}
	if declined {
		f.Status = wire.Failed
		r.Event = s.refundEvent(wire.RefundFailed, c, f)
	} else {
		f.Status = wire.Succeeded
		c.RefundedAmount += in.Amount
		r.Charge = &c
		r.Event = s.refundEvent(wire.RefundSucceeded, c, f)
		r.Ledger = s.entry("refund", c, in.RefundNo, in.Amount)
	}
	if err := s.commit(r); err != nil {
		return refund{}, nil, s.failed(err)
	}
	return f, r.Event, answer{status, f.show()}
}

// getRefund answers a refund as it is now.
func (s *Server) getRefund(r *http.Request, _ []byte, mode string) answer {
	s.mu.Lock()
	f, known := s.refunds[r.PathValue("refund_no")]
	s.mu.Unlock()
	if !known {
		return problem(http.StatusNotFound, "not_found", "no such refund")
	}
	if mode == staleQuery {
		f.Status = wire.Pending
	}
	return s.answered(f.end, answer{http.StatusOK, f.show()})
}

func (s *Server) refundEvent(kind string, c charge, f refund) *event {
	e := s.chargeEvent(kind, c)
	e.NotifyURL = f.Request.NotifyURL
	e.Payload.Data.RefundNo, e.Payload.Data.RefundID, e.Payload.Data.Amount = f.Request.RefundNo, f.RefundID, f.Request.Amount
	return e
}
