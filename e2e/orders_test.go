package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/oklog/ulid/v2"
)

// orderView is an Order as the API shows it.
type orderView struct {
	OrderNo        string       `json:"order_no"`
	UserID         string       `json:"user_id"`
	Status         string       `json:"status"`
	Currency       string       `json:"currency"`
	Amount         int64        `json:"amount"`
	PaidAmount     int64        `json:"paid_amount"`
	RefundedAmount int64        `json:"refunded_amount"`
	Payment        *paymentView `json:"payment"`
	Refunds        []refundView `json:"refunds"`
	CancelReason   string       `json:"cancel_reason"`
	TrackingNo     string       `json:"tracking_no"`
	Version        int64        `json:"version"`
}

type paymentView struct {
	PaymentNo     string  `json:"payment_no"`
	Attempt       int64   `json:"attempt"`
	Gateway       string  `json:"gateway"`
	Status        string  `json:"status"`
	Amount        int64   `json:"amount"`
	Currency      string  `json:"currency"`
	PayURL        *string `json:"pay_url"`
	TransactionID *string `json:"transaction_id"`
}

type refundView struct {
	RefundNo  string `json:"refund_no"`
	PaymentNo string `json:"payment_no"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Reason    string `json:"reason"`
	Status    string `json:"status"`
}

// newNo returns a fresh order_no, refund_no or adjustment_no.
func newNo(prefix string) string { return prefix + "-" + ulid.Make().String() }

// stock creates a SKU as admin and returns it. price is in minor units of CNY.
func (c *client) stock(price, available int64) (sku string) {
	c.t.Helper()
	sku = newNo("SKU")
	body := obj{"title": "Test " + sku, "unit_price": price, "currency": "CNY", "available": available}
	if a := c.do(http.MethodPut, "/v1/stock/"+sku, body); a.Status != http.StatusCreated {
		c.t.Fatalf("create a SKU: %s", a)
	}
	return sku
}

// available returns what is left of a SKU.
func (c *client) available(sku string) int64 {
	c.t.Helper()
	var row struct {
		Available int64 `json:"available"`
	}
	c.do(http.MethodGet, "/v1/stock/"+sku, nil).decode(c.t, &row)
	return row.Available
}

// want is the body of an order for one SKU; an empty orderNo leaves the member out.
func want(orderNo, sku string, quantity int) obj {
	body := obj{"items": []obj{{"sku": sku, "quantity": quantity}}}
	if orderNo != "" {
		body["order_no"] = orderNo
	}
	return body
}

// place posts an order.
func (c *client) place(body any, header ...string) answer {
	c.t.Helper()
	return c.do(http.MethodPost, "/v1/orders", body, header...)
}

// mustPlace places an order that must be created and PAYING.
func (c *client) mustPlace(sku string, quantity int) orderView {
	c.t.Helper()
	a := c.place(want(newNo("ord"), sku, quantity))
	o := a.order(c.t)
	if a.Status != http.StatusCreated || o.Status != "PAYING" || o.Payment == nil {
		c.t.Fatalf("place an order: %s", a)
	}
	return o
}

// order reads an order, which must exist.
func (c *client) order(orderNo string) orderView {
	c.t.Helper()
	a := c.do(http.MethodGet, "/v1/orders/"+orderNo, nil)
	if a.Status != http.StatusOK {
		c.t.Errorf("read order %s: %s", orderNo, a)
	}
	return a.order(c.t)
}

// becomes waits until the order has a status.
func (c *client) becomes(orderNo, status string) orderView {
	c.t.Helper()
	var o orderView
	settled(c.t, func() error {
		a, err := c.try(http.MethodGet, "/v1/orders/"+orderNo, nil)
		if err != nil {
			return err
		}
		if o = a.order(c.t); o.Status != status {
			return fmt.Errorf("order %s is %s, not %s", orderNo, o.Status, status)
		}
		return nil
	})
	return o
}

// paid places and pays an order and waits until it is PAID.
func (e *env) paid(t testing.TB, c *client, sku string, quantity int) orderView {
	t.Helper()
	o := c.mustPlace(sku, quantity)
	e.sandbox.pay(t, o.Payment.PaymentNo)
	return c.becomes(o.OrderNo, "PAID")
}
