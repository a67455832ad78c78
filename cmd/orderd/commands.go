package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"orderd/internal/httpapi"
	"orderd/internal/payment/sandbox/server"
)

type tokenCommand struct {
	User  string        `required:"" help:"User id: 1 to 64 of A-Z a-z 0-9 . _ : @ -"`
	Scope string        `default:"orders" help:"Space list of: orders (own orders), admin (everybody's, ship, refund, stock)."`
	TTL   time.Duration `name:"ttl" default:"1h" help:"How long the token is valid."`
}

// Run prints a token.
func (t tokenCommand) Run(s *Settings, c console) error {
	if err := s.complete(); err != nil {
		return err
	}
	auth, err := s.auth()
	if err != nil {
		return err
	}
	token, err := auth.Mint(t.User, strings.Fields(t.Scope), t.TTL)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.out, token)
	return err
}

type sandboxCommand struct{}

// Run serves the sandbox gateway until ctx ends.
func (sandboxCommand) Run(ctx context.Context, s *Settings, c console) error {
	if err := s.complete(); err != nil {
		return err
	}
	log := s.logger(c)
	gateway, err := s.newSandbox(log)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.SandboxAddr)
	if err != nil {
		return errors.Join(fmt.Errorf("--sandbox-addr: %w", err), gateway.Close())
	}
	fmt.Fprintf(c.out, "listening addr=%s name=sandbox\n", l.Addr())
	h := sandboxServer(gateway, log)
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	select {
	case err := <-served:
		return errors.Join(err, gateway.Close())
	case <-ctx.Done():
	}
	if err := gateway.Close(); err != nil { // first: it cuts off the answers that a fault mode holds back
		return err
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	return h.Shutdown(deadline)
}

// newSandbox makes a sandbox gateway that keeps its books in the data directory.
func (s *Settings) newSandbox(log *slog.Logger) (*server.Server, error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return server.New(server.Config{MerchantID: s.MerchantID, APIKey: s.SandboxAPIKey, WebhookSecret: s.SandboxWebhookSecret,
		PublicURL: s.SandboxPublicURL, Journal: filepath.Join(s.DataDir, "sandbox.jsonl"), Logger: log})
}

// sandboxServer has no limit on answers: the gateway's fault modes hold them back for long.
func sandboxServer(g *server.Server, log *slog.Logger) *http.Server {
	h := httpapi.NewHTTPServer(g.Handler(), log)
	h.WriteTimeout = 0
	return h
}

// embeddedFile is the database of the embedded mode; commands other than serve do not make one.
func (s *Settings) embeddedFile() (string, error) {
	path := filepath.Join(s.DataDir, "orderd.db")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no database in %s: start `orderd` once, or give --data-dir or --db-dsn", s.DataDir)
	}
	return path, nil
}

type versionCommand struct{}

// Run prints the version of the build.
func (versionCommand) Run(c console) error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version + " " + info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				version += " " + s.Value
			}
		}
	}
	_, err := fmt.Fprintln(c.out, "orderd", version)
	return err
}
