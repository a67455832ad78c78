//go:build !unix

package server

import "os"

// lock is for unix only; elsewhere it is up to the operator to start one process per journal.
func lock(*os.File) error { return nil }
