package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

const description = `Takes orders under a unique order_no, reserves stock, opens a payment, receives the gateway's callbacks, once each,
whatever is repeated, late, concurrent or cut off half-way.

Without any configuration it runs by itself: SQLite in --data-dir, an in-process Redis, a sandbox payment gateway. With
--db-dsn it runs on MySQL or MariaDB, in as many replicas as you like. Every flag has an environment variable.`

// commands are the subcommands; the settings are the same for all.
type commands struct {
	Settings
	Serve     serveCommand     `cmd:"" default:"1" help:"Serve the API (the default)."`
	Migrate   migrateCommand   `cmd:"" help:"Bring the database's schema up to date, or show where it stands."`
	Token     tokenCommand     `cmd:"" help:"Print a bearer token for a user."`
	Audit     auditCommand     `cmd:"" help:"Check the books: every invariant, on the live database. Exit code 1 if one is broken."`
	Reconcile reconcileCommand `cmd:"" help:"Compare the books with the gateways' own, both ways where a gateway lists what it moved. Exit code 1 if they differ."`
	Parked    parkedCommand    `cmd:"" help:"See to commands from the queue that were given up."`
	Sandbox   sandboxCommand   `cmd:"" help:"Run the sandbox payment gateway by itself."`
	Version   versionCommand   `cmd:"" help:"Print the version."`
}

// console is where commands print.
type console struct {
	out, err io.Writer
}

// errQuiet ends with exit code 1 and no further word: everything has been said.
var errQuiet = errors.New("")

// run parses args and runs the command; it returns the exit code: 0, 1 for a failure, 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c commands
	exited := -1
	parser, err := kong.New(&c, kong.Name("orderd"), kong.Description(description), kong.UsageOnError(),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: false}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(&c.Settings, console{stdout, stderr}))
	if err != nil {
		fmt.Fprintln(stderr, "orderd:", err)
		return 1
	}
	k, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintln(stderr, "orderd:", err)
		fmt.Fprintln(stderr, "orderd --help lists the commands and flags.")
		return 2
	}
	if err := k.Run(); err != nil {
		if !errors.Is(err, errQuiet) {
			fmt.Fprintln(stderr, "orderd:", err)
		}
		return 1
	}
	return 0
}
