package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

// demo is orderd as a newcomer starts it: without any setting but free ports and a directory of its own.
type demo struct{ *process }

func startDemo(t *testing.T) *demo {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	d := &demo{launch(t, &process{
		name: "orderd", path: path, want: []string{"api", "ops", "sandbox"},
		vars: map[string]string{"ORDERD_ADDR": "127.0.0.1:0", "ORDERD_OPS_ADDR": "127.0.0.1:0", "ORDERD_SANDBOX_ADDR": "127.0.0.1:0",
			"ORDERD_DATA_DIR": t.TempDir()},
	})}
	settled(t, func() error {
		if !strings.Contains(d.Log(), "API reference:") {
			return errors.New("orderd does not say what to paste")
		}
		return nil
	})
	return d
}

// shell runs a script as a person pastes it, and returns what it prints.
func (d *demo) shell(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "ORDERD_DATA_DIR="+d.vars["ORDERD_DATA_DIR"])
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s%s", script, out, problems.Bytes())
	return string(out)
}

// becomesPaid repeats a look at an order until it is PAID: the callback follows the shopper's decision.
func (d *demo) becomesPaid(t *testing.T, look func() string) {
	t.Helper()
	settled(t, func() error {
		if o := readOrder(t, look()); o.Status != "PAID" || o.PaidAmount != o.Amount {
			return fmt.Errorf("order %s is %s", o.OrderNo, o.Status)
		}
		return nil
	})
}

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// section returns the shell blocks of one section of README.
func section(t *testing.T, readme, title string) []string {
	t.Helper()
	_, text, found := strings.Cut(readme, "\n## "+title+"\n")
	require.True(t, found, "README has no section %q", title)
	text, _, _ = strings.Cut(text, "\n## ")
	var blocks []string
	for _, m := range shellBlock.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

func readReadme(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	return string(readme)
}

// README's blocks work as they stand: only the port is another, and orderd is built already.
func TestReadmeBlocksWork(t *testing.T) {
	t.Parallel()
	demo := startDemo(t)
	path, err := binary()
	require.NoError(t, err)
	blocks := section(t, readReadme(t), "Try it")
	require.Len(t, blocks, 4)
	here := strings.NewReplacer("http://127.0.0.1:8080", demo.url("api"), "go run ./cmd/orderd", path)
	var variables string // what the first block leaves in the terminal
	paste := func(block string) string { return demo.shell(t, variables+here.Replace(block)) }

	printed := demo.shell(t, here.Replace(blocks[0])+"printf 'TOKEN=%s\\nORDER=%s\\n' \"$TOKEN\" \"$ORDER\"\n")
	payURL, variables, _ := strings.Cut(printed, "\n")
	startBrowser(t).pay(payURL, "CN¥258.00")
	demo.becomesPaid(t, func() string { return paste(blocks[1]) })

	again := paste(blocks[2])
	require.Contains(t, again, "200 OK")
	require.Contains(t, again, "Idempotent-Replayed: true")
	require.Contains(t, again, `"status":"PAID"`)

	history := paste(blocks[3])
	require.Contains(t, history, `"to":"PAID"`)
	require.Contains(t, history, "all hold")
}

// The lines for real servers work as well, on those that the tests have.
func TestReadmeLinesForRealServersWork(t *testing.T) {
	t.Parallel()
	path, err := binary()
	require.NoError(t, err)
	blocks := section(t, readReadme(t), "Running it for real")
	require.Len(t, blocks, 1)
	here := strings.NewReplacer("'orderd:secret@tcp(127.0.0.1:3306)/orderd'", "'"+testenv.Database(t)+"'",
		"127.0.0.1:6379", testenv.Redis(t).Addr, "amqp://127.0.0.1:5672/", testenv.RabbitMQ(t), "make build\n", "",
		"./orderd serve", "exec "+path+" serve", "./orderd", path)
	p := launch(t, &process{
		name: "orderd, by README", path: "/bin/bash", args: []string{"-euo", "pipefail", "-c", here.Replace(blocks[0])},
		vars: map[string]string{"ORDERD_ADDR": "127.0.0.1:0", "ORDERD_OPS_ADDR": "127.0.0.1:0", "ORDERD_SANDBOX_ADDR": "127.0.0.1:0",
			"ORDERD_DATA_DIR": t.TempDir()},
		want: []string{"api", "ops", "sandbox"},
	})
	ready := (&demo{p}).shell(t, "curl -sSf "+p.url("api")+"/readyz")
	require.Contains(t, ready, `"status":"ready"`)
	require.NotContains(t, ready, "down")
}

var variable = regexp.MustCompile(`ORDERD_[A-Z][A-Z0-9_]+`)

// Every setting that README names exists, and has the flag that README says.
func TestReadmeSettingsExist(t *testing.T) {
	t.Parallel()
	path, err := binary()
	require.NoError(t, err)
	var help string
	for _, command := range []string{"serve", "audit"} {
		out, err := exec.CommandContext(t.Context(), path, command, "--help").CombinedOutput()
		require.NoError(t, err, "%s", out)
		help += string(out)
	}
	for _, name := range variable.FindAllString(readReadme(t), -1) {
		require.Contains(t, help, "$"+name)
		flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "ORDERD_")), "_", "-")
		require.Contains(t, help, "--"+flag+"=", name)
	}
}
