package httpapi

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of a body; the deepest of the contract is 3.
const maxDepth = 16

// notInteger stands for a number that is written with a fraction or an exponent or exceeds int64. No integer of the
// contract accepts it, so that the schema reports 1.0 and 1e3 like any other wrong type.
const notInteger = 0.5

// parseJSON reads exactly one document: no duplicate names, no invalid UTF-8, no NUL, nothing after it. ok is false if
// it could not; what was wrong is then among the findings.
func parseJSON(body []byte, f *findings) (doc any, ok bool) {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	doc, err := readValue(d, 0)
	if err == nil {
		if _, err = d.ReadToken(); errors.Is(err, io.EOF) {
			return doc, true
		}
		f.addMalformed("body", "syntax", "there is data after the document")
		return nil, false
	}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		f.addMalformed(fieldPath(slices.Collect(syntax.JSONPointer.Tokens())), "duplicate", "is given twice")
	case errors.Is(err, errDepth) || errors.Is(err, errNUL):
		f.addMalformed("body", "syntax", err.Error())
	default:
		f.addMalformed("body", "syntax", "is not a JSON document (byte "+strconv.FormatInt(d.InputOffset(), 10)+")")
	}
	return nil, false
}

var (
	errDepth = errors.New("is nested too deeply")
	errNUL   = errors.New("has a NUL character")
)

func readValue(d *jsontext.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return t.Bool(), nil
	case '0':
		return integer(t.String()), nil
	case '"':
		return text(t)
	case '[':
		return readArray(d, depth)
	}
	return readObject(d, depth)
}

func readArray(d *jsontext.Decoder, depth int) (any, error) {
	list := []any{}
	for d.PeekKind() != ']' {
		v, err := readValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.ReadToken()
	return list, err
}

func readObject(d *jsontext.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name, err := text(t)
		if err != nil {
			return nil, err
		}
		if object[name], err = readValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return object, err
}

func text(t jsontext.Token) (string, error) {
	s := t.String()
	if strings.IndexByte(s, 0) >= 0 {
		return "", errNUL
	}
	return s, nil
}

// integer returns an int64, or notInteger.
func integer(literal string) any {
	digits := strings.TrimPrefix(literal, "-")
	if digits == "" || len(digits) > 19 || digits[0] == '0' && len(digits) > 1 || strings.Trim(digits, "0123456789") != "" {
		return notInteger
	}
	n, err := strconv.ParseInt(literal, 10, 64)
	if err != nil {
		return notInteger
	}
	return n
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
