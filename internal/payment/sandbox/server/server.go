// Package server is the sandbox gateway: a payment company in miniature, with its own append-only ledger, and hostile on
// demand. It stands for a foreign system: it shares nothing with its merchants but the protocol in package wire.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"orderd/internal/payment/sandbox/wire"
)

// Config sets a Server up.
type Config struct {
	// MerchantID is the one merchant there is. Required.
	MerchantID string
	// APIKey is what the merchant sends as Authorization: Bearer. Required.
	APIKey string
	// WebhookSecret ("whsec_<base64>") signs the callbacks. Required.
	WebhookSecret string
	// Journal is the file that keeps the state and is the ledger. Empty: memory only.
	Journal string
	// PublicURL is where shoppers reach this server, for pay_url. Empty: http and the Host that the merchant called.
	PublicURL string
	// CallbackBase is the gap after a callback's first failed try; it doubles up to a minute. Default: 1 s.
	CallbackBase time.Duration
	// CallbackWorkers is how many callbacks may be under way at once. Default: 64.
	CallbackWorkers int
	// SlowFor is the pause of the fault mode "slow". Default: 1 s.
	SlowFor time.Duration
	// HangFor is how long the timeout modes hold a connection before they cut it, unless the caller does. Default: 30 s.
	HangFor time.Duration
	// Logger gets what goes wrong, never secrets or bodies. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock of expiry, signatures and the ledger. Default: time.Now.
	Now func() time.Time
}

// Server is the gateway. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	keyHash [sha256.Size]byte // of the Authorization header that is accepted
	journal *journal
	faults  faults
	sender  *sender
	ctx     context.Context // ends with Close: callbacks and hanging answers give up
	stop    context.CancelFunc

	mu      sync.Mutex // guards the state below; never held during a call or an fsync
	charges map[string]charge
	refunds map[string]refund
	ledger  []wire.LedgerEntry
	unacked map[string]event // callbacks still owed, by webhook-id
}

// New reads the journal, if there is one, and goes on sending the callbacks that are not acknowledged yet.
func New(cfg Config) (*Server, error) {
	key, err := wire.ParseSecret(cfg.WebhookSecret)
	if err != nil {
		return nil, err
	}
	if cfg.MerchantID == "" || cfg.APIKey == "" {
		return nil, errors.New("sandbox: a merchant id and an API key are required")
	}
	cfg.PublicURL = strings.TrimRight(cfg.PublicURL, "/")
	setDefault(&cfg.CallbackBase, time.Second)
	setDefault(&cfg.CallbackWorkers, 64)
	setDefault(&cfg.SlowFor, time.Second)
	setDefault(&cfg.HangFor, 30*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{
		cfg:     cfg,
		keyHash: sha256.Sum256([]byte("Bearer " + cfg.APIKey)),
		charges: map[string]charge{},
		refunds: map[string]refund{},
		unacked: map[string]event{},
	}
	if s.journal, err = openJournal(cfg.Journal, s.apply); err != nil {
		return nil, fmt.Errorf("sandbox: journal %s: %w", cfg.Journal, err)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.sender = newSender(s, key)
	for _, e := range slices.SortedFunc(maps.Values(s.unacked), func(a, b event) int { return cmp.Compare(a.end, b.end) }) {
		s.sender.add(e)
	}
	s.sender.start()
	return s, nil
}

// Close stops the callbacks, cuts hanging answers off and closes the journal; calls that come later fail. What is not
// acknowledged is sent after the next start.
func (s *Server) Close() error {
	s.stop()
	s.sender.wait()
	return s.journal.close()
}

// Handler serves the merchant's API and the shopper's page.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/charges", s.api("charge", s.postCharge))
	mux.Handle("GET /v1/charges/{payment_no}", s.api("query", s.getCharge))
	mux.Handle("POST /v1/charges/{payment_no}/close", s.api("close", s.closeCharge))
	mux.Handle("POST /v1/charges/{payment_no}/pay", s.api("", s.payCharge))
	mux.Handle("POST /v1/refunds", s.api("refund", s.postRefund))
	mux.Handle("GET /v1/refunds/{refund_no}", s.api("query", s.getRefund))
	mux.Handle("GET /v1/ledger", s.api("", s.getLedger))
	mux.Handle("PUT /v1/faults", s.api("", s.putFaults))
	mux.HandleFunc("GET /pay/{payment_no}", s.showPage)
	// The shopper has no key, so other sites' forms are kept out by the browser's own statement of origin.
	mux.Handle("POST /pay/{payment_no}", http.NewCrossOriginProtection().Handler(http.HandlerFunc(s.submitPage)))
	mux.HandleFunc("GET /pay.css", showStyle)
	return mux
}

// now is the present in UTC microseconds.
func (s *Server) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }

func newID(prefix string) string { return prefix + rand.Text() }

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
