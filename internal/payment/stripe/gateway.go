// Package stripe is the adapter to Stripe Checkout (https://docs.stripe.com/api/checkout/sessions): a charge is a Checkout
// Session, whose page takes the money by a PaymentIntent.
//
// A charge's transaction_id is the session's id. Stripe finds a session by nothing else soon enough (its search lags), so a
// charge whose id we do not have counts as not found. That is safe: the address of the pay page comes in the same answer as
// the id, so nobody can pay it, and sending it again, with payment_no as the Idempotency-Key, is the same session.
package stripe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/stripe/stripe-go/v85"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

const name = "stripe"

// MaxPayTime is how far ahead the end of a charge may lie: Stripe takes at most 24 hours, of which slack is ours.
const MaxPayTime = 23 * time.Hour

// slack is added to the end of a charge, because Stripe wants 30 minutes at least from when it gets the request. We close
// charges at their end ourselves; this is for when we cannot. It depends on the charge alone, not on the clock: under one
// Idempotency-Key a request must not change.
const slack = 31 * time.Minute

// Config sets a Gateway up.
type Config struct {
	// SecretKey is the API key: sk_... or, restricted to Checkout Sessions, PaymentIntents and Refunds, rk_.... Required.
	SecretKey string
	// WebhookSecrets ("whsec_...") of the webhook endpoint: the present one and, while it is being rolled, the one before.
	// At least one is required. The endpoint needs the events checkout.session.completed,
	// checkout.session.async_payment_succeeded, checkout.session.async_payment_failed, checkout.session.expired,
	// refund.created, refund.updated and refund.failed.
	WebhookSecrets []string
	// ReturnURL is the page that the shopper comes back to, paid or not. Required.
	ReturnURL string
	// APIBase is where Stripe listens. Default: https://api.stripe.com.
	APIBase string
	// Transport sends the calls. Default: NewTransport().
	Transport http.RoundTripper
}

// Gateway implements payment.Gateway. Deadlines come from the context alone.
type Gateway struct {
	cfg  Config
	live bool // the key moves real money
	api  *sdk.Client
}

var _ payment.Gateway = (*Gateway)(nil)

// NewGateway checks the configuration; it calls nobody.
func NewGateway(cfg Config) (*Gateway, error) {
	kind, mode, _ := strings.Cut(cfg.SecretKey, "_")
	mode, secret, _ := strings.Cut(mode, "_")
	if kind != "sk" && kind != "rk" || mode != "live" && mode != "test" || secret == "" {
		return nil, errors.New("stripe: the secret key must start with sk_live_, sk_test_, rk_live_ or rk_test_")
	}
	if len(cfg.WebhookSecrets) == 0 {
		return nil, errors.New("stripe: a webhook secret is required")
	}
	for _, s := range cfg.WebhookSecrets {
		if !strings.HasPrefix(s, "whsec_") || len(s) < len("whsec_")+16 {
			return nil, errors.New("stripe: a webhook secret is whsec_ and 16 characters or more")
		}
	}
	if !httpURL(cfg.ReturnURL) {
		return nil, errors.New("stripe: ReturnURL must be an absolute http or https URL")
	}
	if cfg.APIBase == "" {
		cfg.APIBase = sdk.APIURL
	}
	if !httpURL(cfg.APIBase) {
		return nil, errors.New("stripe: APIBase must be an absolute http or https URL")
	}
	if cfg.Transport == nil {
		cfg.Transport = NewTransport()
	}
	return &Gateway{cfg: cfg, live: mode == "live", api: newClient(cfg)}, nil
}

// Name implements payment.Gateway.
func (g *Gateway) Name() string { return name }

// Takes implements payment.Gateway. Of a currency with three decimals Stripe takes amounts that end in 0 only: KWD 1.230, not
// KWD 1.234.
func (g *Gateway) Takes(amount int64, code string) bool {
	_, err := toStripe(amount, code)
	return err == nil
}

// Charge implements payment.Gateway. A card that is declined is declined on Stripe's page, where the shopper may try another;
// so the state is Failed only for an amount that Stripe's units cannot express, which is not even sent.
func (g *Gateway) Charge(ctx context.Context, r payment.ChargeRequest) (payment.Charge, error) {
	amount, err := toStripe(r.Amount, r.Currency)
	if err != nil {
		return payment.Charge{PaymentNo: r.PaymentNo, State: fsm.Failed, Amount: r.Amount, Currency: r.Currency}, nil
	}
	mark := map[string]string{paymentNo: r.PaymentNo}
	p := &sdk.CheckoutSessionCreateParams{
		Mode:              sdk.String(sdk.CheckoutSessionModePayment),
		ClientReferenceID: &r.PaymentNo, // for people, in the dashboard
		Metadata:          mark,
		PaymentIntentData: &sdk.CheckoutSessionCreatePaymentIntentDataParams{Metadata: mark},
		LineItems: []*sdk.CheckoutSessionCreateLineItemParams{{
			Quantity: sdk.Int64(1),
			PriceData: &sdk.CheckoutSessionCreateLineItemPriceDataParams{
				Currency: sdk.String(strings.ToLower(r.Currency)), UnitAmount: &amount,
				ProductData: &sdk.CheckoutSessionCreateLineItemPriceDataProductDataParams{Name: &r.Subject},
			},
		}},
		// In the currency that we ask for, and no other.
		AdaptivePricing: &sdk.CheckoutSessionCreateAdaptivePricingParams{Enabled: sdk.Bool(false)},
		ExpiresAt:       sdk.Int64(r.ExpiresAt.Add(slack).Unix()),
		SuccessURL:      &g.cfg.ReturnURL,
		CancelURL:       &g.cfg.ReturnURL,
	}
	p.SetIdempotencyKey(r.PaymentNo)
	s, err := g.api.V1CheckoutSessions.Create(ctx, p)
	if err != nil {
		return payment.Charge{}, unknown(err)
	}
	of := payment.Ref{PaymentNo: r.PaymentNo, TransactionID: s.ID}
	if replayed(s.LastResponse) { // the answer of then: the session may be paid or over by now
		if s, err = g.session(ctx, of); err != nil {
			return payment.Charge{}, unknown(err)
		}
	}
	c, err := g.asCharge(s, of)
	if err == nil && c.State == fsm.Closed {
		return payment.Charge{}, errors.New("stripe: the session is over already")
	}
	return c, err
}

// Query implements payment.Gateway.
func (g *Gateway) Query(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	s, err := g.session(ctx, of)
	if err != nil {
		return payment.Charge{}, err
	}
	return g.asCharge(s, of)
}

// Close implements payment.Gateway.
func (g *Gateway) Close(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	if of.TransactionID == "" {
		return payment.Charge{}, payment.ErrNotFound
	}
	p := &sdk.CheckoutSessionExpireParams{Expand: expandIntent}
	s, err := g.api.V1CheckoutSessions.Expire(ctx, of.TransactionID, p)
	if refused(err) { // only open sessions can be closed: which is it?
		s, err = g.session(ctx, of)
	}
	if err != nil {
		return payment.Charge{}, notFound(err)
	}
	c, err := g.asCharge(s, of)
	if err == nil && c.State == fsm.Pending {
		return payment.Charge{}, errors.New("stripe: the payment is under way and cannot be stopped")
	}
	return c, err
}

// session asks for a session with its PaymentIntent.
func (g *Gateway) session(ctx context.Context, of payment.Ref) (*sdk.CheckoutSession, error) {
	if of.TransactionID == "" {
		return nil, payment.ErrNotFound
	}
	s, err := g.api.V1CheckoutSessions.Retrieve(ctx, of.TransactionID, &sdk.CheckoutSessionRetrieveParams{Expand: expandIntent})
	return s, notFound(err)
}

var expandIntent = []*string{sdk.String("payment_intent")}

// paymentNo and refundNo mark what is ours in the metadata of Stripe's objects.
const (
	paymentNo = "payment_no"
	refundNo  = "refund_no"
)

// asCharge believes an answer only if it is about our payment and says what a session must say.
func (g *Gateway) asCharge(s *sdk.CheckoutSession, of payment.Ref) (payment.Charge, error) {
	incredible := fmt.Errorf("stripe: an answer about %s (%s, %s) cannot be believed", of.PaymentNo, s.Status, s.PaymentStatus)
	if s.ID == "" || s.ID != of.TransactionID || s.Metadata[paymentNo] != of.PaymentNo || s.Livemode != g.live {
		return payment.Charge{}, incredible
	}
	c := payment.Charge{PaymentNo: of.PaymentNo, TransactionID: s.ID}
	amount, currency := s.AmountTotal, s.Currency
	switch i := s.PaymentIntent; {
	case s.Status == sdk.CheckoutSessionStatusOpen && httpURL(s.URL):
		c.State, c.PayURL = fsm.Pending, s.URL
	case s.Status == sdk.CheckoutSessionStatusExpired:
		c.State = fsm.Closed
	case s.Status != sdk.CheckoutSessionStatusComplete || i == nil || i.ID == "":
		return payment.Charge{}, incredible
	case s.PaymentStatus == sdk.CheckoutSessionPaymentStatusPaid && i.Status == sdk.PaymentIntentStatusSucceeded:
		c.State = fsm.Succeeded
		amount, currency = i.AmountReceived, i.Currency
	case s.PaymentStatus == sdk.CheckoutSessionPaymentStatusUnpaid && i.Status == sdk.PaymentIntentStatusProcessing:
		c.State = fsm.Pending // a bank takes days
	case s.PaymentStatus == sdk.CheckoutSessionPaymentStatusUnpaid &&
		(i.Status == sdk.PaymentIntentStatusRequiresPaymentMethod || i.Status == sdk.PaymentIntentStatusCanceled):
		c.State = fsm.Failed // and the page is over
	default:
		return payment.Charge{}, incredible
	}
	var err error
	if c.Amount, c.Currency, err = fromStripe(amount, string(currency)); err != nil {
		return payment.Charge{}, err
	}
	return c, nil
}

// httpURL also keeps javascript: and its like out of a pay_url, which ends up behind somebody's button.
func httpURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
