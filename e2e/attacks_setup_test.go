package e2e

import (
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/signed/signedtest"
)

const (
	alipayApp    = "2021000000000001"
	alipaySeller = "2088000000000001"
	wechatMchID  = "1900000109"
	wechatApp    = "wxd678efh567hg6787"
	wechatSerial = "PUB_KEY_ID_0000000000000024101100397200000006"
	wechatAPIv3  = "e2e3456789abcdef0123456789abcdef"
)

// notice is what a company tells of a payment. state is in the company's own words, empty: paid.
type notice struct {
	id            string
	paymentNo     string
	transactionID string
	amount        int64 // fen
	state         string
	other         string // what makes it another merchant's: the member and its value
}

// company is a payment company from where its callbacks come: what they look like, signed at a Unix time (or what an
// attacker makes of it), and how it must be answered.
type company struct {
	name     string
	undated  bool // its callbacks do not say when they were signed
	sign     func(t testing.TB, stamp string, n notice) ([]byte, http.Header)
	accepted func(t testing.TB, a answer, result string)
	refused  func(t testing.TB, a answer, status int)
	others   []string // "member=value" of another merchant's
	unpaid   []string // states other than success
}

// shop is orderd with all four gateways. At the three companies each call is noted and, unless a test answers it, refused:
// their payments are UNKNOWN until a callback comes. Only the requests change the database.
type shop struct {
	*env
	t         testing.TB
	nodes     []*orderd
	admin     *client
	buyer     *client
	sku       string
	db        *sql.DB
	companies []company
	wechatKey *rsa.PrivateKey
	alipayKey *rsa.PrivateKey

	mu     sync.Mutex
	calls  []string
	answer http.HandlerFunc // of the companies; nil: refused
}

// company has the companies answer calls from now on.
func (s *shop) company(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func newShop(t testing.TB, replicas int) *shop {
	t.Helper()
	s := &shop{t: t, env: newEnv(t, mariadbRedis), wechatKey: signedtest.Key(t), alipayKey: signedtest.Key(t)}
	s.mute(t)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls = append(s.calls, r.Method+" "+r.URL.Path)
		if s.answer != nil {
			s.answer(w, r)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(refusing.Close)
	ours, dir := signedtest.Key(t), t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	private := file("ours.pem", signedtest.PrivatePEM(t, ours))
	override(s.vars, []string{
		"ORDERD_STRIPE_SECRET_KEY=sk_test_e2e0123456789", "ORDERD_STRIPE_WEBHOOK_SECRET=" + stripeSecret,
		"ORDERD_STRIPE_RETURN_URL=https://shop.example/thanks", "HTTPS_PROXY=" + refusing.URL,
		"ORDERD_ALIPAY_APP_ID=" + alipayApp, "ORDERD_ALIPAY_SELLER_ID=" + alipaySeller, "ORDERD_ALIPAY_PRIVATE_KEY=" + private,
		"ORDERD_ALIPAY_PUBLIC_KEY=" + file("alipay.pem", signedtest.PublicPEM(t, s.alipayKey)), "ORDERD_ALIPAY_URL=" + refusing.URL + "/gateway.do",
		"ORDERD_WECHATPAY_MCHID=" + wechatMchID, "ORDERD_WECHATPAY_APPID=" + wechatApp, "ORDERD_WECHATPAY_SERIAL=1DDE55AD98ED71D6EDD4A4A16996DE7B47773A8C",
		"ORDERD_WECHATPAY_PRIVATE_KEY=" + private, "ORDERD_WECHATPAY_APIV3_KEY=" + wechatAPIv3, "ORDERD_WECHATPAY_PLATFORM_SERIAL=" + wechatSerial,
		"ORDERD_WECHATPAY_PLATFORM_KEY=" + file("wechat.pem", signedtest.PublicPEM(t, s.wechatKey)), "ORDERD_WECHATPAY_URL=" + refusing.URL,
	})
	for range replicas {
		s.nodes = append(s.nodes, s.start(t, "ORDERD_WORKER_INTERVAL=1h"))
	}
	s.admin, s.buyer, s.db = s.nodes[0].admin(t), s.nodes[0].as(t, "u1"), s.sql(t)
	s.sku = s.admin.stock(100, 10_000)
	s.companies = []company{
		{name: "sandbox", sign: signSandbox, accepted: acceptedJSON, refused: refusedJSON, others: []string{"merchant_id=m-other"},
			unpaid: []string{"payment.pending", "payment.failed", "payment.closed"}},
		{name: "stripe", sign: signStripe, accepted: acceptedJSON, refused: refusedJSON, others: []string{"account=acct_2", "livemode=true"},
			unpaid: []string{"checkout.session.completed", "checkout.session.expired", "checkout.session.async_payment_failed", "payment_intent.payment_failed"}},
		{name: "alipay", undated: true, sign: s.signAlipay, others: []string{"seller_id=2088000000000002", "app_id=2021000000000002"},
			unpaid: []string{"WAIT_BUYER_PAY", "TRADE_CLOSED"},
			accepted: func(t testing.TB, a answer, _ string) {
				require.Equal(t, []any{200, "success"}, []any{a.Status, string(a.Body)})
			},
			refused: func(t testing.TB, a answer, status int) {
				require.Equal(t, []any{status, "fail"}, []any{a.Status, string(a.Body)})
			}},
		{name: "wechatpay", sign: s.signWechat, others: []string{"mchid=1900000110", "appid=wx0000000000000000"},
			unpaid: []string{"NOTPAY", "USERPAYING", "CLOSED", "REVOKED", "PAYERROR", "REFUND"},
			accepted: func(t testing.TB, a answer, _ string) {
				require.Equal(t, []any{204, ""}, []any{a.Status, string(a.Body)})
			},
			refused: func(t testing.TB, a answer, status int) {
				require.Equal(t, status, a.Status, "%s", a)
				require.Equal(t, "FAIL", a.code(), "%s", a)
			}},
	}
	return s
}

func acceptedJSON(t testing.TB, a answer, result string) {
	t.Helper()
	require.Equal(t, result, a.result(t), "%s", a)
}

func refusedJSON(t testing.TB, a answer, status int) {
	t.Helper()
	require.Equal(t, status, a.Status, "%s", a)
	require.Equal(t, map[int]string{400: "invalid_request", 401: "unauthenticated", 403: "forbidden", 404: "not_found"}[status], a.code())
}

// order places an order at the company, which has not said anything yet.
func (s *shop) order(t testing.TB, c company, quantity int) orderView {
	t.Helper()
	body := want(newNo("ord"), s.sku, quantity)
	body["gateway"] = c.name
	a := s.buyer.place(body)
	require.Contains(t, []int{201, 202}, a.Status, "%s", a)
	o := a.order(t)
	require.Equal(t, []string{"PAYING", c.name}, []string{o.Status, o.Payment.Gateway})
	return o
}

// paid is the notice that o was paid as asked. At the sandbox it really is: its ledger is looked at.
func (s *shop) paid(t testing.TB, c company, o orderView) notice {
	t.Helper()
	id := newNo("msg")
	n := notice{id: id, paymentNo: o.Payment.PaymentNo, transactionID: "txn-" + id, amount: o.Amount}
	if c.name == "sandbox" {
		s.sandbox.pay(t, o.Payment.PaymentNo)
		n.transactionID = o.transaction()
	}
	return n
}

// send posts a callback to the public port.
func (s *shop) send(c company, body []byte, h http.Header) answer {
	anonymous := *s.buyer
	anonymous.token = ""
	return anonymous.send(http.MethodPost, "/v1/payments/callbacks/"+c.name, body, h.Clone())
}

func (s *shop) notify(t testing.TB, c company, n notice) answer {
	t.Helper()
	body, h := c.sign(t, seconds(0), n)
	return s.send(c, body, h)
}

// seconds is the Unix time in so many seconds.
func seconds(from int64) string { return strconv.FormatInt(time.Now().Unix()+from, 10) }

// books are the contents of all tables that money and stock are kept in.
func (s *shop) books(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	rows, err := s.db.Query("CHECKSUM TABLE orders, order_events, payments, refunds, inbox_messages, outbox_messages, stock, stock_movements")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var table string
		var sum int64
		require.NoError(t, rows.Scan(&table, &sum))
		fmt.Fprintln(&all, table, sum)
	}
	require.NoError(t, rows.Err())
	return all.String()
}

func signSandbox(t testing.TB, stamp string, n notice) ([]byte, http.Header) {
	t.Helper()
	data := obj{"merchant_id": merchantID, "payment_no": n.paymentNo, "transaction_id": n.transactionID, "amount": n.amount, "currency": "CNY"}
	n.apply(data)
	kind := n.state
	if kind == "" {
		kind = "payment.succeeded"
	}
	body := encoded(t, obj{"type": kind, "created_at": "2026-01-02T03:04:05Z", "data": data})
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
	require.NoError(t, err)
	return body, http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {n.id}, "Webhook-Timestamp": {stamp},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac(key, n.id+"."+stamp+"."+string(body)))}}
}

// signStripe: https://docs.stripe.com/webhooks#verify-manually.
func signStripe(t testing.TB, stamp string, n notice) ([]byte, http.Header) {
	t.Helper()
	session := obj{"id": "cs_" + n.transactionID, "object": "checkout.session", "amount_total": n.amount, "currency": "cny",
		"metadata": obj{"payment_no": n.paymentNo}, "status": "complete", "payment_status": "unpaid"}
	kind := n.state
	if kind == "" {
		kind, session["payment_status"] = "checkout.session.completed", "paid"
	}
	event := obj{"id": "evt_" + n.id, "object": "event", "livemode": false, "type": kind, "data": obj{"object": session}}
	n.apply(event)
	body := encoded(t, event)
	signature := hex.EncodeToString(mac([]byte(stripeSecret), stamp+"."+string(body)))
	return body, http.Header{"Content-Type": {"application/json"}, "Stripe-Signature": {"t=" + stamp + ",v1=" + signature}}
}

func (s *shop) signAlipay(t testing.TB, _ string, n notice) ([]byte, http.Header) {
	t.Helper()
	fields := map[string]string{"notify_id": n.id, "notify_type": "trade_status_sync", "notify_time": "2026-03-04 13:06:07", "app_id": alipayApp,
		"seller_id": alipaySeller, "sign_type": "RSA2", "out_trade_no": n.paymentNo, "trade_no": n.transactionID, "trade_status": "TRADE_SUCCESS",
		"total_amount": fmt.Sprintf("%d.%02d", n.amount/100, n.amount%100)}
	if n.state != "" {
		fields["trade_status"] = n.state
	}
	if member, value, ok := strings.Cut(n.other, "="); ok {
		fields[member] = value
	}
	return signedtest.Alipay(t, s.alipayKey, fields), http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}}
}

func (s *shop) signWechat(t testing.TB, stamp string, n notice) ([]byte, http.Header) {
	t.Helper()
	const nonce, associated = "d824f2e086d3", "transaction"
	return s.sealWechat(t, stamp, n, obj{"algorithm": "AEAD_AES_256_GCM", "nonce": nonce, "associated_data": associated,
		"ciphertext": signedtest.Seal(t, wechatAPIv3, wechatTransaction(t, n), nonce, associated)})
}

func wechatTransaction(t testing.TB, n notice) []byte {
	t.Helper()
	plain := obj{"transaction_id": n.transactionID, "mchid": wechatMchID, "appid": wechatApp, "out_trade_no": n.paymentNo, "trade_state": "SUCCESS",
		"amount": obj{"total": n.amount, "currency": "CNY"}}
	if n.state != "" {
		plain["trade_state"] = n.state
	}
	n.apply(plain)
	return encoded(t, plain)
}

// sealWechat signs a callback with any resource; nil: without one.
func (s *shop) sealWechat(t testing.TB, stamp string, n notice, resource obj) ([]byte, http.Header) {
	t.Helper()
	event := obj{"id": n.id, "event_type": "TRANSACTION.SUCCESS", "resource": resource}
	if resource == nil {
		delete(event, "resource")
	}
	body := encoded(t, event)
	h := signedtest.WechatPay(t, s.wechatKey, wechatSerial, stamp, body)
	h.Set("Content-Type", "application/json")
	return body, h
}

// apply bends the member that makes it another merchant's.
func (n notice) apply(o obj) {
	if member, value, ok := strings.Cut(n.other, "="); ok {
		if o[member] = value; value == "true" {
			o[member] = true
		}
	}
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	require.NoError(t, err)
	return body
}

func mac(key []byte, message string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	return h.Sum(nil)
}
