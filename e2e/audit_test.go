package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// `orderd audit` on a live database: what is sound and what is not.
func TestAuditCommand(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t)
	admin, buyer := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 10)
	e.paid(t, buyer, sku, 2)
	code, out := e.command(t, "audit")
	require.Zero(t, code, out)
	require.Contains(t, out, "all hold")

	db := e.sql(t)
	_, err := db.Exec("UPDATE stock SET available = available + 1 WHERE sku = ?", sku)
	require.NoError(t, err)
	code, out = e.command(t, "audit")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "stock_adds_up")
	require.Contains(t, out, "sku="+sku)
	require.Contains(t, out, "available=9 of_movements=8")
	_, err = db.Exec("UPDATE stock SET available = available - 1 WHERE sku = ?", sku)
	require.NoError(t, err)
	e.auditSettled(t)
}

// `orderd reconcile`: what the gateway has moved and we have not booked, and the other way round.
func TestReconcileNamesWhatDiffers(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t, "ORDERD_WORKER_INTERVAL=1h") // nobody asks the gateway meanwhile
		admin, buyer := o.admin(t), o.as(t, "u1")
		sku := admin.stock(100, 10)
		type difference struct {
			PaymentNo string `json:"payment_no"`
			RefundNo  string `json:"refund_no"`
			Ours      string `json:"ours"`
			Theirs    string `json:"theirs"`
		}
		differ := func(want ...difference) {
			t.Helper()
			code, out := e.command(t, "reconcile", "--look=0s", "--json")
			require.Equal(t, min(len(want), 1), code, out)
			var got struct{ Breaks []difference }
			require.NoError(t, json.Unmarshal([]byte(out), &got), out)
			require.ElementsMatch(t, want, got.Breaks)
		}
		first := e.paid(t, buyer, sku, 2)
		differ()

		e.mute(t)
		unheard := buyer.mustPlace(sku, 1)
		cb := e.paidAtGateway(t, unheard)
		differ(difference{unheard.Payment.PaymentNo, "", "PENDING", "100 CNY"})
		require.Equal(t, "applied", buyer.callback(cb).result(t))
		differ()

		// The gateway sends money back that nobody here has asked for, and a message is signed about money that it has not sent.
		stray, lie := newNo("stray"), newNo("lie")
		e.sandbox.do(t, http.MethodPost, "/v1/refunds", obj{"merchant_id": merchantID, "refund_no": stray, "payment_no": first.Payment.PaymentNo,
			"amount": 30, "notify_url": o.url("api")}, 201)
		e.sandbox.faults(t, 1, rule{On: "refund", Mode: "error_before", Rate: 1}, rule{On: "callback", Mode: "drop", Rate: 1})
		require.Equal(t, 201, admin.refund(unheard.OrderNo, lie, 40).Status)
		require.Equal(t, "applied", buyer.callback(sentBack(unheard, lie, 40)).result(t))
		differ(difference{first.Payment.PaymentNo, stray, "nothing", "30 CNY"}, difference{unheard.Payment.PaymentNo, lie, "40 CNY", "nothing"})
		code, out := e.command(t, "reconcile", "--look=0s")
		require.Equal(t, 1, code, out)
		require.Contains(t, out, stray)
		require.Contains(t, out, lie)
	})
}
