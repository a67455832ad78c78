package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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

// Help is shown below the usage.
func (reconcileCommand) Help() string {
	return `Money that moved since then, payment by payment and refund by refund: what our books have, and what the gateway's have.

sandbox lists all that it moved, and stripe its PaymentIntents and refunds of that time; these are looked up in our books, and
what we have beyond them is asked for: both ways. alipay and wechatpay list nothing; they are asked about each payment and
refund of ours of that time, in whatever state: money that only they know of, under a number that is not ours, stays unseen.

What differs: only_ours, only_theirs, status (money moved for one side only), amount (or currency), no_answer.
Exit code 0: the books agree. 1: they differ, or could not be compared.`
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
		report, err := audit.Reconcile(ctx, d, gateways, since, bar(c))
		if err != nil {
			return err
		}
		if len(report.Breaks) > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(r.Look):
			}
			again, err := audit.Reconcile(ctx, d, gateways, since, nil)
			if err != nil {
				return err
			}
			report.Breaks = slices.DeleteFunc(report.Breaks, func(b audit.Break) bool { return !slices.Contains(again.Breaks, b) })
		}
		if err := r.print(c.out, report); err != nil {
			return err
		}
		if len(report.Breaks) > 0 {
			return errQuiet
		}
		return nil
	})
}

func (r reconcileCommand) print(out io.Writer, report audit.Report) error {
	if r.JSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	if len(report.Breaks) == 0 {
		fmt.Fprintln(out, "reconcile: our books and the gateways' agree")
	} else {
		w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "DIFFERS\tGATEWAY\tPAYMENT\tREFUND\tOURS\tTHEIRS")
		for _, b := range report.Breaks {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", b.Kind, b.Gateway, b.PaymentNo, b.RefundNo, b.Ours, b.Theirs)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(report.Unlisted) > 0 {
		fmt.Fprintf(out, "asked about ours only, as they list nothing: %s\n", strings.Join(report.Unlisted, ", "))
	}
	return nil
}

// bar shows progress on a terminal, and nothing elsewhere.
func bar(c console) func(done, total int) {
	f, ok := c.err.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return nil
	}
	return func(done, total int) { drawBar(c.err, done, total) }
}

func drawBar(w io.Writer, done, total int) {
	const width = 40
	fmt.Fprintf(w, "\r[%-*s] %d/%d", width, strings.Repeat("=", width*done/total), done, total)
	if done == total {
		fmt.Fprintln(w)
	}
}
