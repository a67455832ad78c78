package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/signed/signedtest"
)

// forgery is a callback that nobody may believe.
type forgery struct {
	name   string
	body   []byte
	header http.Header
	status int
}

// Every way to lie to the callback address of every gateway. Each is answered in the gateway's own form and changes nothing;
// what the gateway really says is believed all the same.
func TestAttacksOnCallbacks(t *testing.T) {
	t.Parallel()
	s := newShop(t, 1)
	for _, c := range s.companies {
		t.Run(c.name, func(t *testing.T) {
			dear, cheap := s.order(t, c, 50), s.order(t, c, 1)
			genuine, small := s.paid(t, c, dear), s.paid(t, c, cheap)
			body, header := c.sign(t, seconds(0), genuine)
			all := altered(c, body, header)
			all = append(all, s.misdated(t, c, genuine)...)
			all = append(all, s.swapped(t, c, genuine, small)...)
			for _, other := range c.others {
				n := genuine
				n.other = other
				foreign, h := c.sign(t, seconds(0), n)
				all = append(all, forgery{"another merchant's: " + other, foreign, h, 403})
			}
			nobodys := genuine
			nobodys.paymentNo = newNo("P")
			for i := range 3 {
				unknown, h := c.sign(t, seconds(0), nobodys)
				all = append(all, forgery{fmt.Sprintf("an unknown payment, time %d", i), unknown, h, 404})
			}
			if c.name == "wechatpay" {
				all = append(all, s.wechat(t, genuine)...)
			}
			s.refuses(t, c, all)
			require.EqualValues(t, 3, s.nodes[0].metric(t, fmt.Sprintf("orderd_callbacks_total{gateway=%q,result=\"not_found\"}", c.name)),
				"what an alert is raised by")

			c.accepted(t, s.send(c, body, header), "applied")
			require.Equal(t, "PAID", s.buyer.order(dear.OrderNo).Status)
			require.Equal(t, "PAYING", s.buyer.order(cheap.OrderNo).Status)
			s.replayed(t, c, genuine)
			c.accepted(t, s.notify(t, c, small), "applied")
			require.Equal(t, "PAID", s.buyer.order(cheap.OrderNo).Status)
		})
	}
	log := s.nodes[0].Log()
	require.NotContains(t, log, "panic")
	for _, secret := range []string{stripeSecret, wechatAPIv3, "PRIVATE KEY"} {
		require.NotContains(t, log, secret)
	}
	for _, call := range s.calls {
		require.NotContains(t, call, "/v3/certificates", "keys were fetched on the word of a stranger")
	}
	s.audit(t)
}

// refuses sends forgeries, the good form of refusal and unchanged books being asked for after each.
func (s *shop) refuses(t *testing.T, c company, all []forgery) {
	t.Helper()
	before := s.books(t)
	for _, f := range all {
		a := s.send(c, f.body, f.header)
		require.Equal(t, f.status, a.Status, "%s: %s", f.name, a)
		c.refused(t, a, f.status)
		require.Equal(t, before, s.books(t), "%s changed something", f.name)
	}
}

// altered are spoilt copies of a genuine callback.
func altered(c company, body []byte, h http.Header) []forgery {
	all := []forgery{
		{"a space behind", append(bytes.Clone(body), ' '), h, 401},
		{"a line break behind", append(bytes.Clone(body), '\n'), h, 401},
		{"cut short", body[:len(body)-1], h, 401},
		{"empty", nil, h, 401},
	}
	for i := 0; i < len(body); i += 11 {
		bad := bytes.Clone(body)
		bad[i] ^= 1
		all = append(all, forgery{fmt.Sprintf("byte %d", i), bad, h, 401})
	}
	if c.name == "alipay" { // a form, its signature in it
		return append(all,
			forgery{"one field more", append(bytes.Clone(body), "&passback=1"...), h, 401},
			forgery{"an amount twice", append(bytes.Clone(body), "&total_amount=0.01"...), h, 401},
			forgery{"another signature type", bytes.Replace(body, []byte("RSA2"), []byte("RSA"), 1), h, 401},
			forgery{"unsigned", bytes.Replace(body, []byte("sign="), []byte("signature="), 1), h, 401})
	}
	var indented bytes.Buffer
	_ = json.Indent(&indented, body, "", " ")
	all = append(all, forgery{"written anew", indented.Bytes(), h, 401}, forgery{"no headers", body, http.Header{"Content-Type": {"application/json"}}, 401})
	for name := range h {
		if name != "Content-Type" {
			without := h.Clone()
			without.Del(name)
			all = append(all, forgery{"without " + name, body, without, 401})
		}
	}
	return all
}

// misdated are well signed, at a time that is not now; and one whose time is not the one that was signed.
func (s *shop) misdated(t *testing.T, c company, n notice) (all []forgery) {
	if c.undated {
		return nil
	}
	for _, stamp := range []string{seconds(-301), seconds(-3600), seconds(310), seconds(3600), "0", "-1", "-" + seconds(0), "1000000000000000000",
		"9223372036854775807", "99999999999999999999", "now", seconds(0) + ".0", seconds(0) + "000", "+" + seconds(0)} {
		body, h := c.sign(t, stamp, n)
		all = append(all, forgery{"signed at " + stamp, body, h, 401})
	}
	signedAt, said := seconds(0), seconds(-1)
	body, h := c.sign(t, signedAt, n)
	moved := http.Header{}
	for name, values := range h {
		moved.Set(name, strings.ReplaceAll(values[0], signedAt, said))
	}
	require.NotEqual(t, h, moved)
	return append(all, forgery{"not the time that was signed", body, moved, 401})
}

// swapped use what was signed for the cheap order to pay the dear one.
func (s *shop) swapped(t *testing.T, c company, dear, cheap notice) (all []forgery) {
	cheapBody, cheapHeader := c.sign(t, seconds(0), cheap)
	dearBody, dearHeader := c.sign(t, seconds(0), dear)
	if renamed := bytes.ReplaceAll(cheapBody, []byte(cheap.paymentNo), []byte(dear.paymentNo)); !bytes.Equal(renamed, cheapBody) {
		all = append(all, forgery{"the cheap order's, renamed", renamed, cheapHeader, 401})
	}
	if c.name == "alipay" {
		first := append([]byte("out_trade_no="+dear.paymentNo+"&"), cheapBody...)
		last := append(bytes.Clone(cheapBody), "&out_trade_no="+dear.paymentNo...)
		return append(all, forgery{"two numbers, ours first", first, cheapHeader, 401}, forgery{"two numbers, ours last", last, cheapHeader, 401})
	}
	return append(all, forgery{"the cheap order's signature", dearBody, cheapHeader, 401}, forgery{"the dear order's signature", cheapBody, dearHeader, 401})
}

// replayed sends a message again that was applied: in its time a duplicate, later refused, and signed anew under another id
// (as if there were no window and no inbox) a duplicate by the state of the payment.
func (s *shop) replayed(t *testing.T, c company, n notice) {
	t.Helper()
	c.accepted(t, s.notify(t, c, n), "duplicate")
	if !c.undated {
		body, h := c.sign(t, seconds(-301), n)
		s.refuses(t, c, []forgery{{"after its time", body, h, 401}})
	}
	n.id = newNo("msg")
	before := s.buyer.order(n.order(t, s)).Version
	a := s.notify(t, c, n)
	c.accepted(t, a, "duplicate")
	require.Equal(t, "state", a.guard())
	require.Equal(t, before, s.buyer.order(n.order(t, s)).Version)
}

// order is the number of the order that the notice is about.
func (n notice) order(t testing.TB, s *shop) (orderNo string) {
	t.Helper()
	require.NoError(t, s.db.QueryRow("SELECT order_no FROM payments WHERE payment_no = ?", n.paymentNo).Scan(&orderNo))
	return orderNo
}

// wechat are what only WeChat Pay's callbacks can be spoilt by: probes, keys and the encrypted part.
func (s *shop) wechat(t *testing.T, n notice) (all []forgery) {
	now := seconds(0)
	body, h := s.signWechat(t, now, n)
	header := func(name, value string) http.Header {
		changed := h.Clone()
		changed.Set(name, value)
		return changed
	}
	stranger := signedtest.WechatPay(t, signedtest.Key(t), wechatSerial, now, body)
	unlisted := signedtest.WechatPay(t, s.wechatKey, "5157F09EFDC096DE15EBE81A47057A7232F1B8E1", now, body)
	all = []forgery{
		{"a probe", body, header("Wechatpay-Signature", "WECHATPAY/SIGNTEST/"+h.Get("Wechatpay-Signature")), 401},
		{"only a probe", body, header("Wechatpay-Signature", "WECHATPAY/SIGNTEST/"), 401},
		{"a stranger's key", body, stranger, 401},
		{"a serial that is not ours", body, unlisted, 401},
		{"a serial that is a path", body, header("Wechatpay-Serial", "../../v3/certificates"), 401},
		{"no serial", body, header("Wechatpay-Serial", ""), 401},
	}
	plain, long := wechatTransaction(t, n), strings.Repeat("a", 1024)
	resource := func(change obj) obj {
		r := obj{"algorithm": "AEAD_AES_256_GCM", "nonce": "d824f2e086d3", "associated_data": "transaction",
			"ciphertext": signedtest.Seal(t, wechatAPIv3, plain, "d824f2e086d3", "transaction")}
		for name, value := range change {
			if r[name] = value; value == nil {
				delete(r, name)
			}
		}
		return r
	}
	for name, r := range map[string]obj{
		"no resource":            nil,
		"an empty resource":      {},
		"a nonce of 3 bytes":     resource(obj{"nonce": "abc"}),
		"no nonce":               resource(obj{"nonce": nil}),
		"a nonce of 1 KiB":       resource(obj{"nonce": long}),
		"other associated data":  resource(obj{"associated_data": long}),
		"a ciphertext too short": resource(obj{"ciphertext": "AAAA"}),
		"an empty ciphertext":    resource(obj{"ciphertext": ""}),
		"no base64":              resource(obj{"ciphertext": "%%%"}),
		"another algorithm":      resource(obj{"algorithm": "AEAD_SM4_GCM"}),
		"another key":            resource(obj{"ciphertext": signedtest.Seal(t, strings.Repeat("x", 32), plain, "d824f2e086d3", "transaction")}),
		"no transaction in it":   resource(obj{"ciphertext": signedtest.Seal(t, wechatAPIv3, []byte("null and void"), "d824f2e086d3", "transaction")}),
	} {
		spoilt, h := s.sealWechat(t, now, n, r)
		all = append(all, forgery{name, spoilt, h, 400})
	}
	return all
}

// A callback that tells of another state than "paid" pays nothing, whatever the address that it comes to; money that is
// told of afterwards is booked.
func TestCallbacksOfOtherStatesPayNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, 1)
	for _, c := range s.companies {
		t.Run(c.name, func(t *testing.T) {
			for _, state := range c.unpaid {
				o := s.order(t, c, 5)
				n := s.paid(t, c, o)
				told := n
				told.id, told.state = newNo("msg"), state
				a := s.notify(t, c, told)
				require.Contains(t, []int{200, 204}, a.Status, "%s: %s", state, a)
				if c.name == "alipay" {
					c.accepted(t, a, "")
				}
				now := s.buyer.order(o.OrderNo)
				require.Equal(t, "PAYING", now.Status, state)
				require.Zero(t, now.PaidAmount, state)
				require.NotEqual(t, "SUCCEEDED", now.Payment.Status, state)
				c.accepted(t, s.notify(t, c, n), "applied")
				require.Equal(t, "PAID", s.buyer.order(o.OrderNo).Status, state)
			}
		})
	}
	require.NotContains(t, s.nodes[0].Log(), "panic")
	s.audit(t)
}

// Fifty clerks refund the same order at once, at two replicas and without Redis, whose lock would let them in one by one: one
// refund goes through, and the gateway hears of one.
func TestRefundsAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, 2)
	s.redis.Kill()
	admins := []*client{s.admin, s.nodes[1].admin(t)}
	for _, c := range s.companies {
		t.Run(c.name, func(t *testing.T) {
			for name, amount := range map[string]int64{"all": 500, "60 %": 300} {
				o := s.order(t, c, 5)
				c.accepted(t, s.notify(t, c, s.paid(t, c, o)), "applied")
				sent := s.refundCalls(t, c)
				created := 0
				for _, a := range gather(50, func(i int) answer {
					return admins[i%2].during().do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/refunds", obj{"refund_no": newNo("ref"), "amount": amount})
				}) {
					if a.Status == http.StatusCreated {
						created++
						continue
					}
					require.Contains(t, []string{"refund_exceeds_payment", "order_in_progress", "invalid_transition"}, a.code(), "%s: %s", name, a)
				}
				require.Equal(t, 1, created, name)
				require.Len(t, s.buyer.order(o.OrderNo).Refunds, 1, name)
				require.Equal(t, sent+1, s.refundCalls(t, c), name)
			}
		})
	}
	refunds := 0
	for _, entry := range s.sandbox.ledger(t) {
		if entry.Kind == "refund" {
			refunds++
		}
	}
	require.Equal(t, 2, refunds, "in the gateway's own ledger")
	s.audit(t)
}

// refundCalls counts the refunds that were sent to a company, from both replicas.
func (s *shop) refundCalls(t testing.TB, c company) (n float64) {
	t.Helper()
	for _, o := range s.nodes {
		for _, outcome := range []string{"pending", "succeeded", "failed", "not_found", "unknown"} {
			n += o.metric(t, fmt.Sprintf("orderd_gateway_calls_total{call=\"refund\",gateway=%q,outcome=%q}", c.name, outcome))
		}
	}
	return n
}
