package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Clock is the clock that one server believes in. The machine's stays as it is.
type Clock struct{ file string }

// FakeClock starts the server anew under libfaketime and returns its clock, which is right at first. Time spans, as of a
// timeout, stay real.
func (m MariaDB) FakeClock(t testing.TB) *Clock {
	t.Helper()
	if _, err := Find("faketime"); err != nil {
		t.Fatal(err)
	}
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(libraries) == 0 {
		t.Fatal("no libfaketimeMT.so.1 in /usr/lib/*/faketime")
	}
	c := &Clock{file: filepath.Join(m.dir, "clock")}
	c.Move(t, 0)
	m.run.Env = []string{"LD_PRELOAD=" + libraries[0], "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	return c
}

// Move sets the clock so far before (or, negative, behind) the machine's. The server sees it within a second.
func (c *Clock) Move(t testing.TB, by time.Duration) {
	t.Helper()
	next := c.file + ".next" // renamed, so that the server never reads half of it
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", by.Seconds()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		t.Fatal(err)
	}
}
