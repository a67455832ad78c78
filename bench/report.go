package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// report is what a run found out; its JSON is what -json writes.
type report struct {
	origin
	Seconds float64   `json:"seconds_per_measurement"`
	Rounds  int       `json:"rounds"`
	Results []*result `json:"results"`
}

// result is what one setup came to.
type result struct {
	Name    string            `json:"name"`
	Clients int               `json:"clients"`
	Numbers map[string]spread `json:"numbers"`            // by the JSON name of a sample's member
	Floor   *spread           `json:"of_floor,omitempty"` // its rate, by that of the floor in the same round
	Rows    *spread           `json:"of_rows,omitempty"`
	CPU     *spread           `json:"cpu_of_floor,omitempty"` // its CPU time, by the floor's in the same round
	Samples []sample          `json:"samples"`

	setup  setup
	rates  map[int]float64 // by round
	totals map[int]float64 // CPU ms per operation, by round
}

func newReport(ctx context.Context, l *lab, args []string) *report {
	return &report{origin: newOrigin(ctx, l.mariadb, args), Seconds: l.duration.Seconds(), Rounds: l.rounds}
}

func (r *report) add(s setup, round int, m sample) {
	res := r.find(s.name)
	if res == nil {
		res = &result{Name: s.name, Clients: s.clients, setup: s, rates: map[int]float64{}, totals: map[int]float64{}}
		r.Results = append(r.Results, res)
	}
	res.Samples = append(res.Samples, m)
	res.rates[round] = m.Rate
	res.totals[round] = m.OrderdCPU + m.DBCPU + m.RedisCPU
	if s.on == onFloor || s.on == onRows { // here the bench itself is the database's client, as orderd is there
		res.totals[round] += m.BenchCPU
	}
}

func (r *report) find(name string) *result {
	for _, res := range r.Results {
		if res.Name == name {
			return res
		}
	}
	return nil
}

// finish puts the results in the order of the setups, and works out medians and ratios.
func (r *report) finish(order []setup) {
	slices.SortFunc(r.Results, func(a, b *result) int {
		at := func(x *result) int { return slices.IndexFunc(order, func(s setup) bool { return s.name == x.Name }) }
		return at(a) - at(b)
	})
	for _, res := range r.Results {
		res.Numbers = map[string]spread{}
		values := map[string][]float64{}
		for _, s := range res.Samples {
			for name, v := range numbers(s) {
				values[name] = append(values[name], v)
			}
		}
		for name, v := range values {
			res.Numbers[name] = spreadOf(v)
		}
		if base := r.find(res.setup.floorName()); base != nil && base != res {
			res.Floor, res.CPU = spreadPtr(ratios(res.rates, base.rates)), spreadPtr(ratios(res.totals, base.totals))
		}
		if base := r.find(res.setup.rowsName()); base != nil && base != res && res.setup.on != onFloor {
			res.Rows = spreadPtr(ratios(res.rates, base.rates))
		}
	}
}

// spreadPtr is nil if there is nothing to compare.
func spreadPtr(values []float64) *spread {
	if len(values) == 0 {
		return nil
	}
	s := spreadOf(values)
	return &s
}

// numbers are the members of a sample by their JSON names.
func numbers(s sample) map[string]float64 {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // only for a NaN, and there is no division by zero
	}
	var all map[string]float64
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err)
	}
	return all
}

// heading and row are the table's.
var heading = []string{"setup", "per second (min-max)", "× floor", "× rows", "p50 ms", "p99 ms", "p999 ms", "CPU ms: orderd", "mariadbd", "redis", "bench",
	"CPU × floor", "statements", "batch", "conflicts", "retries", "allocations", "KiB allocated", "refused", "MiB", "peak MiB", "start ms"}

func (res *result) row() []string {
	n := func(name, format string) string {
		if v := res.Numbers[name]; v.Max > 0 {
			return fmt.Sprintf(format, v.Median)
		}
		return ""
	}
	ranged := func(s *spread, format string) string {
		if s == nil || s.Max == 0 {
			return ""
		}
		text := fmt.Sprintf(format, s.Median)
		if len(res.Samples) > 1 {
			text += fmt.Sprintf(" ("+format+"-"+format+")", s.Min, s.Max)
		}
		return text
	}
	ratio := func(s *spread) string { return ranged(s, "%.2f") }
	rate, kib := res.Numbers["per_second"], ""
	if v := res.Numbers["alloc_bytes"]; v.Max > 0 {
		kib = fmt.Sprintf("%.0f", v.Median/1024)
	}
	return []string{res.Name, ranged(&rate, "%.0f"), ratio(res.Floor), ratio(res.Rows), n("p50_ms", "%.1f"), n("p99_ms", "%.1f"), n("p999_ms", "%.1f"),
		n("orderd_cpu_ms", "%.2f"), n("mariadbd_cpu_ms", "%.2f"), n("redis_cpu_ms", "%.2f"), n("bench_cpu_ms", "%.2f"), ratio(res.CPU),
		n("statements", "%.1f"), n("batch_size", "%.1f"), n("version_conflicts", "%.2f"), n("tx_retries", "%.2f"), n("mallocs", "%.0f"), kib,
		n("refused_503", "%.0f"), n("rss_mib", "%.0f"), n("peak_rss_mib", "%.0f"), n("start_ms", "%.0f")}
}

// table is what is printed for a terminal and written as Markdown.
func (r *report) table() [][]string {
	lines := [][]string{heading}
	for _, res := range r.Results {
		lines = append(lines, res.row())
	}
	return lines
}

func (r *report) markdown() string {
	return r.origin.markdown(fmt.Sprintf("%d rounds of %g s each", r.Rounds, r.Seconds), r.table())
}

// write writes the files that were asked for.
func (r *report) write(o options) error {
	files := map[string]func() (string, error){
		o.json: func() (string, error) {
			text, err := json.MarshalIndent(r, "", "  ")
			return string(text) + "\n", err
		},
		o.svg: r.svg,
		o.md: func() (string, error) {
			text := r.markdown()
			if rel, e := filepath.Rel(filepath.Dir(o.md), o.svg); e == nil && o.svg != "" {
				text += "\n![orders per second, by the number of clients](" + filepath.ToSlash(rel) + ")\n"
			}
			return inPage(o.md, "bench", text)
		},
	}
	delete(files, "") // not asked for
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text, err := files[name]()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
