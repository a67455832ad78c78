package httpapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"orderd/internal/order"
)

type placeOrder struct {
	OrderNo        string       `json:"order_no"`
	Items          []order.Line `json:"items"`
	Gateway        string       `json:"gateway"`
	Note           string       `json:"note"`
	ExpectedAmount *int64       `json:"expected_amount"`
}

func (a *API) placeOrder(r *request) error {
	var in placeOrder
	if err := r.decode(&in); err != nil {
		return err
	}
	h := r.Request().Header
	place := order.PlaceRequest{
		UserID: r.actor.UserID, OrderNo: in.OrderNo, Token: h.Get("Idempotent-Token"), Key: unquote(h.Get("Idempotency-Key")),
		Lines: in.Items, Gateway: in.Gateway, Note: in.Note, ExpectedAmount: in.ExpectedAmount,
	}
	if place.OrderNo == "" && place.Token == "" && place.Key == "" {
		place.Window = window(r, in)
	}
	res, err := a.Orders.Place(r.Request().Context(), place)
	if err != nil {
		return err
	}
	return r.answerOrder(res)
}

// checkPlaceOrder refuses a SKU that is given twice: summing up what may be a mistake would sell the wrong number.
func checkPlaceOrder(body any, f *findings) {
	object, _ := body.(map[string]any)
	items, _ := object["items"].([]any)
	seen := map[string]bool{}
	for i, item := range items {
		line, _ := item.(map[string]any)
		sku, ok := line["sku"].(string)
		if ok && seen[sku] {
			f.add("items["+strconv.Itoa(i)+"].sku", "duplicate", "a SKU is given once")
		}
		seen[sku] = true
	}
}

// window names a request without an identity: whoever sends the same within five seconds means the same. The body is
// the decoded one, written again with its lines sorted, so that spaces and order do not matter.
func window(r *request, in placeOrder) string {
	in.Items = slices.Clone(in.Items)
	slices.SortFunc(in.Items, func(x, y order.Line) int { return cmp.Compare(x.SKU, y.SKU) })
	body, _ := json.Marshal(in) // strings and integers: cannot fail
	sum := sha256.Sum256([]byte(strings.Join([]string{r.actor.UserID, http.MethodPost, r.op.route, string(body)}, "\n")))
	return hex.EncodeToString(sum[:])
}

// unquote takes the quotes off a key, which may be sent as a structured field string or bare.
func unquote(key string) string {
	if len(key) > 1 && key[0] == '"' {
		return key[1 : len(key)-1]
	}
	return key
}

func (a *API) issueOrderToken(r *request) error {
	token, err := a.Orders.IssueToken(r.Request().Context(), r.actor.UserID)
	if err != nil {
		return err
	}
	return r.answer(http.StatusCreated, token)
}

func (a *API) getOrder(r *request) error {
	o, err := a.Orders.Get(r.Request().Context(), r.actor, r.path("order_no"))
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, o)
}

func (a *API) listOrders(r *request) error {
	orders, next, err := a.Orders.List(r.Request().Context(), r.actor, order.ListQuery{
		Status: r.query.Get("status"), UserID: r.query.Get("user_id"), Limit: r.limit(), Cursor: r.query.Get("cursor"),
	})
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, struct {
		Orders     []order.Order `json:"orders"`
		NextCursor *string       `json:"next_cursor"`
	}{orders, orNull(next)})
}

func (a *API) getTimeline(r *request) error {
	events, err := a.Orders.Timeline(r.Request().Context(), r.actor, r.path("order_no"))
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, struct {
		Events []order.TimelineEntry `json:"events"`
	}{events})
}

func (a *API) getIdempotencyKey(r *request) error {
	key, err := a.Orders.Key(r.Request().Context(), r.actor, r.path("key"))
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, key)
}

func (a *API) openPayment(r *request) error {
	var in struct {
		Gateway string `json:"gateway"`
	}
	if err := r.decode(&in); err != nil {
		return err
	}
	res, err := a.Orders.OpenAttempt(r.Request().Context(), r.actor, r.path("order_no"), in.Gateway)
	if err != nil {
		return err
	}
	return r.answerOrder(res)
}

func (a *API) cancelOrder(r *request) error {
	var in struct {
		Reason string `json:"reason"`
	}
	if err := r.decode(&in); err != nil {
		return err
	}
	res, err := a.Orders.Cancel(r.Request().Context(), r.actor, r.path("order_no"), in.Reason)
	if err != nil {
		return err
	}
	return r.answerChanged(res)
}

func (a *API) shipOrder(r *request) error {
	var in struct {
		TrackingNo string `json:"tracking_no"`
	}
	if err := r.decode(&in); err != nil {
		return err
	}
	res, err := a.Orders.Ship(r.Request().Context(), r.actor, r.path("order_no"), in.TrackingNo)
	if err != nil {
		return err
	}
	return r.answerChanged(res)
}

func (a *API) completeOrder(r *request) error {
	res, err := a.Orders.Complete(r.Request().Context(), r.actor, r.path("order_no"))
	if err != nil {
		return err
	}
	return r.answerChanged(res)
}

func setLocation(c echo.Context, path string) { c.Response().Header().Set(echo.HeaderLocation, path) }

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
