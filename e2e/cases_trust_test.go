package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// Whether a callback can be believed.
func TestCallbacksThatLie(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		e.mute(t)
		admin, buyer := o.admin(t), o.as(t, "u1")
		sku := admin.stock(100, 1000)
		target := buyer.mustPlace(sku, 5)
		unpaid := func(t *testing.T) {
			t.Helper()
			now := buyer.order(target.OrderNo)
			require.Equal(t, "PAYING", now.Status)
			require.Equal(t, []string{"create", "reserve", "open_payment"}, buyer.history(target.OrderNo))
		}

		t.Run("signatures", func(t *testing.T) {
			buyer := buyer.on(t)
			cb := message(target)
			body, h := cb.sign(t)
			other := message(buyer.mustPlace(sku, 1))
			_, otherHeader := other.sign(t)
			now := time.Now().Unix()
			stamped := func(text string) callback {
				c := cb
				c.Header = map[string]string{"webhook-timestamp": text} // not signed anew
				return c
			}
			forged := map[string]callback{
				"no headers":             {Raw: body, Header: map[string]string{"webhook-id": "", "webhook-timestamp": "", "webhook-signature": ""}},
				"no id":                  {Raw: body, Header: map[string]string{"webhook-id": ""}},
				"another id":             {Raw: body, Header: map[string]string{"webhook-id": "msg_other"}},
				"no timestamp":           {Raw: body, Header: map[string]string{"webhook-timestamp": ""}},
				"no signature":           {Raw: body, Header: map[string]string{"webhook-signature": ""}},
				"half a signature":       {Raw: body, Header: map[string]string{"webhook-signature": h.Get("webhook-signature")[:20]}},
				"version 2":              {Raw: body, Header: map[string]string{"webhook-signature": "v2," + h.Get("webhook-signature")[3:]}},
				"another message's":      {Raw: body, Header: map[string]string{"webhook-signature": otherHeader.Get("webhook-signature")}},
				"another secret":         {ID: cb.ID, At: cb.At, Data: cb.Data, Secret: "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32))},
				"the public empty one":   {ID: cb.ID, At: cb.At, Data: cb.Data, Secret: "whsec_AAAA"},
				"301 s old":              {ID: cb.ID, At: time.Now().Add(-302 * time.Second), Data: cb.Data},
				"301 s early":            {ID: cb.ID, At: time.Now().Add(305 * time.Second), Data: cb.Data},
				"moved by a second":      stamped(strconv.FormatInt(cb.At.Unix()+1, 10)),
				"milliseconds":           stamped(strconv.FormatInt(now*1000, 10)),
				"zero":                   stamped("0"),
				"negative":               stamped("-1"),
				"huge":                   stamped("1000000000000000000"),
				"no number":              stamped("now"),
				"with a fraction":        stamped(strconv.FormatInt(now, 10) + ".0"),
				"an empty body":          {ID: cb.ID, At: cb.At, Raw: []byte{}, Secret: "whsec_AAAA"},
				"an empty body's digest": {ID: cb.ID, At: cb.At, Raw: []byte{}, Header: map[string]string{"webhook-signature": "v1,47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}},
			}
			for name, c := range forged {
				a := buyer.callback(c)
				require.Equal(t, 401, a.Status, "%s: %s", name, a)
				require.NotContains(t, string(a.Body), "applied")
			}
			for i := 0; i < len(body); i += 7 {
				bad := bytes.Clone(body)
				bad[i] ^= 1
				a := buyer.send(http.MethodPost, "/v1/payments/callbacks/sandbox", bad, h.Clone())
				require.Equal(t, 401, a.Status, "byte %d: %s", i, a)
			}
			// A cheap order's genuine message, with the dear one's payment_no.
			cheap, ch := other.sign(t)
			swapped := bytes.ReplaceAll(cheap, []byte(other.Data["payment_no"].(string)), []byte(target.Payment.PaymentNo))
			require.Equal(t, 401, buyer.send(http.MethodPost, "/v1/payments/callbacks/sandbox", swapped, ch).Status)
			unpaid(t)
		})

		t.Run("genuine, and not for us", func(t *testing.T) {
			buyer := buyer.on(t)
			cb := message(target)
			cb.Data["merchant_id"] = "m-other"
			require.Equal(t, 403, buyer.callback(cb).Status)
			a := buyer.do(http.MethodPost, "/v1/payments/callbacks/nobody", obj{})
			require.Equal(t, 404, a.Status)
			unpaid(t)
		})

		t.Run("not readable", func(t *testing.T) {
			buyer := buyer.on(t)
			good, _ := message(target).sign(t)
			edit := func(from, to string) []byte {
				require.Contains(t, string(good), from)
				return []byte(strings.Replace(string(good), from, to, 1))
			}
			for name, raw := range map[string][]byte{
				"amount 0":            edit(`"amount":500`, `"amount":0`),
				"a negative amount":   edit(`"amount":500`, `"amount":-500`),
				"an amount as text":   edit(`"amount":500`, `"amount":"500.00"`),
				"half an amount":      edit(`"amount":500`, `"amount":499.5`),
				"a huge amount":       edit(`"amount":500`, `"amount":1e400`),
				"no amount":           edit(`"amount":500,`, ``),
				"two amounts":         edit(`"amount":500`, `"amount":1,"amount":500`),
				"two spellings":       edit(`"amount":500`, `"amount":500,"Amount":1`),
				"a payment as number": edit(`"payment_no":"`+target.Payment.PaymentNo+`"`, `"payment_no":7`),
				"no currency":         edit(`"currency":"CNY",`, ``),
				"trailing garbage":    append(bytes.Clone(good), "{}"...),
				"no JSON":             []byte("amount=500"),
				"an array":            []byte("[]"),
			} {
				a := buyer.callback(callback{Raw: raw})
				require.Equal(t, 400, a.Status, "%s: %s", name, a)
			}
			a := buyer.callback(callback{Raw: []byte(`{"type":"` + strings.Repeat("x", 64<<10) + `"}`)})
			require.Equal(t, 413, a.Status, a)
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			_, _ = w.Write(good)
			require.NoError(t, w.Close())
			a = buyer.callback(callback{Raw: zipped.Bytes(), Header: map[string]string{"Content-Encoding": "gzip"}})
			require.Equal(t, 415, a.Status, a)
			unpaid(t)
		})

		t.Run("another amount", func(t *testing.T) {
			buyer := buyer.on(t)
			// The message lies, and the gateway holds the right amount: its answer counts.
			paid := buyer.mustPlace(sku, 5)
			cb := e.paidAtGateway(t, paid)
			cb.Data["amount"] = 1
			require.Contains(t, []string{"applied", "duplicate"}, buyer.callback(cb).result(t))
			require.Equal(t, "PAID", buyer.order(paid.OrderNo).Status)
			require.EqualValues(t, 500, buyer.order(paid.OrderNo).PaidAmount)

			// The message says that it was paid, and the gateway has no money yet.
			cb = message(target)
			cb.Data["amount"] = 499
			require.Equal(t, 503, buyer.during().callback(cb).Status)
			unpaid(t)

			for _, how := range []obj{{"amount": 1}, {"amount": 499}, {"amount": 501}, {"currency": "JPY"}} {
				odd := buyer.mustPlace(sku, 5)
				how["outcome"] = "succeeded"
				e.sandbox.payAs(t, odd.Payment.PaymentNo, how)
				cb := message(odd)
				for name, value := range how {
					if name != "outcome" {
						cb.Data[name] = value
					}
				}
				require.Contains(t, []string{"refund_opened", "duplicate"}, buyer.callback(cb).result(t))
				require.Equal(t, "duplicate", buyer.callback(cb).result(t))
				now := buyer.order(odd.OrderNo)
				require.Equal(t, "PAYING", now.Status)
				require.Zero(t, now.PaidAmount)
				amount := int64(500)
				if how["amount"] != nil {
					amount = int64(how["amount"].(int))
				}
				refundOf(t, now, "AMOUNT_MISMATCH", amount)
				next := buyer.do(http.MethodPost, "/v1/orders/"+odd.OrderNo+"/payments", obj{})
				require.Equal(t, 201, next.Status, next)
				cb = e.paidAtGateway(t, next.order(t))
				require.Contains(t, []string{"applied", "duplicate"}, buyer.callback(cb).result(t))
				require.Equal(t, "PAID", buyer.order(odd.OrderNo).Status)
			}
		})

		t.Run("odd, and genuine", func(t *testing.T) {
			buyer := buyer.on(t)
			for name, form := range map[string]string{
				"spaces":          "{ \"data\" : %s ,\n\t\"created_at\":\"2026-01-02T03:04:05Z\", \"type\":\"payment.succeeded\" }\n",
				"escapes":         `{"type":"payment\u002esucceeded","created_at":"2026-01-02T03:04:05Z","data":%s}`,
				"unknown members": `{"type":"payment.succeeded","created_at":"2026-01-02T03:04:05Z","data":%s,"note":"<>&","note2":null}`,
			} {
				paid := buyer.mustPlace(sku, 5)
				cb := e.paidAtGateway(t, paid)
				cb.Data["merchant_id"], cb.Data["amount"] = merchantID, json.RawMessage("500.0")
				data, err := json.Marshal(cb.Data)
				require.NoError(t, err)
				cb.Raw = fmt.Appendf(nil, form, data)
				a := buyer.callback(cb)
				require.Equal(t, 200, a.Status, "%s: %s", name, a)
				require.Equal(t, "application/json", strings.Split(a.Header.Get("Content-Type"), ";")[0])
				require.Contains(t, []string{`{"result":"applied"}`, `{"result":"duplicate"}`}, strings.TrimSpace(string(a.Body)))
				require.Equal(t, "PAID", buyer.order(paid.OrderNo).Status, name)

				resent := cb // the gateway signs its retries anew
				resent.At = cb.At.Add(time.Second)
				require.Equal(t, `{"result":"duplicate"}`, strings.TrimSpace(string(buyer.callback(resent).Body)))
				old := cb
				old.At = time.Now().Add(-10 * time.Minute)
				require.Equal(t, 401, buyer.callback(old).Status)

				conflict := callback{ID: cb.ID, At: cb.At, Data: obj{"payment_no": paid.Payment.PaymentNo, "transaction_id": paid.transaction(), "amount": 501, "currency": "CNY"}}
				a = buyer.callback(conflict)
				require.Equal(t, "message_conflict", a.code(), a)
				stolen := message(paid)
				stolen.Data["transaction_id"] = "txn_of_another"
				require.Equal(t, "message_conflict", buyer.callback(stolen).code())
			}
			unpaid(t)
		})
		e.auditSettled(t)
	})
}

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
