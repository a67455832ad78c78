package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// Every route of an order, by everybody who has no business there.
func TestOthersOrders(t *testing.T) {
	t.Parallel()
	e := newEnv(t, embedded)
	o := e.start(t)
	admin, owner := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 10)
	placed := e.paid(t, owner, sku, 1)
	before := owner.do(http.MethodGet, "/v1/orders/"+placed.OrderNo, nil)
	bodies := map[string]any{"payments": obj{}, "cancel": obj{}, "complete": nil, "ship": obj{"tracking_no": "T1"},
		"refunds": obj{"refund_no": "refund-1", "amount": 1}, "timeline": obj{}, "adjustments": obj{"adjustment_no": "adj-0001", "delta": 1, "reason": "r"}}
	stranger, nobody, weak := o.as(t, "u2"), o.with(t, ""), o.with(t, mint(t, jwt.MapClaims{"sub": "u1", "scope": ""}))
	adminOnly := map[string]bool{"ship": true, "refunds": true, "adjustments": true}
	calls := 0
	for _, path := range routes(t) {
		mine, theirs := fill(path, placed.OrderNo), fill(path, newNo("none"))
		last := path[strings.LastIndex(path, "/")+1:]
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
			if !strings.Contains(path, "{order_no}") && !strings.HasPrefix(path, "/v1/stock") {
				continue
			}
			body := bodies[last]
			switch {
			case method == http.MethodGet:
				body = nil
			case strings.HasSuffix(path, "{sku}"):
				body = obj{"title": "cheap", "unit_price": 1, "currency": "CNY"}
			}
			asStranger := stranger.do(method, mine, body)
			if asStranger.Status == 405 {
				continue
			}
			calls++
			require.Equal(t, 401, nobody.do(method, mine, body).Status, "%s %s", method, path)
			require.Equal(t, 403, weak.do(method, mine, body).Status, "%s %s without a scope", method, path)
			switch {
			case method == http.MethodPut || method == http.MethodPost && adminOnly[last]:
				require.Equal(t, 403, asStranger.Status, "%s %s: %s", method, path, asStranger)
				require.Equal(t, 403, owner.do(method, mine, body).Status, "%s %s is an admin's", method, path)
			case strings.Contains(path, "{order_no}"):
				unknown := stranger.do(method, theirs, body)
				require.Equal(t, 404, asStranger.Status, "%s %s: %s", method, path, asStranger)
				require.Equal(t, withoutRequestID(t, unknown), withoutRequestID(t, asStranger), "another's order looks like none")
			}
		}
	}
	require.Greater(t, calls, 9)
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/vars"} {
		require.Equal(t, 404, nobody.do(http.MethodGet, path, nil).Status, path)
	}
	require.NotContains(t, string(stranger.do(http.MethodGet, "/v1/orders", nil).Body), placed.OrderNo)
	require.Contains(t, []int{400, 403}, stranger.do(http.MethodGet, "/v1/orders?user_id=u1", nil).Status)
	require.Equal(t, string(before.Body), string(owner.do(http.MethodGet, "/v1/orders/"+placed.OrderNo, nil).Body))
	require.EqualValues(t, 9, owner.available(sku))
	e.auditSettled(t)
}

func withoutRequestID(t testing.TB, a answer) obj {
	t.Helper()
	var v obj
	a.decode(t, &v)
	delete(v, "request_id")
	return v
}
