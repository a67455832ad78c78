package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"orderd/internal/failpoint/scan"
	"orderd/internal/fsm"
)

// write returns the content of a generated part.
func write(p place, kind, args string) (string, error) {
	switch kind {
	case "code":
		return code(p, args)
	case "tests":
		return tests(p, args)
	case "diagram":
		return diagram(args)
	case "schemes":
		return schemes(p)
	case "settings":
		return settings()
	case "metrics":
		return metricList()
	case "failpoints":
		return failpoints()
	}
	return "", fmt.Errorf("no such kind of part: %s", kind)
}

// code quotes a file, from the one line that matches a pattern to the next that matches another:
// "path | from | to". A pattern that does not start with ^ is plain text.
func code(p place, args string) (string, error) {
	part := strings.Split(args, " | ")
	if len(part) != 3 {
		return "", fmt.Errorf("want path | from | to")
	}
	path := part[0]
	lines, err := readLines(path)
	if err != nil {
		return "", err
	}
	first, err := theLine(lines, part[1])
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	last := slices.IndexFunc(lines[first:], pattern(part[2]).MatchString)
	if last < 0 {
		return "", fmt.Errorf("%s: no line after %q has %q", path, part[1], part[2])
	}
	last += first
	language := strings.TrimPrefix(filepath.Ext(path), ".")
	return fmt.Sprintf("```%s\n%s\n```\n\n%s\n", language, strings.Join(dedent(lines[first:last+1]), "\n"),
		p.to(fmt.Sprintf("%s, lines %d to %d", path, first+1, last+1), path, first+1, last+1)), nil
}

func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	return strings.Split(string(text), "\n"), err
}

func pattern(text string) *regexp.Regexp {
	if strings.HasPrefix(text, "^") {
		return regexp.MustCompile(text)
	}
	return regexp.MustCompile(regexp.QuoteMeta(text))
}

// theLine finds the one line that matches.
func theLine(lines []string, text string) (int, error) {
	found := -1
	for i, line := range lines {
		if pattern(text).MatchString(line) {
			if found >= 0 {
				return 0, fmt.Errorf("lines %d and %d both have %q", found+1, i+1, text)
			}
			found = i
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("no line has %q", text)
	}
	return found, nil
}

// dedent takes away the tabs that all lines begin with.
func dedent(lines []string) []string {
	for {
		for _, line := range lines {
			if line != "" && line[0] != '\t' {
				return lines
			}
		}
		cut := make([]string, len(lines))
		for i, line := range lines {
			cut[i] = strings.TrimPrefix(line, "\t")
		}
		lines = cut
	}
}

// tests lists tests with the first sentence of their comments: "path Name; path Name".
func tests(p place, args string) (string, error) {
	var out strings.Builder
	for _, one := range strings.Split(args, "; ") {
		path, name, _ := strings.Cut(one, " ")
		line, comment, err := findTest(path, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "* %s", p.to("`"+name+"`", path, line))
		if comment != "" {
			fmt.Fprintf(&out, ": %s", comment)
		}
		out.WriteString("\n")
	}
	return out.String(), nil
}

func findTest(path, name string) (line int, comment string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return 0, "", err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name && f.Recv == nil {
			return files.Position(f.Pos()).Line, new(doc.Package).Synopsis(f.Doc.Text()), nil
		}
	}
	return 0, "", fmt.Errorf("%s has no %s", path, name)
}

func diagram(name string) (string, error) {
	for _, m := range []*fsm.Machine{fsm.Orders, fsm.Payments, fsm.Refunds} {
		if m.Name == name {
			return "```mermaid\n" + m.Mermaid() + "```\n", nil
		}
	}
	return "", fmt.Errorf("no state machine %q", name)
}

// failpoints lists the names, one operation a line.
func failpoints() (string, error) {
	names, err := scan.Names(root)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	before := ""
	for _, name := range names {
		operation, _, _ := strings.Cut(name, ".")
		if operation != before {
			out.WriteString(map[bool]string{true: "\n* ", false: "* "}[before != ""])
		} else {
			out.WriteString(", ")
		}
		fmt.Fprintf(&out, "`%s`", name)
		before = operation
	}
	return out.String() + "\n", nil
}
