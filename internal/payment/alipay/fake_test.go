package alipay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"orderd/internal/payment/signed"
)

// fake is Alipay in miniature, strict about what we send. What it does is what the pages of opendocs.alipay.com named at
// each method say.
type fake struct {
	url     string
	refuses string // a sub_code that refunds are refused with

	mu      sync.Mutex
	trades  map[string]*fakeTrade
	methods []string // the calls that came, in order
}

type fakeTrade struct {
	no, status, sendPayDate string
	amount, refunded        int64 // fen
	refunds                 map[string]int64
}

func startFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{trades: map[string]*fakeTrade{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

type params = map[string]any

// outTradeNo: "仅支持字母、数字、下划线" (alipay.trade.page.pay).
var outTradeNo = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, err := url.ParseQuery(string(body))
	if r.Method == http.MethodGet {
		form, err = url.ParseQuery(r.URL.RawQuery)
	} else if r.URL.RawQuery != "charset=utf-8" || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		err = fmt.Errorf("query %q, type %q", r.URL.RawQuery, r.Header.Get("Content-Type"))
	}
	fields := map[string]string{}
	for name, values := range form {
		fields[name] = values[0]
	}
	method := fields["method"]
	var biz params
	switch {
	case err != nil || r.URL.Path != "/gateway.do" || fields["app_id"] != appID || fields["sign_type"] != "RSA2" || fields["version"] != "1.0":
		_, _ = io.WriteString(w, `{"error_response":{"code":"40002","msg":"Invalid Arguments","sub_code":"isv.invalid-app-id"}}`)
		return
	// The request's signature covers sign_type, unlike a callback's ("自行实现签名").
	case signed.Verify(&appKey().PublicKey, content(fields, "sign"), fields["sign"]) != nil:
		f.answer(w, "error", params{"code": "40002", "msg": "Invalid Arguments", "sub_code": "isv.invalid-signature"})
		return
	case !fresh(fields["timestamp"]) || json.Unmarshal([]byte(fields["biz_content"]), &biz) != nil:
		f.answer(w, method, params{"code": "40002", "msg": "Invalid Arguments", "sub_code": "isv.invalid-parameter"})
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.methods = append(f.methods, method)
	out := map[string]func(params, map[string]string) params{
		"alipay.trade.page.pay": f.page, "alipay.trade.query": f.query, "alipay.trade.close": f.close,
		"alipay.trade.refund": f.refund, "alipay.trade.fastpay.refund.query": f.refundQuery,
	}[method](biz, fields)
	f.answer(w, method, out)
}

func fresh(timestamp string) bool {
	at, err := time.ParseInLocation(timeForm, timestamp, beijing)
	return err == nil && time.Since(at).Abs() < time.Minute
}

// answer signs the member as it is written ("同步验签"): here with spaces and escapes that a decoder would not keep.
func (f *fake) answer(w http.ResponseWriter, method string, out params) {
	member, _ := json.Marshal(out)
	raw := strings.ReplaceAll(strings.Replace(string(member), `{`, `{ "x":"\/\u00e9" , `, 1), `":"`, `" : "`)
	signature, _ := signed.Sign(alipayKey(), []byte(raw))
	w.Header().Set("Content-Type", "text/html;charset=utf-8")
	_, _ = fmt.Fprintf(w, `{"%s_response":%s,"sign":"%s"}`, strings.ReplaceAll(method, ".", "_"), raw, signature)
}

func no(subCode string) params {
	return params{"code": "40004", "msg": "Business Failed", "sub_code": "ACQ." + subCode, "sub_msg": "no"}
}

func yes(p params) params {
	p["code"], p["msg"] = "10000", "Success"
	return p
}

// page is alipay.trade.page.pay: the trade is made when the shopper opens the page, and not after time_expire. The same
// number again must be the same trade.
func (f *fake) page(biz params, fields map[string]string) params {
	number, _ := biz["out_trade_no"].(string)
	total, _ := biz["total_amount"].(string)
	subject, _ := biz["subject"].(string)
	expire, _ := biz["time_expire"].(string)
	amount, err := fen(total)
	until, badTime := time.ParseInLocation(timeForm, expire, beijing)
	if err != nil || badTime != nil || !outTradeNo.MatchString(number) || biz["product_code"] != "FAST_INSTANT_TRADE_PAY" ||
		subject == "" || len([]rune(subject)) > 256 || strings.ContainsAny(subject, "/=&") || !strings.HasPrefix(fields["notify_url"], "https://") {
		return no("INVALID_PARAMETER")
	}
	t := f.trades[number]
	switch {
	case t == nil && !time.Now().Before(until):
		return no("TRADE_HAS_CLOSE")
	case t == nil:
		t = &fakeTrade{no: fmt.Sprintf("20260304220010043300%08d", len(f.trades)), status: "WAIT_BUYER_PAY", amount: amount, refunds: map[string]int64{}}
		f.trades[number] = t
	case t.amount != amount:
		return no("CONTEXT_INCONSISTENT")
	case t.status != "WAIT_BUYER_PAY":
		return no("TRADE_STATUS_ERROR")
	}
	return yes(params{"out_trade_no": number, "trade_no": t.no})
}

func (f *fake) trade(biz params) (*fakeTrade, string) {
	number, _ := biz["out_trade_no"].(string)
	return f.trades[number], number
}

// query is alipay.trade.query. send_pay_date is there once it was paid, also when all of it was refunded.
func (f *fake) query(biz params, _ map[string]string) params {
	t, number := f.trade(biz)
	if t == nil {
		return no("TRADE_NOT_EXIST")
	}
	out := params{"out_trade_no": number, "trade_no": t.no, "trade_status": t.status, "total_amount": yuan(t.amount), "buyer_pay_amount": "0.00"}
	if t.sendPayDate != "" {
		out["send_pay_date"] = t.sendPayDate
	}
	return yes(out)
}

// close is alipay.trade.close: only a trade that waits for its buyer can be closed.
func (f *fake) close(biz params, _ map[string]string) params {
	t, number := f.trade(biz)
	if t == nil {
		return no("TRADE_NOT_EXIST")
	}
	if t.status != "WAIT_BUYER_PAY" {
		return no("REASON_TRADE_STATUS_INVALID")
	}
	t.status = "TRADE_CLOSED"
	return yes(params{"out_trade_no": number, "trade_no": t.no})
}

// refund is alipay.trade.refund: a repeated out_request_no moves nothing (fund_change N), with another amount it is refused;
// refund_fee is the sum of the trade's refunds; a trade without any money left is TRADE_CLOSED.
func (f *fake) refund(biz params, _ map[string]string) params {
	t, number := f.trade(biz)
	request, _ := biz["out_request_no"].(string)
	text, _ := biz["refund_amount"].(string)
	amount, err := fen(text)
	switch {
	case err != nil || request == "" || len(request) > 64:
		return no("INVALID_PARAMETER")
	case t == nil:
		return no("TRADE_NOT_EXIST")
	case f.refuses != "":
		return no(f.refuses)
	}
	change := "N"
	if before, ok := t.refunds[request]; ok {
		if before != amount {
			return no("DISCORDANT_REPEAT_REQUEST")
		}
	} else {
		if t.status != "TRADE_SUCCESS" {
			return no("TRADE_STATUS_ERROR")
		}
		if t.refunded+amount > t.amount {
			return no("REASON_TRADE_REFUND_FEE_ERR")
		}
		t.refunds[request], t.refunded, change = amount, t.refunded+amount, "Y"
		if t.refunded == t.amount {
			t.status = "TRADE_CLOSED"
		}
	}
	return yes(params{"out_trade_no": number, "trade_no": t.no, "fund_change": change, "refund_fee": yuan(t.refunded)})
}

// refundQuery is alipay.trade.fastpay.refund.query: code 10000 says that the query worked; without refund_status there is no
// such refund.
func (f *fake) refundQuery(biz params, _ map[string]string) params {
	t, number := f.trade(biz)
	if t == nil {
		return no("TRADE_NOT_EXIST")
	}
	request, _ := biz["out_request_no"].(string)
	amount, ok := t.refunds[request]
	if !ok {
		return yes(params{})
	}
	return yes(params{"out_trade_no": number, "trade_no": t.no, "out_request_no": request, "refund_status": "REFUND_SUCCESS",
		"refund_amount": yuan(amount), "total_amount": yuan(t.amount)})
}

// open plays the shopper's browser, which sends the request that the pay page's address is.
func (f *fake) open(t testing.TB, payURL string) string {
	t.Helper()
	client := signed.NewClient()
	defer client.CloseIdleConnections()
	req, err := http.NewRequest(http.MethodGet, payURL, nil)
	require.NoError(t, err)
	_, _, body, err := signed.Do(client, req)
	require.NoError(t, err)
	return string(body)
}

// pay plays the shopper: amount (fen) is what the trade is paid with.
func (f *fake) pay(number string, amount int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trades[number]
	t.status, t.amount, t.sendPayDate = "TRADE_SUCCESS", amount, "2026-03-04 13:06:06"
}
