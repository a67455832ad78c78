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

var armed, after, stop = parse(os.Getenv("ORDERD_FAILPOINT"))

var passes atomic.Int64

func parse(spec string) (name string, n int64, stop bool) {
	name, rest, _ := strings.Cut(spec, ":")
	count, how, _ := strings.Cut(rest, ":")
	if n, _ = strconv.ParseInt(count, 10, 64); n < 1 {
		n = 1
	}
	return name, n, how == "stop"
}

// Here kills or stops the process if the place named by parts is armed and this is its n-th pass.
func Here(parts ...string) {
	name := strings.Join(parts, "")
	if name != armed || passes.Add(1) != after {
		return
	}
	fmt.Fprintln(os.Stderr, "failpoint", name)
	if stop {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way: nothing after this line may run
}
