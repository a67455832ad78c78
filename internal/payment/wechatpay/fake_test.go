package wechatpay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"orderd/internal/payment/signed"
)

// fake is WeChat Pay in miniature, strict about what we send. What it does is what the pages of pay.weixin.qq.com named at
// each call say.
type fake struct {
	t       testing.TB
	url     string
	refuses string // a code that refunds are refused with

	mu      sync.Mutex
	orders  map[string]*fakeOrder
	refunds map[string]*fakeRefund
	nonces  map[string]bool
	calls   []string
}

type fakeOrder struct {
	request       string // the body it was opened with
	transactionID string
	state         string
	total, back   int64 // fen
}

type fakeRefund struct {
	no, id, order, state string
	amount               int64
}

func startFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{t: t, orders: map[string]*fakeOrder{}, refunds: map[string]*fakeRefund{}, nonces: map[string]bool{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

var authorization = regexp.MustCompile(`^WECHATPAY2-SHA256-RSA2048 mchid="([^"]+)",nonce_str="([^"]{1,32})",signature="([^"]+)",timestamp="(\d+)",serial_no="([^"]+)"$`)

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	f.calls = append(f.calls, r.Method+" "+r.URL.Path)
	if !f.authentic(r, body) {
		f.answer(w, 401, object{"code": "SIGN_ERROR", "message": "错误的签名，验签失败"})
		return
	}
	status, out := f.route(r, body)
	f.answer(w, status, out)
}

// authentic is "如何生成请求签名": a nonce counts once, the serial is the merchant certificate's, the headers are required.
func (f *fake) authentic(r *http.Request, body []byte) bool {
	m := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil || m[1] != mchID || m[5] != serialNo || f.nonces[m[2]] || r.Header.Get("Accept") != "application/json" ||
		r.Header.Get("User-Agent") == "" || r.Header.Get("Wechatpay-Serial") != publicID {
		return false
	}
	f.nonces[m[2]] = true
	at, err := strconv.ParseInt(m[4], 10, 64)
	return err == nil && time.Since(time.Unix(at, 0)).Abs() < time.Minute &&
		signed.Verify(&merchantKey().PublicKey, lines(r.Method, r.URL.RequestURI(), m[4], m[2], string(body)), m[3]) == nil
}

// answer signs every answer, also a refusal and an empty one ("如何使用微信支付公钥验签").
func (f *fake) answer(w http.ResponseWriter, status int, out object) {
	var body []byte
	if out != nil {
		body = encode(f.t, out)
	}
	for name, values := range signedHeaders(f.t, platformKey(), publicID, time.Now(), body) {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func no(status int, code string) (int, object) {
	return status, object{"code": code, "message": "no"}
}

func (f *fake) route(r *http.Request, body []byte) (int, object) {
	const orders, refunds = "/v3/pay/transactions/out-trade-no/", "/v3/refund/domestic/refunds"
	path := r.URL.Path
	switch {
	case r.Method == http.MethodPost && path == "/v3/pay/transactions/native":
		return f.native(body)
	case r.Method == http.MethodGet && strings.HasPrefix(path, orders) && r.URL.Query().Get("mchid") == mchID:
		return f.query(strings.TrimPrefix(path, orders))
	case r.Method == http.MethodPost && strings.HasPrefix(path, orders) && strings.HasSuffix(path, "/close") && string(body) == `{"mchid":"`+mchID+`"}`:
		return f.close(strings.TrimSuffix(strings.TrimPrefix(path, orders), "/close"))
	case r.Method == http.MethodPost && path == refunds:
		return f.refund(body)
	case r.Method == http.MethodGet && strings.HasPrefix(path, refunds+"/"):
		return f.refundQuery(strings.TrimPrefix(path, refunds+"/"))
	}
	return no(404, "NO_SUCH_CALL")
}

// native is "Native下单". The same values again: a fresh code for the same order; other values: refused.
func (f *fake) native(body []byte) (int, object) {
	var in struct {
		AppID       string    `json:"appid"`
		MchID       string    `json:"mchid"`
		Description string    `json:"description"`
		OutTradeNo  string    `json:"out_trade_no"`
		TimeExpire  time.Time `json:"time_expire"`
		NotifyURL   string    `json:"notify_url"`
		Amount      amount    `json:"amount"`
	}
	err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true))
	if err != nil || in.AppID != appID || in.MchID != mchID || in.Description == "" || len(in.Description) > 127 ||
		!regexp.MustCompile(`^[0-9A-Za-z_*-]{1,32}$`).MatchString(in.OutTradeNo) || !strings.HasPrefix(in.NotifyURL, "https://") ||
		strings.Contains(in.NotifyURL, "?") || in.Amount.Total <= 0 || in.Amount.Currency != "CNY" || in.TimeExpire.IsZero() {
		return no(400, "PARAM_ERROR")
	}
	o := f.orders[in.OutTradeNo]
	switch {
	case o == nil:
		f.orders[in.OutTradeNo] = &fakeOrder{request: string(body), state: "NOTPAY", total: in.Amount.Total}
	case o.state == "SUCCESS" || o.state == "REFUND":
		return no(400, "ORDERPAID")
	case o.state == "CLOSED":
		return no(400, "ORDER_CLOSED")
	case o.request != string(body):
		return no(403, "OUT_TRADE_NO_USED")
	}
	return 200, object{"code_url": "weixin://wxpay/bizpayurl?pr=" + in.OutTradeNo + strconv.Itoa(len(f.calls))}
}

// query is "商户订单号查询订单": unpaid orders have neither a transaction_id nor an amount.
func (f *fake) query(number string) (int, object) {
	o := f.orders[number]
	if o == nil {
		return no(404, "ORDER_NOT_EXIST")
	}
	out := object{"appid": appID, "mchid": mchID, "out_trade_no": number, "trade_state": o.state, "trade_state_desc": "x"}
	if o.transactionID != "" {
		out["transaction_id"], out["amount"] = o.transactionID, object{"total": o.total, "payer_total": o.total, "currency": "CNY"}
	}
	return 200, out
}

// close is "关闭订单": 204 without a body.
func (f *fake) close(number string) (int, object) {
	o := f.orders[number]
	switch {
	case o == nil:
		return no(404, "ORDER_NOT_EXIST")
	case o.state == "CLOSED":
		return no(400, "ORDER_CLOSED")
	case o.state != "NOTPAY" && o.state != "PAYERROR": // "商户订单支付失败需要生成新单号重新发起支付，要对原订单号调用关单"
		return no(400, "ORDERPAID")
	}
	o.state = "CLOSED"
	return 204, nil
}

// refund is "申请退款": the same number is one refund, with other values it is refused; total must be the order's. It is
// under way at first.
func (f *fake) refund(body []byte) (int, object) {
	var in struct {
		OutTradeNo  string       `json:"out_trade_no"`
		OutRefundNo string       `json:"out_refund_no"`
		NotifyURL   string       `json:"notify_url"`
		Amount      refundAmount `json:"amount"`
	}
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil || in.OutRefundNo == "" || len(in.OutRefundNo) > 64 ||
		in.Amount.Refund <= 0 || in.Amount.Currency != "CNY" || !strings.HasPrefix(in.NotifyURL, "https://") {
		return no(400, "PARAM_ERROR")
	}
	o, before := f.orders[in.OutTradeNo], f.refunds[in.OutRefundNo]
	switch {
	case f.refuses != "":
		return no(403, f.refuses)
	case o == nil:
		return no(404, "RESOURCE_NOT_EXISTS")
	case before != nil && (before.order != in.OutTradeNo || before.amount != in.Amount.Refund), in.Amount.Total != o.total:
		return no(400, "INVALID_REQUEST")
	case before != nil:
		return 200, before.out()
	case o.transactionID == "" || o.back+in.Amount.Refund > o.total:
		return no(400, "INVALID_REQUEST")
	}
	o.state, o.back = "REFUND", o.back+in.Amount.Refund
	r := &fakeRefund{in.OutRefundNo, fmt.Sprintf("5020020718201807030001%08d", len(f.refunds)), in.OutTradeNo, "PROCESSING", in.Amount.Refund}
	f.refunds[in.OutRefundNo] = r
	return 200, r.out()
}

// refundQuery is "查询单笔退款（通过商户退款单号）".
func (f *fake) refundQuery(number string) (int, object) {
	r := f.refunds[number]
	if r == nil {
		return no(404, "RESOURCE_NOT_EXISTS")
	}
	return 200, r.out()
}

func (r *fakeRefund) out() object {
	return object{"refund_id": r.id, "out_refund_no": r.no, "transaction_id": "4200000991202103266853086457", "out_trade_no": r.order, "channel": "ORIGINAL",
		"status": r.state, "amount": object{"refund": r.amount, "currency": "CNY"}}
}

// end brings an order to a state without any money.
func (f *fake) end(number, state string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orders[number].state = state
}

// pay plays the shopper who scans the code: amount (fen) is what the order is paid with.
func (f *fake) pay(number string, amount int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.orders[number]
	require.NotNil(f.t, o)
	o.state, o.total, o.transactionID = "SUCCESS", amount, fmt.Sprintf("42000009912021032668%08d", len(f.nonces))
}
