// Package httpapi is the HTTP edge: it authenticates, limits, validates requests against api/openapi.yaml, calls one use
// case and writes its answer. It holds no rule of the business and is the only package that knows echo.
package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"orderd/api"
	"orderd/internal/metrics"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/stock"
)

// Config is what the operator decides.
type Config struct {
	Auth      *Auth
	RateLimit int // requests per user and second, burst twice that; 0 = off
}

// Deps is what the edge calls.
type Deps struct {
	Orders   *order.Service
	Stock    *stock.Service
	Gateways map[string]payment.Gateway // by name, for callbacks
	Ready    func(context.Context) []Check
	Metrics  *metrics.Metrics
	Log      *slog.Logger
	Now      func() time.Time // the process clock: tokens and the freshness of signatures
}

// Check is the state of one dependency; Err is nil when it can be used. The service is ready without an Optional one.
type Check struct {
	Name     string
	Err      error
	Optional bool
}

// API serves the public port. It is safe for concurrent use.
type API struct {
	Deps
	auth     *Auth
	limiter  *limiter
	echo     *echo.Echo
	stopping atomic.Bool
}

// endpoint is the code of one operation of the contract. check adds what a schema cannot say.
type endpoint struct {
	serve func(*request) error
	check func(body any, f *findings)
}

// New builds the routes from the contract. It fails if the contract is not valid, or if an operation has no code or the
// reverse.
func New(cfg Config, deps Deps) (*API, error) {
	a := &API{Deps: deps, auth: cfg.Auth, limiter: newLimiter(cfg.RateLimit, deps.Now), echo: echo.New()}
	operations, err := readContract(api.Spec)
	if err != nil {
		return nil, err
	}
	a.echo.HideBanner, a.echo.HidePort = true, true
	a.echo.HTTPErrorHandler = func(err error, c echo.Context) { _ = a.fail(c, err) }
	a.echo.Use(a.observe, cleanPath)

	docs := newDocs()
	endpoints := a.endpoints(docs)
	for _, op := range operations {
		e, ok := endpoints[op.id]
		if !ok {
			return nil, fmt.Errorf("httpapi: operation %s has no code", op.id)
		}
		delete(endpoints, op.id)
		a.route(op.method, op.route, a.handler(op, e))
	}
	for id := range endpoints {
		return nil, fmt.Errorf("httpapi: %s is not in the contract", id)
	}
	for _, path := range docs.assets {
		a.route(http.MethodGet, path, echo.WrapHandler(docs.ui))
	}
	return a, nil
}

// endpoints lists the code of every operation by its operationId.
func (a *API) endpoints(d *docs) map[string]endpoint {
	return map[string]endpoint{
		"placeOrder":        {serve: a.placeOrder, check: checkPlaceOrder},
		"listOrders":        {serve: a.listOrders},
		"issueOrderToken":   {serve: a.issueOrderToken},
		"getOrder":          {serve: a.getOrder},
		"getTimeline":       {serve: a.getTimeline},
		"openPayment":       {serve: a.openPayment},
		"cancelOrder":       {serve: a.cancelOrder},
		"shipOrder":         {serve: a.shipOrder},
		"refundOrder":       {serve: a.refundOrder},
		"listRefunds":       {serve: a.listRefunds},
		"completeOrder":     {serve: a.completeOrder},
		"getIdempotencyKey": {serve: a.getIdempotencyKey},
		"listStock":         {serve: a.listStock},
		"getStock":          {serve: a.getStock},
		"putStock":          {serve: a.putStock},
		"adjustStock":       {serve: a.adjustStock},
		"receiveCallback":   {serve: a.receiveCallback},
		"getHealth":         {serve: a.getHealth},
		"getReadiness":      {serve: a.getReadiness},
		"getSpec":           {serve: a.getSpec},
		"getDocs":           {serve: d.serve},
	}
}

// route registers a handler, and HEAD wherever GET: net/http drops the body of its answer.
func (a *API) route(method, path string, h echo.HandlerFunc) {
	a.echo.Add(method, path, h)
	if method == http.MethodGet {
		a.echo.Add(http.MethodHead, path, h)
	}
}

// handler runs an operation: who asks, may they, is the request in order, and then its code.
func (a *API) handler(op *operation, e endpoint) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := &request{Context: c, op: op}
		if err := a.admit(r); err != nil {
			return err
		}
		if !op.raw {
			if err := r.validate(e.check); err != nil {
				return err
			}
		}
		return e.serve(r)
	}
}

// cleanPath refuses paths that a lenient router would repair: one resource has one path.
func cleanPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		path := c.Request().URL.EscapedPath()
		if strings.Contains(path, "//") || len(path) > 1 && strings.HasSuffix(path, "/") {
			c.SetPath("")
			return echo.ErrNotFound
		}
		return next(c)
	}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.echo.ServeHTTP(w, r) }

// Stop makes /readyz answer 503, so that no new work is routed here while the running requests finish.
func (a *API) Stop() { a.stopping.Store(true) }
