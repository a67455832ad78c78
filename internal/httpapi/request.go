package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"orderd/internal/order"
)

// request is an admitted and validated request.
type request struct {
	echo.Context
	op    *operation
	actor order.Actor
	body  []byte
	query url.Values
}

// validate checks path, headers, query and body against the contract and reports all faults at once.
func (r *request) validate(check func(any, *findings)) error {
	for _, p := range r.op.path {
		// Nothing can be there under a name that nothing can have.
		if p.Schema.Value.VisitJSON(r.path(p.Name), schemaOptions...) != nil {
			return echo.ErrNotFound
		}
	}
	var f findings
	r.validateHeaders(&f)
	r.validateQuery(&f)
	if r.op.body != nil {
		if err := r.validateBody(&f, check); err != nil {
			return err
		}
	}
	return f.err()
}

func (r *request) validateHeaders(f *findings) {
	for _, p := range r.op.header {
		switch values := r.Request().Header.Values(p.Name); len(values) {
		case 0:
		case 1:
			f.addParameter(p, values[0])
		default:
			f.addMalformed(p.Name, "duplicate", "is given twice")
		}
	}
}

func (r *request) validateQuery(f *findings) {
	query, err := url.ParseQuery(r.Request().URL.RawQuery)
	if err != nil {
		f.addMalformed("query", "syntax", "is not a query string")
		return
	}
	r.query = query
	for name, values := range query {
		p, ok := r.op.query[name]
		switch {
		case !ok || name == "user_id" && !r.actor.Admin:
			f.addMalformed(name, "unknown", "there is no such parameter")
		case len(values) > 1:
			f.addMalformed(name, "duplicate", "is given twice")
		default:
			f.addParameter(p, values[0])
		}
	}
}

func (r *request) validateBody(f *findings, check func(any, *findings)) (err error) {
	if r.Request().ContentLength == 0 && !r.op.bodyRequired {
		r.body = []byte("{}")
		return nil
	}
	if !isJSON(r.Request().Header) {
		return echo.ErrUnsupportedMediaType
	}
	if r.body, err = readBody(r); err != nil {
		return err
	}
	doc, ok := parseJSON(r.body, f)
	if !ok {
		return nil
	}
	f.addBody(r.op.body, doc)
	if check != nil {
		check(doc, f)
	}
	return nil
}

// decode reads the validated body into v, which names every member of its schema.
func (r *request) decode(v any) error {
	return json.Unmarshal(r.body, v, json.RejectUnknownMembers(true))
}

// path returns a path parameter without percent-encoding.
func (r *request) path(name string) string {
	value := r.Param(name)
	if r.Request().URL.RawPath == "" {
		return value // net/http has decoded it
	}
	decoded, err := url.PathUnescape(value)
	if err != nil {
		return ""
	}
	return decoded
}

// limit returns the validated page size.
func (r *request) limit() int {
	if s := r.query.Get("limit"); s != "" {
		n, _ := strconv.Atoi(s)
		return n
	}
	return 20
}

// answer writes v as JSON. A 200 to a GET carries an ETag, and is a 304 to a client that has it already.
func (r *request) answer(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if status == http.StatusOK && safe(r.Request().Method) {
		return answerTagged(r, echo.MIMEApplicationJSON, body)
	}
	return r.Blob(status, echo.MIMEApplicationJSON, body)
}

// answerTagged writes a representation under its ETag (RFC 9110, section 8.8.3).
func answerTagged(c echo.Context, media string, body []byte) error {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	h := c.Response().Header()
	h.Set("ETag", tag)
	h.Set(echo.HeaderCacheControl, "private, no-cache")
	if matches(c.Request().Header.Values("If-None-Match"), tag) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, media, body)
}

// matches compares weakly, as RFC 9110, section 13.1.2 asks for If-None-Match.
func matches(headers []string, tag string) bool {
	return slices.ContainsFunc(headers, func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(one string) bool {
			one = strings.TrimSpace(one)
			return one == "*" || strings.TrimPrefix(one, "W/") == tag
		})
	})
}
