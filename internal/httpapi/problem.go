package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"orderd/internal/fault"
)

// problem is an error as RFC 9457 writes it.
type problem struct {
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Status    int           `json:"status"`
	Detail    string        `json:"detail"`
	Code      string        `json:"code"`
	RequestID string        `json:"request_id"`
	OrderNo   string        `json:"order_no,omitempty"`
	Errors    []fault.Field `json:"errors,omitempty"`

	retryAfter time.Duration
}

// statuses is the one table from a kind of fault to its HTTP status.
var statuses = map[fault.Kind]int{
	fault.Internal:        http.StatusInternalServerError,
	fault.Invalid:         http.StatusBadRequest,
	fault.Unauthenticated: http.StatusUnauthorized,
	fault.Forbidden:       http.StatusForbidden,
	fault.NotFound:        http.StatusNotFound,
	fault.Gone:            http.StatusGone,
	fault.Conflict:        http.StatusConflict,
	fault.Unprocessable:   http.StatusUnprocessableEntity,
	fault.Limited:         http.StatusTooManyRequests,
	fault.Unavailable:     http.StatusServiceUnavailable,
}

// transport has the refusals that HTTP itself knows, and that no use case gives.
var transport = map[int]problem{
	http.StatusNotFound:              {Code: "not_found", Detail: "there is nothing here"},
	http.StatusMethodNotAllowed:      {Code: "method_not_allowed", Detail: "the resource does not have this method"},
	http.StatusRequestEntityTooLarge: {Code: "payload_too_large", Detail: "a body has at most 64 KiB"},
	http.StatusUnsupportedMediaType:  {Code: "unsupported_media_type", Detail: "send a body with Content-Type: application/json, in UTF-8 and not compressed"},
}

// problemOf says what a client may know of err.
func problemOf(err error) problem {
	p := problem{Code: "internal", Detail: "a defect of ours; quote the request_id", Status: http.StatusInternalServerError}
	var he *echo.HTTPError
	if f := fault.As(err); f != nil {
		if f.Kind != fault.Internal {
			p = problem{Code: f.Code, Detail: f.Message, Status: statuses[f.Kind], OrderNo: f.OrderNo, Errors: f.Fields, retryAfter: f.RetryAfter}
		}
	} else if errors.As(err, &he) && transport[he.Code].Code != "" {
		p = transport[he.Code]
		p.Status = he.Code
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		p = problem{Code: "unavailable", Detail: "it took too long; send the same request again", Status: http.StatusServiceUnavailable}
	}
	if p.retryAfter == 0 && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests || p.Code == "order_in_progress") {
		p.retryAfter = time.Second
	}
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	return p
}

// fail answers with the problem that err is, and leaves it for the log.
func (a *API) fail(c echo.Context, err error) problem {
	p := problemOf(err)
	if c.Response().Committed {
		return p
	}
	h := c.Response().Header()
	p.RequestID = h.Get(echo.HeaderXRequestID)
	setRetryAfter(h, p.retryAfter)
	body, err := json.Marshal(p)
	if err == nil {
		err = c.Blob(p.Status, "application/problem+json", body)
	}
	if err != nil {
		a.Log.Debug("answer not sent", "error", err) // the client is gone
	}
	return p
}

// setRetryAfter rounds up: a client that comes too early is sent away again.
func setRetryAfter(h http.Header, d time.Duration) {
	if d > 0 {
		h.Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
}
