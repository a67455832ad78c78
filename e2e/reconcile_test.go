package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const agree = "reconcile: our books and the gateways' agree\n"

// reconciled is what `orderd reconcile --json` says.
type reconciled struct {
	Breaks []struct {
		Kind, Gateway, Ours, Theirs string
		PaymentNo                   string `json:"payment_no"`
		RefundNo                    string `json:"refund_no"`
	} `json:"breaks"`
	Unlisted []string `json:"unlisted"`
}

// reconcile runs the command both ways of printing; each must say the same, and print nothing else: no bar, for one.
func (e *env) reconcile(t testing.TB, args ...string) (code int, table string, report reconciled) {
	t.Helper()
	args = append([]string{"reconcile", "--look=10ms"}, args...)
	code, table = e.command(t, args...)
	again, text := e.command(t, append(args, "--json")...)
	require.Equal(t, code, again)
	require.NoError(t, json.Unmarshal([]byte(text), &report), text)
	require.NotContains(t, table+text, "\r")
	if code == 0 {
		require.Empty(t, report.Breaks)
		return code, table, report
	}
	lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
	require.Equal(t, []string{"DIFFERS", "GATEWAY", "PAYMENT", "REFUND", "OURS", "THEIRS"}, strings.Fields(lines[0]))
	require.Len(t, lines, 1+len(report.Breaks), table)
	for i, b := range report.Breaks {
		row := strings.Join([]string{b.Kind, b.Gateway, b.PaymentNo, b.RefundNo, b.Ours, b.Theirs}, " ")
		require.Equal(t, strings.Fields(row), strings.Fields(lines[1+i]))
	}
	return code, table, report
}

func (r reconciled) rows() (rows []string) {
	for _, b := range r.Breaks {
		rows = append(rows, fmt.Sprintf("%s %s %s/%s: %s, %s", b.Kind, b.Gateway, b.PaymentNo, b.RefundNo, b.Ours, b.Theirs))
	}
	return rows
}

func TestReconcileCommand(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		buyer, admin := o.as(t, "u1"), o.admin(t)
		paid := e.paid(t, buyer, admin.stock(1299, 10), 1)
		refund(t, admin, paid.OrderNo, 299)
		code, table, report := e.reconcile(t)
		require.Equal(t, []any{0, agree, []string{}}, []any{code, table, report.Unlisted})

		e.sandbox.do(t, http.MethodPost, "/v1/charges", obj{"merchant_id": merchantID, "payment_no": "P-stray", "amount": 7, "currency": "JPY", "subject": "x",
			"notify_url": o.url("api") + "/nowhere", "expires_at": time.Now().Add(time.Hour)}, 201)
		e.sandbox.pay(t, "P-stray")
		e.sandbox.do(t, http.MethodPost, "/v1/refunds", obj{"merchant_id": merchantID, "refund_no": "R-stray", "payment_no": paid.Payment.PaymentNo, "amount": 3,
			"notify_url": o.url("api") + "/nowhere"}, 201)
		code, _, report = e.reconcile(t, "--since=1h")
		require.Equal(t, 1, code)
		require.ElementsMatch(t, []string{"only_theirs sandbox P-stray/: nothing, 7 JPY",
			"only_theirs sandbox " + paid.Payment.PaymentNo + "/R-stray: nothing, 3 CNY"}, report.rows())
		code, table, _ = e.reconcile(t, "--since=0s")
		require.Equal(t, []any{0, agree}, []any{code, table}, "since now nothing moved")

		code, text := e.command(t, "reconcile", "--sandbox-url=http://127.0.0.1:1")
		require.Equal(t, 1, code)
		require.Contains(t, text, "orderd: gateway sandbox: ")
		code, text = e.command(t, "reconcile", "--help")
		require.Zero(t, code)
		require.Contains(t, text, "alipay and wechatpay list nothing")
	})
}

// An order that is paid at Stripe, from placing it to the comparison of the books.
func TestStripeAndItsBooks(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		s := startStripe(t)
		override(e.vars, s.vars())
		o := e.start(t)
		buyer, admin := o.as(t, "u1"), o.admin(t)
		body := want(newNo("ord"), admin.stock(1299, 10), 1)
		body["gateway"] = "stripe"
		placed := buyer.place(body).order(t)
		require.Equal(t, []any{"PAYING", "PENDING"}, []any{placed.Status, placed.Payment.Status})
		for _, result := range []string{"applied", "duplicate"} {
			require.Equal(t, result, s.pay(t, o.with(t, ""), placed).result(t))
		}
		require.Equal(t, "PAID", buyer.order(placed.OrderNo).Status)
		first, second := refund(t, admin, placed.OrderNo, 299), refund(t, admin, placed.OrderNo, 100)
		code, table, _ := e.reconcile(t)
		require.Equal(t, []any{0, agree}, []any{code, table})

		no := placed.Payment.PaymentNo
		s.loseRefund(second)
		s.received("pi_stray", "P-stray", 7)
		s.received("pi_"+placed.transaction(), no, 1298)
		code, _, report := e.reconcile(t)
		require.Equal(t, 1, code)
		require.ElementsMatch(t, []string{"only_theirs stripe P-stray/: nothing, 7 CNY", "amount stripe " + no + "/: 1299 CNY, 1298 CNY",
			"only_ours stripe " + no + "/" + second + ": 100 CNY, nothing"}, report.rows(), first)
		e.audit(t)
	})
}

// refund sends money of an order back, and waits until it has gone.
func refund(t testing.TB, admin *client, orderNo string, amount int64) (refundNo string) {
	t.Helper()
	refundNo = newNo("ref")
	a := admin.do(http.MethodPost, "/v1/orders/"+orderNo+"/refunds", obj{"refund_no": refundNo, "amount": amount})
	require.Equal(t, http.StatusCreated, a.Status, a)
	settled(t, func() error {
		for _, f := range admin.order(orderNo).Refunds {
			if f.RefundNo == refundNo && f.Status == "SUCCEEDED" {
				return nil
			}
		}
		return fmt.Errorf("%s has not succeeded", refundNo)
	})
	return refundNo
}
