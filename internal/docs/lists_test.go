package docs

import (
	"cmp"
	"errors"
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

// field is one of a struct of cmd/orderd, which no other package can import.
type field struct {
	name string
	tag  reflect.StructTag
}

func fieldsOf(path, name string) ([]field, error) {
	file, err := parser.ParseFile(token.NewFileSet(), root+"/"+path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []field
	ast.Inspect(file, func(n ast.Node) bool {
		t, ok := n.(*ast.TypeSpec)
		if !ok || t.Name.Name != name {
			return true
		}
		for _, f := range t.Type.(*ast.StructType).Fields.List {
			if f.Tag == nil { // embedded
				continue
			}
			text, e := strconv.Unquote(f.Tag.Value)
			err = errors.Join(err, e)
			found = append(found, field{f.Names[0].Name, reflect.StructTag(text)})
		}
		return false
	})
	if found == nil && err == nil {
		err = fmt.Errorf("%s has no %s", path, name)
	}
	return found, err
}

func settings() (string, error) {
	var out strings.Builder
	out.WriteString("| variable | default | |\n|---|---|---|\n")
	err := settingsOf(&out, "cmd/orderd/config.go", "Settings", "")
	return out.String(), err
}

// settingsOf writes a row for each field of a struct of settings. Those of a gateway are a struct of their own.
func settingsOf(out *strings.Builder, path, name, prefix string) error {
	fields, err := fieldsOf(path, name)
	for _, f := range fields {
		if p := f.tag.Get("envprefix"); p != "" {
			err = errors.Join(err, settingsOf(out, "cmd/orderd/gateways.go", f.name+"Settings", p))
			continue
		}
		value := ""
		if d := f.tag.Get("default"); d != "" {
			value = "`" + d + "`"
		}
		fmt.Fprintf(out, "| `%s%s` | %s | %s |\n", prefix, f.tag.Get("env"), value, cell(f.tag.Get("help")))
	}
	return err
}

func commands() (string, error) {
	fields, err := fieldsOf("cmd/orderd/run.go", "commands")
	var out strings.Builder
	out.WriteString("| command | |\n|---|---|\n")
	for _, f := range fields {
		fmt.Fprintf(&out, "| `orderd %s` | %s |\n", strings.ToLower(f.name), cell(f.tag.Get("help")))
	}
	return out.String(), err
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
