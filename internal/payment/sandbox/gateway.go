// Package sandbox is the adapter to the sandbox gateway (package server runs one).
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bojanz/currency"
	"github.com/go-json-experiment/json"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox/wire"
)

const (
	name      = "sandbox"
	maxAnswer = 1 << 20 // bytes
	pageSize  = 1000    // ledger entries per call: well below maxAnswer
)

// Config sets a Gateway up.
type Config struct {
	// URL is where the gateway listens. Required.
	URL string
	// APIKey is sent as Authorization: Bearer. Required.
	APIKey string
	// WebhookSecrets ("whsec_<base64>") verify callbacks: the present one and, while it is being replaced, the one
	// before. At least one is required.
	WebhookSecrets []string
	// MerchantID is who we are there. Required.
	MerchantID string
	// NotifyURL is where callbacks shall go: .../v1/payments/callbacks/sandbox. Required.
	NotifyURL string
	// Client sends the calls; it must follow no redirects. Default: NewClient().
	Client *http.Client
}

// Gateway implements payment.Gateway. Deadlines come from the context alone.
type Gateway struct {
	cfg  Config
	keys [][]byte
}

var _ payment.Gateway = (*Gateway)(nil)

// NewClient returns a client that keeps enough connections alive for many orders at once.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConns:           256,
			MaxIdleConnsPerHost:    256,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 16 << 10,
		},
		// A redirect would carry the API key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// NewGateway checks the configuration; it calls nobody.
func NewGateway(cfg Config) (*Gateway, error) {
	for field, value := range map[string]string{"URL": cfg.URL, "NotifyURL": cfg.NotifyURL} {
		if !httpURL(value) {
			return nil, fmt.Errorf("sandbox: %s must be an absolute http or https URL", field)
		}
	}
	if cfg.APIKey == "" || cfg.MerchantID == "" || len(cfg.WebhookSecrets) == 0 {
		return nil, errors.New("sandbox: an API key, a merchant id and a webhook secret are required")
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	if cfg.Client == nil {
		cfg.Client = NewClient()
	}
	g := &Gateway{cfg: cfg}
	for _, secret := range cfg.WebhookSecrets {
		key, err := wire.ParseSecret(secret)
		if err != nil {
			return nil, err
		}
		g.keys = append(g.keys, key)
	}
	return g, nil
}

// Name implements payment.Gateway.
func (g *Gateway) Name() string { return name }

// Takes implements payment.Gateway: play money comes in every currency.
func (g *Gateway) Takes(amount int64, code string) bool {
	return amount > 0 && code != "" && currency.IsValid(code) // which lets "" pass
}

// Charge implements payment.Gateway. A charge that is CLOSED by now is an error: Query tells it. One that Takes refuses is
// Failed, and not sent.
func (g *Gateway) Charge(ctx context.Context, r payment.ChargeRequest) (payment.Charge, error) {
	if !g.Takes(r.Amount, r.Currency) {
		return payment.Charge{PaymentNo: r.PaymentNo, State: fsm.Failed, Amount: r.Amount, Currency: r.Currency}, nil
	}
	var out wire.Charge
	status, err := g.call(ctx, http.MethodPost, "/v1/charges", wire.ChargeRequest{
		MerchantID: g.cfg.MerchantID, PaymentNo: r.PaymentNo, Amount: r.Amount, Currency: r.Currency,
		Subject: r.Subject, NotifyURL: g.cfg.NotifyURL, ExpiresAt: r.ExpiresAt,
	}, &out)
	if err != nil {
		return payment.Charge{}, err
	}
	if status != http.StatusOK && status != http.StatusCreated || out.Status == wire.Closed {
		return payment.Charge{}, fmt.Errorf("sandbox: charge answered %d %s", status, out.Status)
	}
	return asCharge(out, r.PaymentNo)
}

// Query implements payment.Gateway.
func (g *Gateway) Query(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	var out wire.Charge
	status, err := g.call(ctx, http.MethodGet, "/v1/charges/"+url.PathEscape(of.PaymentNo), nil, &out)
	if err != nil {
		return payment.Charge{}, err
	}
	if status != http.StatusOK {
		return payment.Charge{}, fmt.Errorf("sandbox: query answered %d", status)
	}
	return asCharge(out, of.PaymentNo)
}

// Close implements payment.Gateway.
func (g *Gateway) Close(ctx context.Context, of payment.Ref) (payment.Charge, error) {
	var out wire.Charge
	status, err := g.call(ctx, http.MethodPost, "/v1/charges/"+url.PathEscape(of.PaymentNo)+"/close", nil, &out)
	if err != nil {
		return payment.Charge{}, err
	}
	closed := status == http.StatusOK && (out.Status == wire.Closed || out.Status == wire.Failed)
	paid := status == http.StatusConflict && out.Status == wire.Succeeded
	if !closed && !paid {
		return payment.Charge{}, fmt.Errorf("sandbox: close answered %d %s", status, out.Status)
	}
	return asCharge(out, of.PaymentNo)
}

// Refund implements payment.Gateway.
func (g *Gateway) Refund(ctx context.Context, r payment.RefundRequest) (payment.RefundAnswer, error) {
	var out wire.Refund
	status, err := g.call(ctx, http.MethodPost, "/v1/refunds", wire.RefundRequest{
		MerchantID: g.cfg.MerchantID, RefundNo: r.RefundNo, PaymentNo: r.PaymentNo, Amount: r.Amount, NotifyURL: g.cfg.NotifyURL,
	}, &out)
	var no *refusal
	if errors.As(err, &no) && no.code == "refund_exceeds_payment" { // it would have known a number that went through
		return payment.RefundAnswer{RefundNo: r.RefundNo, State: fsm.Failed, Amount: r.Amount}, nil
	}
	if err != nil {
		return payment.RefundAnswer{}, err
	}
	if status != http.StatusOK && status != http.StatusCreated || out.Amount != r.Amount {
		return payment.RefundAnswer{}, fmt.Errorf("sandbox: refund answered %d, amount %d", status, out.Amount)
	}
	return asRefund(out, r.RefundNo)
}

// QueryRefund implements payment.Gateway.
func (g *Gateway) QueryRefund(ctx context.Context, refundNo string, _ payment.Ref) (payment.RefundAnswer, error) {
	var out wire.Refund
	status, err := g.call(ctx, http.MethodGet, "/v1/refunds/"+url.PathEscape(refundNo), nil, &out)
	if err != nil {
		return payment.RefundAnswer{}, err
	}
	if status != http.StatusOK {
		return payment.RefundAnswer{}, fmt.Errorf("sandbox: refund query answered %d", status)
	}
	return asRefund(out, refundNo)
}

// Ledger returns all movements of money after the given seq, in order: what our own books are checked against.
func (g *Gateway) Ledger(ctx context.Context, after int64) ([]wire.LedgerEntry, error) {
	var all []wire.LedgerEntry
	for {
		var page wire.Ledger
		path := "/v1/ledger?limit=" + strconv.Itoa(pageSize) + "&after=" + strconv.FormatInt(after, 10)
		status, err := g.call(ctx, http.MethodGet, path, nil, &page)
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK || page.Entries == nil { // an empty list is [], not nothing
			return nil, fmt.Errorf("sandbox: ledger answered %d without a list", status)
		}
		all = append(all, page.Entries...)
		if len(page.Entries) < pageSize {
			return all, nil
		}
		after = page.Entries[len(page.Entries)-1].Seq
	}
}

// call sends one request and reads the JSON answer into out. A problem that says not_found is payment.ErrNotFound; every
// other problem, and whatever is no JSON of the gateway's, is an error too.
func (g *Gateway) call(ctx context.Context, method, path string, in, out any) (status int, err error) {
	var body io.Reader = http.NoBody
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, g.cfg.URL+path, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+g.cfg.APIKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := g.cfg.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return 0, err
	}
	if len(answer) > maxAnswer {
		return 0, fmt.Errorf("sandbox: %s %s: the answer is longer than %d bytes", method, path, maxAnswer)
	}
	switch mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); mediaType {
	case "application/json":
		return res.StatusCode, json.Unmarshal(answer, out)
	case "application/problem+json":
		var p wire.Problem
		if err := json.Unmarshal(answer, &p); err != nil {
			return 0, err
		}
		// The code, too: a proxy in between also says 404, and knows nothing of charges.
		if res.StatusCode == http.StatusNotFound && p.Code == "not_found" {
			return 0, payment.ErrNotFound
		}
		if res.StatusCode >= 400 && res.StatusCode < 500 && res.StatusCode != http.StatusTooManyRequests && p.Code != "" {
			return 0, &refusal{method + " " + path, p.Code, p.Detail}
		}
		return 0, fmt.Errorf("sandbox: %s %s answered %d %s: %s", method, path, res.StatusCode, p.Code, p.Detail)
	default:
		return 0, fmt.Errorf("sandbox: %s %s answered %d with content type %q", method, path, res.StatusCode, mediaType)
	}
}

// refusal is the gateway's no: a problem with a status of 4xx.
type refusal struct{ call, code, detail string }

func (r *refusal) Error() string {
	return "sandbox: " + r.call + " refused: " + r.code + ": " + r.detail
}

func (r *refusal) Unwrap() error { return payment.ErrRefused }

// asCharge believes an answer only if it is about our payment and says what a charge must say.
func asCharge(c wire.Charge, paymentNo string) (payment.Charge, error) {
	states := map[string]fsm.State{
		wire.Pending: fsm.Pending, wire.Succeeded: fsm.Succeeded, wire.Failed: fsm.Failed, wire.Closed: fsm.Closed,
	}
	state, ok := states[c.Status]
	if !ok || c.PaymentNo != paymentNo || c.TransactionID == "" || c.Amount <= 0 || c.Currency == "" ||
		c.PayURL != "" && !httpURL(c.PayURL) {
		return payment.Charge{}, fmt.Errorf("sandbox: an answer about %s (%s) cannot be believed", paymentNo, c.Status)
	}
	return payment.Charge{
		PaymentNo: c.PaymentNo, TransactionID: c.TransactionID, State: state, Amount: c.Amount, Currency: c.Currency, PayURL: c.PayURL,
	}, nil
}

func asRefund(f wire.Refund, refundNo string) (payment.RefundAnswer, error) {
	states := map[string]fsm.State{wire.Pending: fsm.Pending, wire.Succeeded: fsm.Succeeded, wire.Failed: fsm.Failed}
	state, ok := states[f.Status]
	if !ok || f.RefundNo != refundNo || f.RefundID == "" || f.Amount <= 0 {
		return payment.RefundAnswer{}, fmt.Errorf("sandbox: an answer about %s (%s) cannot be believed", refundNo, f.Status)
	}
	return payment.RefundAnswer{RefundNo: f.RefundNo, RefundID: f.RefundID, State: state, Amount: f.Amount}, nil
}

// httpURL also keeps javascript: and its like out of a pay_url, which ends up behind somebody's button.
func httpURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
