package httpapi

import (
	"net/http"

	"orderd/internal/order"
	"orderd/internal/payment"
)

// refundView is a refund outside of its order.
type refundView struct {
	payment.Refund
	OrderNo string `json:"order_no"`
}

func (a *API) refundOrder(r *request) error {
	var in struct {
		RefundNo string `json:"refund_no"`
		Amount   int64  `json:"amount"`
		Reason   string `json:"reason"`
		Restock  bool   `json:"restock"`
	}
	if err := r.decode(&in); err != nil {
		return err
	}
	res, err := a.Orders.Refund(r.Request().Context(), r.actor, order.RefundRequest{OrderNo: r.path("order_no"), RefundNo: in.RefundNo,
		Amount: in.Amount, Reason: in.Reason, Restock: in.Restock})
	if err != nil {
		return err
	}
	r.setReplay(res.Guard)
	status := http.StatusOK
	if res.Created {
		status = http.StatusCreated
	}
	return r.answer(status, refundView{res.Refund, res.Refund.OrderNo})
}

func (a *API) listRefunds(r *request) error {
	refunds, err := a.Orders.Refunds(r.Request().Context(), r.actor, r.path("order_no"))
	if err != nil {
		return err
	}
	views := make([]refundView, len(refunds))
	for i, f := range refunds {
		views[i] = refundView{f, f.OrderNo}
	}
	return r.answer(http.StatusOK, struct {
		Refunds []refundView `json:"refunds"`
	}{views})
}
