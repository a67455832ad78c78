package scan_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/failpoint/scan"
)

func tree(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	source := "package p\n\nfunc f() {\n" + body + "\n}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600))
	ignored := []byte("package p\n\nfunc g() { failpoint.Here(\"ignored\") }\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p_test.go"), ignored, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "testdata"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "testdata", "p.go"), ignored, 0o600))
	return dir
}

func TestNames(t *testing.T) {
	t.Parallel()
	names, err := scan.Names(tree(t, `
		failpoint.Here("pay.charged")
		s.db.InTx(ctx, "place", func(tx *db.Tx) error { return tx.Exec("UPDATE x", 1).Error })
		d.Exec(context.WithoutCancel(ctx), "pay.lease", "UPDATE y SET z = ?", 1)
		tx.Exec(statement, 1, 2)`))
	require.NoError(t, err)
	require.Equal(t, []string{"pay.charged", "pay.lease.commit", "pay.lease.committed", "place.begin", "place.commit", "place.committed"}, names)
}

func TestNamesRefuses(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`failpoint.Here(name)`:                                 "string literal",
		`failpoint.Here("a" + "b")`:                            "string literal",
		`s.db.InTx(ctx, op, body)`:                             "string literal",
		`s.db.Exec(ctx, op, "UPDATE x")`:                       "string literal",
		`failpoint.Here("Pay")`:                                "lower case",
		`failpoint.Here("pay..x")`:                             "lower case",
		`failpoint.Here("a"); failpoint.Here("a")`:             "already",
		`d.InTx(ctx, "a", f); failpoint.Here("a.commit")`:      "already",
		`d.InTx(ctx, "a", f); d.Exec(ctx, "a", "UPDATE x", 1)`: "already",
		`}`: "expected",
	} {
		_, err := scan.Names(tree(t, body))
		require.ErrorContains(t, err, want, body)
	}
}

// The service's own places.
func TestServiceNames(t *testing.T) {
	t.Parallel()
	names, err := scan.Names("../..")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	t.Log(names)
}
