// Command bench measures orderd, and in the same run, on the same machine and the same MariaDB, what the database could
// do without it: the floor (raw SQL, as few rows as an order can have) and the very rows that orderd writes. It starts
// its own MariaDB, Redis, gateway and orderd; docs/benchmarks.md says what is measured and how to read it.
//
//	go run ./bench                      5 rounds of everything
//	go run ./bench -only 'floor|life'   some of it
//	go run ./bench -smoke               one very short round: does it run, and are the books right?
//	go run ./bench growth -dir DIR      the same operations on a small database and on a large one
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, v := range os.Environ() { // a setting of the shell must not change what is measured
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "ORDERD_") {
			_ = os.Unsetenv(name) // only fails for an empty name
		}
	}
	args := os.Args[1:]
	do := run
	if len(args) > 0 && args[0] == "growth" {
		args, do = args[1:], growth
	}
	err := do(ctx, args, os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags of a run.
type options struct {
	rounds   int
	duration time.Duration
	only     *regexp.Regexp
	smoke    bool
	json     string
	svg      string
	md       string
	dir      string
	seed     uint64
	profile  string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var only string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 5, "rounds; every configuration is measured once in each, and the table shows medians")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long one measurement takes")
	f.StringVar(&only, "only", "", "regular expression over the names of the configurations")
	f.BoolVar(&o.smoke, "smoke", false, "one short round: checks that everything runs and that the books are right")
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.StringVar(&o.svg, "svg", "", "write the plot to this file")
	f.StringVar(&o.md, "md", "", "write the table as Markdown to this file; one with the bench markers keeps the rest of its text")
	f.StringVar(&o.dir, "dir", "", "directory for the servers' data, on the disk to be measured (default: a temporary one)")
	f.Uint64Var(&o.seed, "seed", 1, "which SKUs and users are chosen, and in which order the configurations run")
	f.StringVar(&o.profile, "profile", "", "write orderd's CPU profile during each measurement into this directory, as NAME-CLIENTS.pprof")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q: not understood; see -help", f.Arg(0))
	}
	if o.smoke {
		o.rounds, o.duration = 1, 200*time.Millisecond
	}
	if o.rounds < 1 || o.duration < 10*time.Millisecond {
		return o, errors.New("-rounds must be at least 1 and -duration at least 10ms")
	}
	var err error
	o.only, err = regexp.Compile(only)
	return o, err
}

// run measures every configuration once per round, so that a machine that slows down, slows all of them down.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen := choose(setups, o.only)
	if len(chosen) == 0 {
		return errors.New("-only matches no configuration")
	}
	l, err := newLab(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	r := newReport(ctx, l, args)
	for round := range o.rounds {
		for _, i := range l.rng.Perm(len(chosen)) {
			s := chosen[i]
			sample, err := l.measure(ctx, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			r.add(s, round, sample)
			l.say("round %d/%d  %-22s %s", round+1, o.rounds, s.name, sample)
		}
		if err := l.audit(ctx, chosen); err != nil {
			return err
		}
	}
	r.finish(chosen)
	if err := align(stdout, r.table()); err != nil {
		return err
	}
	return r.write(o)
}
