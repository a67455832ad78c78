package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	case "commands":
		return commands()
	case "metrics":
		return metricList()
	case "failpoints":
		return failpoints()
	}
	return "", fmt.Errorf("no such kind of part: %s", kind)
}

// code quotes a file, from the one line that has a text to the next that has another: "path | from | to". ^text is at
// the beginning of its line. "path | from | to | 2" takes two lines more.
func code(p place, args string) (string, error) {
	part := strings.Split(args, " | ")
	if len(part) < 3 {
		return "", fmt.Errorf("want path | from | to")
	}
	path, more := part[0], 0
	if len(part) == 4 {
		var err error
		if more, err = strconv.Atoi(part[3]); err != nil {
			return "", err
		}
	}
	lines, err := readLines(path)
	if err != nil {
		return "", err
	}
	first, err := theLine(lines, part[1])
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	last := slices.IndexFunc(lines[first:], has(part[2]))
	if last < 0 {
		return "", fmt.Errorf("%s: no line after %q has %q", path, part[1], part[2])
	}
	last += first + more
	language := strings.TrimPrefix(filepath.Ext(path), ".")
	return fmt.Sprintf("```%s\n%s\n```\n\n%s\n", language, strings.Join(dedent(lines[first:last+1]), "\n"),
		p.to(path, path, first+1, last+1)), nil
}

func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	return strings.Split(string(text), "\n"), err
}

func has(text string) func(line string) bool {
	start, atStart := strings.CutPrefix(text, "^")
	return func(line string) bool {
		return atStart && strings.HasPrefix(line, start) || !atStart && strings.Contains(line, text)
	}
}

// theLine finds the one line that has the text.
func theLine(lines []string, text string) (int, error) {
	found := -1
	for i, line := range lines {
		if has(text)(line) {
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

// dedent takes away what the first line is indented by.
func dedent(lines []string) []string {
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t "))]
	cut := make([]string, len(lines))
	for i, line := range lines {
		cut[i] = strings.TrimPrefix(line, indent)
	}
	return cut
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
	names, err := scan.Names(filepath.Join(root, "internal"))
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
