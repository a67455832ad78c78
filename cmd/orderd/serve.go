package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"orderd/internal/db"
	"orderd/internal/httpapi"
	"orderd/internal/idem"
	"orderd/internal/metrics"
	"orderd/internal/msg"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox/server"
	"orderd/internal/stock"
)

// shutdownTime is how long requests in flight get to finish after SIGTERM; it is above the longest of them.
const shutdownTime = 15 * time.Second

// The service keeps little and allocates much, so collecting garbage less often pays: replays and reads run up to a tenth
// faster than with 100, for a few MiB more (GOGC=100 go run ./bench -only 'replay|get'). Beyond softMemory it is collected
// as often as needed.
const (
	gcPercent  = 200
	softMemory = 256 << 20 // bytes
)

// tuneGC leaves alone what the operator has set.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemory)
	}
}

type serveCommand struct{}

// Run serves until ctx ends, then finishes what is in flight.
func (serveCommand) Run(ctx context.Context, s *Settings, c console) (err error) {
	if err := s.complete(); err != nil {
		return err
	}
	tuneGC()
	auth, err := s.auth()
	if err != nil {
		return err
	}
	log := s.logger(c)
	idem.LogTo(log)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := metrics.New(registry)

	var toClose closers
	defer func() { err = errors.Join(err, toClose.close()) }()

	database, err := s.openDatabase(ctx, &toClose, m, log)
	if err != nil {
		return err
	}
	registry.MustRegister(collectors.NewDBStatsCollector(database.Pool(), "orders"))
	redis, err := s.openRedis(log)
	if err != nil {
		return err
	}
	toClose.add(redis.Close)
	broker, err := s.openBroker(log)
	if err != nil {
		return err
	}
	toClose.add(broker.Close)

	l, err := s.listen()
	if err != nil {
		return err
	}
	toClose.add(l.close)
	var builtin *server.Server
	if l.sandbox != nil {
		if builtin, err = s.newSandbox(log); err != nil {
			return err
		}
	}
	gateways, err := s.gateways(l.urls(s))
	if err != nil {
		return err
	}
	orders, err := s.orders(database, redis, gateways, m, log)
	if err != nil {
		return err
	}
	items := stock.NewService(database)
	if s.embedded() {
		if err := seed(ctx, items); err != nil {
			return err
		}
	}
	api, err := httpapi.New(httpapi.Config{Auth: auth, RateLimit: s.RateLimit}, httpapi.Deps{Orders: orders, Stock: items,
		Gateways: gateways, Ready: readiness(database, redis, broker), Metrics: m, Log: log, Now: time.Now})
	if err != nil {
		return err
	}

	apiServer := httpapi.NewHTTPServer(api, log)
	ops := httpapi.NewHTTPServer(httpapi.Ops(registry), log)
	ops.WriteTimeout = 0 // a profile takes its time
	endpoints := []endpoint{{"api", apiServer, l.api}, {"ops", ops, l.ops}}
	if builtin != nil {
		endpoints = append(endpoints, endpoint{"sandbox", sandboxServer(builtin, log), l.sandbox})
	}
	serving, stop := open(ctx, endpoints)
	for _, e := range endpoints {
		fmt.Fprintf(c.out, "listening addr=%s name=%s\n", e.listener.Addr(), e.name)
	}
	if s.embedded() {
		if err := welcome(c.out, auth, l); err != nil {
			return err
		}
	}
	workers, stopWorkers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorkers()
	var working errgroup.Group
	working.Go(func() error { work(workers, "sweeper", s.WorkerInterval, log, orders.Sweep); return nil })
	working.Go(func() error { return consume(stop, broker, orders) }) // stops with the listeners, and the workers after it
	s.publish(workers, &working, broker, database, m, log)
	working.Go(func() error { work(workers, "refunds", s.WorkerInterval, log, orders.SendRefunds); return nil })

	<-stop.Done()
	log.Info("shutting down: no new connections, finishing what is in flight", "cause", context.Cause(stop))
	api.Stop()
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	err = apiServer.Shutdown(deadline) // before the sandbox, which may still be asked, and before the workers
	stopWorkers()
	err = errors.Join(err, working.Wait())
	if builtin != nil {
		err = errors.Join(err, builtin.Close())
	}
	for _, e := range endpoints[1:] { // nobody's money hangs on these: who still reads a profile is cut off
		err = errors.Join(err, e.server.Close())
	}
	return errors.Join(err, serving.Wait())
}

// endpoint is an address that is served.
type endpoint struct {
	name     string
	server   *http.Server
	listener net.Listener
}

// open serves endpoints until their servers are closed. The returned context ends with ctx, and also when one of them cannot go
// on: half a service must not look like a whole one.
func open(ctx context.Context, endpoints []endpoint) (*errgroup.Group, context.Context) {
	serving, stop := errgroup.WithContext(ctx)
	for _, e := range endpoints {
		serving.Go(func() error {
			if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			return nil
		})
	}
	return serving, stop
}

// openDatabase opens SQLite and brings it up to date, or MySQL, whose schema the operator migrates.
func (s *Settings) openDatabase(ctx context.Context, toClose *closers, m *metrics.Metrics, log *slog.Logger) (*db.DB, error) {
	c := db.Config{DSN: s.DBDSN, MaxOpen: s.DBMaxOpen, Log: log, Metrics: m}
	if s.embedded() {
		unlock, err := lockDir(s.DataDir)
		if err != nil {
			return nil, err
		}
		toClose.add(unlock)
		c.Path = filepath.Join(s.DataDir, "orderd.db")
	}
	d, err := db.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	toClose.add(d.Close)
	if s.embedded() {
		return d, d.Migrate(ctx)
	}
	return d, d.CheckSchema(ctx)
}

func (s *Settings) openRedis(log *slog.Logger) (*idem.Redis, error) {
	if s.RedisAddrs != "" {
		return idem.Open(idem.Config{Addr: s.RedisAddrs}, log)
	}
	if !s.embedded() {
		log.Warn("no Redis is configured: locks, tokens and repeat windows are this process's own, other replicas do not see them")
	}
	return idem.Embedded(log), nil
}

func (s *Settings) orders(d *db.DB, r *idem.Redis, g map[string]payment.Gateway, m *metrics.Metrics, log *slog.Logger) (*order.Service, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, err
	}
	tokens, err := idem.NewTokens(r, secret)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	return order.New(
		order.Config{Gateway: s.Gateway, PayTimeout: s.PayTimeout, CloseGrace: s.CloseGrace, StageCommit: order.StageCommit(s.StageCommit),
			MaxOpenOrders: s.MaxOpenOrders, BatchSize: s.BatchSize, Secret: secret, Owner: fmt.Sprintf("%.32s-%s", host, ulid.Make())},
		order.Deps{DB: d, Locks: idem.NewLocker(r, m, log, idem.LockOptions{}), Tokens: tokens, Windows: idem.NewWindows(r),
			Gateways: g, Metrics: m, Log: log}), nil
}

// readiness names what serving needs. Redis and the broker are named and not needed: orders go on without them.
func readiness(d *db.DB, r *idem.Redis, b msg.Broker) func(context.Context) []httpapi.Check {
	return func(ctx context.Context) []httpapi.Check {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return []httpapi.Check{{Name: "database", Err: d.Ping(ctx)}, {Name: "migrations", Err: d.CheckMigrated(ctx)}, {Name: "redis", Err: r.Ping(ctx), Optional: true},
			{Name: "broker", Err: b.Ping(ctx), Optional: true}}
	}
}

// work runs a background worker until ctx ends: again at once while there is work, else after a pause.
func work(ctx context.Context, name string, pause time.Duration, log *slog.Logger, round func(context.Context) (int, error)) {
	for ctx.Err() == nil {
		n, err := round(ctx)
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "worker round failed", "worker", name, "error", err)
		}
		if n > 0 && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// closers are closed in the reverse order of opening.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c closers) close() error {
	var err error
	for i := len(c) - 1; i >= 0; i-- {
		err = errors.Join(err, c[i]())
	}
	return err
}
