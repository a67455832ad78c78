package stripe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	sdk "github.com/stripe/stripe-go/v85"

	"orderd/internal/payment"
)

const maxAnswer = 1 << 20 // bytes

// NewTransport returns a transport that keeps enough connections alive for many orders at once.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 16 << 10,
	}
}

// newClient returns an SDK client that neither tries again (callers have a schedule, and a deadline), nor logs (callers do),
// nor reports how long calls took.
func newClient(cfg Config) *sdk.Client {
	return sdk.NewClient(cfg.SecretKey, sdk.WithBackends(sdk.NewBackendsWithConfig(&sdk.BackendConfig{
		URL:               &cfg.APIBase,
		MaxNetworkRetries: sdk.Int64(0),
		LeveledLogger:     &sdk.LeveledLogger{Level: sdk.LevelNull},
		EnableTelemetry:   sdk.Bool(false),
		HTTPClient: &http.Client{
			Transport: strict{cfg.Transport},
			// A redirect would carry the key elsewhere. strict makes an error of it before.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})))
}

// strict lets through what Stripe answers, and nothing else: the SDK reads any body, of any length, of any status.
type strict struct{ next http.RoundTripper }

func (s strict) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := s.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if mediaType != "application/json" || res.StatusCode != http.StatusOK && res.StatusCode < 400 {
		_ = res.Body.Close()
		return nil, fmt.Errorf("stripe: %s answered %d with content type %q", req.URL.Path, res.StatusCode, mediaType)
	}
	res.Body = &limited{ReadCloser: res.Body, left: maxAnswer}
	return res, nil
}

// limited fails when there is more to read than may be; io.LimitReader would only cut it off.
type limited struct {
	io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= n; l.left < 0 {
		return 0, fmt.Errorf("stripe: the answer is longer than %d bytes", maxAnswer)
	}
	return n, err
}

// notFound turns Stripe's own word for it into payment.ErrNotFound. The code must be there, too: a proxy in between also says
// 404, and knows nothing of charges.
func notFound(err error) error {
	var e *sdk.Error
	if errors.As(err, &e) && e.HTTPStatusCode == http.StatusNotFound && e.Code == sdk.ErrorCodeResourceMissing {
		return payment.ErrNotFound
	}
	return masked(err)
}

// unknown is an error of a call for which "not found" is no answer.
func unknown(err error) error {
	if errors.Is(err, payment.ErrNotFound) {
		return errors.New("stripe: what it has just answered about is not found")
	}
	return masked(err)
}

// refused reports whether Stripe found a request to be one that the object's state forbids.
func refused(err error) bool {
	var e *sdk.Error
	return errors.As(err, &e) && e.HTTPStatusCode == http.StatusBadRequest && e.Type == sdk.ErrorTypeInvalidRequest
}

// lacksBalance reports whether Stripe refused because there is less on our account than shall be sent.
func lacksBalance(err error) bool {
	var e *sdk.Error
	return errors.As(err, &e) && (e.Code == sdk.ErrorCodeBalanceInsufficient || e.Code == sdk.ErrorCodeInsufficientFunds)
}

// masked keeps what Stripe says short, and the shopper's card out of logs: the SDK's errors print whole objects.
func masked(err error) error {
	var e *sdk.Error
	if errors.As(err, &e) {
		return fmt.Errorf("stripe: answered %d %s %s: %.200s (request %s)", e.HTTPStatusCode, e.Type, e.Code, e.Msg, e.RequestID)
	}
	return err
}

// items goes through all pages of a list. The SDK takes any JSON for a list, {} for an empty one; one of Stripe's says where
// it is from.
func items[T any](ctx context.Context, l *sdk.V1List[T]) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for item, err := range l.All(ctx) {
			if err != nil {
				yield(item, unknown(err))
				return
			}
			if !yield(item, nil) {
				return
			}
		}
		if l.Meta().URL == "" {
			yield(*new(T), errors.New("stripe: the answer is no list"))
		}
	}
}

// replayed reports whether an answer is that of an earlier request under the same Idempotency-Key.
func replayed(r *sdk.APIResponse) bool {
	return r != nil && r.Header.Get("Idempotent-Replayed") == "true"
}
