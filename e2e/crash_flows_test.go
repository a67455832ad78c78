package e2e

import (
	"fmt"
	"net/http"
	"slices"
)

var (
	onBoth    = []string{mariadbRedis, embedded}
	onMariaDB = []string{mariadbRedis}
	silence   = []rule{{On: "callback", Mode: "drop", Rate: 1}}
)

const cancelling = "payment_lease.commit payment_lease.committed gateway_close.call gateway_close.called " +
	"cancel.begin cancel.stage cancel.commit cancel.committed"

var flows = []flow{
	{
		name: "place", engines: onBoth,
		points: "place.begin place.stage:1 place.stage:2 place.stage:3 place.commit place.committed " +
			"gateway_charge.call gateway_charge.called payment_accept.commit payment_accept.committed",
		drive:  func(v *victim) { v.place() },
		finish: (*victim).pay, status: "PAID", left: 7, charges: 1,
	},
	{
		name: "place, a commit a stage", engines: onMariaDB, vars: []string{"ORDERD_STAGE_COMMIT=each"},
		points: "place.begin:1 place.begin:2 place.begin:3 place.stage:1 place.stage:2 place.stage:3 " +
			"place.commit:1 place.commit:2 place.commit:3 place.committed:1 place.committed:2 place.committed:3 gateway_charge.called",
		drive:  func(v *victim) { v.place() },
		finish: (*victim).pay, status: "PAID", left: 7, charges: 1,
	},
	{
		name: "the gateway's answer is lost", engines: onMariaDB,
		faults: []rule{{On: "charge", Mode: "error_after", Rate: 1}},
		points: "payment_lose.commit payment_lose.committed gateway_query.call gateway_query.called",
		drive:  func(v *victim) { v.place() }, // the second time, the gateway is asked
		finish: (*victim).pay, status: "PAID", left: 7, charges: 1,
	},
	{
		name: "the charge was never made", engines: onMariaDB,
		faults: []rule{{On: "charge", Mode: "error_before", Rate: 1}},
		points: "payment_missing.commit payment_missing.committed payment_never_made.commit payment_never_made.committed",
		drive:  func(v *victim) { v.place() }, // the second time, the gateway does not know it
		finish: (*victim).pay, status: "PAID", left: 7, charges: 1,
	},
	{
		name: "settle", engines: onBoth, vars: []string{"ORDERD_STAGE_COMMIT=each"}, faults: silence,
		points: "settle.begin settle.commit settle.committed",
		drive: func(v *victim) {
			if o := v.placed(); o != nil {
				v.payAt(o, "succeeded")
				v.report(o, "payment.succeeded")
			}
		},
		finish: func(v *victim) error {
			if o := v.placed(); o != nil {
				if err := expect(v.report(o, "payment.succeeded"), http.StatusOK); err != nil {
					return err
				}
			}
			return v.pay()
		},
		status: "PAID", left: 7, charges: 1,
	},
	{
		name: "cancel", engines: onMariaDB, points: cancelling,
		drive: func(v *victim) {
			v.place()
			v.post(v.buyer, "cancel", nil)
		},
		finish: func(v *victim) error {
			if err := v.repeat(); err != nil {
				return err
			}
			return expect(v.post(v.buyer, "cancel", nil), http.StatusOK)
		},
		status: "CANCELLED", left: 10,
	},
	{
		name: "cancel what was paid", engines: onMariaDB, faults: silence, points: "payment_unlease.commit payment_unlease.committed",
		drive: func(v *victim) {
			if o := v.placed(); o != nil {
				v.payAt(o, "succeeded")
				v.post(v.buyer, "cancel", nil)
			}
		},
		finish: func(v *victim) error {
			if err := v.pay(); err != nil {
				return err
			}
			return expect(v.post(v.buyer, "cancel", nil), http.StatusConflict)
		},
		status: "PAID", left: 7, charges: 1,
	},
	{
		name: "expire", engines: onMariaDB, workers: true, vars: []string{"ORDERD_PAY_TIMEOUT=1s"}, points: cancelling,
		drive: func(v *victim) {
			v.place()
			v.gone()
		},
		finish: func(v *victim) error {
			if err := v.repeat(); err != nil {
				return err
			}
			if o := v.buyer.order(v.orderNo); o.Status != "CANCELLED" {
				return fmt.Errorf("the order is %s", o.Status)
			}
			return nil
		},
		status: "CANCELLED", left: 10,
	},
	{
		name: "check", engines: onMariaDB, workers: true, points: "payment_postpone.commit payment_postpone.committed",
		drive: func(v *victim) {
			v.place()
			v.gone()
		},
		finish: (*victim).pay, status: "PAID", left: 7, charges: 1,
	},
	{
		name: "ship", engines: onMariaDB, faults: silence, points: "move.begin move.commit move.committed",
		drive: func(v *victim) {
			if o := v.placed(); o != nil {
				v.payAt(o, "succeeded")
				v.report(o, "payment.succeeded")
				v.post(v.admin, "ship", obj{"tracking_no": "T-1"})
			}
		},
		finish: func(v *victim) error {
			return expect(v.post(v.admin, "ship", obj{"tracking_no": "T-1"}), http.StatusOK)
		},
		status: "SHIPPED", left: 7, charges: 1,
	},
	{
		name: "a new attempt", engines: onMariaDB, faults: silence, points: "attempt.begin attempt.commit attempt.committed",
		drive: func(v *victim) {
			if o := v.placed(); o != nil {
				v.payAt(o, "failed")
				v.report(o, "payment.failed")
				v.post(v.buyer, "payments", obj{})
			}
		},
		finish: func(v *victim) error {
			if a := v.post(v.buyer, "payments", obj{}); a.Status != http.StatusConflict { // paid already
				if err := expect(a, http.StatusOK, http.StatusCreated); err != nil {
					return err
				}
			}
			return v.pay()
		},
		status: "PAID", left: 7, charges: 1,
	},
	{
		name: "refund", engines: onMariaDB, faults: silence,
		points: "refund.begin refund.commit refund.committed gateway_refund.call gateway_refund.called " +
			"settle_refund.begin settle_refund.commit settle_refund.committed",
		drive: driveRefund, finish: finishRefund, status: "REFUNDED", left: 10, charges: 1,
	},
	{
		name: "the answer to a refund is lost", engines: onMariaDB, workers: true,
		faults: append([]rule{{On: "refund", Mode: "error_after", Rate: 1}}, silence...),
		points: "refund_wait.commit refund_wait.committed refund_lease.commit refund_lease.committed gateway_query_refund.call gateway_query_refund.called",
		drive: func(v *victim) {
			driveRefund(v)
			v.gone()
		},
		finish: finishRefund, status: "REFUNDED", left: 10, charges: 1,
	},
	{
		name: "stock", engines: onMariaDB,
		points: "stock_put.begin stock_put.commit stock_put.committed stock_adjust.begin stock_adjust.commit stock_adjust.committed",
		drive:  func(v *victim) { v.adjust() },
		finish: func(v *victim) error { return expect(v.adjust(), http.StatusOK, http.StatusCreated) },
		left:   6,
	},
}

func driveRefund(v *victim) {
	if o := v.placed(); o != nil {
		v.payAt(o, "succeeded")
		v.report(o, "payment.succeeded")
		v.refund()
	}
}

func finishRefund(v *victim) error {
	if err := expect(v.refund(), http.StatusOK, http.StatusCreated); err != nil {
		return err
	}
	if o := v.buyer.order(v.orderNo); o.Status != "REFUNDED" || len(o.Refunds) != 1 {
		return fmt.Errorf("the order is %s with %d refunds", o.Status, len(o.Refunds))
	}
	return nil
}

func (v *victim) refund() answer {
	return v.post(v.admin, "refunds", obj{"refund_no": v.orderNo, "amount": 300, "restock": true})
}

func (v *victim) adjust() answer {
	return v.try(v.admin, http.MethodPost, "/v1/stock/"+v.sku+"/adjustments", obj{"adjustment_no": v.orderNo, "delta": -4, "reason": "broken"})
}

// gone waits until the victim is dead, by its own worker's work.
func (v *victim) gone() {
	_ = poll(v.t, func() error {
		if v.armed.Alive() {
			return fmt.Errorf("%s is alive", v.point)
		}
		return nil
	})
}

func expect(a answer, statuses ...int) error {
	if !slices.Contains(statuses, a.Status) {
		return fmt.Errorf("%s", a)
	}
	return nil
}

// repeat places the order once more, as whoever got no answer does.
func (v *victim) repeat() error {
	return expect(v.place(), http.StatusOK, http.StatusCreated, http.StatusAccepted)
}

// pay brings the order to PAID: the client repeats, the shopper pays, the gateway reports.
func (v *victim) pay() error {
	if err := v.repeat(); err != nil {
		return err
	}
	o := v.buyer.order(v.orderNo)
	if o.Status == "PAID" {
		return nil
	}
	if o.Payment == nil || o.Payment.Status != "PENDING" {
		return fmt.Errorf("the order is %s, its payment %+v", o.Status, o.Payment)
	}
	v.payAt(&o, "succeeded")
	return fmt.Errorf("the order is %s", o.Status)
}
