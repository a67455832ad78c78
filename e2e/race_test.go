//go:build race

package e2e

// A race-tested suite runs race-tested binaries: most of the concurrency is in them.
func init() { buildFlags = append(buildFlags, "-race") }
