//go:build !linux

package testenv

import "syscall"

// Only Linux can tie a child's life to its parent's: elsewhere a killed test leaves its servers behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
