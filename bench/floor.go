package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// The floor's schema: what an order that is paid once cannot do without.
var floorSchema = []string{
	"CREATE TABLE orders (order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, status VARCHAR(16) NOT NULL, amount BIGINT NOT NULL) ENGINE = InnoDB",
	`CREATE TABLE items (order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin, sku VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
		quantity BIGINT NOT NULL, PRIMARY KEY (order_no, sku)) ENGINE = InnoDB`,
	"CREATE TABLE stock (sku VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, available BIGINT NOT NULL, version BIGINT NOT NULL) ENGINE = InnoDB",
	"CREATE TABLE payments (order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, amount BIGINT NOT NULL) ENGINE = InnoDB",
	`CREATE TABLE log (order_no VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin, seq BIGINT, what VARCHAR(16) NOT NULL,
		PRIMARY KEY (order_no, seq)) ENGINE = InnoDB`,
}

const opening = 1_000_000_000 // of every SKU

// floor is the least that an order can cost: two transactions of raw, prepared SQL, minimal rows, no HTTP. Its client
// places and pays orders one after the other.
type floor struct {
	*raw
	prefix string
	n      int
	hot    bool
	rng    *rand.Rand
}

func makeFloor(ctx context.Context, pool *sql.DB) error {
	for _, statement := range floorSchema {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for i := range skuCount {
		if _, err := pool.ExecContext(ctx, "INSERT INTO stock VALUES (?, ?, 1)", skuName(i), opening); err != nil {
			return err
		}
	}
	return nil
}

func (f *floor) warm(ctx context.Context) error {
	if f.hot { // hundreds of clients take turns on one row: nobody waits for the last to have had theirs
		_, err := f.version(ctx, skuName(0))
		return err
	}
	_, err := f.do(ctx)
	return err
}

func (f *floor) version(ctx context.Context, sku string) (version int64, err error) {
	err = f.scan(ctx, &version, "SELECT version FROM stock WHERE sku = ?", sku)
	return version, err
}

func (f *floor) do(stop context.Context) (refused int, err error) {
	f.n++
	no := f.prefix + strconv.Itoa(f.n)
	sku := skuName(0)
	if !f.hot {
		sku = skuName(f.rng.IntN(skuCount))
	}
	var version int64
	err = f.inTx(stop, func(ctx context.Context) (err error) {
		version, err = f.version(ctx, sku)
		return err
	}, func(ctx context.Context) error {
		if err := f.exec(ctx, 1, "INSERT INTO orders VALUES (?, 'PAYING', ?)", no, unitPrice); err != nil {
			return err
		}
		if err := f.exec(ctx, 1, "INSERT INTO items VALUES (?, ?, 1)", no, sku); err != nil {
			return err
		}
		if err := f.exec(ctx, 1, "INSERT INTO log VALUES (?, 1, 'placed')", no); err != nil {
			return err
		}
		return f.exec(ctx, 1, "UPDATE stock SET available = available - 1, version = version + 1 WHERE sku = ? AND version = ? AND available >= 1", sku, version)
	})
	if err != nil {
		return 0, err
	}
	pay := context.WithoutCancel(stop) // an order that was placed is paid, or the books would not add up
	return 0, f.inTx(pay, readNothing, func(ctx context.Context) error {
		if err := f.exec(ctx, 1, "UPDATE orders SET status = 'PAID' WHERE order_no = ? AND status = 'PAYING'", no); err != nil {
			return err
		}
		if err := f.exec(ctx, 1, "INSERT INTO payments VALUES (?, ?)", no, unitPrice); err != nil {
			return err
		}
		return f.exec(ctx, 1, "INSERT INTO log VALUES (?, 2, 'paid')", no)
	})
}

// checkFloor does for the floor what the audit does for orderd.
func checkFloor(ctx context.Context, pool *sql.DB) error {
	var orders, paid, items, payments, log, taken int64
	err := pool.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM orders), (SELECT COUNT(*) FROM orders WHERE status = 'PAID'),
		(SELECT COUNT(*) FROM items), (SELECT COUNT(*) FROM payments), (SELECT COUNT(*) FROM log),
		(SELECT SUM(? - available) FROM stock)`, opening).Scan(&orders, &paid, &items, &payments, &log, &taken)
	if err != nil {
		return err
	}
	if paid != orders || items != orders || payments != orders || log != 2*orders || taken != orders {
		return errors.New("the floor's books are wrong: " + fmt.Sprintf("%d orders, %d paid, %d items, %d payments, %d log entries, %d taken from stock",
			orders, paid, items, payments, log, taken))
	}
	return nil
}
