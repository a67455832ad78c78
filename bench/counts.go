package main

import (
	"context"
	"maps"
	"slices"
	"time"
)

// counts are readings of everything that only grows.
type counts struct {
	cpu        map[string]time.Duration
	metrics    map[string]float64
	statements int64
	repeats    [2]int64
}

func (l *lab) count(ctx context.Context, r *rig) (c counts, err error) {
	c = counts{cpu: map[string]time.Duration{}, metrics: map[string]float64{}, repeats: [2]int64{r.repeats.conflicts.Load(), r.repeats.retries.Load()}}
	for _, o := range r.replicas {
		m, err := o.counters(ctx)
		if err != nil {
			return c, err
		}
		for name, value := range m {
			c.metrics[name] += value
		}
	}
	if r.pids["mariadbd"] != nil {
		if c.statements, err = l.mariadb.statements(ctx); err != nil {
			return c, err
		}
		c.statements -= r.polls
		r.polls++ // the next reading has its own in it
	}
	for _, name := range slices.Sorted(maps.Keys(r.pids)) {
		for _, pid := range r.pids[name] {
			t, err := cpuTime(pid)
			if err != nil {
				return c, err
			}
			c.cpu[name] += t
		}
	}
	return c, nil
}

func (s *sample) fill(did load, before, after counts) {
	n := float64(did.done)
	s.Rate, s.Done, s.Refused = did.rate, did.done, did.refused
	slices.Sort(did.latencies)
	s.P50, s.P99, s.P999 = milliseconds(percentile(did.latencies, 0.5)), milliseconds(percentile(did.latencies, 0.99)), milliseconds(percentile(did.latencies, 0.999))
	cpu := func(name string) float64 { return milliseconds(after.cpu[name]-before.cpu[name]) / n }
	s.OrderdCPU, s.DBCPU, s.RedisCPU, s.BenchCPU = cpu("orderd"), cpu("mariadbd"), cpu("redis"), cpu("bench")
	grown := func(name string) float64 { return after.metrics[name] - before.metrics[name] }
	s.Statements = float64(after.statements-before.statements) / n
	s.Conflicts = (grown("orderd_version_conflicts_total") + float64(after.repeats[0]-before.repeats[0])) / n
	s.Retries = (grown("orderd_tx_retries_total") + float64(after.repeats[1]-before.repeats[1])) / n
	s.Mallocs, s.Bytes = grown("go_memstats_mallocs_total")/n, grown("go_memstats_alloc_bytes_total")/n
	if batches := grown("orderd_batch_size_count"); batches > 0 {
		s.Batch = grown("orderd_batch_size_sum") / batches
	}
}
