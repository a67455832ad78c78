package order_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/order"
	"orderd/internal/payment/stripe"
	"orderd/internal/stock"
)

// An order that its gateway can never take the money of is refused before anything is written, as often as it is sent;
// another gateway may take it. Stripe takes no Iraqi dinars, and of Kuwaiti ones no amount that does not end in 0.
func TestMoneyThatTheGatewayDoesNotTake(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		var calls atomic.Int64
		company := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
		t.Cleanup(company.Close)
		var err error
		b.Gateways["stripe"], err = stripe.NewGateway(stripe.Config{SecretKey: "sk_test_123", WebhookSecrets: []string{"whsec_" + strings.Repeat("0", 32)},
			ReturnURL: "https://shop/thanks", APIBase: company.URL})
		require.NoError(t, err)
		quantity := int64(10)
		for _, money := range []struct {
			currency string
			price    int64
		}{{"IQD", 1000}, {"KWD", 617}} {
			sku := no("SKU")
			_, _, err := b.stock.Put(t.Context(), stock.Item{SKU: sku, Title: "Tea", UnitPrice: money.price, Currency: money.currency}, &quantity)
			require.NoError(t, err)
			r := request(no("ord"), sku, 2)
			r.Gateway, r.Key = "stripe", no("key")
			for range 2 {
				_, err = b.Place(t.Context(), r)
				require.Equal(t, []any{fault.Unprocessable, "validation_failed", "gateway"}, refusal(t, err), money.currency)
			}
			_, err = b.Get(t.Context(), user, r.OrderNo)
			require.Equal(t, fault.NotFound, fault.As(err).Kind)
			_, err = b.Key(t.Context(), user, r.Key)
			require.Equal(t, fault.NotFound, fault.As(err).Kind, "the key is free again")
			require.Equal(t, quantity, b.left(sku))

			r.Gateway = "sandbox"
			res, err := b.Place(t.Context(), r)
			require.NoError(t, err)
			require.True(t, res.Created)
			for range 2 {
				_, err = b.OpenAttempt(t.Context(), user, r.OrderNo, "stripe")
				require.Equal(t, []any{fault.Unprocessable, "validation_failed", "gateway"}, refusal(t, err), money.currency)
			}
			now := b.get(r.OrderNo)
			require.Equal(t, []any{res.Order.Version, "sandbox", 1}, []any{now.Version, now.Payment.Gateway, *now.Payment.OpenSlot}, "the open attempt stays")
		}
		require.Zero(t, calls.Load())
		b.clean()
	})
}

// A refund that the gateway cannot express is refused, and holds nothing.
func TestRefundThatTheGatewayDoesNotTake(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		o := b.placed(b.sku(1299, 10))
		b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
		_, err := b.Settle(t.Context(), b.notice("sandbox", o.Payment.PaymentNo))
		require.NoError(t, err)
		b.Gateways["sandbox"] = coarse{b.gateways["sandbox"]}
		_, err = b.Refund(t.Context(), admin, order.RefundRequest{OrderNo: o.OrderNo, RefundNo: no("ref"), Amount: 299})
		require.Equal(t, []any{fault.Unprocessable, "validation_failed", "amount"}, refusal(t, err))
		require.Empty(t, b.get(o.OrderNo).Refunds)
		_, err = b.Refund(t.Context(), admin, order.RefundRequest{OrderNo: o.OrderNo, RefundNo: no("ref"), Amount: 290})
		require.NoError(t, err)
		require.EqualValues(t, 290, b.get(o.OrderNo).RefundedAmount)
		b.clean()
	})
}

// coarse is a gateway that takes whole tens only.
type coarse struct{ *gateway }

func (c coarse) Takes(amount int64, currency string) bool {
	return amount%10 == 0 && c.gateway.Takes(amount, currency)
}

// refusal is an error's kind and code, and the one member that it names.
func refusal(t *testing.T, err error) []any {
	t.Helper()
	f := fault.As(err)
	require.NotNil(t, f, err)
	require.Len(t, f.Fields, 1)
	return []any{f.Kind, f.Code, f.Fields[0].Field}
}
