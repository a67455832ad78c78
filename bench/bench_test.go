package main

import (
	"bufio"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.999: 100, 1: 100} {
		require.Equal(t, want, percentile(hundred, q), q)
	}
	require.Equal(t, time.Duration(7), percentile([]time.Duration{7}, 0.5))
	require.Zero(t, percentile(nil, 0.5))
}

func TestSpread(t *testing.T) {
	t.Parallel()
	require.Equal(t, spread{Median: 3, Min: 1, Max: 9}, spreadOf([]float64{9, 1, 3}))
	require.Equal(t, spread{Median: 2.5, Min: 1, Max: 4}, spreadOf([]float64{4, 1, 2, 3}))
	require.Equal(t, spread{}, spreadOf(nil))
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	t.Parallel()
	got := ratios(map[int]float64{0: 100, 1: 50, 2: 70, 3: 10}, map[int]float64{0: 50, 1: 25, 3: 0})
	slices.Sort(got)
	require.Equal(t, []float64{2, 2}, got)
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	got, err := parseStat([]byte("42 (a )(name) S 1 42 42 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 9 0 100 1 2\n"))
	require.NoError(t, err)
	require.Equal(t, 1750*time.Millisecond, got)
	for _, wrong := range []string{"", "42 (x) S 1", "42 (x) S 1 42 42 0 -1 4194560 1 2 3 4 many 25 7"} {
		_, err := parseStat([]byte(wrong))
		require.Error(t, err, wrong)
	}
	own, err := cpuTime(1)
	require.NoError(t, err)
	require.GreaterOrEqual(t, own, time.Duration(0))
}

func TestParseStatus(t *testing.T) {
	t.Parallel()
	const text = "Name:\torderd\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n"
	peak, err := parseStatus(text, "VmHWM")
	require.NoError(t, err)
	require.Equal(t, int64(2<<20), peak)
	_, err = parseStatus(text, "VmSwap")
	require.Error(t, err)
}

func TestParseMetrics(t *testing.T) {
	t.Parallel()
	got, err := parseMetrics(strings.NewReader("# HELP a b\n# TYPE a counter\na{op=\"x y\",c=\"1\"} 2\na{op=\"z\"} 3\nb 1.5e+06\n"))
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"a": 5, "b": 1.5e6}, got)
	_, err = parseMetrics(strings.NewReader("a many\n"))
	require.Error(t, err)
}

func TestSetupsAreComparedWithWhatExists(t *testing.T) {
	t.Parallel()
	names := map[string]bool{"": true}
	for _, s := range setups {
		require.False(t, names[s.name], s.name)
		names[s.name] = true
	}
	for _, s := range setups {
		if s.name != "life-hot-nobatch/16" { // that its collapse is seen is enough
			require.True(t, names[s.floorName()], s.name)
		}
		require.True(t, names[s.rowsName()], s.name)
	}
	var chosen []string
	for _, s := range choose(setups, regexp.MustCompile(`^life/16$`)) {
		chosen = append(chosen, s.name)
	}
	require.Equal(t, []string{"floor/16", "rows/16", "life/16"}, chosen)

	groups := map[string][2]int{}
	for _, s := range setups {
		connections, each := s.share()
		groups[s.name] = [2]int{connections, each}
	}
	for name, want := range map[string][2]int{"rows/64": {64, 1}, "rows-grouped/64": {1, 64}, "life/256": {256, 1}} {
		require.Equal(t, want, groups[name], name)
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	t.Parallel()
	r := &report{}
	for i, s := range setups {
		r.add(s, 0, sample{Rate: float64(100 + i), Done: 1})
		r.add(s, 1, sample{Rate: float64(120 + i), Done: 1})
	}
	r.finish(setups)
	text, err := r.svg()
	require.NoError(t, err)
	require.Contains(t, text, ">life-nobatch</text>")
	require.NotContains(t, text, "NaN")
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
	require.Contains(t, r.markdown(), "| life/64 | ")
	empty, err := (&report{}).svg()
	require.NoError(t, err)
	require.NotContains(t, empty, "NaN")
}

func TestNiceStep(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0.3: 0.5, 1: 1, 1.1: 2, 301: 500, 700: 1000} {
		require.InDelta(t, want, niceStep(v), 1e-9, v)
	}
}

func TestTableGoesBetweenTheMarkers(t *testing.T) {
	t.Parallel()
	const page = "# Title\n<!-- bench-begin -->\nold\n<!-- bench-end -->\nrest\n<!-- growth-begin -->\nold too\n<!-- growth-end -->\n"
	require.Equal(t, strings.Replace(page, "old\n", "new\n", 1), between(page, "bench", "new\n"))
	require.Equal(t, strings.Replace(page, "old too\n", "new\n", 1), between(page, "growth", "new\n"))
	require.Equal(t, "new\n", between("", "bench", "new\n"))
}

func TestStepsTakeTurns(t *testing.T) {
	t.Parallel()
	small, large := &side{orders: 1, times: map[string][]time.Duration{}}, &side{orders: 2, times: map[string][]time.Duration{}}
	var ran []string
	note := func(name string) step {
		return step{name, func(s *side, _ context.Context) error { ran = append(ran, name+strconv.Itoa(s.orders)); return nil }}
	}
	require.NoError(t, inTurn(t.Context(), 2, []*side{small, large}, []step{note(""), note("get")}))
	require.Equal(t, []string{"1", "2", "get1", "get2", "2", "1", "get2", "get1"}, ran)
	for _, s := range []*side{small, large} {
		require.Len(t, s.times, 1)
		require.Len(t, s.times["get"], 2)
	}

	small.times["get"] = []time.Duration{30 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}
	large.times["get"] = []time.Duration{50 * time.Millisecond, 90 * time.Millisecond, 10 * time.Millisecond}
	require.Equal(t, [][]string{{"ms", "1 orders: p50", "p99", "2 orders: p50", "p99", "ratio of p50"}, {"get", "20.00", "30.00", "50.00", "90.00", "2.50"}},
		growthTable(small, large))
}

func TestConnReadsAnswers(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	c := &conn{tcp: here, in: bufio.NewReader(here)}
	served := make(chan error, 1)
	go func() {
		in := make([]byte, 8)
		_, err := there.Read(in)
		_, e := io.WriteString(there, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		served <- errors.Join(err, e)
	}()
	r, err := c.roundTrip([]byte("request"))
	require.NoError(t, err)
	require.NoError(t, <-served)
	require.Equal(t, "503 {}", r.String())
	require.Equal(t, 3, r.retryAfter)
	require.False(t, r.replayed)
	require.Nil(t, c.tcp, "the server has said that it closes the connection")
}

// steady is a client that is refused once in every third operation.
type steady struct {
	n    int
	fail error
}

func (*steady) warm(context.Context) error { return nil }
func (*steady) close()                     {}

func (s *steady) do(context.Context) (refused int, err error) {
	if s.n++; s.n%3 == 0 {
		refused = 1
	}
	return refused, s.fail
}

func TestDriveCounts(t *testing.T) {
	t.Parallel()
	a, b := &steady{}, &steady{}
	l, err := drive(t.Context(), []client{a, b}, 20*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, a.n+b.n, l.done)
	require.Equal(t, a.n/3+b.n/3, l.refused)
	require.Len(t, l.latencies, l.done)
	require.Positive(t, l.rate)
	require.Equal(t, load{done: 6, rate: 15, refused: 1}, load{done: 2, rate: 5, refused: 1}.times(3))

	broken := errors.New("broken")
	_, err = drive(t.Context(), []client{&steady{}, &steady{fail: broken}}, time.Hour)
	require.ErrorIs(t, err, broken)
}
