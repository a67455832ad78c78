package main

import (
	"cmp"
	"fmt"

	"orderd/internal/payment"
	"orderd/internal/payment/sandbox"
	"orderd/internal/payment/stripe"
)

// StripeSettings are the flags of the Stripe gateway, which is there when it has a key.
type StripeSettings struct {
	SecretKey     string   `env:"SECRET_KEY" help:"Stripe's API key, sk_... or rk_...; it makes the gateway stripe available."`
	WebhookSecret []string `env:"WEBHOOK_SECRET" help:"What Stripe signs its events with: whsec_...; two, separated by a comma, while it is rolled."`
	ReturnURL     string   `name:"return-url" env:"RETURN_URL" help:"Where Stripe's pay page sends the shopper afterwards."`
}

// gateways makes the ports to the payment gateways that are configured. sandboxURL is where the sandbox listens,
// publicURL where gateways reach our API for callbacks.
func (s *Settings) gateways(sandboxURL, publicURL string) (map[string]payment.Gateway, error) {
	callbacks := publicURL + "/v1/payments/callbacks/"
	ports := map[string]payment.Gateway{}
	add := func(g payment.Gateway) { ports[g.Name()] = payment.WithBreaker(g) }

	g, err := sandbox.NewGateway(sandbox.Config{URL: sandboxURL, APIKey: s.SandboxAPIKey, MerchantID: s.MerchantID,
		WebhookSecrets: []string{s.SandboxWebhookSecret}, NotifyURL: callbacks + "sandbox"})
	if err != nil {
		return nil, err
	}
	add(g)
	if s.Stripe.SecretKey != "" { // the address of our callbacks is set in Stripe's dashboard
		g, err := stripe.NewGateway(stripe.Config{SecretKey: s.Stripe.SecretKey, WebhookSecrets: s.Stripe.WebhookSecret, ReturnURL: s.Stripe.ReturnURL})
		if err != nil {
			return nil, err
		}
		if s.PayTimeout > stripe.MaxPayTime {
			return nil, fmt.Errorf("--pay-timeout %s: Stripe's pay page lives for %s at most", s.PayTimeout, stripe.MaxPayTime)
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
