package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

var (
	buildFlags = []string{"-buildvcs=false"}
	buildDir   string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "orderd-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		buildDir = dir
		return m.Run()
	}())
}

// binary and failpointBinary build orderd once, when the first test asks; the second one obeys ORDERD_FAILPOINT.
var (
	binary          = sync.OnceValues(func() (string, error) { return build("orderd") })
	failpointBinary = sync.OnceValues(func() (string, error) { return build("orderd-failpoint", "-tags", "failpoint") })
)

func build(name string, flags ...string) (string, error) {
	path := filepath.Join(buildDir, name)
	args := append([]string{"build", "-o", path}, buildFlags...)
	out, err := exec.Command("go", append(append(args, flags...), "orderd/cmd/orderd")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// rounds is how often a race is repeated: 30, or ROUNDS.
func rounds(t testing.TB) int {
	t.Helper()
	text := os.Getenv("ROUNDS")
	if text == "" {
		return 30
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ROUNDS=%q: must be a positive number", text)
	}
	return n
}
