package httpapi

import (
	"net/http"
	"time"

	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/order"
)

// answerOrder answers a call that may have created an order or a payment attempt.
//
//	201  created by this very call
//	202  created by this very call, or asked for again, while the gateway's answer is not known
//	200  it was there before
func (r *request) answerOrder(res order.Result) error {
	r.setReplay(res.Guard)
	unknown := awaitsGateway(res.Order)
	if unknown {
		setRetryAfter(r.Response().Header(), time.Second)
	}
	status := http.StatusOK
	switch {
	// A replayed order is a 200 in whatever state it is: 202 promises that this request created it.
	case unknown && (res.Created || r.op.id == "openPayment"):
		status = http.StatusAccepted
	case res.Created:
		status = http.StatusCreated
	}
	if status != http.StatusOK {
		setLocation(r, "/v1/orders/"+res.Order.OrderNo)
	}
	return r.answer(status, res.Order)
}

// answerChanged answers a call that changed an order, or found it changed so already.
func (r *request) answerChanged(res order.Result) error {
	r.setReplay(res.Guard)
	return r.answer(http.StatusOK, res.Order)
}

// setReplay tells a client that its call was a repeat, and which scheme recognised it first.
func (r *request) setReplay(guard idem.Guard) {
	if guard != "" {
		h := r.Response().Header()
		h.Set("Idempotent-Replayed", "true")
		h.Set("Idempotency-Guard", string(guard))
	}
}

// awaitsGateway reports whether the newest attempt has no answer from its gateway yet.
func awaitsGateway(o order.Order) bool {
	return o.Payment != nil && (o.Payment.Status == fsm.Init || o.Payment.Status == fsm.Unknown)
}
