package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"orderd/internal/payment"
	"orderd/internal/payment/alipay"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/stripe"
	"orderd/internal/payment/wechatpay"
)

// StripeSettings are the flags of the Stripe gateway, which is there when it has a key.
type StripeSettings struct {
	SecretKey     string   `env:"SECRET_KEY" help:"Stripe's API key, sk_... or rk_...; it makes the gateway stripe available."`
	WebhookSecret []string `env:"WEBHOOK_SECRET" help:"What Stripe signs its events with: whsec_...; two, separated by a comma, while it is rolled."`
	ReturnURL     string   `name:"return-url" env:"RETURN_URL" help:"Where Stripe's pay page sends the shopper afterwards."`
	URL           string   `name:"url" default:"https://api.stripe.com" env:"URL" help:"Where Stripe listens."`
}

// AlipaySettings are the flags of the Alipay gateway, which is there when it has an app id.
type AlipaySettings struct {
	AppID      string `name:"app-id" env:"APP_ID" help:"Our application at Alipay; it makes the gateway alipay available."`
	SellerID   string `name:"seller-id" env:"SELLER_ID" help:"Our account at Alipay, 2088..."`
	PrivateKey string `env:"PRIVATE_KEY" help:"PEM file of the application's private key."`
	PublicKey  string `env:"PUBLIC_KEY" help:"PEM file of Alipay's public key for the application: not our own."`
	URL        string `name:"url" default:"https://openapi.alipay.com/gateway.do" env:"URL" help:"Where Alipay listens."`
}

// gateway makes the port. Notices go to notifyURL.
func (s *AlipaySettings) gateway(notifyURL string) (payment.Gateway, error) {
	private, err := os.ReadFile(s.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("--alipay-private-key: %w", err)
	}
	public, err := os.ReadFile(s.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("--alipay-public-key: %w", err)
	}
	return alipay.NewGateway(alipay.Config{URL: s.URL, AppID: s.AppID, SellerID: s.SellerID, PrivateKey: private, PublicKey: public, NotifyURL: notifyURL})
}

// WechatPaySettings are the flags of the WeChat Pay gateway, which is there when it has a merchant number.
type WechatPaySettings struct {
	MchID          string   `name:"mchid" env:"MCHID" help:"Our merchant number at WeChat Pay; it makes the gateway wechatpay available."`
	AppID          string   `name:"appid" env:"APPID" help:"The application that the merchant number is bound to, wx..."`
	Serial         string   `env:"SERIAL" help:"Serial number of our API certificate."`
	PrivateKey     string   `env:"PRIVATE_KEY" help:"PEM file of that certificate's private key."`
	APIv3Key       string   `name:"apiv3-key" env:"APIV3_KEY" help:"What WeChat Pay encrypts its notices with: 32 bytes."`
	PlatformSerial []string `env:"PLATFORM_SERIAL" help:"PUB_KEY_ID_... or serial number of WeChat Pay's key; two, separated by a comma, while it is replaced."`
	PlatformKey    []string `env:"PLATFORM_KEY" help:"PEM file of WeChat Pay's public key or certificate, for each serial."`
	URL            string   `name:"url" default:"https://api.mch.weixin.qq.com" env:"URL" help:"Where WeChat Pay listens."`
}

// gateway makes the port. Notices go to notifyURL.
func (s *WechatPaySettings) gateway(notifyURL string) (payment.Gateway, error) {
	c := wechatpay.Config{URL: s.URL, MchID: s.MchID, AppID: s.AppID, SerialNo: s.Serial, APIv3Key: s.APIv3Key, NotifyURL: notifyURL}
	var err error
	if c.PrivateKey, err = os.ReadFile(s.PrivateKey); err != nil {
		return nil, fmt.Errorf("--wechatpay-private-key: %w", err)
	}
	if len(s.PlatformSerial) != len(s.PlatformKey) {
		return nil, errors.New("--wechatpay-platform-key: there must be one for each --wechatpay-platform-serial")
	}
	for i, file := range s.PlatformKey {
		key, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--wechatpay-platform-key: %w", err)
		}
		c.Platform = append(c.Platform, wechatpay.PlatformKey{Serial: s.PlatformSerial[i], PEM: key})
	}
	return wechatpay.NewGateway(c)
}

// gateways makes the ports to the payment gateways that are configured. sandboxURL is where the sandbox listens,
// publicURL where gateways reach our API for callbacks.
func (s *Settings) gateways(sandboxURL, publicURL string) (map[string]payment.Gateway, error) {
	callbacks := publicURL + "/v1/payments/callbacks/"
	ports := map[string]payment.Gateway{}
	add := func(g payment.Gateway) { ports[g.Name()] = payment.WithBreaker(g) }

	if s.playMoney() {
		g, err := sandbox.NewGateway(sandbox.Config{URL: sandboxURL, APIKey: s.SandboxAPIKey, MerchantID: s.MerchantID,
			WebhookSecrets: []string{s.SandboxWebhookSecret}, NotifyURL: callbacks + "sandbox"})
		if err != nil {
			return nil, err
		}
		add(g)
	}
	if s.Stripe.SecretKey != "" { // the address of our callbacks is set in Stripe's dashboard
		g, err := stripe.NewGateway(stripe.Config{SecretKey: s.Stripe.SecretKey, WebhookSecrets: s.Stripe.WebhookSecret,
			ReturnURL: s.Stripe.ReturnURL, APIBase: s.Stripe.URL})
		if err != nil {
			return nil, err
		}
		if s.PayTimeout > stripe.MaxPayTime {
			return nil, fmt.Errorf("--pay-timeout %s: Stripe's pay page lives for %s at most", s.PayTimeout, stripe.MaxPayTime)
		}
		add(g)
	}
	if s.Alipay.AppID != "" {
		g, err := s.Alipay.gateway(callbacks + "alipay")
		if err != nil {
			return nil, err
		}
		add(g)
	}
	if s.WechatPay.MchID != "" {
		g, err := s.WechatPay.gateway(callbacks + "wechatpay")
		if err != nil {
			return nil, err
		}
		add(g)
	}
	if ports[s.Gateway] == nil {
		return nil, fmt.Errorf("--gateway %s: there is no such gateway, or it is not configured", s.Gateway)
	}
	return ports, nil
}

// gatewaysOfRunning makes the ports for a command that looks at what a running service uses.
func (s *Settings) gatewaysOfRunning() (map[string]payment.Gateway, error) {
	return s.gateways(cmp.Or(s.SandboxURL, "http://"+s.SandboxAddr), cmp.Or(s.PublicURL, "http://"+s.Addr))
}
