package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"orderd/internal/audit"
	"orderd/internal/db"
)

const smallSize = 10_000 // orders: what the large database is compared with

// growth measures the same steps on a database of ten thousand orders and on a large one, in turn: a machine that slows
// down, slows both down. Both are kept in -dir: run it again and it goes on filling where it was.
func growth(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("bench growth", flag.ContinueOnError)
	f.SetOutput(stderr)
	total := f.Int("orders", 3_000_000, "orders in the large database")
	dir := f.String("dir", "", "directory for the databases; needs some 4 GB a million orders")
	times := f.Int("times", 200, "how often each step is timed; those of many orders at once a tenth of it")
	md := f.String("md", "", "write the table as Markdown to this file; one with the growth markers keeps the rest of its text")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *dir == "" || f.NArg() > 0 || *total <= smallSize || *times < 10 {
		return fmt.Errorf("growth needs -dir DIR, -orders over %d, and -times of at least 10", smallSize)
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
	small, err := openSide(ctx, m, "growth_small", smallSize, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, small.close()) }()
	found, err := audit.Run(ctx, small.db, 720*time.Hour)
	if err != nil || len(found) > 0 {
		return errors.Join(err, fmt.Errorf("what was filled in is not coherent: %v", found))
	}
	large, err := openSide(ctx, m, "growth", *total, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, large.close()) }()

	if err := timeSteps(ctx, *times, small, large); err != nil {
		return err
	}
	lines := growthTable(small, large)
	if err := align(stdout, lines); err != nil || *md == "" {
		return err
	}
	o := newOrigin(ctx, m, append([]string{"growth"}, args...))
	text, err := inPage(*md, "growth", o.markdown(fmt.Sprintf("each step %d times, those of %d orders %d times", *times, many, *times/10), lines))
	if err != nil {
		return err
	}
	return os.WriteFile(*md, []byte(text), 0o644)
}

// openSide opens a database of the given name, and fills it as far as it is not.
func openSide(ctx context.Context, m *mariadb, name string, orders int, log io.Writer) (_ *side, err error) {
	dsn, err := m.create(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &side{orders: orders, times: map[string][]time.Duration{}}
	d, err := openOrders(ctx, db.Config{DSN: dsn})
	if err != nil {
		return nil, err
	}
	if s.flow, err = newFlow(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	pool, err := openPool(dsn) // without the limits on time that orderd's has
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	defer pool.Close()
	began := time.Now()
	err = fillTo(ctx, pool, orders, func(done int) {
		_, _ = fmt.Fprintf(log, "%s %s: %d of %d orders, %v\n", time.Now().Format("15:04:05"), name, done, orders, time.Since(began).Round(time.Second))
	})
	if err == nil {
		_, err = pool.ExecContext(ctx, "ANALYZE TABLE orders, order_items, order_events, payments, refunds, outbox_messages, inbox_messages, idempotency_keys, stock, stock_movements")
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}
