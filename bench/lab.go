package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"orderd/internal/db"
	"orderd/internal/stock"
)

// Databases of a run. They keep what each round adds.
const (
	floorDB  = "bench_floor"
	rowsDB   = "bench_rows"
	orderdDB = "bench_orderd"
)

// lab is everything that a run has started.
type lab struct {
	options
	dir    string
	binary string
	rng    *rand.Rand
	shop   *shop
	log    io.Writer

	mariadb *mariadb
	redis   *server
	floor   *sql.DB
	rows    *sql.DB
	orders  *db.DB // the database of orderd
	n       int    // measurements so far
}

func newLab(ctx context.Context, o options, log io.Writer) (_ *lab, err error) {
	l := &lab{options: o, log: log, dir: o.dir, rng: rand.New(rand.NewPCG(o.seed, 0))}
	if l.dir == "" {
		if l.dir, err = os.MkdirTemp("", "orderd-bench-"); err != nil {
			return nil, err
		}
	} else if l.dir, err = newRunDir(l.dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.shop, err = newShop("b" + strconv.FormatInt(time.Now().UnixMicro(), 36)); err != nil {
		return nil, err
	}
	l.say("building orderd")
	if l.binary, err = build(ctx, l.dir); err != nil {
		return nil, err
	}
	l.say("starting MariaDB and Redis, data in %s", l.dir)
	if l.mariadb, err = startMariaDB(ctx, l.dir, "1G"); err != nil {
		return nil, err
	}
	if l.redis, err = startRedis(ctx, l.dir); err != nil {
		return nil, err
	}
	return l, l.fill(ctx)
}

// newRunDir makes a directory of this run's own below dir: data are made fresh for every run.
func newRunDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(dir, "bench-")
	if err != nil {
		return "", err
	}
	return filepath.Abs(made)
}

// fill makes the databases, each with the same thousand SKUs.
func (l *lab) fill(ctx context.Context) error {
	dsn, err := l.mariadb.create(ctx, floorDB)
	if err != nil {
		return err
	}
	if l.floor, err = openPool(dsn); err != nil {
		return err
	}
	if err := makeFloor(ctx, l.floor); err != nil {
		return err
	}
	if dsn, err = l.mariadb.create(ctx, rowsDB); err != nil {
		return err
	}
	if l.rows, err = openPool(dsn); err != nil {
		return err
	}
	d, err := openOrders(ctx, db.Config{DSN: dsn})
	if err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	if dsn, err = l.mariadb.create(ctx, orderdDB); err != nil {
		return err
	}
	if l.orders, err = openOrders(ctx, db.Config{DSN: dsn, MaxOpen: 2}); err != nil {
		return err
	}
	if err := os.MkdirAll(l.embeddedDir(), 0o700); err != nil {
		return err
	}
	embedded, err := openOrders(ctx, db.Config{Path: filepath.Join(l.embeddedDir(), "orderd.db")})
	if err != nil {
		return err
	}
	return embedded.Close()
}

func (l *lab) embeddedDir() string { return filepath.Join(l.dir, "embedded") }

// openOrders opens a database of orderd's schema, migrates it, and puts the SKUs on sale if there are none.
func openOrders(ctx context.Context, c db.Config) (*db.DB, error) {
	d, err := db.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.Migrate(ctx), putOnSale(ctx, d)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func putOnSale(ctx context.Context, d *db.DB) error {
	return d.InTx(ctx, "bench", func(tx *db.Tx) error {
		var known int64
		if err := tx.Model(&stock.Item{}).Count(&known).Error; err != nil || known > 0 {
			return err
		}
		items, moves := make([]stock.Item, skuCount), make([]stock.Movement, skuCount)
		for i := range items {
			sku := skuName(i)
			items[i] = stock.Item{SKU: sku, Title: "Item " + sku, UnitPrice: unitPrice, Currency: "CNY", Available: opening, Version: 1,
				CreatedAt: tx.Now, UpdatedAt: tx.Now}
			moves[i] = stock.Movement{SKU: sku, Kind: stock.Opening, Ref: sku, Delta: opening, At: tx.Now}
		}
		if err := tx.Create(&items).Error; err != nil {
			return err
		}
		return tx.Create(&moves).Error
	})
}

// audit checks the books of every database that was used.
func (l *lab) audit(ctx context.Context, chosen []setup) error {
	used := func(on string) bool {
		return slices.ContainsFunc(chosen, func(s setup) bool { return s.on == on && s.op != start })
	}
	if used(onFloor) {
		if err := checkFloor(ctx, l.floor); err != nil {
			return err
		}
	}
	for _, b := range []struct {
		on  string
		env []string
	}{
		{onRows, []string{"ORDERD_DB_DSN=" + l.mariadb.dsn(rowsDB)}},
		{onOrderd, []string{"ORDERD_DB_DSN=" + l.mariadb.dsn(orderdDB)}},
		{onEmbedded, []string{"ORDERD_DATA_DIR=" + l.embeddedDir()}},
	} {
		if !used(b.on) {
			continue
		}
		said, err := runAudit(ctx, l.binary, settings(b.env...))
		if err != nil {
			return fmt.Errorf("%s: %w", b.on, err)
		}
		l.say("%s: %s", b.on, said)
	}
	return nil
}

func (l *lab) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l.log, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// close stops the servers. Their data go with them.
func (l *lab) close() (err error) {
	if l.orders != nil {
		err = l.orders.Close()
	}
	for _, pool := range []*sql.DB{l.floor, l.rows} {
		if pool != nil {
			pool.Close()
		}
	}
	if l.redis != nil {
		l.redis.Kill()
	}
	if l.mariadb != nil {
		l.mariadb.stop()
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}
