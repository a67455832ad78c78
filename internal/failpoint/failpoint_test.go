package failpoint_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func build(t *testing.T, tags string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "passes")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", tags, "-o", program, "./testdata/passes").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

func TestKill(t *testing.T) {
	t.Parallel()
	program := build(t, "failpoint")
	for armed, want := range map[string]struct {
		lines string
		dies  bool
	}{
		"":               {"1\n2\n3\n", false},
		"loop.unknown":   {"1\n2\n3\n", false},
		"loop":           {"1\n2\n3\n", false}, // a name, not a prefix
		"loop.pass":      {"", true},
		"loop.pass:1":    {"", true},
		"loop.other:3":   {"1\n2\n", true},
		"loop.pass:4":    {"1\n2\n3\n", false},
		"loop.pass:zero": {"", true},
	} {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), "ORDERD_FAILPOINT="+armed)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		require.Equal(t, want.lines, stdout.String(), armed)
		if !want.dies {
			require.NoError(t, err, armed)
			continue
		}
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), armed)
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), armed)
		name, _, _ := strings.Cut(armed, ":")
		require.Equal(t, "failpoint "+name+"\n", stderr.String())
	}
}

// Without the tag a marked function is the same machine code as an unmarked one, and the variable means nothing.
func TestNothingWithoutTheTag(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), build(t, ""))
	cmd.Env = append(os.Environ(), "ORDERD_FAILPOINT=loop.pass")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "1\n2\n3\n", string(out))

	listing, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S", "-o", os.DevNull, "./testdata/passes").CombinedOutput()
	require.NoError(t, err, "%s", listing)
	require.Equal(t, instructions(string(listing), "main.Bare"), instructions(string(listing), "main.Marked"))
	require.NotEmpty(t, instructions(string(listing), "main.Bare"))
}

// An instruction in the compiler's listing: "	0x0000 00000 (/path/main.go:27)	INCQ	AX".
var instruction = regexp.MustCompile(`^\t0x[0-9a-f]+ \d+ \(.*?\)\t(.*)$`)

// instructions returns those of one function, without the directives and the no-operations that only carry line numbers.
func instructions(listing, function string) (list []string) {
	_, body, _ := strings.Cut(listing, "\n"+function+" STEXT")
	for _, line := range strings.Split(body, "\n")[1:] {
		m := instruction.FindStringSubmatch(line)
		if m == nil {
			break // the end of the function
		}
		name, _, _ := strings.Cut(m[1], "\t")
		if !slices.Contains([]string{"TEXT", "FUNCDATA", "PCDATA", "XCHGL", "NOP"}, name) {
			list = append(list, m[1])
		}
	}
	return list
}
