package order

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"orderd/internal/fault"
)

// sortLines puts lines into the order of their SKUs, in which they are compared and stored.
func sortLines(lines []Line) []Line {
	lines = slices.Clone(lines)
	slices.SortFunc(lines, func(a, b Line) int { return strings.Compare(a.SKU, b.SKU) })
	return lines
}

// fingerprint is what must be equal for two requests to be the same order: lines, gateway and note. Prices are the
// server's and not in it: a price that changes between a request and its repeat does not make another order of it.
func fingerprint(lines []Line, gateway, note string) string {
	text, err := json.Marshal(struct {
		Lines   []Line
		Gateway string
		Note    string
	}{lines, gateway, note})
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// differences names the members in which a request differs from the order that its identity stands for. Only the owner
// of the order is told.
func differences(o *Order, r PlaceRequest) []fault.Field {
	var fields []fault.Field
	add := func(name string, differs bool) {
		if differs {
			fields = append(fields, fault.Field{Field: name, Code: "differs", Message: "differs from the order that exists"})
		}
	}
	stored := make([]Line, len(o.Items))
	for i, it := range o.Items {
		stored[i] = Line{it.SKU, it.Quantity}
	}
	add("items", !slices.Equal(sortLines(stored), r.Lines))
	add("gateway", o.Gateway != r.Gateway)
	add("note", o.Note != r.Note)
	return fields
}
