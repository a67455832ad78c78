package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// operation is one operation of the contract, prepared for serving.
type operation struct {
	id, method, route string
	public            bool     // no token needed
	raw               bool     // the code reads the raw request: nothing is validated before
	scopes            []string // one of them is needed
	path              []*openapi3.Parameter
	header            []*openapi3.Parameter
	query             map[string]*openapi3.Parameter
	body              *openapi3.Schema // nil: no body is read
	bodyRequired      bool
}

// readContract loads and checks the OpenAPI document and prepares its operations, in the order of their routes.
func readContract(spec []byte) ([]*operation, error) {
	doc, err := openapi3.NewLoader().LoadFromData(spec)
	if err != nil {
		return nil, fmt.Errorf("httpapi: read the contract: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("httpapi: the contract is not valid: %w", err)
	}
	var operations []*operation
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			op := &operation{id: o.OperationID, method: method, route: echoRoute(path), query: map[string]*openapi3.Parameter{}}
			op.public = o.Security != nil && len(*o.Security) == 0
			op.raw, _ = o.Extensions["x-raw-body"].(bool)
			scopes, _ := o.Extensions["x-scopes"].([]any)
			for _, s := range scopes {
				op.scopes = append(op.scopes, s.(string))
			}
			if !op.public && len(op.scopes) == 0 {
				return nil, fmt.Errorf("httpapi: operation %s needs a token but names no x-scopes", op.id)
			}
			op.addParameters(o.Parameters)
			if o.RequestBody != nil {
				op.body = o.RequestBody.Value.Content.Get("application/json").Schema.Value
				op.bodyRequired = o.RequestBody.Value.Required
			}
			operations = append(operations, op)
		}
	}
	slices.SortFunc(operations, func(x, y *operation) int {
		return strings.Compare(x.route+x.method, y.route+y.method)
	})
	return operations, nil
}

func (op *operation) addParameters(refs openapi3.Parameters) {
	for _, ref := range refs {
		switch p := ref.Value; p.In {
		case openapi3.ParameterInPath:
			op.path = append(op.path, p)
		case openapi3.ParameterInHeader:
			op.header = append(op.header, p)
		case openapi3.ParameterInQuery:
			op.query[p.Name] = p
		}
	}
}

// echoRoute turns /orders/{order_no} into /orders/:order_no.
func echoRoute(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// safe reports whether the method only reads.
func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }
