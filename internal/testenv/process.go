// Package testenv starts real servers for tests: MariaDB, Redis and RabbitMQ out of the installed packages, each on a
// free loopback port with a data directory of its own, and a TCP proxy that breaks connections on demand.
// A server that ORDERD_TEST_MYSQL_DSN or ORDERD_TEST_AMQP_URL names is used instead of starting one.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child process. On Linux the kernel kills it when this process dies, however it dies.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Run is what Start starts. Env is added to the own environment.
type Run struct {
	Path           string
	Args           []string
	Env            []string
	Dir            string
	Stdout, Stderr io.Writer
}

// Start starts a child process.
func Start(r Run) (*Process, error) {
	cmd := exec.Command(r.Path, r.Args...)
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.Dir, r.Stdout, r.Stderr
	cmd.SysProcAttr = dieWithParent()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel's "parent" is the thread that forked: it is kept until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the exit code is in ProcessState
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Path, err)
	}
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and all its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode waits for the end and returns the exit code, -1 after a signal.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal; a process that has ended already is no error.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Term asks the process to end with SIGTERM, kills it after the grace time, and returns the exit code.
func (p *Process) Term(grace time.Duration) int {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
	}
	return p.ExitCode()
}

// Poll calls ready every 20 ms until it returns nil, or fails with its last error when ctx ends or gone is closed.
func Poll(ctx context.Context, gone <-chan struct{}, ready func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-gone:
			return fmt.Errorf("ended before it was ready: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
