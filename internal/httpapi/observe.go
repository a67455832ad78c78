package httpapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
)

// requestTimeout is what a use case has until its context ends. From its first write on it works on its own.
const requestTimeout = 8 * time.Second

// userKey is where admit leaves the user id for the log.
const userKey = "user"

// causeKey is where a handler that answered an error itself leaves the error for the log.
const causeKey = "cause"

var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// observe is the outermost layer: request id, deadlines, recovery from panics, the problem document, metric and log.
func (a *API) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		ctx, cancel := context.WithTimeout(c.Request().Context(), requestTimeout)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		setCommonHeaders(c)
		limitBody(c)

		err := withRecovery(next, c)
		p := problem{Status: c.Response().Status}
		if err != nil {
			p = a.fail(c, err)
		} else {
			err, _ = c.Get(causeKey).(error)
		}
		a.record(c, p, err, time.Since(start))
		return nil
	}
}

func setCommonHeaders(c echo.Context) {
	id := c.Request().Header.Values(echo.HeaderXRequestID)
	h := c.Response().Header()
	if len(id) == 1 && requestID.MatchString(id[0]) {
		h.Set(echo.HeaderXRequestID, id[0])
	} else {
		h.Set(echo.HeaderXRequestID, rand.Text())
	}
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
}

// withRecovery turns a panic into an error with the stack of this goroutine: the stacks of all would stop the world.
func withRecovery(next echo.HandlerFunc, c echo.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler { //nolint:errorlint // a panic value, not an error chain
				panic(v)
			}
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return next(c)
}

// record counts the request and writes one line about it: neither body nor token nor anything else that a client can
// fill freely. The cause of a 5xx appears here and nowhere else.
func (a *API) record(c echo.Context, p problem, err error, took time.Duration) {
	route := c.Path()
	if route == "" {
		route = "none" // a client's own path must not become a label
	}
	method := c.Request().Method
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
	default:
		method = "other"
	}
	a.Metrics.HTTPDuration.WithLabelValues(method, route, strconv.Itoa(p.Status)).Observe(took.Seconds())

	level := slog.LevelDebug
	switch {
	case p.Status >= 500:
		level = slog.LevelError
	case p.Status >= 400:
		level = slog.LevelInfo
	}
	if !a.Log.Enabled(context.Background(), level) {
		return
	}
	user, _ := c.Get(userKey).(string)
	attrs := []slog.Attr{
		slog.String("request_id", c.Response().Header().Get(echo.HeaderXRequestID)),
		slog.String("method", method), slog.String("route", route), slog.Int("status", p.Status),
		slog.Int64("took_us", took.Microseconds()), slog.String("user", user), slog.String("ip", c.RealIP()),
	}
	if p.Code != "" {
		attrs = append(attrs, slog.String("code", p.Code))
	}
	if p.Status >= 500 && err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	a.Log.LogAttrs(context.Background(), level, "request", attrs...)
}
