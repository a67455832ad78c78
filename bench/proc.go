package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which Linux has fixed at 100 (proc(5)).
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time that a process has used, user and system, all threads.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(text)
}

// parseStat reads utime and stime, the fields 14 and 15 of /proc/PID/stat. Field 2 is the program's name in brackets,
// which may hold anything, brackets and spaces too.
func parseStat(text []byte) (time.Duration, error) {
	_, after, ok := bytesCutLast(text, ')')
	fields := bytes.Fields(after)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("%q is no /proc/PID/stat", text)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no /proc/PID/stat: %w", text, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

func bytesCutLast(b []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

// memory returns the resident memory of a process in bytes, now and at its highest.
func memory(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	if now, err = parseStatus(string(text), "VmRSS"); err != nil {
		return 0, 0, err
	}
	peak, err = parseStatus(string(text), "VmHWM")
	return now, peak, err
}

// parseStatus reads a size out of /proc/PID/status: "VmHWM:	   123 kB".
func parseStatus(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		return n << 10, err
	}
	return 0, fmt.Errorf("no %s in /proc/PID/status", name)
}

// cpuModel is the processor's name, as /proc/cpuinfo has it.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
