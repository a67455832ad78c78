package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// During a rolling upgrade a newer release has migrated while the replicas of this one still serve: they stay ready, or the
// load balancer would lose all of them at once. Only a start on what it does not know is refused, and on what is too old.
func TestReplicasGoOnWhileANewerReleaseMigrates(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t)
	db := e.sql(t)
	ready := func() answer { return o.as(t, "u1").during().do(http.MethodGet, "/readyz", nil) }
	schema := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}

	schema("INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)")
	require.Equal(t, 200, ready().Status)
	buyer := o.as(t, "u1")
	e.paid(t, buyer, o.admin(t).stock(100, 10), 1)
	code, out := e.command(t, "serve")
	require.Equal(t, 1, code)
	require.Contains(t, out, "migration 999, which this orderd does not know")
	schema("DELETE FROM goose_db_version WHERE version_id = 999")
	e.auditSettled(t)

	schema("DELETE FROM goose_db_version WHERE version_id = 10")
	a := ready()
	require.Equal(t, 503, a.Status, a)
	require.Contains(t, string(a.Body), `{"name":"migrations","status":"down"}`)
	code, out = e.command(t, "serve")
	require.Equal(t, 1, code)
	require.Contains(t, out, "run `orderd migrate up`")
}
