package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// origin says where figures come from.
type origin struct {
	Command string `json:"command"`
	Date    string `json:"date"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Go      string `json:"go"`
	MariaDB string `json:"mariadb"`
	Commit  string `json:"commit"`
}

// newOrigin describes this run of bench; args are what the program was called with.
func newOrigin(ctx context.Context, m *mariadb, args []string) origin {
	return origin{Command: strings.TrimSpace("go run ./bench " + strings.Join(args, " ")), Date: time.Now().UTC().Format("2006-01-02"),
		CPU: cpuModel(), Cores: runtime.NumCPU(), Go: runtime.Version(), MariaDB: m.version, Commit: commit(ctx)}
}

// commit names the source that was measured; "+" says that it has changes of its own.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--exclude=*", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// markdown is a table with its origin; what says how often and how long was measured. The first line is the heading.
func (o origin) markdown(what string, lines [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "`%s`, %s, commit %s: %s. %s, %d cores; %s, MariaDB %s.\n\n", o.Command, o.Date, o.Commit, what, o.CPU, o.Cores, o.Go, o.MariaDB)
	for i, cells := range lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "| --- |%s\n", strings.Repeat(" ---: |", len(cells)-1))
		}
	}
	return b.String()
}

// align prints lines of cells in columns.
func align(out io.Writer, lines [][]string) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, cells := range lines {
		if _, err := io.WriteString(w, strings.Join(cells, "\t")+"\n"); err != nil {
			return err
		}
	}
	return w.Flush()
}

// inPage returns the file with text between its markers of that name, or text alone if there are none, or no file.
func inPage(file, name, text string) (string, error) {
	page, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return between(string(page), name, text), err
}

// between puts text between the markers of page that have this name; a page without them becomes text alone.
func between(page, name, text string) string {
	begin, end := "<!-- "+name+"-begin -->\n", "<!-- "+name+"-end -->\n"
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return text
	}
	return before + begin + text + end + after
}
