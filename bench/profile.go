package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// startProfile has the first replica profile itself during a measurement that takes d, if a profile was asked for. The
// profile itself costs a few percent. What it returns waits for the profile.
func (l *lab) startProfile(ctx context.Context, s setup, r *rig, d time.Duration) func() error {
	if l.profile == "" || len(r.replicas) == 0 {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		done <- saveProfile(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", r.replicas[0].ops, max(1, int(d.Seconds()))),
			filepath.Join(l.profile, strings.ReplaceAll(s.name, "/", "-")+".pprof"))
	}()
	return func() error { return <-done }
}

func saveProfile(ctx context.Context, url, path string) error {
	body, err := fetch(ctx, url)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, body); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
