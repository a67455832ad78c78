package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A journal whose end is unsure takes nothing more: a line after half a line would make the whole file unreadable.
func TestJournalStopsWhenItsEndIsUnsure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	file, err := os.Open(path) // for reading only: neither a write nor the repair succeeds
	require.NoError(t, err)
	j := &journal{file: file}
	_, err = j.append(record{Acked: "a"})
	require.Error(t, err)
	require.Error(t, j.broken)
	_, err = j.append(record{Acked: "b"})
	require.Equal(t, j.broken, err)
	require.ErrorIs(t, j.sync(1), j.broken)
	require.NoError(t, file.Close())
}
