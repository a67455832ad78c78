package e2e

import (
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// transaction is the gateway's number of an accepted charge.
func (o orderView) transaction() string {
	if o.Payment == nil || o.Payment.TransactionID == nil {
		return ""
	}
	return *o.Payment.TransactionID
}

func (a *arena) sameCallback() {
	a.mute(a.t)
	sku := a.admin.stock(100, 10)
	o := a.at(0).mustPlace(sku, 3)
	cb := a.paidAtGateway(a.t, o)
	results := map[string]int{}
	for _, x := range gather(20, func(i int) answer { return a.at(i).callback(cb) }) {
		require.Equal(a.t, http.StatusOK, x.Status, "%s", x)
		results[x.result(a.t)]++
	}
	require.Equal(a.t, map[string]int{"applied": 1, "duplicate": 19}, results)
	paid := a.at(0).do(http.MethodGet, "/v1/orders/"+o.OrderNo, nil)
	require.Equal(a.t, "PAID", paid.order(a.t).Status)
	require.Equal(a.t, http.StatusOK, a.at(1).callback(cb).Status)
	require.Equal(a.t, string(paid.Body), string(a.at(1).do(http.MethodGet, "/v1/orders/"+o.OrderNo, nil).Body),
		"a duplicate changed something")
	require.Equal(a.t, []string{"create", "reserve", "open_payment", "pay"}, a.at(0).history(o.OrderNo))
}

// The gateway reports the money before it answers the call that asked for it.
func (a *arena) callbackBeforeAnswer() {
	a.sandbox.faults(a.t, 1, rule{On: "callback", Mode: "before_response", Rate: 1, Times: 1})
	sku := a.admin.stock(100, 10)
	body := want(newNo("early"), sku, 3)
	o := a.oneOrder(gather(2, func(i int) answer { return a.at(i).place(body) }))
	a.at(0).becomes(o.OrderNo, "PAID")
	require.Equal(a.t, []string{"create", "reserve", "open_payment", "pay"}, a.at(0).history(o.OrderNo))
	require.EqualValues(a.t, 7, a.admin.available(sku))
}

// The shopper pays while the order is cancelled, and the gateway does not even keep its word about a closed charge.
func (a *arena) callbackAgainstCancel() {
	a.sandbox.faults(a.t, time.Now().UnixNano(), rule{On: "close", Mode: "closed_but_payable", Rate: 0.5})
	sku := a.admin.stock(100, 10)
	o := a.at(0).mustPlace(sku, 3)
	answers := gather(4, func(i int) answer {
		if i > 0 {
			return a.at(i).do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/cancel", nil)
		}
		return a.sandbox.do(a.t, http.MethodPost, "/v1/charges/"+o.Payment.PaymentNo+"/pay", obj{"outcome": "succeeded"},
			200, 201, 202, 204, 409)
	})
	for _, x := range answers[1:] {
		require.Contains(a.t, []int{http.StatusOK, http.StatusConflict}, x.Status, "%s", x)
	}
	a.settledEitherWay(o, sku, 10)
}

// settledEitherWay waits until the order is PAID, or CANCELLED with its stock back and its money, if any came, on its way
// back.
func (a *arena) settledEitherWay(o orderView, sku string, opening int64) {
	var money int64
	for _, entry := range a.sandbox.ledger(a.t) {
		if entry.Kind == "charge" && entry.PaymentNo == o.Payment.PaymentNo {
			money += entry.Amount
		}
	}
	settled(a.t, func() error {
		now := a.at(0).order(o.OrderNo)
		switch {
		case now.Status == "PAID" && money == o.Amount && len(now.Refunds) == 0 && a.admin.available(sku) == opening-3:
			return nil
		case now.Status == "CANCELLED" && a.admin.available(sku) == opening && money == 0 && len(now.Refunds) == 0:
			return nil
		case now.Status == "CANCELLED" && a.admin.available(sku) == opening && money == o.Amount && len(now.Refunds) == 1 &&
			now.Refunds[0].Reason == "LATE_PAYMENT" && now.Refunds[0].Amount == money:
			return nil
		}
		if now.Status == "PAYING" { // every cancel met another one's call to the gateway: ask again, as a client does
			a.at(1).do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/cancel", nil)
		}
		return unsettled{now, money}
	})
}

type unsettled struct {
	order orderView
	money int64
}

func (u unsettled) Error() string {
	return strings.Join([]string{"order", u.order.OrderNo, "is", u.order.Status}, " ")
}

// A client that confirms and a gateway that reports: neither may be told of a failure.
func (a *arena) callbackAgainstResubmission() {
	a.mute(a.t)
	sku := a.admin.stock(100, 10)
	body := want(newNo("conf"), sku, 3)
	o := a.oneOrder([]answer{a.at(0).place(body)})
	cb := a.paidAtGateway(a.t, o)
	for i, x := range gather(6, func(i int) answer {
		switch i % 3 {
		case 0:
			return a.at(i / 3).callback(cb)
		case 1:
			return a.at(i / 3).place(body)
		}
		return a.at(i/3).do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/payments", obj{})
	}) {
		if i%3 == 2 && x.Status == http.StatusConflict { // paid already
			continue
		}
		require.Equal(a.t, http.StatusOK, x.Status, "%s", x)
	}
	require.Equal(a.t, "PAID", a.at(0).order(o.OrderNo).Status)
	require.Equal(a.t, []string{"create", "reserve", "open_payment", "pay"}, a.at(0).history(o.OrderNo))
	require.EqualValues(a.t, 7, a.admin.available(sku))
}

// A shopper pays the first attempt, that was said to have failed, and the second one too; both callbacks come at once. One
// of them pays the order, the other's money goes back.
func (a *arena) bothAttemptsPaid() {
	a.mute(a.t)
	sku := a.admin.stock(100, 10)
	o := a.at(0).mustPlace(sku, 3)
	failed := message(o)
	failed.Type = "payment.failed"
	require.Equal(a.t, "applied", a.at(1).callback(failed).result(a.t))
	x := a.at(1).do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/payments", obj{})
	require.Equal(a.t, http.StatusCreated, x.Status, "%s", x)
	attempts := []orderView{o, x.order(a.t)}
	require.EqualValues(a.t, 2, attempts[1].Payment.Attempt)
	news := []callback{a.paidAtGateway(a.t, attempts[0]), a.paidAtGateway(a.t, attempts[1])}
	results := map[string]int{}
	for _, x := range gather(8, func(i int) answer { return a.at(i / 2).callback(news[i%2]) }) {
		results[x.result(a.t)]++
	}
	require.Equal(a.t, map[string]int{"applied": 1, "refund_opened": 1, "duplicate": 6}, results)
	now := a.at(0).order(o.OrderNo)
	require.Equal(a.t, "PAID", now.Status)
	require.EqualValues(a.t, 300, now.PaidAmount)
	refundOf(a.t, now, "DUPLICATE_PAYMENT", 300)
	require.EqualValues(a.t, 7, a.admin.available(sku))
	require.Equal(a.t, 1, a.at(0).happened(o.OrderNo, "pay"))
}

// The first attempt has failed. Whoever opens the next and whoever cancels must not pass each other.
func (a *arena) cancelAgainstAttempt() {
	sku := a.admin.stock(100, 10)
	o := a.at(0).mustPlace(sku, 3)
	a.sandbox.payAs(a.t, o.Payment.PaymentNo, obj{"outcome": "failed"})
	settled(a.t, func() error {
		if now := a.at(0).order(o.OrderNo); now.Payment.Status != "FAILED" {
			return unsettled{order: now}
		}
		return nil
	})
	answers := gather(4, func(i int) answer {
		if i < 2 {
			return a.at(i).do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/cancel", nil)
		}
		return a.at(i).do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/payments", obj{})
	})
	for _, x := range answers {
		require.Contains(a.t, []int{200, 201, 202, 409}, x.Status, "%s", x) // 202: the attempt that another opened, which the gateway has not answered yet
	}
	require.LessOrEqual(a.t, count(answers[2:])[201], 1, "two attempts were opened at once")
	now := a.at(0).order(o.OrderNo)
	require.LessOrEqual(a.t, now.Payment.Attempt, int64(2))
	if now.Status == "CANCELLED" {
		require.NotContains(a.t, []string{"INIT", "PENDING", "UNKNOWN"}, now.Payment.Status, "a cancelled order can be paid")
		require.EqualValues(a.t, 10, a.admin.available(sku))
		return
	}
	require.Equal(a.t, "PAYING", now.Status)
	require.EqualValues(a.t, 7, a.admin.available(sku))
}

// Half of them name another tracking number: one number wins, and its order is shipped once.
func (a *arena) ship() {
	o := a.paid(a.t, a.at(0), a.admin.stock(100, 10), 3)
	admin := a.admins()
	numbers := []string{"TRACK-1", "TRACK-2"}
	won := map[string]int{}
	for i, x := range gather(10, func(i int) answer {
		return admin[i%2].do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/ship", obj{"tracking_no": numbers[i/2%2]})
	}) {
		if x.Status != http.StatusConflict {
			require.Equal(a.t, http.StatusOK, x.Status, "%s", x)
			require.Equal(a.t, numbers[i/2%2], x.order(a.t).TrackingNo)
			won[x.order(a.t).TrackingNo]++
		}
	}
	require.Len(a.t, won, 1)
	require.Equal(a.t, []string{"create", "reserve", "open_payment", "pay", "ship"}, a.at(0).history(o.OrderNo))
}

// admins are admin clients at each replica.
func (a *arena) admins() []*client {
	all := make([]*client, len(a.buyers))
	for i, c := range a.buyers {
		d := *a.admin
		d.base = c.base
		all[i] = &d
	}
	return all
}
