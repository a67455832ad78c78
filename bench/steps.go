package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"orderd/internal/order"
)

// side is one of the databases that are compared, with orderd's flow on it.
type side struct {
	*flow
	orders int // that were filled in
	times  map[string][]time.Duration

	placed int
	last   order.Order
}

func (s *side) close() error { return errors.Join(s.flow.close(), s.db.Close()) }

// step is run on every side in turn. Without a name it only prepares the next one, and is not timed.
type step struct {
	name string
	do   func(s *side, ctx context.Context) error
}

// single are the steps on one order or none.
var single = []step{
	{"place", (*side).place},
	{"get", func(s *side, ctx context.Context) error { _, err := s.Get(ctx, s.user, s.last.OrderNo); return err }},
	{"settle", func(s *side, ctx context.Context) error { _, err := s.Settle(ctx, paid(s.last)); return err }},
	{"list of a user", func(s *side, ctx context.Context) error { return s.list(ctx, s.user, "")() }},
	{"list by status", func(s *side, ctx context.Context) error { return s.list(ctx, s.admin, "PAYING")() }},
	{"list of a user by status", func(s *side, ctx context.Context) error { return s.list(ctx, s.user, "CANCELLED")() }},
	{"sweep, nothing due", func(s *side, ctx context.Context) error { _, err := s.Sweep(ctx); return err }},
}

const many = 20 // orders

// ofMany are the steps on many orders at once.
var ofMany = []step{
	{"", (*side).drain},
	{"relay, nothing to publish", func(s *side, ctx context.Context) error { _, err := s.relay.RunOnce(ctx); return err }},
	{"", (*side).placeExpired},
	{fmt.Sprintf("sweep, %d orders expire", many), func(s *side, ctx context.Context) error { return all(s.Sweep(ctx)) }},
	{fmt.Sprintf("relay, events of %d orders", many), func(s *side, ctx context.Context) error { return all(s.relay.RunOnce(ctx)) }},
}

// all is an error unless n was done, and that for many orders.
func all(n int, err error) error {
	if err == nil && n < many {
		err = fmt.Errorf("%d done, for %d orders", n, many)
	}
	return err
}

func (s *side) place(ctx context.Context) (err error) {
	s.last, err = s.placeOne(ctx, skuName(s.placed%skuCount))
	s.placed++
	return err
}

// placeExpired places many orders whose time to pay is over.
func (s *side) placeExpired(ctx context.Context) error {
	for range many {
		if err := s.place(ctx); err != nil {
			return err
		}
		_, err := s.db.Exec(ctx, "bench", "UPDATE orders SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE order_no = ?", s.last.OrderNo)
		if err != nil {
			return err
		}
	}
	return nil
}

// drain publishes what there is.
func (s *side) drain(ctx context.Context) error {
	for {
		if n, err := s.relay.RunOnce(ctx); n == 0 || err != nil {
			return err
		}
	}
}

// timeSteps runs each step that often on the sides, on one side at a time.
func timeSteps(ctx context.Context, times int, sides ...*side) error {
	// First a few, which do not count: caches are empty, and an interrupted run may have left work.
	for _, n := range []int{10, times} {
		for _, s := range sides {
			clear(s.times)
		}
		if err := inTurn(ctx, n, sides, single); err != nil {
			return err
		}
		if err := inTurn(ctx, n/10, sides, ofMany); err != nil {
			return err
		}
	}
	return nil
}

// inTurn runs each step on every side before it goes on to the next; another side begins each time.
func inTurn(ctx context.Context, times int, sides []*side, steps []step) error {
	for i := range times {
		for _, st := range steps {
			for k := range sides {
				s := sides[(i+k)%len(sides)]
				began := time.Now()
				if err := st.do(s, ctx); err != nil {
					return fmt.Errorf("%s: %w", st.name, err)
				}
				if st.name != "" {
					s.times[st.name] = append(s.times[st.name], time.Since(began))
				}
			}
		}
	}
	return nil
}

// growthTable shows percentiles of what was timed, and the ratio of the medians.
func growthTable(small, large *side) [][]string {
	lines := [][]string{{"ms"}}
	for _, s := range []*side{small, large} {
		lines[0] = append(lines[0], fmt.Sprintf("%d orders: p50", s.orders), "p99")
	}
	lines[0] = append(lines[0], "ratio of p50")
	for _, name := range slices.Sorted(maps.Keys(small.times)) {
		cells := []string{name}
		var medians []float64
		for _, s := range []*side{small, large} {
			sorted := slices.Sorted(slices.Values(s.times[name]))
			p50, p99 := milliseconds(percentile(sorted, 0.5)), milliseconds(percentile(sorted, 0.99))
			cells = append(cells, fmt.Sprintf("%.2f", p50), fmt.Sprintf("%.2f", p99))
			medians = append(medians, p50)
		}
		lines = append(lines, append(cells, fmt.Sprintf("%.2f", medians[1]/medians[0])))
	}
	return lines
}
