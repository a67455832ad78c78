package stripe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"orderd/internal/testenv"
)

// stripe-mock is Stripe's own: it checks each request against Stripe's OpenAPI description. It remembers nothing, so its
// answers are of no use; those are the fake's.
const mockVersion = "v0.203.0"

var mock struct {
	sync.Mutex
	process *testenv.Process
	url     string
}

type tests struct{ *testing.M }

func (m tests) Run() int {
	code := m.M.Run()
	if mock.process != nil {
		mock.process.Kill()
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// stripeMock returns where stripe-mock listens: one for the whole test process, built and started by the first that asks.
func stripeMock(t testing.TB) string {
	t.Helper()
	mock.Lock()
	defer mock.Unlock()
	if mock.process != nil {
		return mock.url
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "stripe-mock.log"))
	require.NoError(t, err)
	defer out.Close()
	mock.process, err = testenv.Start(testenv.Run{Path: buildMock(t), Args: []string{"-http-addr", "127.0.0.1:"}, Stdout: out, Stderr: out})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	listening := regexp.MustCompile(`Listening for HTTP at address: (127\.0\.0\.1:\d+)\n`)
	err = testenv.Poll(ctx, mock.process.Done(), func(context.Context) error {
		log, err := os.ReadFile(out.Name())
		found := listening.FindSubmatch(log)
		if err == nil && found == nil {
			return fmt.Errorf("stripe-mock does not listen: %s", log)
		}
		if err == nil {
			mock.url = "http://" + string(found[1])
		}
		return err
	})
	require.NoError(t, err)
	return mock.url
}

// buildMock builds stripe-mock from its Go module, once for all runs.
func buildMock(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "orderd-test", "stripe-mock-"+mockVersion)
	program := filepath.Join(dir, "stripe-mock")
	if _, err := os.Stat(program); !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
		return program
	}
	build := exec.CommandContext(t.Context(), "go", "install", "github.com/stripe/stripe-mock@"+mockVersion)
	build.Dir, build.Env = os.TempDir(), append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return program
}
