package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"
)

// hops is rows with what an order's life needs besides, each as bare as it can be: three HTTP exchanges with another
// process, four calls of Redis, and the reads of both transactions. It has no tokens, no signatures, no JSON, no relay, and
// nothing is decided: with one client, a life by these statements cannot be faster on this MariaDB.
type hops struct {
	*rows
	redis *redis.Client
	url   string // of orderd, to be asked only whether it is alive
}

func newHops(r *rows, redisAddr, orderdAddr string) *hops {
	return &hops{r, redis.NewClient(&redis.Options{Addr: redisAddr}), "http://" + orderdAddr + "/healthz"}
}

func (h *hops) warm(ctx context.Context) error {
	_, err := h.do(ctx)
	return err
}

func (h *hops) do(stop context.Context) (refused int, err error) {
	if refused, err = h.rows.do(stop); err != nil {
		return refused, err
	}
	ctx := context.WithoutCancel(stop)
	for range 3 { // the order, its charge, the callback
		if err := h.exchange(ctx); err != nil {
			return 0, err
		}
	}
	o := h.group[0]
	for range 2 { // placing and settling
		if err := h.redis.SetNX(ctx, o.no, "lock", 0).Err(); err != nil {
			return 0, err
		}
		if err := h.redis.Del(ctx, o.no).Err(); err != nil {
			return 0, err
		}
		if err := errors.Join(h.read(ctx, "SELECT UTC_TIMESTAMP(6)"), h.read(ctx, "SELECT * FROM orders WHERE order_no = ?", o.no)); err != nil {
			return 0, err
		}
	}
	return 0, errors.Join(
		h.read(ctx, "SELECT * FROM inbox_messages WHERE source = 'callback:sandbox' AND message_id = ?", "msg-"+o.no),
		h.read(ctx, "SELECT * FROM payments WHERE payment_no = ?", o.paymentNo))
}

func (h *hops) exchange(ctx context.Context) error {
	body, err := fetch(ctx, h.url)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// read reads one row.
func (h *hops) read(ctx context.Context, query string, args ...any) error {
	found, err := h.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer found.Close()
	if !found.Next() {
		return errors.Join(found.Err(), fmt.Errorf("no row: %s", query))
	}
	return nil
}

func (h *hops) close() {
	h.rows.close()
	_ = h.redis.Close()
}
