package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

// orderdWith runs orderd with nothing but these settings until it ends, and returns its exit code and what it printed.
func orderdWith(t *testing.T, vars map[string]string, args ...string) (code int, output string) {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for key, value := range vars {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return cmd.ProcessState.ExitCode(), string(out)
}

// Orders, stock, the gateway's books and the secrets are kept in the data directory, which is one process's at a time.
func TestEmbeddedKeepsItsState(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	token := strings.TrimSpace(d.shell(t, d.path+` token --user u1 --scope "orders admin"`))
	o := &orderd{d.process}
	placed := o.with(t, token).mustPlace("TEA-250", 2)

	other := cloneWith(d.vars, "ORDERD_ADDR=127.0.0.1:0")
	code, out := orderdWith(t, other)
	require.Equal(t, 1, code)
	require.Contains(t, out, "is in use by another orderd")

	d.Restart(t) // killed, not stopped
	after := (&orderd{d.process}).with(t, token)
	require.Equal(t, placed.Payment.PaymentNo, after.order(placed.OrderNo).Payment.PaymentNo)
	require.EqualValues(t, 198, after.available("TEA-250"), "the catalogue is not filled anew")
	(&sandbox{url: d.url("sandbox")}).ledgerOf(t, d)
	again := after.place(want(placed.OrderNo, "TEA-250", 2))
	require.Equal(t, http.StatusOK, again.Status)
	require.Equal(t, "state", again.guard())
}

// ledgerOf sees that the gateway still knows its merchant: the key that the directory keeps opens its books.
func (s *sandbox) ledgerOf(t *testing.T, d *demo) {
	t.Helper()
	out := d.shell(t, `KEY=$(sed -n 's/.*"sandbox_api_key": "\(.*\)".*/\1/p' "$ORDERD_DATA_DIR/secrets.json")
curl -sSf `+s.url+`/v1/ledger -H "Authorization: Bearer $KEY"`)
	require.Contains(t, out, `"entries"`)
}

// Settings that would be unsafe are refused, with the setting's name and what to do.
func TestUnsafeSettingsAreRefused(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t) // never migrated
	secrets := map[string]string{"ORDERD_DB_DSN": dsn, "ORDERD_JWT_SECRET": jwtSecret, "ORDERD_SANDBOX_API_KEY": sandboxAPIKey,
		"ORDERD_SANDBOX_WEBHOOK_SECRET": webhookSecret, "ORDERD_ADDR": "127.0.0.1:0", "ORDERD_OPS_ADDR": "127.0.0.1:0",
		"ORDERD_SANDBOX_ADDR": "127.0.0.1:0", "ORDERD_DATA_DIR": t.TempDir()}
	for name, tt := range map[string]struct {
		vars map[string]string
		want string
	}{
		"beyond loopback":   {map[string]string{"ORDERD_ADDR": "0.0.0.0:0", "ORDERD_DATA_DIR": t.TempDir()}, "--addr 0.0.0.0:0: embedded mode listens on loopback only"},
		"no JWT secret":     {cloneWith(secrets, "ORDERD_JWT_SECRET="), "ORDERD_JWT_SECRET"},
		"short JWT secret":  {cloneWith(secrets, "ORDERD_JWT_SECRET=short"), "at least 32 bytes"},
		"no gateway key":    {cloneWith(secrets, "ORDERD_SANDBOX_API_KEY="), "ORDERD_SANDBOX_API_KEY"},
		"unknown gateway":   {map[string]string{"ORDERD_GATEWAY": "barter", "ORDERD_ADDR": "127.0.0.1:0", "ORDERD_OPS_ADDR": "127.0.0.1:0", "ORDERD_SANDBOX_ADDR": "127.0.0.1:0", "ORDERD_DATA_DIR": t.TempDir()}, "--gateway barter"},
		"unmigrated schema": {secrets, "orderd migrate up"},
		"server away":       {cloneWith(secrets, "ORDERD_DB_DSN=u:p@tcp(127.0.0.1:1)/x"), "open the database"},
	} {
		code, out := orderdWith(t, tt.vars, "serve")
		require.Equal(t, 1, code, "%s: %s", name, out)
		require.Contains(t, out, tt.want, name)
		require.NotContains(t, out, "listening", name)
	}
	code, out := orderdWith(t, nil, "serve", "--no-such-flag")
	require.Equal(t, 2, code)
	require.Contains(t, out, "orderd --help")
}
