package wechatpay

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"orderd/internal/payment/signed"
)

// tolerance is how far the time of a signature may be from the process clock, either way.
const tolerance = 5 * time.Minute

// probe starts the signatures by which WeChat Pay tests, now and then, that merchants verify them at all. They must be
// refused (pay.weixin.qq.com, "签名验证", 签名探测流量).
const probe = "WECHATPAY/SIGNTEST/"

// authorization returns the Authorization header of a request
// (pay.weixin.qq.com, "如何生成请求签名"). target is the path with the query.
func (g *Gateway) authorization(method, target string, body []byte) (string, error) {
	timestamp, nonce := strconv.FormatInt(g.cfg.Now().Unix(), 10), rand.Text()
	signature, err := signed.Sign(g.private, lines(method, target, timestamp, nonce, string(body)))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`WECHATPAY2-SHA256-RSA2048 mchid="%s",nonce_str="%s",signature="%s",timestamp="%s",serial_no="%s"`,
		g.cfg.MchID, nonce, signature, timestamp, g.cfg.SerialNo), nil
}

// lines is what a signature is over: each part, also the last and an empty one, ends with a line break.
func lines(parts ...string) []byte { return []byte(strings.Join(parts, "\n") + "\n") }

// verify checks that WeChat Pay signed body, lately: an answer's and a callback's signature are alike
// (pay.weixin.qq.com, "如何使用微信支付公钥验签"). The key is looked up by its serial among the configured ones. An unknown
// serial is refused: keys are not downloaded on the word of somebody who is not verified yet.
func (g *Gateway) verify(h http.Header, body []byte, now time.Time) error {
	values := map[string]string{}
	for _, name := range []string{"Serial", "Timestamp", "Nonce", "Signature"} {
		v := h.Values("Wechatpay-" + name)
		if len(v) != 1 || v[0] == "" || len(v[0]) > 1024 || strings.ContainsAny(v[0], "\r\n") {
			return fmt.Errorf("header Wechatpay-%s must be there, once", name)
		}
		values[name] = v[0]
	}
	if strings.HasPrefix(values["Signature"], probe) {
		return errors.New("the signature is a probe")
	}
	key, ok := g.keys[values["Serial"]]
	if !ok {
		return fmt.Errorf("serial %.64q is not among the configured ones", values["Serial"])
	}
	at, err := seconds(values["Timestamp"])
	if err != nil {
		return err
	}
	if age := now.Sub(at); age < -tolerance || age > tolerance {
		return errors.New("the signature is too old, or from the future")
	}
	return signed.Verify(key, lines(values["Timestamp"], values["Nonce"], string(body)), values["Signature"])
}

// seconds reads Unix seconds: digits alone, and few enough for any date that matters.
func seconds(s string) (time.Time, error) {
	if s == "" || len(s) > 11 || strings.Trim(s, "0123456789") != "" {
		return time.Time{}, errors.New("the timestamp must be Unix seconds")
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return time.Unix(n, 0), err
}
