package httpapi

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"orderd/internal/fault"
)

// findings collects what is wrong with a request, one finding a field, so that a client learns everything at once.
type findings struct {
	fields []fault.Field
	// malformed says that the request cannot be read (400), which outweighs values that are not acceptable (422).
	malformed bool
}

// maxFindings bounds the answer to a body that is wrong in every line.
const maxFindings = 100

func (f *findings) add(field, code, message string) {
	if len(f.fields) == maxFindings {
		return
	}
	if len(field) > 128 { // a name that the client made up
		field = strings.ToValidUTF8(field[:128], "")
	}
	known := func(x fault.Field) bool { return x.Field == field }
	if !slices.ContainsFunc(f.fields, known) {
		f.fields = append(f.fields, fault.Field{Field: field, Code: code, Message: message})
	}
}

func (f *findings) addMalformed(field, code, message string) {
	f.malformed = true
	f.add(field, code, message)
}

// err returns the refusal, or nil if nothing was found.
func (f *findings) err() error {
	switch {
	case f.malformed:
		return fault.New(fault.Invalid, "invalid_request", "the request cannot be read", f.fields...)
	case len(f.fields) > 0:
		return fault.Unprocessed(f.fields...)
	}
	return nil
}

// schemaOptions: all errors, and no schema or value in their messages.
var schemaOptions = []openapi3.SchemaValidationOption{
	openapi3.MultiErrors(),
	openapi3.DisableSchemaErrorDetails(),
	openapi3.WithStringFormatValidator("text", openapi3.NewCallbackValidator(checkText)),
}

// addBody validates the body and sorts what is wrong into unreadable and not acceptable.
func (f *findings) addBody(schema *openapi3.Schema, body any) {
	objects := map[string]bool{} // those whose unknown members are named already
	for _, e := range schemaErrors(schema.VisitJSON(body, schemaOptions...)) {
		field := fieldPath(e.JSONPointer())
		switch e.SchemaField {
		case "type":
			f.addMalformed(field, "type", e.Reason)
		case "nullable":
			f.addMalformed(field, "type", "must not be null")
		case "properties":
			if !objects[field] {
				f.addUnknown(e)
			}
			objects[field] = true
		case "required":
			f.add(field, "required", "is missing")
		case "minimum", "maximum", "not":
			f.add(field, "range", reason(e))
		case "minLength", "maxLength", "minItems", "maxItems":
			f.add(field, "length", e.Reason)
		case "format":
			if s, ok := e.Value.(string); ok {
				f.add(field, "text", checkText(s).Error())
				continue
			}
			f.addMalformed(field, "range", reason(e))
		default:
			// An empty order_no is neither a number nor the absence of one: taking it for "none given" would place
			// an order without the identity that the client believes in.
			if field == "order_no" && e.Value == "" {
				f.addMalformed(field, "pattern", "must not be empty")
				continue
			}
			f.add(field, e.SchemaField, reason(e))
		}
	}
}

// addUnknown names all members of an object that its schema does not have. The validator reports each of them, but by
// the object only.
func (f *findings) addUnknown(e *openapi3.SchemaError) {
	object, _ := e.Value.(map[string]any)
	for _, name := range sortedKeys(object) {
		if e.Schema.Properties[name] == nil {
			f.addMalformed(fieldPath(append(e.JSONPointer(), name)), "unknown", "there is no such member")
		}
	}
}

// addParameter validates one header, query or path value. Any fault of one makes the request malformed.
func (f *findings) addParameter(p *openapi3.Parameter, raw string) {
	var value any = raw
	if p.Schema.Value.Type.Is("integer") {
		value = integer(raw)
	}
	for _, e := range schemaErrors(p.Schema.Value.VisitJSON(value, schemaOptions...)) {
		f.addMalformed(p.Name, e.SchemaField, reason(e))
	}
}

func reason(e *openapi3.SchemaError) string {
	switch e.SchemaField {
	case "not":
		return "must not be 0"
	case "pattern":
		return "must match " + e.Schema.Pattern
	case "format":
		return "is out of the range of " + e.Schema.Format
	}
	return e.Reason
}

// schemaErrors flattens what VisitJSON returned.
func schemaErrors(err error) []*openapi3.SchemaError {
	if list, ok := err.(openapi3.MultiError); ok { //nolint:errorlint // one level at a time: errors.As would find a nested list first
		var all []*openapi3.SchemaError
		for _, e := range list {
			all = append(all, schemaErrors(e)...)
		}
		return all
	}
	var e *openapi3.SchemaError
	if errors.As(err, &e) {
		return []*openapi3.SchemaError{e}
	}
	return nil
}

// fieldPath writes a JSON pointer the way people do: items[0].quantity.
func fieldPath(pointer []string) string {
	var b strings.Builder
	for _, p := range pointer {
		if _, err := strconv.Atoi(p); err == nil && b.Len() > 0 {
			b.WriteString("[" + p + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}
