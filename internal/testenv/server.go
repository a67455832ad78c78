package testenv

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit is the longest that a server may take to answer: RabbitMQ takes 10 s on two idle cores, far more on busy ones.
const startLimit = 3 * time.Minute

// Server is a server process that can be paused, killed and started again on the same address and data.
type Server struct {
	Addr string // host:port

	dir   string
	run   Run
	ready func(context.Context) error
	aux   *Process // what the server needs beside it for all its restarts; nil for most

	mu   sync.Mutex
	proc *Process
}

// Pause stops the process with SIGSTOP: connections stay open and nothing answers.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

// Kill ends the process with SIGKILL, as a crash does.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.Kill()
}

// Term ends the process in order, with SIGTERM.
func (s *Server) Term() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.Term(time.Minute)
}

// Restart kills the process if it is still there, starts it again on the same address and data, and waits until it answers.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.Kill()
	}
	logged := filepath.Join(s.dir, "log")
	out, err := os.OpenFile(logged, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own copy
	s.run.Stdout, s.run.Stderr = out, out
	if s.proc, err = Start(s.run); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := Poll(ctx, s.proc.Done(), s.ready); err != nil {
		s.proc.Kill()
		text, _ := os.ReadFile(logged)
		return fmt.Errorf("%s on %s: %w\n%s", filepath.Base(s.run.Path), s.Addr, err, tail(text))
	}
	return nil
}

// ended tells whether the process is no longer there, and what it logged last.
func (s *Server) ended() (log []byte, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.proc.Done():
		text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return tail(text), true
	default:
		return nil, false
	}
}

// Stop ends the process and removes its data.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.Kill() // nothing of a test server's data is kept, so it need not close in order
	}
	if s.aux != nil {
		s.aux.Kill()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Signal(sig)
}

// own starts a server for one test and stops it afterwards.
func own(t testing.TB, start func() (*Server, error)) *Server {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

const dirPrefix = "orderd-test-"

// newDir makes a data directory, in memory where there is room, and removes those of test processes that are gone: a
// killed process cannot remove its own.
func newDir(kind string) (string, error) {
	root := os.TempDir()
	var fs syscall.Statfs_t
	if syscall.Statfs("/dev/shm", &fs) == nil && fs.Bavail*uint64(fs.Bsize) > 2<<30 {
		root = "/dev/shm"
	}
	old, _ := filepath.Glob(filepath.Join(root, dirPrefix+"*"))
	for _, dir := range old {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if pid, err := strconv.Atoi(owner); err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = os.RemoveAll(dir)
		}
	}
	return os.MkdirTemp(root, fmt.Sprintf("%s%d-%s-", dirPrefix, os.Getpid(), kind))
}

// FreePort returns a free loopback port below the range that the kernel gives to outgoing connections, so that a killed
// server finds it free again.
func FreePort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port between 20000 and 32000")
}

func tail(text []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-60):], []byte("\n"))
}
