package testenv

import "syscall"

func dieWithParent() *syscall.SysProcAttr {
	// A group of its own: Ctrl-C reaches only the parent, which ends its servers in order.
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
