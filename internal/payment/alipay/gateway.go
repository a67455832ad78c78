// Package alipay is the adapter to Alipay's page pay (opendocs.alipay.com, "电脑网站支付"): alipay.trade.page.pay and the
// trade methods query, close, refund and fastpay.refund.query, signed with RSA2.
package alipay

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

const (
	name = "alipay"
	// currency is the only one: every amount of these methods is in yuan.
	currency      = "CNY"
	productionURL = "https://openapi.alipay.com/gateway.do"
	maxSubject    = 256 // characters
)

// Config sets a Gateway up.
type Config struct {
	// URL is Alipay's gateway. Default: https://openapi.alipay.com/gateway.do.
	URL string
	// AppID is our application at Alipay's open platform. Required.
	AppID string
	// SellerID is our account there, 2088...: callbacks about another seller are refused. Required.
	SellerID string
	// PrivateKey is the application's private key, in PEM form (PKCS #8 or PKCS #1, at least 2048 bits). Required.
	PrivateKey []byte
	// PublicKey is *Alipay's* public key as the open platform shows it for this application, in PEM form: not our own.
	// Required.
	PublicKey []byte
	// NotifyURL is where callbacks shall go: .../v1/payments/callbacks/alipay. Required.
	NotifyURL string
	// Client sends the calls; it must follow no redirects. Default: signed.NewClient().
	Client *http.Client
	// Now is the process clock, which dates our requests. Default: time.Now.
	Now func() time.Time
}

// Gateway implements payment.Gateway. Deadlines come from the context alone.
type Gateway struct {
	cfg     Config
	private *rsa.PrivateKey
	public  *rsa.PublicKey
}

var _ payment.Gateway = (*Gateway)(nil)

// NewGateway checks the configuration; it calls nobody.
func NewGateway(cfg Config) (*Gateway, error) {
	if cfg.URL == "" {
		cfg.URL = productionURL
	}
	if !signed.HTTPURL(cfg.URL) || !signed.HTTPURL(cfg.NotifyURL) {
		return nil, errors.New("alipay: URL and NotifyURL must be absolute http or https URLs without a query")
	}
	if cfg.AppID == "" || cfg.SellerID == "" {
		return nil, errors.New("alipay: an app id and a seller id are required")
	}
	private, err := signed.PrivateKey(cfg.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("alipay: PrivateKey: %w", err)
	}
	public, _, err := signed.PublicKey(cfg.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("alipay: PublicKey: %w", err)
	}
	if public.Equal(&private.PublicKey) {
		return nil, errors.New("alipay: PublicKey is our own key: Alipay's is needed")
	}
	if cfg.Client == nil {
		cfg.Client = signed.NewClient()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Gateway{cfg: cfg, private: private, public: public}, nil
}

// Name implements payment.Gateway.
func (g *Gateway) Name() string { return name }

// Takes implements payment.Gateway.
func (g *Gateway) Takes(amount int64, code string) bool {
	return amount > 0 && amount <= maxAmount && code == currency
}

// Charge implements payment.Gateway. It calls nobody: the pay page's address is a request that we sign here and that the
// shopper's browser sends. Hence Alipay has no trade until the shopper opens the page, and
//
//   - Query and Close of a page that nobody opened say payment.ErrNotFound. That is no proof that it cannot be paid: the
//     address stays good until time_expire, which is the order's own expiry. An absolute time, as the relative
//     timeout_express would start only when the shopper opens the page.
//   - The same payment_no with another amount is not noticed here: Alipay refuses it when the second page is opened. The
//     flow never does that, an attempt's amount is stored once.
//
// Failed is money that Alipay cannot take: it takes yuan only, up to 100 million. Nothing is signed then.
func (g *Gateway) Charge(ctx context.Context, r payment.ChargeRequest) (payment.Charge, error) {
	if err := ctx.Err(); err != nil {
		return payment.Charge{}, err
	}
	if !g.Takes(r.Amount, r.Currency) {
		return payment.Charge{PaymentNo: r.PaymentNo, State: fsm.Failed, Amount: r.Amount, Currency: r.Currency}, nil
	}
	form, err := g.request("alipay.trade.page.pay", struct {
		OutTradeNo  string `json:"out_trade_no"`
		ProductCode string `json:"product_code"`
		Subject     string `json:"subject"`
		TimeExpire  string `json:"time_expire"`
		TotalAmount string `json:"total_amount"`
	}{r.PaymentNo, "FAST_INSTANT_TRADE_PAY", subject(r.Subject), r.ExpiresAt.In(beijing).Format(timeForm), yuan(r.Amount)},
		map[string]string{"notify_url": g.cfg.NotifyURL})
	if err != nil {
		return payment.Charge{}, err
	}
	return payment.Charge{
		PaymentNo: r.PaymentNo, State: fsm.Pending, Amount: r.Amount, Currency: currency, PayURL: g.cfg.URL + "?" + form.Encode(),
	}, nil
}

// subject keeps to 256 characters without "/", "=" and "&" (alipay.trade.page.pay, subject).
func subject(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune("/=&", r) || r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	if r := []rune(s); len(r) > maxSubject {
		s = string(r[:maxSubject])
	}
	return s
}

// trade names a trade by our number.
type trade struct {
	OutTradeNo string `json:"out_trade_no"`
}

// Query implements payment.Gateway. A trade that was paid is Succeeded, whatever went back since: refunds have books of
// their own.
func (g *Gateway) Query(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	a, err := g.call(ctx, "alipay.trade.query", trade{of.PaymentNo})
	if refused(err, "ACQ.TRADE_NOT_EXIST") {
		return payment.Charge{}, payment.ErrNotFound
	}
	if err != nil {
		return payment.Charge{}, err
	}
	c := payment.Charge{PaymentNo: a.OutTradeNo, TransactionID: a.TradeNo, Currency: currency}
	switch a.TradeStatus {
	case "WAIT_BUYER_PAY":
		c.State = fsm.Pending
	case "TRADE_SUCCESS", "TRADE_FINISHED": // FINISHED: as SUCCESS, but too late for a refund
		c.State = fsm.Succeeded
	case "TRADE_CLOSED": // not paid in time or closed by us; or paid, and all of it refunded
		c.State = fsm.Closed
		if a.SendPayDate != "" {
			c.State = fsm.Succeeded
		}
	}
	c.Amount, err = fen(a.TotalAmount)
	if err != nil || c.State == "" || a.OutTradeNo != of.PaymentNo || !signed.Token(a.TradeNo) {
		return payment.Charge{}, fmt.Errorf("alipay: an answer about %s (%q, %q) cannot be believed", of.PaymentNo, a.TradeStatus, a.TotalAmount)
	}
	return c, nil
}

// Close implements payment.Gateway. ErrNotFound: nobody opened the pay page (see Charge), so there is nothing to close, and
// a shopper who kept its address can still pay until time_expire. The flow goes on as if it were closed; what comes in
// after all finds the attempt ended and is sent back.
func (g *Gateway) Close(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	a, err := g.call(ctx, "alipay.trade.close", trade{of.PaymentNo})
	var no *refusal
	switch {
	case refused(err, "ACQ.TRADE_NOT_EXIST"):
		return payment.Charge{}, payment.ErrNotFound
	case errors.As(err, &no): // it is in no state to be closed: paid, or closed already
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
	case a.OutTradeNo != of.PaymentNo || !signed.Token(a.TradeNo):
		return payment.Charge{}, fmt.Errorf("alipay: an answer about closing %s cannot be believed", of.PaymentNo)
	}
	return payment.Charge{PaymentNo: a.OutTradeNo, TransactionID: a.TradeNo, State: fsm.Closed, Currency: currency}, nil
}
