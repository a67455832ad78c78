package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"orderd/internal/fault"
)

// maxBody is the most that a request's body may have, in bytes.
const maxBody = 64 << 10

// bodyTimeout is how long a body may take after the head.
const bodyTimeout = 5 * time.Second

// limitBody starts the clock for the body. net/http's ReadTimeout would not do: it also ends the context of a handler
// that has long read the body and still works. A handler that never reads it is covered as well, for net/http reads the
// rest before it takes the next request.
func limitBody(c echo.Context) {
	r := c.Request()
	if r.ContentLength == 0 {
		return
	}
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(bodyTimeout)) // no deadlines in httptest
	r.Body = http.MaxBytesReader(c.Response().Writer, r.Body, maxBody)
}

// readBody returns the whole body: 415 if it is compressed, 413 if it is too large, 400 if it breaks off.
func readBody(c echo.Context) ([]byte, error) {
	r := c.Request()
	for _, encoding := range r.Header.Values(echo.HeaderContentEncoding) {
		if !strings.EqualFold(encoding, "identity") {
			return nil, echo.ErrUnsupportedMediaType
		}
	}
	if r.ContentLength > maxBody {
		c.Response().Header().Set(echo.HeaderConnection, "close") // do not wait for what nobody reads
		return nil, echo.ErrStatusRequestEntityTooLarge
	}
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, echo.ErrStatusRequestEntityTooLarge
	case err != nil:
		c.Response().Header().Set(echo.HeaderConnection, "close")
		return nil, &fault.Error{Kind: fault.Invalid, Code: "invalid_request", Message: "the body did not arrive in whole and in time", Err: err}
	}
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Time{})
	return body, nil
}

// isJSON reports whether the body is declared to be exactly application/json, in UTF-8.
func isJSON(h http.Header) bool {
	values := h.Values(echo.HeaderContentType)
	if len(values) != 1 {
		return false
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || media != echo.MIMEApplicationJSON {
		return false
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}
