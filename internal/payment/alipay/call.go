package alipay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

// beijing is the time zone of all of Alipay's times. China has had no daylight saving time since 1991.
var beijing = time.FixedZone("Asia/Shanghai", 8*60*60)

const timeForm = "2006-01-02 15:04:05"

// content is what a signature is over: name=value, sorted by name, joined by "&", nothing escaped
// (opendocs.alipay.com, "自行实现签名" and "自行实现验签").
func content(fields map[string]string, without ...string) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(without, name) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(name + "=" + fields[name])
	}
	return []byte(b.String())
}

// request forms a signed request: the common parameters and biz, the ones of the method.
func (g *Gateway) request(method string, biz any, more map[string]string) (url.Values, error) {
	encoded, err := json.Marshal(biz, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{
		"app_id": g.cfg.AppID, "method": method, "charset": "utf-8", "sign_type": "RSA2", "version": "1.0",
		"timestamp": g.cfg.Now().In(beijing).Format(timeForm), "biz_content": string(encoded),
	}
	maps.Copy(fields, more)
	if fields["sign"], err = signed.Sign(g.private, content(fields)); err != nil {
		return nil, err
	}
	form := url.Values{}
	for name, value := range fields {
		form.Set(name, value)
	}
	return form, nil
}

// answer has the members of all answers that we read.
type answer struct {
	Code         string `json:"code"` // 10000: the call succeeded; 40004: Alipay refused it, for SubCode
	Msg          string `json:"msg"`
	SubCode      string `json:"sub_code"`
	SubMsg       string `json:"sub_msg"`
	OutTradeNo   string `json:"out_trade_no"`
	TradeNo      string `json:"trade_no"`
	TradeStatus  string `json:"trade_status"`
	TotalAmount  string `json:"total_amount"`
	SendPayDate  string `json:"send_pay_date"`
	FundChange   string `json:"fund_change"`
	OutRequestNo string `json:"out_request_no"`
	RefundAmount string `json:"refund_amount"`
	RefundStatus string `json:"refund_status"`
}

// call sends a method and returns its verified answer. An error that is no *refusal says nothing of what happened.
func (g *Gateway) call(ctx context.Context, method string, biz any) (answer, error) {
	form, err := g.request(method, biz, nil)
	if err != nil {
		return answer{}, err
	}
	// Alipay reads charset from the URL before it reads the body.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.cfg.URL+"?charset=utf-8", strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=utf-8")
	status, _, body, err := signed.Do(g.cfg.Client, req)
	if err != nil {
		return answer{}, fmt.Errorf("alipay: %s: %w", method, err)
	}
	if status != http.StatusOK {
		return answer{}, fmt.Errorf("alipay: %s answered status %d", method, status)
	}
	raw, signature, err := envelope(body, method)
	if err != nil {
		return answer{}, fmt.Errorf("alipay: %s: %w", method, err)
	}
	if err := signed.Verify(g.public, raw, signature); err != nil {
		return answer{}, fmt.Errorf("alipay: %s: the answer's signature does not verify: %w", method, err)
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return answer{}, fmt.Errorf("alipay: %s: %w", method, err)
	}
	switch {
	case a.Code == "10000":
		return a, nil
	case a.Code == "40004" && a.SubCode != "" && a.SubCode != "ACQ.SYSTEM_ERROR":
		return answer{}, &refusal{method, a.SubCode, a.SubMsg}
	default: // 20000 and its like: the service is not available, the key is wrong, we are too fast
		return answer{}, fmt.Errorf("alipay: %s answered %s %s %s", method, a.Code, a.SubCode, a.SubMsg)
	}
}

// refusal is Alipay's signed no (code 40004, "Business Failed").
type refusal struct{ method, code, message string }

func (r *refusal) Error() string {
	return "alipay: " + r.method + " refused: " + r.code + " " + r.message
}

func (r *refusal) Unwrap() error { return payment.ErrRefused }

// refused reports whether err is a refusal with one of the codes.
func refused(err error, codes ...string) bool {
	var r *refusal
	return errors.As(err, &r) && slices.Contains(codes, r.code)
}

// envelope takes an answer apart: {"alipay_trade_query_response":{...},"sign":"..."}. The signature is over the first
// member's value as it was sent, byte for byte: decoding and encoding it again would lose spaces, the order and escapes
// (opendocs.alipay.com, "同步验签").
func envelope(body []byte, method string) (raw []byte, signature string, err error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil { // also refuses a member that is given twice
		return nil, "", errors.New("the answer is no JSON object")
	}
	raw = members[strings.ReplaceAll(method, ".", "_")+"_response"]
	if jsontext.Value(raw).Kind() != '{' {
		return nil, "", fmt.Errorf("the answer has no response member: %.200q", members["error_response"])
	}
	if members["sign"].Kind() != '"' || json.Unmarshal(members["sign"], &signature) != nil {
		return nil, "", errors.New("the answer is not signed")
	}
	return raw, signature, nil
}
