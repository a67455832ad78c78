package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"

	"orderd/internal/audit"
	"orderd/internal/db"
)

type reconcileCommand struct {
	Since time.Duration `default:"24h" help:"How far to look back."`
	Look  time.Duration `default:"3s" help:"A difference is looked at again after this long: it may be a payment that is being settled."`
	JSON  bool          `name:"json" help:"Print JSON instead of a table."`
}

// Run compares our books with the gateways' own and prints what differs.
func (r reconcileCommand) Run(ctx context.Context, s *Settings, c console) error {
	if err := s.complete(); err != nil {
		return err
	}
	return s.withDatabase(ctx, func(d *db.DB) error {
		gateways, err := s.gatewaysOfRunning()
		if err != nil {
			return err
		}
		since := time.Now().Add(-r.Since)
		breaks, err := audit.Reconcile(ctx, d, gateways, since, bar(c))
		if err != nil {
			return err
		}
		if len(breaks) > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(r.Look):
			}
			again, err := audit.Reconcile(ctx, d, gateways, since, nil)
			if err != nil {
				return err
			}
			breaks = slices.DeleteFunc(breaks, func(b audit.Break) bool { return !slices.Contains(again, b) })
		}
		if err := r.print(c, breaks); err != nil {
			return err
		}
		if len(breaks) > 0 {
			return errQuiet
		}
		return nil
	})
}

func (r reconcileCommand) print(c console, breaks []audit.Break) error {
	if r.JSON {
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Breaks []audit.Break `json:"breaks"`
		}{append([]audit.Break{}, breaks...)})
	}
	if len(breaks) == 0 {
		_, err := fmt.Fprintln(c.out, "reconcile: our books and the gateways' agree")
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "GATEWAY\tPAYMENT\tREFUND\tOURS\tTHEIRS")
	for _, b := range breaks {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", b.Gateway, b.PaymentNo, b.RefundNo, b.Ours, b.Theirs)
	}
	return w.Flush()
}

// bar shows progress on a terminal, and nothing elsewhere.
func bar(c console) func(done, total int) {
	f, ok := c.err.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return nil
	}
	return func(done, total int) {
		const width = 40
		full := width * done / total
		fmt.Fprintf(c.err, "\r[%-*s] %d/%d", width, string(slices.Repeat([]byte("="), full)), done, total)
		if done == total {
			fmt.Fprintln(c.err)
		}
	}
}
