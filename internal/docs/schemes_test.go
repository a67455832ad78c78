package docs

import (
	"fmt"
	"strings"
)

// scheme is one row of README's table.
type scheme struct {
	name, page string
	catches    string
	file, line string // where it lives: the one line that has this text
	test, name2 string
}

var eight = []scheme{}

func schemes(p place) (string, error) {
	var out strings.Builder
	out.WriteString("| scheme | catches | code | test |\n|---|---|---|---|\n")
	for _, s := range eight {
		lines, err := readLines(s.file)
		if err != nil {
			return "", err
		}
		at, err := theLine(lines, s.line)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.file, err)
		}
		test, _, err := findTest(s.test, s.name2)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", p.to(s.name, "docs/"+s.page+".md"), s.catches,
			p.to(s.file, s.file, at+1), p.to("`"+s.name2+"`", s.test, test))
	}
	return out.String(), nil
}
