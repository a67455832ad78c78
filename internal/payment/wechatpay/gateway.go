// Package wechatpay is the adapter to WeChat Pay's Native payment by APIv3 (pay.weixin.qq.com, "Native支付"): the shopper
// scans a code.
package wechatpay

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

const (
	name = "wechatpay"
	// currency is the only one that a merchant in mainland China can take. Its minor unit is the fen.
	currency      = "CNY"
	productionURL = "https://api.mch.weixin.qq.com"
	maxSubject    = 127 // bytes
)

// beijing is the time zone that time_expire is written in.
var beijing = time.FixedZone("Asia/Shanghai", 8*60*60)

// Config sets a Gateway up.
type Config struct {
	// URL is where WeChat Pay listens. Default: https://api.mch.weixin.qq.com.
	URL string
	// MchID is our merchant number. Required.
	MchID string
	// AppID is the application (wx...) that the merchant number is bound to. Required.
	AppID string
	// SerialNo is the serial number of our API certificate, in hexadecimal. Required.
	SerialNo string
	// PrivateKey is that certificate's private key, in PEM form (PKCS #8 or PKCS #1, at least 2048 bits). Required.
	PrivateKey []byte
	// APIv3Key decrypts callbacks: 32 bytes, as set in the merchant platform. Required.
	APIv3Key string
	// Platform are WeChat Pay's keys that we trust; the first is the one that answers shall be signed with. At least one
	// is required; two while one is being replaced, for callbacks are signed with either then.
	Platform []PlatformKey
	// NotifyURL is where callbacks shall go: .../v1/payments/callbacks/wechatpay. Required.
	NotifyURL string
	// Client sends the calls; it must follow no redirects. Default: signed.NewClient().
	Client *http.Client
	// Now is the process clock, which dates our requests and judges the dates of answers. Default: time.Now.
	Now func() time.Time
}

// PlatformKey is a key of WeChat Pay's.
type PlatformKey struct {
	// Serial is what the header Wechatpay-Serial says: PUB_KEY_ID_... for a public key, the serial number in upper-case
	// hexadecimal for a platform certificate.
	Serial string
	// PEM is the public key or the certificate.
	PEM []byte
}

// Gateway implements payment.Gateway. Deadlines come from the context alone.
type Gateway struct {
	cfg     Config
	private *rsa.PrivateKey
	keys    map[string]*rsa.PublicKey // WeChat Pay's, by serial
	aead    cipher.AEAD
}

var _ payment.Gateway = (*Gateway)(nil)

// NewGateway checks the configuration; it calls nobody.
func NewGateway(cfg Config) (*Gateway, error) {
	if cfg.URL == "" {
		cfg.URL = productionURL
	}
	if !signed.HTTPURL(cfg.URL) || !signed.HTTPURL(cfg.NotifyURL) {
		return nil, errors.New("wechatpay: URL and NotifyURL must be absolute http or https URLs without a query")
	}
	for field, value := range map[string]string{"MchID": cfg.MchID, "AppID": cfg.AppID, "SerialNo": cfg.SerialNo} {
		if !signed.Token(value) || strings.ContainsAny(value, `"\`) {
			return nil, fmt.Errorf("wechatpay: %s is missing or has characters that it cannot have", field)
		}
	}
	if len(cfg.APIv3Key) != 32 {
		return nil, fmt.Errorf("wechatpay: APIv3Key must have 32 bytes, not %d", len(cfg.APIv3Key))
	}
	if len(cfg.Platform) == 0 {
		return nil, errors.New("wechatpay: a key of WeChat Pay's is required")
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	if cfg.Client == nil {
		cfg.Client = signed.NewClient()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Gateway{cfg: cfg, keys: map[string]*rsa.PublicKey{}}
	var err error
	if g.private, err = signed.PrivateKey(cfg.PrivateKey); err != nil {
		return nil, fmt.Errorf("wechatpay: PrivateKey: %w", err)
	}
	for _, p := range cfg.Platform {
		key, serial, err := signed.PublicKey(p.PEM)
		switch {
		case err != nil:
			return nil, fmt.Errorf("wechatpay: platform key %.64q: %w", p.Serial, err)
		case !signed.Token(p.Serial) || serial != "" && serial != p.Serial:
			return nil, fmt.Errorf("wechatpay: platform key %.64q: the certificate's serial is %q", p.Serial, serial)
		case key.Equal(&g.private.PublicKey):
			return nil, fmt.Errorf("wechatpay: platform key %.64q is our own: WeChat Pay's is needed", p.Serial)
		}
		g.keys[p.Serial] = key
	}
	block, err := aes.NewCipher([]byte(cfg.APIv3Key))
	if err != nil {
		return nil, err
	}
	g.aead, err = cipher.NewGCM(block)
	return g, err
}

// Name implements payment.Gateway.
func (g *Gateway) Name() string { return name }

// Takes implements payment.Gateway.
func (g *Gateway) Takes(amount int64, code string) bool {
	return amount > 0 && code == currency
}

type amount struct {
	Total    int64  `json:"total"` // fen
	Currency string `json:"currency"`
}

// Charge implements payment.Gateway. The pay page is a weixin:// address, to be shown as a QR code; WeChat Pay has no number
// of the charge before it is paid. The same order sent again, in all its values, is answered with a fresh code for the same
// charge ("参数重入"); with other values, or paid or closed meanwhile, it is refused.
// Failed is money that WeChat Pay cannot take: it takes yuan only. Nothing is sent then.
func (g *Gateway) Charge(ctx context.Context, r payment.ChargeRequest) (payment.Charge, error) {
	if !g.Takes(r.Amount, r.Currency) {
		return payment.Charge{PaymentNo: r.PaymentNo, State: fsm.Failed, Amount: r.Amount, Currency: r.Currency}, nil
	}
	var out struct {
		CodeURL string `json:"code_url"`
	}
	err := g.call(ctx, http.MethodPost, "/v3/pay/transactions/native", struct {
		AppID       string `json:"appid"`
		MchID       string `json:"mchid"`
		Description string `json:"description"`
		OutTradeNo  string `json:"out_trade_no"`
		TimeExpire  string `json:"time_expire"`
		NotifyURL   string `json:"notify_url"`
		Amount      amount `json:"amount"`
	}{g.cfg.AppID, g.cfg.MchID, subject(r.Subject), r.PaymentNo, r.ExpiresAt.In(beijing).Format(time.RFC3339), g.cfg.NotifyURL, amount{r.Amount, currency}},
		&out)
	if refused(err, "ORDERPAID", "ORDER_PAID") { // an earlier try whose answer was lost: the query knows
		c, queryErr := g.Query(ctx, payment.Ref{PaymentNo: r.PaymentNo})
		if queryErr != nil || c.State != fsm.Succeeded {
			return payment.Charge{}, errors.Join(err, queryErr)
		}
		return c, nil
	}
	if err != nil {
		return payment.Charge{}, err
	}
	if page, err := url.Parse(out.CodeURL); err != nil || page.Scheme != "weixin" || page.Host == "" || len(out.CodeURL) > 512 {
		return payment.Charge{}, fmt.Errorf("wechatpay: the code_url of %s cannot be believed", r.PaymentNo)
	}
	return payment.Charge{PaymentNo: r.PaymentNo, State: fsm.Pending, Amount: r.Amount, Currency: currency, PayURL: out.CodeURL}, nil
}

// subject keeps to 127 bytes without breaking a character (Native下单, description).
func subject(s string) string {
	s = strings.ToValidUTF8(s, " ")
	if len(s) > maxSubject {
		cut := maxSubject
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	return s
}

// Query implements payment.Gateway.
func (g *Gateway) Query(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	var t transaction
	err := g.call(ctx, http.MethodGet, "/v3/pay/transactions/out-trade-no/"+url.PathEscape(of.PaymentNo)+"?mchid="+url.QueryEscape(g.cfg.MchID), nil, &t)
	if refused(err, notExist...) {
		return payment.Charge{}, payment.ErrNotFound
	}
	if err != nil {
		return payment.Charge{}, err
	}
	c, ok := t.charge()
	if !ok || t.MchID != g.cfg.MchID || t.AppID != "" && t.AppID != g.cfg.AppID || t.OutTradeNo != of.PaymentNo {
		return payment.Charge{}, fmt.Errorf("wechatpay: an answer about %s (%q) cannot be believed", of.PaymentNo, t.TradeState)
	}
	return c, nil
}

// Close implements payment.Gateway. A refusal (paid, closed already, the shopper is paying) is settled by asking.
func (g *Gateway) Close(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	err := g.call(ctx, http.MethodPost, "/v3/pay/transactions/out-trade-no/"+url.PathEscape(of.PaymentNo)+"/close", struct {
		MchID string `json:"mchid"`
	}{g.cfg.MchID}, nil)
	var no *refusal
	switch {
	case refused(err, notExist...):
		return payment.Charge{}, payment.ErrNotFound
	case errors.As(err, &no):
		c, queryErr := g.Query(ctx, of)
		if queryErr != nil {
			return payment.Charge{}, errors.Join(err, queryErr)
		}
		if c.State == fsm.Pending {
			return payment.Charge{}, err
		}
		return c, nil
	case err != nil:
		return payment.Charge{}, err
	}
	return payment.Charge{PaymentNo: of.PaymentNo, TransactionID: of.TransactionID, State: fsm.Closed, Currency: currency}, nil
}
