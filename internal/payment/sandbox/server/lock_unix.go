//go:build unix

package server

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps a second process off the journal: both would write at the same offsets. The kernel takes the lock back when
// the process ends, however it ends.
func lock(file *os.File) error {
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(errors.New("another process uses it"), err)
	}
	return nil
}
