package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
				"nothing":             {},
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
				currency := "CNY"
				if how["currency"] != nil {
					currency = how["currency"].(string)
				}
				require.Equal(t, currency, now.Refunds[0].Currency)
				in := fmt.Sprintf("%d %s", amount, currency)
				settled(t, func() error {
					if moves := e.sandbox.moves(t, odd.Payment.PaymentNo); !slices.Equal(moves, []string{"charge " + in, "refund " + in}) {
						return fmt.Errorf("the gateway has %v", moves)
					}
					return nil
				})
				next := buyer.do(http.MethodPost, "/v1/orders/"+odd.OrderNo+"/payments", obj{})
				require.Equal(t, 201, next.Status, next)
				cb = e.paidAtGateway(t, next.order(t))
				require.Contains(t, []string{"applied", "duplicate"}, buyer.callback(cb).result(t))
				require.Equal(t, "PAID", buyer.order(odd.OrderNo).Status)
			}
		})

		t.Run("genuine, and too late", func(t *testing.T) {
			buyer := buyer.on(t)
			paid := buyer.mustPlace(sku, 5)
			cb := e.paidAtGateway(t, paid)
			cb.At = time.Now().Add(-10 * time.Minute)
			require.Equal(t, 401, buyer.callback(cb).Status, "every one of them")
			buyer.becomes(paid.OrderNo, "PAID") // the money is not stranded: the gateway is asked
			unpaid(t)
		})

		t.Run("odd on the wire, and genuine", func(t *testing.T) {
			buyer := buyer.on(t)
			paid := buyer.mustPlace(sku, 5)
			body, h := e.paidAtGateway(t, paid).sign(t)
			const path = "/v1/payments/callbacks/sandbox?amount=1&payment_no=none"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, buyer.base+path, io.MultiReader(bytes.NewReader(body))) // length unknown: chunked
			require.NoError(t, err)
			req.Header = h.Clone()
			resp, err := buyer.http.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, "PAID", buyer.order(paid.OrderNo).Status)
			require.Equal(t, "duplicate", buyer.send(http.MethodPost, path, body, h).result(t))
			body[len(body)/2] ^= 1
			require.Equal(t, 401, buyer.send(http.MethodPost, path, body, h).Status)
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
