package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/failpoint/scan"
)

var update = flag.Bool("update", false, "write the generated parts anew")

const root = "../.."

// pages are README.md and everything in docs/, relative to the root.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	list := []string{"README.md"}
	for _, path := range found {
		list = append(list, "docs/"+filepath.Base(path))
	}
	return list
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	return string(text)
}

var generated = regexp.MustCompile(`(?ms)^(<!-- (\w+)(?:: ([^\n]*?))? -->\n).*?(^<!-- end -->$)`)

func TestGeneratedPartsAreCurrent(t *testing.T) {
	t.Parallel()
	stale := map[string]string{}
	for _, page := range pages(t) {
		now := read(t, page)
		require.True(t, strings.HasPrefix(now, "# "), "%s has no title", page)
		require.Equal(t, strings.Count(now, "\n<!-- end -->"), len(generated.FindAllString(now, -1)),
			"%s: a marker has no end, or an end no marker", page)
		want := generated.ReplaceAllStringFunc(now, func(block string) string {
			m := generated.FindStringSubmatch(block)
			text, err := write(place{page}, m[2], m[3])
			if err != nil {
				t.Errorf("%s: %s: %v", page, strings.TrimSpace(m[1]), err)
				return block
			}
			return m[1] + text + m[4]
		})
		if want != now {
			stale[page] = want
		}
	}
	for page, want := range stale { // not before all of it is known to be right
		if *update && !t.Failed() {
			require.NoError(t, os.WriteFile(filepath.Join(root, page), []byte(want), 0o644))
			continue
		}
		now := strings.Split(read(t, page), "\n")
		for i, line := range strings.Split(want, "\n") {
			if i == len(now) || now[i] != line {
				t.Errorf("%s:%d is stale, `make generate` writes it anew: want %q", page, i+1, line)
				break
			}
		}
	}
}

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```$")
	span  = regexp.MustCompile("`[^`\n]+`")
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	title = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		prose := span.ReplaceAllString(fence.ReplaceAllString(read(t, page), ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if anchor != "" && strings.HasSuffix(path, ".md") && !headings(read(t, path))[anchor] {
				t.Errorf("%s links to %s: %s has no such heading", page, m[1], path)
			}
		}
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// headings returns the anchors that GitHub gives a page's headings.
func headings(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range title.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

// Every place where a process can be made to die is explained.
func TestFailureWindowsAreExplained(t *testing.T) {
	t.Parallel()
	names, err := scan.Names(filepath.Join(root, "internal"))
	require.NoError(t, err)
	prose := generated.ReplaceAllString(read(t, "docs/failure-windows.md"), "")
	for _, name := range names {
		operation, _, _ := strings.Cut(name, ".")
		if !strings.Contains(prose, "`"+operation+"`") && !strings.Contains(prose, "`"+name+"`") {
			t.Errorf("docs/failure-windows.md does not say what is left when a process dies at %s, nor who finishes it", name)
		}
	}
}

// place is the page that something is written into; links are relative to it.
type place struct{ page string }

// to links to a line, or lines, of a file. text is what is shown.
func (p place) to(text, path string, lines ...int) string {
	if strings.HasPrefix(p.page, "docs/") {
		path = "../" + path
	}
	for i, n := range lines {
		path += fmt.Sprintf("%sL%d", []string{"#", "-"}[i], n)
	}
	return fmt.Sprintf("[%s](%s)", text, path)
}
