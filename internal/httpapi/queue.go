package httpapi

import (
	"fmt"

	"orderd/api"
)

// Checker returns what checks bodies that come by other ways than HTTP, such as the queue, against the contract's schema
// of an operation: one set of rules for all. Its errors are those that the operation itself would answer.
func Checker() (func(operation string, body []byte) error, error) {
	operations, err := readContract(api.Spec)
	if err != nil {
		return nil, err
	}
	byID := map[string]*operation{}
	for _, op := range operations {
		byID[op.id] = op
	}
	return func(id string, body []byte) error {
		op := byID[id]
		if op == nil || op.body == nil {
			return fmt.Errorf("httpapi: %s has no body in the contract", id)
		}
		var f findings
		if doc, ok := parseJSON(body, &f); ok {
			f.addBody(op.body, doc)
			if id == "placeOrder" {
				checkPlaceOrder(doc, &f)
			}
		}
		return f.err()
	}, nil
}
