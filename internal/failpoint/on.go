//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var armed, after = parse(os.Getenv("ORDERD_FAILPOINT"))

var passes atomic.Int64

func parse(spec string) (name string, n int64) {
	name, count, _ := strings.Cut(spec, ":")
	if n, _ = strconv.ParseInt(count, 10, 64); n < 1 {
		n = 1
	}
	return name, n
}

// Here kills the process if the place named by parts is armed and this is its n-th pass.
func Here(parts ...string) {
	if name := strings.Join(parts, ""); name == armed && passes.Add(1) == after {
		fmt.Fprintln(os.Stderr, "failpoint", name)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way: nothing after this line may run
	}
}
