package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where real money is taken, nobody pays with the sandbox's, whose pay page is open to all: it is there only if asked for.
func TestNoPlayMoneyBesideRealMoney(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t, "ORDERD_GATEWAY=stripe", "ORDERD_STRIPE_SECRET_KEY=sk_test_"+strings.Repeat("0", 24),
		"ORDERD_STRIPE_WEBHOOK_SECRET=whsec_"+strings.Repeat("0", 32), "ORDERD_STRIPE_RETURN_URL=https://shop.example/thanks",
		"ORDERD_SANDBOX_URL=", "ORDERD_SANDBOX_API_KEY=", "ORDERD_SANDBOX_WEBHOOK_SECRET=")
	require.NotContains(t, o.Log(), "name=sandbox")
	buyer := o.as(t, "u1")
	body := want(newNo("ord"), o.admin(t).stock(1299, 10), 1)
	body["gateway"] = "sandbox"
	a := buyer.place(body)
	require.Equal(t, http.StatusUnprocessableEntity, a.Status)
	require.Equal(t, []string{"gateway"}, a.fields(t))
	require.Equal(t, http.StatusNotFound, o.with(t, "").do(http.MethodPost, "/v1/payments/callbacks/sandbox", obj{}).Status)
}
