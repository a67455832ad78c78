package httpapi

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"orderd/api"
)

func contract(t testing.TB) *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromData(api.Spec)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(context.Background()))
	return doc
}

func TestRoutesAndContractAreTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var served, promised []string
	for _, r := range b.echo.Routes() {
		if !strings.HasPrefix(r.Path, "/docs/") {
			served = append(served, r.Method+" "+r.Path)
		}
	}
	for path, item := range contract(t).Paths.Map() {
		for method := range item.Operations() {
			promised = append(promised, method+" "+echoRoute(path))
			if method == "GET" {
				promised = append(promised, "HEAD "+echoRoute(path))
			}
		}
	}
	assert.ElementsMatch(t, promised, served)
}

// TestEveryCodeIsInTheContract reads the sources: a code that a client may see and the contract does not name is a bug.
func TestEveryCodeIsInTheContract(t *testing.T) {
	t.Parallel()
	var known []string
	for _, v := range contract(t).Components.Schemas["ErrorCode"].Value.Enum {
		known = append(known, v.(string))
	}
	used := codesIn(t, "..")
	require.Contains(t, used, "rate_limited")
	for code, where := range used {
		assert.Contains(t, known, code, "%s uses a code that is not in the contract", where)
	}
	for status, p := range transport {
		assert.Contains(t, known, p.Code, "%d", status)
	}
}

// codesIn finds the literals given to fault.New and fault.Busy, and the Code of fault.Error.
func codesIn(t *testing.T, root string) map[string]string {
	codes := map[string]string{}
	note := func(e ast.Expr, at token.Position) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			code, _ := strconv.Unquote(lit.Value)
			codes[code] = at.String()
		}
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				switch name := fmt.Sprint(selector(n.Fun)); {
				case name == "fault.New" && len(n.Args) > 1:
					note(n.Args[1], files.Position(n.Pos()))
				case name == "fault.Busy":
					note(n.Args[0], files.Position(n.Pos()))
				}
			case *ast.CompositeLit:
				if selector(n.Type) != "fault.Error" {
					return true
				}
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "Code" {
						note(kv.Value, files.Position(n.Pos()))
					}
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	return codes
}

func selector(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

func TestContractClosesItsRequestBodies(t *testing.T) {
	t.Parallel()
	doc := contract(t)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil || op.Extensions["x-raw-body"] != nil {
				continue
			}
			s := op.RequestBody.Value.Content.Get("application/json").Schema.Value
			has := s.AdditionalProperties.Has
			assert.True(t, has != nil && !*has, "%s %s", method, path)
		}
	}
	for _, scope := range []string{"orders", "admin"} {
		ops, err := readContract(api.Spec)
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(ops, func(o *operation) bool { return slices.Contains(o.scopes, scope) }))
	}
}

func TestBrokenContractIsRefused(t *testing.T) {
	t.Parallel()
	_, err := readContract([]byte("openapi: 3.0.3"))
	assert.Error(t, err)
	_, err = readContract([]byte(strings.Replace(string(api.Spec), "x-scopes: [admin]", "x-other: [admin]", 1)))
	assert.ErrorContains(t, err, "x-scopes")
}
