package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"orderd/internal/testenv"
)

// The engines that every behaviour must be the same on.
const (
	mariadbRedis = "mariadb+redis"
	embedded     = "embedded"
)

const (
	jwtSecret     = "e2e-jwt-secret-of-at-least-32-bytes"
	sandboxAPIKey = "e2e-sandbox-api-key-0123456789abcdef"
	webhookSecret = "whsec_ZTJlLXNhbmRib3gtd2ViaG9vay1zZWNyZXQtMzItYnl0ZXM="
	merchantID    = "m-e2e"
)

// env is what one or more replicas of orderd share: a database, a Redis and the sandbox gateway.
type env struct {
	engine  string
	vars    map[string]string
	sandbox *sandbox
	redis   *testenv.Server // nil on the embedded engine
}

// forEachEngine runs f as a parallel subtest on every engine, with an env of its own.
func forEachEngine(t *testing.T, f func(t *testing.T, e *env), vars ...string) {
	t.Helper()
	t.Parallel()
	for _, engine := range []string{mariadbRedis, embedded} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f(t, newEnv(t, engine, vars...))
		})
	}
}

// newEnv prepares an engine: an empty migrated database, a private Redis and a sandbox process. vars ("KEY=value") are
// settings for every process of this env; ORDERD_DB_DSN and ORDERD_REDIS_ADDRS, if given, replace the servers.
func newEnv(t testing.TB, engine string, vars ...string) *env {
	t.Helper()
	e := &env{engine: engine, vars: map[string]string{
		"ORDERD_JWT_SECRET":             jwtSecret,
		"ORDERD_SANDBOX_API_KEY":        sandboxAPIKey,
		"ORDERD_SANDBOX_WEBHOOK_SECRET": webhookSecret,
		"ORDERD_MERCHANT_ID":            merchantID,
		"ORDERD_GATEWAY":                "sandbox",
		"ORDERD_OPS_ADDR":               "127.0.0.1:0",
		"ORDERD_WORKER_INTERVAL":        "100ms",
		"ORDERD_RATE_LIMIT":             "0",
		"ORDERD_MAX_OPEN_ORDERS":        "0",
		"ORDERD_DATA_DIR":               t.TempDir(),
	}}
	override(e.vars, vars)
	switch engine {
	case mariadbRedis:
		if e.vars["ORDERD_DB_DSN"] == "" {
			e.vars["ORDERD_DB_DSN"] = testenv.Database(t)
		}
		if e.vars["ORDERD_REDIS_ADDRS"] == "" {
			e.redis = testenv.Redis(t)
			e.vars["ORDERD_REDIS_ADDRS"] = e.redis.Addr
		}
		if code, out := e.command(t, "migrate", "up"); code != 0 {
			t.Fatalf("orderd migrate up: exit code %d\n%s", code, out)
		}
	case embedded: // serve migrates its own file
	default:
		t.Fatalf("no engine %q", engine)
	}
	e.sandbox = startSandbox(t, e)
	e.vars["ORDERD_SANDBOX_URL"] = e.sandbox.url
	return e
}

// start starts a replica and waits until it listens. vars are its own settings.
func (e *env) start(t testing.TB, vars ...string) *orderd {
	t.Helper()
	return e.startBinary(t, binary, vars)
}

// startFailpoint starts a replica that kills itself at its n-th pass of the failpoint.
func (e *env) startFailpoint(t testing.TB, point string, n int, vars ...string) *orderd {
	t.Helper()
	return e.startBinary(t, failpointBinary, append(vars, fmt.Sprintf("ORDERD_FAILPOINT=%s:%d", point, n)))
}

func (e *env) startBinary(t testing.TB, binary func() (string, error), vars []string) *orderd {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	port, err := testenv.FreePort() // a fixed one: it must be the same after a restart, callbacks go there
	if err != nil {
		t.Fatal(err)
	}
	own := maps.Clone(e.vars)
	own["ORDERD_ADDR"] = fmt.Sprintf("127.0.0.1:%d", port)
	override(own, vars)
	return &orderd{launch(t, &process{
		name: "orderd serve", path: path, args: []string{"serve"}, vars: own, want: []string{"api", "ops"},
	})}
}

// command runs another subcommand with the env's settings and returns its exit code and output.
func (e *env) command(t testing.TB, args ...string) (code int, output string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = os.Environ()
	for key, value := range e.vars {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("orderd %s: %v", strings.Join(args, " "), err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// audit runs `orderd audit`: our own books, where there is no ledger to compare them with.
func (e *env) audit(t testing.TB) {
	t.Helper()
	if code, out := e.command(t, "audit"); code != 0 {
		t.Errorf("orderd audit: exit code %d\n%s", code, out)
	}
}

// auditSettled waits until the books are clean and equal the gateway's ledger.
func (e *env) auditSettled(t testing.TB) {
	t.Helper()
	e.succeeds(t, "audit")
	e.succeeds(t, "reconcile", "--look=0s")
}

// succeeds waits until a subcommand has nothing to complain of.
func (e *env) succeeds(t testing.TB, args ...string) {
	t.Helper()
	settled(t, func() error {
		if code, out := e.command(t, args...); code != 0 {
			return fmt.Errorf("orderd %s: exit code %d\n%s", args[0], code, out)
		}
		return nil
	})
}
