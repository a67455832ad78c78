package order

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/oklog/ulid/v2"

	"orderd/internal/batch"
	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/idem"
	"orderd/internal/metrics"
	"orderd/internal/payment"
)

// Limits of one request. They nest: a gateway call and the transactions around it fit into requestTime.
const (
	requestTime  = 8 * time.Second // from the first write on, when the client can no longer cancel
	lockWait     = 2 * time.Second // for a twin to finish
	gatewayTime  = 2 * time.Second // one gateway call inside a request
	workerTime   = 5 * time.Second // one gateway call of a worker
	readTime     = 4 * time.Second // one read
	leaseReserve = 2 * time.Second // a lease outlives its call's deadline by this
	lineLimit    = 100_000_000_000 // the largest amount of an order, minor units
)

// StageCommit says where the stages of placing an order are committed.
type StageCommit string

const (
	Together StageCommit = "together" // neighbouring local stages share a transaction
	Each     StageCommit = "each"     // every stage has its own, as it must where a stage calls another system
)

// Config are the settings of the flow.
type Config struct {
	Gateway       string        // the gateway of orders that name none
	PayTimeout    time.Duration // an unpaid order expires this long after its payment was opened; default 15 m
	CloseGrace    time.Duration // how long expiry waits for an unreachable gateway; default 5 m
	StageCommit   StageCommit   // default Together
	MaxOpenOrders int           // unpaid orders per user; 0: no limit. A courtesy: concurrent requests may overshoot it
	BatchSize     int           // items per group commit or grouped read; default 128; 1 turns grouping off
	BatchQueue    int           // requests that may wait for a batch; default 2048
	Secret        []byte        // authenticates list cursors; the same in every replica
	Owner         string        // names this process in leases
}

// Deps are what the flow works with.
type Deps struct {
	DB       *db.DB
	Locks    *idem.Locker
	Tokens   *idem.Tokens
	Windows  *idem.Windows
	Gateways map[string]payment.Gateway
	Metrics  *metrics.Metrics
	Log      *slog.Logger
}

// Service is the flow. Its exported methods are the use cases.
type Service struct {
	Deps
	cfg      Config
	places   *batch.Group[*placing]
	accepts  *batch.Group[*accepting]
	settles  *batch.Group[*settling]
	orders   *batch.Reader[string, Order]
	payments *batch.Reader[string, payment.Payment]
	known    *lru.Cache[string, facts] // by payment_no
}

// New returns the flow.
func New(c Config, d Deps) *Service {
	c.PayTimeout = orDefault(c.PayTimeout, 15*time.Minute)
	c.CloseGrace = orDefault(c.CloseGrace, 5*time.Minute)
	c.StageCommit = orDefault(c.StageCommit, Together)
	c.BatchSize = orDefault(c.BatchSize, 128)
	c.BatchQueue = orDefault(c.BatchQueue, 2048)
	known, err := lru.New[string, facts](remembered)
	if err != nil {
		panic(err) // of a size below 1
	}
	s := &Service{Deps: d, cfg: c, known: known}
	size := d.Metrics.BatchSize.WithLabelValues
	turn := batch.NewTurn()
	s.places = batch.New(c.BatchSize, c.BatchQueue, turn, size("place"), db.Away, s.runStages)
	s.accepts = batch.New(c.BatchSize, c.BatchQueue, turn, size("accept"), db.Away, s.runAccept)
	s.settles = batch.New(c.BatchSize, c.BatchQueue, turn, size("settle"), db.Away, s.runSettle)
	s.orders = batch.NewReader(c.BatchSize, c.BatchQueue, size("find"), db.Away, s.runFind)
	s.payments = batch.NewReader(c.BatchSize, c.BatchQueue, size("find_payment"), db.Away, s.runFindPayments)
	return s
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// detach returns a context that the client cannot cancel: what was begun is finished, or left to the next that comes.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), requestTime)
}

// newNo returns a number for an order or a payment: a ULID, sortable by time, with 80 random bits that nobody can guess.
func newNo(prefix string) string {
	return prefix + ulid.MustNew(ulid.Now(), rand.Reader).String()
}

// stopped counts a repeat that guard recognised.
func (s *Service) stopped(g idem.Guard) {
	if g != "" {
		s.Metrics.Duplicates.WithLabelValues(string(g)).Inc()
	}
}

// alert counts and logs something that a person should look at.
func (s *Service) alert(ctx context.Context, kind string, args ...any) {
	s.Metrics.Alerts.WithLabelValues(kind).Inc()
	s.Log.ErrorContext(ctx, "alert: "+kind, args...)
}

func (a Actor) String() string {
	if a.Admin {
		return "admin:" + a.UserID
	}
	return "user:" + a.UserID
}

// may reports whether the actor may see and change the order; if not, the order does not exist for them.
func (a Actor) may(o *Order) bool { return a.Admin || a.UserID == o.UserID }

func errNoOrder() error { return fault.New(fault.NotFound, "not_found", "there is no such order") }

func errInProgress(cause error) error {
	return &fault.Error{Kind: fault.Conflict, Code: "order_in_progress", RetryAfter: time.Second, Err: cause,
		Message: "another request is working on this order; send the same request again"}
}
