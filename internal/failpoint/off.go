//go:build !failpoint

// Package failpoint names the places where a crash must be harmless. Built with the tag failpoint, the environment
// variable ORDERD_FAILPOINT=name[:n] makes the process kill itself with SIGKILL when it passes name for the n-th time;
// name:n:stop stops it there with SIGSTOP, until somebody sends SIGCONT.
// Without the tag Here is an empty function, which the compiler removes.
package failpoint

// Here marks a place. Its name is given in parts where it depends on the caller: joining them would cost a normal build.
func Here(...string) {}
