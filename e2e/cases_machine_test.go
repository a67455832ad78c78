package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The state machine decides what is legal, the database who was first.
func TestTransitions(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		nodes := e.replicas(t)
		e.mute(t)
		admin, buyer := nodes[0].admin(t), nodes[0].as(t, "u1")
		admins := [2]*client{admin, nodes[1].admin(t)}
		sku := admin.stock(100, 1000)
		paid := func(t *testing.T) orderView {
			t.Helper()
			o := buyer.mustPlace(sku, 1)
			require.Equal(t, 200, buyer.callback(e.paidAtGateway(t, o)).Status)
			return o
		}

		t.Run("every call twice", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			o := buyer.mustPlace(sku, 1)
			base := "/v1/orders/" + o.OrderNo
			for _, call := range []string{"/ship", "/complete"} {
				body := any(nil)
				if call == "/ship" {
					body = obj{"tracking_no": "T1"}
				}
				require.Equal(t, "invalid_transition", admin.do(http.MethodPost, base+call, body).code(), "not paid yet")
			}
			require.Equal(t, 200, buyer.do(http.MethodPost, base+"/payments", obj{}).Status)
			require.Equal(t, 200, buyer.do(http.MethodPost, base+"/payments", obj{"gateway": "sandbox"}).Status)
			require.Equal(t, 422, buyer.do(http.MethodPost, base+"/payments", obj{"gateway": "nobody"}).Status)
			require.Equal(t, 200, buyer.callback(e.paidAtGateway(t, o)).Status)
			require.Equal(t, "invalid_transition", buyer.do(http.MethodPost, base+"/complete", nil).code(), "not shipped yet")
			for i, guard := range []string{"", "state", "state"} {
				a := admins[i%2].do(http.MethodPost, base+"/ship", obj{"tracking_no": "T1"})
				require.Equal(t, 200, a.Status, a)
				require.Equal(t, guard, a.guard())
			}
			require.Equal(t, "invalid_transition", admin.do(http.MethodPost, base+"/ship", obj{"tracking_no": "T2"}).code())
			for _, guard := range []string{"", "state"} {
				a := buyer.do(http.MethodPost, base+"/complete", nil)
				require.Equal(t, 200, a.Status, a)
				require.Equal(t, guard, a.guard())
			}
			require.Equal(t, "invalid_transition", buyer.do(http.MethodPost, base+"/cancel", nil).code())
			require.Equal(t, []string{"create", "reserve", "open_payment", "pay", "ship", "complete"}, buyer.history(o.OrderNo))
			require.Equal(t, "T1", buyer.order(o.OrderNo).TrackingNo)
		})

		t.Run("ten ship at once", func(t *testing.T) {
			buyer := buyer.on(t)
			for round := range 4 {
				o := paid(t)
				won := map[string]int{}
				for _, a := range gather(10, func(i int) answer {
					return admins[i%2].do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/ship", obj{"tracking_no": fmt.Sprint("T", i%2)})
				}) {
					if a.Status == 200 {
						won[a.order(t).TrackingNo]++
					} else {
						require.Contains(t, []string{"invalid_transition", "order_in_progress"}, a.code(), a)
					}
				}
				require.Len(t, won, 1, "round %d: %v", round, won)
				require.Equal(t, 1, buyer.happened(o.OrderNo, "ship"))
			}
		})

		t.Run("a shipment and a refund", func(t *testing.T) {
			admin, buyer := admin.on(t), buyer.on(t)
			for range 4 {
				o := paid(t)
				gather(2, func(i int) answer {
					if i == 0 {
						return admins[0].do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/ship", obj{"tracking_no": "T1"})
					}
					return admins[1].do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/refunds", obj{"refund_no": newNo("ref"), "amount": 30})
				})
				settled(t, func() error {
					now := buyer.order(o.OrderNo)
					if now.RefundedAmount != 30 {
						return fmt.Errorf("refunded %d", now.RefundedAmount)
					}
					if now.Status != "SHIPPED" { // the two met at the order's lock
						return statusIs(admin.do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/ship", obj{"tracking_no": "T1"}), 0)
					}
					return nil
				})
				now := buyer.order(o.OrderNo)
				require.Equal(t, "T1", now.TrackingNo)
				require.Equal(t, 1, buyer.happened(o.OrderNo, "refund_succeeded"))
			}
		})

		t.Run("goroutines go home", func(t *testing.T) {
			buyer := buyer.on(t)
			burst := func() { gather(20, func(int) answer { return buyer.place(want(newNo("ord"), sku, 1)) }) }
			burst() // opens the connections that are kept for the next
			before := nodes[0].metric(t, "go_goroutines")
			for range 3 {
				burst()
			}
			settled(t, func() error {
				if now := nodes[0].metric(t, "go_goroutines"); now > before+15 { // a leak would be 60 of them
					return fmt.Errorf("%v goroutines, %v before", now, before)
				}
				return nil
			})
		})
		e.auditSettled(t)
	})
}

// A replica that is told to stop finishes what it has begun.
func TestShutdownAnswersEverybody(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		admin, buyer := o.admin(t), o.as(t, "u1")
		sku := admin.stock(100, 1000)
		e.sandbox.faults(t, 1, rule{On: "charge", Mode: "slow", Rate: 1})
		const n = 50
		bodies := make([]obj, n)
		for i := range bodies {
			bodies[i] = want(newNo("ord"), sku, 1)
		}
		answers := make(chan []answer, 1)
		go func() { answers <- gather(n, func(i int) answer { return buyer.place(bodies[i]) }) }()
		settled(t, func() error { // all of them are at the gateway
			if left := admin.available(sku); left != 1000-n {
				return fmt.Errorf("%d left", left)
			}
			return nil
		})
		require.Zero(t, o.Term())
		for _, a := range <-answers {
			require.Contains(t, []int{201, 202}, a.Status, a)
		}
		_, err := buyer.try(http.MethodGet, "/healthz", nil)
		require.Error(t, err, "nobody is there any more")
		e.sandbox.heal(t)
		o.Restart(t)
		for _, body := range bodies {
			a := o.as(t, "u1").place(body)
			require.Equal(t, 200, a.Status, a)
		}
		require.EqualValues(t, 1000-n, o.admin(t).available(sku))
		e.auditSettled(t)
	})
}
