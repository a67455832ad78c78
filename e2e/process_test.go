package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"orderd/internal/testenv"
)

// startLimit is how long a binary may take until it listens; built for race detection and on a busy machine.
const startLimit = time.Minute

// process is an orderd process, `serve` or `sandbox`, that can be killed and started again with the same settings.
// One goroutine handles it.
type process struct {
	name string
	path string
	args []string
	vars map[string]string
	want []string // the listeners that it announces before it is ready

	proc  *testenv.Process
	out   *output
	ended bool // by the test
}

// launch starts the process, waits until it listens, and ends it with the test: in order, with exit code 0.
func launch(t testing.TB, p *process) *process {
	t.Helper()
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.finish(t) })
	return p
}

func (p *process) begin() error {
	env := make([]string, 0, len(p.vars))
	for _, key := range slices.Sorted(maps.Keys(p.vars)) {
		env = append(env, key+"="+p.vars[key])
	}
	earlier := p.out
	p.out = &output{addrs: map[string]string{}}
	p.out.errors.to = p.out
	if earlier != nil {
		p.out.text.Write(earlier.bytes())
	}
	proc, err := testenv.Start(testenv.Run{Path: p.path, Args: p.args, Env: env, Stdout: p.out, Stderr: &p.out.errors})
	if err != nil {
		return err
	}
	p.proc, p.ended = proc, false
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	err = testenv.Poll(ctx, proc.Done(), func(context.Context) error {
		for _, name := range p.want {
			if p.out.addr(name) == "" {
				return fmt.Errorf("no line `listening addr=... name=%s`", name)
			}
		}
		return nil
	})
	if err != nil {
		proc.Kill()
		return fmt.Errorf("%s: %w\n%s", p.name, err, p.out.bytes())
	}
	return nil
}

// url is the base URL of one of its listeners.
func (p *process) url(name string) string { return "http://" + p.out.addr(name) }

// Kill ends it with SIGKILL.
func (p *process) Kill() {
	p.ended = true
	p.proc.Kill()
}

// Term ends it with SIGTERM and returns its exit code.
func (p *process) Term() int {
	p.ended = true
	return p.proc.Term(20 * time.Second)
}

// Stop pauses it with SIGSTOP, Cont lets it go on.
func (p *process) Stop() error { return p.proc.Signal(syscall.SIGSTOP) }
func (p *process) Cont() error { return p.proc.Signal(syscall.SIGCONT) }

// stopped reports whether it is paused.
func (p *process) stopped(t testing.TB) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.proc.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ") // after the name, proc(5)
	return strings.HasPrefix(state, "T")
}

// Done is closed when the process has ended, as at a failpoint.
func (p *process) Done() <-chan struct{} { return p.proc.Done() }

// Alive reports whether it runs.
func (p *process) Alive() bool {
	select {
	case <-p.proc.Done():
		return false
	default:
		return true
	}
}

// Restart starts it again, with the same settings but for the given ones ("KEY=value", "KEY=" unsets). It is killed first
// if it still runs.
func (p *process) Restart(t testing.TB, vars ...string) {
	t.Helper()
	p.Kill()
	override(p.vars, vars)
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
}

// Log returns everything that it has printed so far, over all its lives.
func (p *process) Log() string { return string(p.out.bytes()) }

func (p *process) finish(t testing.TB) {
	if p.Alive() {
		_ = p.Cont()
		if code := p.Term(); code != 0 {
			t.Errorf("%s ended with exit code %d after SIGTERM", p.name, code)
		}
	} else if !p.ended && p.vars["ORDERD_FAILPOINT"] == "" {
		t.Errorf("%s ended by itself with exit code %d", p.name, p.proc.ExitCode())
	}
	text := p.Log()
	if strings.Contains(text, "WARNING: DATA RACE") {
		t.Errorf("%s has a data race", p.name)
	}
	if strings.Contains(text, "panic:") {
		t.Errorf("%s panicked", p.name)
	}
	for _, key := range []string{"ORDERD_JWT_SECRET", "ORDERD_SANDBOX_API_KEY", "ORDERD_SANDBOX_WEBHOOK_SECRET"} {
		if secret := p.vars[key]; secret != "" && strings.Contains(text, secret) {
			t.Errorf("%s printed its %s", p.name, key)
		}
	}
	if t.Failed() {
		t.Logf("---- %s printed:\n%s", p.name, lastLines(text, 200))
	}
}

// output collects what a process prints, and the addresses that it announces.
type output struct {
	mu     sync.Mutex
	text   bytes.Buffer
	line   []byte
	addrs  map[string]string
	errors forward
}

var listening = regexp.MustCompile(`^listening addr=(\S+) name=(\S+)\s*$`)

// Write takes standard output.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	o.line = append(o.line, b...)
	for {
		line, rest, ok := bytes.Cut(o.line, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		if m := listening.FindSubmatch(line); m != nil {
			o.addrs[string(m[2])] = string(m[1])
		}
		o.line = rest
	}
}

// forward takes standard error: kept, but no place for announcements.
type forward struct{ to *output }

func (f *forward) Write(b []byte) (int, error) {
	f.to.mu.Lock()
	defer f.to.mu.Unlock()
	return f.to.text.Write(b)
}

func (o *output) addr(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addrs[name]
}

func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.text.Bytes())
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// override sets "KEY=value" pairs; "KEY=" removes KEY.
func override(vars map[string]string, pairs []string) {
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		if vars[key] = value; value == "" {
			delete(vars, key)
		}
	}
}

// cloneWith is a copy with pairs overridden.
func cloneWith(vars map[string]string, pairs ...string) map[string]string {
	own := maps.Clone(vars)
	override(own, pairs)
	return own
}
