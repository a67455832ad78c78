package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"orderd/internal/audit"
	"orderd/internal/db"
	"orderd/internal/order"
)

const smallSize = 10_000 // orders: what the large database is compared with

// timings are medians in milliseconds of every step, by name.
type timings map[string]float64

// growth measures the same steps on a database of ten thousand orders and on a large one. Everything is kept in -dir: run
// it again and it goes on where it was.
func growth(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("bench growth", flag.ContinueOnError)
	f.SetOutput(stderr)
	total := f.Int("orders", 3_000_000, "orders in the large database")
	dir := f.String("dir", "", "directory for the database; needs some 3 GB a million orders")
	times := f.Int("times", 200, "how often each step is timed")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *dir == "" || f.NArg() > 0 || *total <= smallSize || *times < 1 {
		return fmt.Errorf("growth needs -dir DIR, -orders over %d, and -times over 0", smallSize)
	}
	path, err := filepath.Abs(*dir)
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return err
	}
	m, err := startMariaDB(ctx, path, "1G")
	if err != nil {
		return err
	}
	defer m.stop()
	dsn, err := m.create(ctx, "growth")
	if err != nil {
		return err
	}
	pool, err := openPool(dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	d, err := openOrders(ctx, db.Config{DSN: dsn})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()

	small, err := smallTimings(ctx, filepath.Join(path, "small.json"), pool, d, *times)
	if err != nil {
		return err
	}
	began := time.Now()
	err = fillTo(ctx, pool, *total, func(done int) {
		_, _ = fmt.Fprintf(stderr, "%s %d of %d orders, %v\n", time.Now().Format("15:04:05"), done, *total, time.Since(began).Round(time.Second))
	})
	if err != nil {
		return err
	}
	large, err := timeSteps(ctx, pool, d, *times)
	if err != nil {
		return err
	}
	return printGrowth(stdout, *total, small, large)
}

// smallTimings measures the small database, or reads what an earlier run has measured.
func smallTimings(ctx context.Context, path string, pool *sql.DB, d *db.DB, times int) (timings, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		var t timings
		return t, json.Unmarshal(text, &t)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := fillTo(ctx, pool, smallSize, func(int) {}); err != nil {
		return nil, err
	}
	if done, err := filled(ctx, pool); err != nil || done > smallSize {
		return nil, errors.Join(err, fmt.Errorf("there are %d orders already, and %s is missing: give another -dir", done, path))
	}
	found, err := audit.Run(ctx, d, 720*time.Hour)
	if err != nil || len(found) > 0 {
		return nil, errors.Join(err, fmt.Errorf("what was filled in is not coherent: %v", found))
	}
	t, err := timeSteps(ctx, pool, d, times)
	if err != nil {
		return nil, err
	}
	if text, err = json.Marshal(t); err != nil {
		return nil, err
	}
	return t, os.WriteFile(path, text, 0o600)
}

const expiring = 20 // orders that one timed round of the sweeper cancels

// timeSteps runs each step times times, one at a time, and returns the medians.
func timeSteps(ctx context.Context, pool *sql.DB, d *db.DB, times int) (timings, error) {
	if _, err := pool.ExecContext(ctx, "ANALYZE TABLE orders, order_items, payments, refunds, outbox_messages, inbox_messages, idempotency_keys"); err != nil {
		return nil, err
	}
	f, err := newFlow(d)
	if err != nil {
		return nil, err
	}
	defer f.close() //nolint:errcheck // the measurements are done
	all := map[string][]time.Duration{}
	timed := func(name string, step func() error) error {
		began := time.Now()
		if err := step(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all[name] = append(all[name], time.Since(began))
		return nil
	}
	for i := range times {
		var o order.Order
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"place", func() (err error) { o, err = f.placeOne(ctx, skuName(i%skuCount)); return err }},
			{"get", func() error { _, err := f.Get(ctx, f.user, o.OrderNo); return err }},
			{"settle", func() error { _, err := f.Settle(ctx, paid(o)); return err }},
			{"list of a user", f.list(ctx, f.user, "")},
			{"list by status", f.list(ctx, f.admin, "PAYING")},
			{"list of a user by status", f.list(ctx, f.user, "CANCELLED")},
			{"sweep, nothing due", func() error { _, err := f.Sweep(ctx); return err }},
		} {
			if err := timed(step.name, step.do); err != nil {
				return nil, err
			}
		}
	}
	for published := 1; published > 0; {
		err := timed("relay, a round with work", func() (err error) { published, err = f.relay.RunOnce(ctx); return err })
		if err != nil {
			return nil, err
		}
	}
	if n := len(all["relay, a round with work"]); n > 1 { // the last one found nothing
		all["relay, a round with work"] = all["relay, a round with work"][:n-1]
	}
	for range 20 {
		if err := timed("relay, nothing to publish", func() error { _, err := f.relay.RunOnce(ctx); return err }); err != nil {
			return nil, err
		}
	}
	for i := range expiring {
		o, err := f.placeOne(ctx, skuName(i))
		if err == nil {
			_, err = pool.ExecContext(ctx, "UPDATE orders SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE order_no = ?", o.OrderNo)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := timed(fmt.Sprintf("sweep, %d orders expire", expiring), func() error { _, err := f.Sweep(ctx); return err }); err != nil {
		return nil, err
	}
	t := timings{}
	for name, durations := range all {
		slices.Sort(durations)
		t[name] = milliseconds(percentile(durations, 0.5))
	}
	return t, nil
}

func printGrowth(out io.Writer, total int, small, large timings) error {
	lines := [][]string{{"median ms", fmt.Sprintf("%d orders", smallSize), fmt.Sprintf("%d orders", total), "ratio"}}
	for _, name := range slices.Sorted(maps.Keys(large)) {
		lines = append(lines, []string{name, fmt.Sprintf("%.2f", small[name]), fmt.Sprintf("%.2f", large[name]), fmt.Sprintf("%.2f", large[name]/small[name])})
	}
	return align(out, lines)
}
