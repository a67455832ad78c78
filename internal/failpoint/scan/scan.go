// Package scan finds the failpoints of a source tree, so that a test can crash the service at every one of them.
package scan

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var wellFormed = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// Names returns the sorted names of all failpoints below root, tests excepted: those of failpoint.Here, and for each
// transaction db.InTx(ctx, "op", ...) the names op.begin, op.commit and op.committed, for each db.Exec the latter two.
// A name that is not a literal, not well-formed or used twice is an error: the sweep would miss its place.
func Names(root string) ([]string, error) {
	s := scanner{files: token.NewFileSet(), at: map[string]token.Position{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (name == "testdata" || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(s.files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				s.visit(file.Name.Name, call)
			}
			return true
		})
		return nil
	})
	if err := errors.Join(append(s.errs, err)...); err != nil {
		return nil, err
	}
	return slices.Sorted(func(yield func(string) bool) {
		for name := range s.at {
			if !yield(name) {
				return
			}
		}
	}), nil
}

type scanner struct {
	files *token.FileSet
	at    map[string]token.Position
	errs  []error
}

func (s *scanner) visit(pkg string, call *ast.CallExpr) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	switch args := call.Args; {
	case isIdent(fun.X, "failpoint") && fun.Sel.Name == "Here" && len(args) > 0:
		// In package db, Here(op, ".commit") marks a place of each caller's op, and that is counted at the caller.
		if pkg != "db" || len(args) == 1 {
			s.add(args[0])
		}
	case fun.Sel.Name == "InTx" && len(args) == 3:
		s.add(args[1], ".begin", ".commit", ".committed")
	case fun.Sel.Name == "Exec" && len(args) >= 3 && isContext(args[0]): // gorm's Exec begins with the statement
		s.add(args[1], ".commit", ".committed")
	}
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// isContext judges by the name, since there are no types here: ctx, workCtx, r.ctx, context.WithoutCancel(ctx), t.Context().
func isContext(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(e.Name), "ctx")
	case *ast.SelectorExpr:
		return isIdent(e.X, "context") || e.Sel.Name == "Context" || isContext(e.Sel)
	case *ast.CallExpr:
		return isContext(e.Fun)
	}
	return false
}

func (s *scanner) add(arg ast.Expr, suffixes ...string) {
	pos := s.files.Position(arg.Pos())
	lit, ok := arg.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		s.errs = append(s.errs, fmt.Errorf("%s: the name of a failpoint or transaction must be a string literal", pos))
		return
	}
	base, err := strconv.Unquote(lit.Value)
	if err != nil || !wellFormed.MatchString(base) {
		s.errs = append(s.errs, fmt.Errorf("%s: failpoint %s: use lower case words, joined by dots", pos, lit.Value))
		return
	}
	if len(suffixes) == 0 {
		suffixes = []string{""}
	}
	for _, suffix := range suffixes {
		name := base + suffix
		if first, twice := s.at[name]; twice {
			s.errs = append(s.errs, fmt.Errorf("%s: failpoint %q is at %s already", pos, name, first))
			return
		}
		s.at[name] = pos
	}
}
