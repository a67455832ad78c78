package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// expiresAt reads when an order expires.
func expiresAt(t testing.TB, a answer) time.Time {
	t.Helper()
	var o struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	a.decode(t, &o)
	return o.ExpiresAt
}

// In the instant in which an order expires, it is also paid and cancelled, at two replicas. Exactly one of them
// happens.
func TestExpiryAgainstPaymentAndCancel(t *testing.T) {
	t.Parallel()
	a := newArena(t, "ORDERD_PAY_TIMEOUT=2s", "ORDERD_WORKER_INTERVAL=10ms")
	for range (rounds(t) + 9) / 10 {
		sku := a.admin.stock(100, 100)
		orders := make([]orderView, 10)
		var last time.Time
		for i := range orders {
			x := a.at(i).place(want(newNo("exp"), sku, 3))
			require.Equal(t, http.StatusCreated, x.Status, "%s", x)
			orders[i], last = x.order(t), expiresAt(t, x)
		}
		<-time.After(time.Until(last) - 100*time.Millisecond) // the last of them; the first have expired by now
		together(2*len(orders), func(i int) {
			o := orders[i/2]
			if i%2 == 0 {
				a.sandbox.do(t, http.MethodPost, "/v1/charges/"+o.Payment.PaymentNo+"/pay", obj{"outcome": "succeeded"}, 200, 201, 202, 204, 409)
				return
			}
			a.at(i/2).do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/cancel", nil)
		})
		left := int64(100)
		for _, o := range orders {
			settled(t, func() error {
				if now := a.at(0).order(o.OrderNo); now.Status == "PAYING" {
					return unsettled{order: now}
				}
				return nil
			})
			if a.at(0).order(o.OrderNo).Status == "PAID" {
				left -= 3
				require.Zero(t, a.at(0).happened(o.OrderNo, "cancel"))
			} else {
				require.Equal(t, 1, a.at(0).happened(o.OrderNo, "cancel"))
			}
		}
		require.Equal(t, left, a.admin.available(sku))
	}
	a.auditSettled(t)
	a.ledgerAgrees(t)
}

// The timeout is exact, by the database's clock: its own stamps say that no order was cancelled before its time.
func TestNothingExpiresEarly(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		buyer := o.as(t, "u1")
		sku := o.admin(t).stock(100, 100)
		for _, x := range gather(20, func(int) answer { return buyer.place(want(newNo("exp"), sku, 1)) }) {
			end := expiresAt(t, x)
			now := buyer.becomes(x.order(t).OrderNo, "CANCELLED")
			require.Equal(t, "expired", now.CancelReason)
			var cancelled struct {
				UpdatedAt time.Time `json:"updated_at"`
			}
			buyer.do(http.MethodGet, "/v1/orders/"+now.OrderNo, nil).decode(t, &cancelled)
			require.False(t, cancelled.UpdatedAt.Before(end), "cancelled %v before its time", end.Sub(cancelled.UpdatedAt))
		}
		require.EqualValues(t, 100, buyer.available(sku))
		e.auditSettled(t)
	}, "ORDERD_PAY_TIMEOUT=1s", "ORDERD_WORKER_INTERVAL=10ms")
}

// Orders expire by the database, whatever else has forgotten them.
func TestExpiryNeedsNothingButTheDatabase(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis, "ORDERD_PAY_TIMEOUT=2s")
	o := e.start(t)
	buyer := o.as(t, "u1")
	sku := o.admin(t).stock(1299, 10)
	placed := buyer.mustPlace(sku, 2)
	client := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.FlushAll(t.Context()).Err())
	require.Equal(t, "expired", buyer.becomes(placed.OrderNo, "CANCELLED").CancelReason)
	require.EqualValues(t, 10, buyer.available(sku))
	e.auditSettled(t)
}
