package docs

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"orderd/internal/metrics"
)

// settings reads the fields of cmd/orderd's Settings, which no other package can import.
func settings() (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), root+"/cmd/orderd/config.go", nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var fields *ast.FieldList
	ast.Inspect(file, func(n ast.Node) bool {
		if t, ok := n.(*ast.TypeSpec); ok && t.Name.Name == "Settings" {
			fields = t.Type.(*ast.StructType).Fields
		}
		return true
	})
	if fields == nil {
		return "", fmt.Errorf("cmd/orderd/config.go has no Settings")
	}
	var out strings.Builder
	out.WriteString("| variable | default | |\n|---|---|---|\n")
	for _, f := range fields.List {
		text, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return "", err
		}
		tag := reflect.StructTag(text)
		value := ""
		if d := tag.Get("default"); d != "" {
			value = "`" + d + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", tag.Get("env"), value, cell(tag.Get("help")))
	}
	return out.String(), nil
}

// registered keeps what is registered, instead of serving it.
type registered struct{ all []prometheus.Collector }

func (r *registered) Register(c prometheus.Collector) error {
	r.all = append(r.all, c)
	return nil
}

func (r *registered) MustRegister(cs ...prometheus.Collector) { r.all = append(r.all, cs...) }

func (r *registered) Unregister(prometheus.Collector) bool { return false }

var description = regexp.MustCompile(`fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{(.*?)\}`)

func metricList() (string, error) {
	var r registered
	metrics.New(&r)
	var rows []string
	for _, c := range r.all {
		descriptions := make(chan *prometheus.Desc, 16)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := description.FindStringSubmatch(d.String())
			if m == nil {
				return "", fmt.Errorf("cannot read %s", d)
			}
			name, err := strconv.Unquote(m[1])
			help, err2 := strconv.Unquote(m[2])
			if err := cmp.Or(err, err2); err != nil {
				return "", err
			}
			labels := ""
			if m[3] != "" {
				labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", name, labels, cell(help)))
		}
	}
	slices.Sort(rows)
	return "| metric | labels | |\n|---|---|---|\n" + strings.Join(rows, ""), nil
}

// cell makes a text fit into a table's cell: <base64> is no HTML, and a | ends nothing.
func cell(text string) string {
	return strings.NewReplacer("<", "&lt;", "|", "\\|").Replace(text)
}
