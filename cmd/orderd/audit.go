package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"orderd/internal/audit"
	"orderd/internal/db"
)

type auditCommand struct{}

// Run checks the books and prints what is wrong.
func (auditCommand) Run(ctx context.Context, s *Settings, c console) error {
	return s.withDatabase(ctx, func(d *db.DB) error {
		if err := d.CheckSchema(ctx); err != nil {
			return err
		}
		found, err := audit.Run(ctx, d, s.Keep)
		if err != nil {
			return err
		}
		checks := audit.Checks(db.Time{})
		if len(found) == 0 {
			_, err := fmt.Fprintf(c.out, "audit: %d checks, all hold\n", len(checks))
			return err
		}
		says := map[string]string{}
		for _, check := range checks {
			says[check.Name] = check.Says
		}
		w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "BROKEN\tWHAT MUST HOLD\tROW")
		for _, v := range found {
			fmt.Fprintf(w, "%s\t%s\t%s\n", v.Check, says[v.Check], v.Row)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		return errQuiet
	})
}
