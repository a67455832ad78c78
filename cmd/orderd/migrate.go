package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"text/tabwriter"

	"github.com/prometheus/client_golang/prometheus"

	"orderd/internal/db"
	"orderd/internal/metrics"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Apply what is missing. Any number of replicas may do so at once."`
	Status migrateStatus `cmd:"" help:"List the migrations and when each was applied."`
}

type migrateUp struct{}

// Run applies what is missing.
func (migrateUp) Run(ctx context.Context, s *Settings, c console) error {
	return s.withDatabase(ctx, func(d *db.DB) error {
		if err := d.Migrate(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintln(c.out, "the schema is up to date")
		return err
	})
}

type migrateStatus struct{}

// Run lists the migrations.
func (migrateStatus) Run(ctx context.Context, s *Settings, c console) error {
	return s.withDatabase(ctx, func(d *db.DB) error {
		list, err := d.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "VERSION\tNAME\tAPPLIED")
		for _, m := range list {
			at := "pending"
			if m.AppliedAt != nil {
				at = m.AppliedAt.Format("2006-01-02 15:04:05 MST")
			}
			fmt.Fprintf(w, "%d\t%s\t%s\n", m.Version, m.Name, at)
		}
		return w.Flush()
	})
}

// withDatabase opens the database for a command other than serve.
func (s *Settings) withDatabase(ctx context.Context, use func(d *db.DB) error) (err error) {
	var toClose closers
	defer func() { err = errors.Join(err, toClose.close()) }()
	cfg := db.Config{DSN: s.DBDSN, Metrics: metrics.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
	if s.embedded() {
		if cfg.Path, err = s.embeddedFile(); err != nil {
			return err
		}
	}
	d, err := db.Open(ctx, cfg)
	if err != nil {
		return err
	}
	toClose.add(d.Close)
	return use(d)
}
