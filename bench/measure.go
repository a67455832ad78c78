package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"orderd/internal/db"
	"orderd/internal/testenv"
)

// sample is one measurement of one setup. All but the rate and the latencies is per operation.
type sample struct {
	Rate      float64 `json:"per_second"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p999_ms"`
	Done      int     `json:"done"`
	Refused   int     `json:"refused_503"`
	OrderdCPU float64 `json:"orderd_cpu_ms"`
	DBCPU     float64 `json:"mariadbd_cpu_ms"`
	RedisCPU  float64 `json:"redis_cpu_ms"`
	BenchCPU  float64 `json:"bench_cpu_ms"` // the clients and the gateway

	Statements float64 `json:"statements"`
	Conflicts  float64 `json:"version_conflicts"`
	Retries    float64 `json:"tx_retries"`
	Mallocs    float64 `json:"mallocs"`      // of orderd
	Bytes      float64 `json:"alloc_bytes"`  // of orderd
	Batch      float64 `json:"batch_size"`   // items per group commit
	RSS        float64 `json:"rss_mib"`      // of all replicas, after the measurement
	PeakRSS    float64 `json:"peak_rss_mib"` // of the largest replica
	Started    float64 `json:"start_ms"`     // from exec to the first answer
}

func (s sample) String() string {
	if s.Done == 0 {
		return fmt.Sprintf("first answer after %.0f ms, %.0f MiB", s.Started, s.RSS)
	}
	text := fmt.Sprintf("%7.0f/s  p50 %.1f p99 %.1f p999 %.1f ms  CPU ms: orderd %.2f mariadbd %.2f redis %.2f bench %.2f  %.1f statements",
		s.Rate, s.P50, s.P99, s.P999, s.OrderdCPU, s.DBCPU, s.RedisCPU, s.BenchCPU, s.Statements)
	if s.Refused > 0 {
		text += fmt.Sprintf("  refused %d", s.Refused)
	}
	return text
}

// rig is what one measurement runs on.
type rig struct {
	replicas []*orderd
	orders   *db.DB // where the outbox is; nil without orderd
	pids     map[string][]int
	repeats  repeats // of the raw clients
	gateway  *gateway
	polls    int64 // statements of the bench itself
}

// measure runs one setup once. orderd and the gateway are started for it and stopped after it; the databases stay.
func (l *lab) measure(ctx context.Context, s setup) (_ sample, err error) {
	l.n++
	r := &rig{pids: map[string][]int{"bench": {os.Getpid()}}}
	defer func() { err = errors.Join(err, r.stop()) }()
	if s.on != onEmbedded {
		r.pids["mariadbd"] = []int{l.mariadb.PID()}
	}
	if s.on == onOrderd || s.on == onEmbedded || s.hops {
		if err := l.startReplicas(ctx, s, r); err != nil {
			return sample{}, err
		}
	}
	var out sample
	if s.op == start {
		return out, r.footprint(&out)
	}
	clients, err := l.clients(ctx, s, r)
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	if err != nil {
		return out, err
	}
	if err := warmUp(ctx, clients); err != nil {
		return out, err
	}
	if err := r.drain(ctx); err != nil {
		return out, err
	}
	before, err := l.count(ctx, r)
	if err != nil {
		return out, err
	}
	d := l.duration
	if s.op == flood { // the refused come back after a second
		d *= 2
	}
	profiled := l.startProfile(ctx, s, r, d)
	did, err := drive(ctx, clients, d)
	if err = errors.Join(err, profiled()); err != nil {
		return out, err
	}
	_, each := s.share()
	did = did.times(each)
	if did.done == 0 {
		return out, fmt.Errorf("nothing was done in %v: -duration is too short", d)
	}
	if err := r.drain(ctx); err != nil {
		return out, err
	}
	after, err := l.count(ctx, r)
	if err != nil {
		return out, err
	}
	out.fill(did, before, after)
	return out, errors.Join(r.footprint(&out), l.leaveUnpaid(ctx, s))
}

// startReplicas starts the gateway and orderd. The gateway is new each time, so that it does not grow for ever; it runs in
// this process, and its CPU time is in the bench's.
func (l *lab) startReplicas(ctx context.Context, s setup, r *rig) (err error) {
	env := settings(s.vars...)
	switch {
	case s.op == start:
		dir, err := os.MkdirTemp(l.dir, "start-")
		if err != nil {
			return err
		}
		env = append(env, "ORDERD_DATA_DIR="+dir)
	case s.on == onEmbedded:
		env = append(env, "ORDERD_DATA_DIR="+l.embeddedDir())
		if r.orders, err = db.Open(ctx, db.Config{Path: filepath.Join(l.embeddedDir(), "orderd.db")}); err != nil {
			return err
		}
	default:
		env = append(env, "ORDERD_DB_DSN="+l.mariadb.dsn(orderdDB), "ORDERD_REDIS_ADDRS="+l.redis.addr)
		r.orders = l.orders
		r.pids["redis"] = []int{l.redis.PID()}
	}
	if s.op != start { // alone, it brings its own gateway
		if r.gateway, err = startGateway(); err != nil {
			return err
		}
		env = append(env, "ORDERD_SANDBOX_URL="+r.gateway.url)
	}
	for range s.replicas {
		o, err := startOrderd(ctx, l.binary, l.dir, slices.Clone(env))
		if err != nil {
			return err
		}
		r.replicas = append(r.replicas, o)
		r.pids["orderd"] = append(r.pids["orderd"], o.PID())
	}
	return nil
}

func (l *lab) clients(ctx context.Context, s setup, r *rig) ([]client, error) {
	var addrs []string
	for _, o := range r.replicas {
		addrs = append(addrs, o.addr)
	}
	l.floor.SetMaxIdleConns(0) // those of the measurement before are closed: each prepares its own statements
	l.rows.SetMaxIdleConns(0)
	var all []client
	connections, each := s.share()
	for i := range connections {
		rng := rand.New(rand.NewPCG(l.rng.Uint64(), l.rng.Uint64()))
		if s.on == onOrderd || s.on == onEmbedded {
			all = append(all, l.shop.customer(s, l.n, i, rng, addrs))
			continue
		}
		pool := l.floor
		if s.on == onRows {
			pool = l.rows
		}
		c, err := newRaw(ctx, pool, &r.repeats)
		if err != nil {
			return all, err
		}
		prefix := l.shop.run + "-" + strconv.Itoa(l.n) + "-" + strconv.Itoa(i) + "-"
		if s.on == onFloor {
			all = append(all, &floor{raw: c, prefix: prefix, hot: s.hot, rng: rng})
			continue
		}
		writer := &rows{raw: c, prefix: prefix, rng: rng, group: make([]bought, each)}
		if s.hops {
			all = append(all, newHops(writer, l.redis.addr, addrs[0]))
		} else {
			all = append(all, writer)
		}
	}
	return all, nil
}

// drainTime bounds the wait for the events of a measurement to be published.
const drainTime = 2 * time.Minute

// drain waits until every event is published: what is done later for an order belongs to its price.
func (r *rig) drain(ctx context.Context) error {
	if r.orders == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	return testenv.Poll(ctx, r.replicas[0].Done(), func(ctx context.Context) error {
		r.polls++ // of no matter on SQLite, whose statements nobody counts
		var waiting []int64
		err := r.orders.Read(ctx).Raw("SELECT id FROM outbox_messages WHERE published_at IS NULL LIMIT 1").Scan(&waiting).Error
		if err == nil && len(waiting) > 0 {
			err = errors.New("the outbox is not empty")
		}
		return err
	})
}

// leaveUnpaid puts off the questions to the gateway about orders that nobody will pay: they would be asked during another
// setup's measurement.
func (l *lab) leaveUnpaid(ctx context.Context, s setup) error {
	if s.on != onOrderd {
		return nil
	}
	_, err := l.orders.Exec(ctx, "bench", "UPDATE payments SET next_check_at = ? WHERE open_slot = 1", db.At(time.Now().Add(24*time.Hour)))
	return err
}

func (r *rig) stop() (err error) {
	for _, o := range r.replicas {
		err = errors.Join(err, o.stop())
	}
	if r.gateway != nil {
		err = errors.Join(err, r.gateway.stop())
	}
	if r.orders != nil && r.orders.Dialect == "sqlite" {
		err = errors.Join(err, r.orders.Close())
	}
	return err
}

// footprint fills in what orderd's processes look like from outside.
func (r *rig) footprint(s *sample) error {
	for _, o := range r.replicas {
		now, peak, err := memory(o.PID())
		if err != nil {
			return err
		}
		s.RSS += float64(now) / (1 << 20)
		s.PeakRSS = max(s.PeakRSS, float64(peak)/(1<<20))
		s.Started = max(s.Started, milliseconds(o.started))
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
