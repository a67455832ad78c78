package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Amounts are minor units, whatever a currency's are: none (yen, won), two, or three (dinars). Placed, paid and sent back in
// part, every figure is exact, in our books and in the gateway's.
func TestCurrencies(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		buyer, admin := o.as(t, "u1"), o.admin(t)
		for _, c := range []struct {
			code        string
			price, back int64
		}{{"JPY", 500, 1}, {"KRW", 1000, 999}, {"KWD", 1234, 617}, {"CNY", 1299, 599}, {"KWD", 10_000_000_000, 1}} {
			t.Run(fmt.Sprint(c.code, c.price), func(t *testing.T) {
				sku := newNo("SKU")
				a := admin.do(http.MethodPut, "/v1/stock/"+sku, obj{"title": "Tea", "unit_price": c.price, "currency": c.code, "available": 10})
				require.Equal(t, http.StatusCreated, a.Status, a)
				body := want(newNo("ord"), sku, 3)
				body["expected_amount"] = 3 * c.price
				placed := buyer.place(body).order(t)
				require.Equal(t, []any{"PAYING", 3 * c.price, c.code}, []any{placed.Status, placed.Amount, placed.Currency})
				payment := *placed.Payment
				require.Equal(t, []any{3 * c.price, c.code}, []any{payment.Amount, payment.Currency})
				e.sandbox.pay(t, payment.PaymentNo)
				require.Equal(t, 3*c.price, buyer.becomes(placed.OrderNo, "PAID").PaidAmount)

				refundNo := refund(t, admin, placed.OrderNo, c.back)
				now := buyer.order(placed.OrderNo)
				require.Equal(t, []any{c.back, c.back, c.code}, []any{now.RefundedAmount, now.Refunds[0].Amount, now.Refunds[0].Currency})

				var moved []any
				for _, entry := range e.sandbox.ledger(t) {
					if entry.PaymentNo == payment.PaymentNo {
						moved = append(moved, entry.Kind, entry.RefundNo, entry.Amount, entry.Currency)
					}
				}
				require.Equal(t, []any{"charge", "", 3 * c.price, c.code, "refund", refundNo, c.back, c.code}, moved)
			})
		}
		a := admin.do(http.MethodPut, "/v1/stock/"+newNo("SKU"), obj{"title": "Tea", "unit_price": 1, "currency": "XXX", "available": 1})
		require.Equal(t, http.StatusUnprocessableEntity, a.Status)
		e.auditSettled(t)
		code, out := e.command(t, "reconcile")
		require.Zero(t, code, out)
	})
}
