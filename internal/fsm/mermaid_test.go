package fsm

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:generate go test -run ^TestMermaid$ -count=1 . -update

var update = flag.Bool("update", false, "write the diagrams in testdata anew")

// The diagrams are the tables, written down once more: whoever changes a table sees it here, and in the documentation.
func TestMermaid(t *testing.T) {
	t.Parallel()
	for _, m := range machines {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			path := "testdata/" + m.Name + ".mmd"
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(m.Mermaid()), 0o644))
			}
			golden, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(golden), m.Mermaid(), "`make generate` writes it")
			_, _ = m.Next(m.States()[0], m.Events()[1]) // leaves a pooled machine somewhere else than at its start
			require.Equal(t, string(golden), m.Mermaid())
		})
	}
}
