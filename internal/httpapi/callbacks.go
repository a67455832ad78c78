package httpapi

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"orderd/internal/order"
	"orderd/internal/payment"
)

// receiveCallback takes a notice from a gateway. The order is what makes it safe: limit the size, verify the raw bytes,
// and only then believe any of them. Refusals store nothing, so that the gateway's next try is no duplicate.
func (a *API) receiveCallback(r *request) error {
	gateway, ok := a.Gateways[r.path("gateway")]
	if !ok {
		return echo.ErrNotFound
	}
	body, err := readBody(r)
	if err != nil {
		a.countCallback(r, gateway, problemOf(err).Code)
		return err
	}
	settled, err := a.settle(r.Request().Context(), gateway, r.Request().Header, body)
	if err != nil {
		p := problemOf(err)
		a.countCallback(r, gateway, p.Code)
		if ack := gateway.Acknowledge("", err); ack.Status != 0 {
			setRetryAfter(r.Response().Header(), p.retryAfter)
			r.Set(causeKey, err)
			return r.Blob(ack.Status, ack.ContentType, ack.Body)
		}
		return err
	}
	a.Metrics.Callbacks.WithLabelValues(gateway.Name(), settled.Result).Inc()
	r.setReplay(settled.Guard)
	if ack := gateway.Acknowledge(settled.Result, nil); ack.Status != 0 {
		return r.Blob(ack.Status, ack.ContentType, ack.Body)
	}
	return r.answer(http.StatusOK, map[string]string{"result": settled.Result})
}

func (a *API) settle(ctx context.Context, g payment.Gateway, h http.Header, body []byte) (order.Settled, error) {
	notice, err := g.VerifyCallback(h, body, a.Now())
	if err != nil {
		return order.Settled{}, err
	}
	if notice.Kind == payment.Other {
		return order.Settled{Result: "ignored"}, nil
	}
	return a.Orders.Settle(ctx, notice)
}

// countCallback counts and logs a refusal: many of them mean a wrong secret, a wrong clock, or an attack.
func (a *API) countCallback(r *request, g payment.Gateway, code string) {
	a.Metrics.Callbacks.WithLabelValues(g.Name(), code).Inc()
	a.Log.Warn("callback refused", "gateway", g.Name(), "code", code, "ip", r.RealIP(),
		"request_id", r.Response().Header().Get(echo.HeaderXRequestID))
}
