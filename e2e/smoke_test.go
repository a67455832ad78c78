package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The shortest honest path: an order is placed, paid at the gateway, and both sides' books agree.
func TestAnOrderIsPlacedAndPaid(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		admin, buyer := o.admin(t), o.as(t, "u1")
		sku := admin.stock(1299, 10)

		placed := buyer.mustPlace(sku, 2)
		require.EqualValues(t, 2598, placed.Amount)
		require.EqualValues(t, 8, buyer.available(sku))

		again := buyer.place(want(placed.OrderNo, sku, 2))
		require.Equal(t, http.StatusOK, again.Status)
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		require.Equal(t, "state", again.guard())
		require.EqualValues(t, 1, o.metric(t, `orderd_duplicates_stopped_total{guard="state"}`))

		e.sandbox.pay(t, placed.Payment.PaymentNo)
		paid := buyer.becomes(placed.OrderNo, "PAID")
		require.EqualValues(t, 2598, paid.PaidAmount)
		require.Len(t, e.sandbox.ledger(t), 1)
		e.auditSettled(t)
	})
}
