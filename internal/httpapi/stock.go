package httpapi

import (
	"net/http"

	"orderd/internal/stock"
)

func (a *API) listStock(r *request) error {
	items, next, err := a.Stock.List(r.Request().Context(), r.limit(), r.query.Get("cursor"))
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, struct {
		Stock      []stock.Item `json:"stock"`
		NextCursor *string      `json:"next_cursor"`
	}{items, orNull(next)})
}

func (a *API) getStock(r *request) error {
	item, err := a.Stock.Get(r.Request().Context(), r.path("sku"))
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, item)
}

func (a *API) putStock(r *request) error {
	var in struct {
		Title     string `json:"title"`
		UnitPrice int64  `json:"unit_price"`
		Currency  string `json:"currency"`
		Available *int64 `json:"available"`
	}
	if err := r.decode(&in); err != nil {
		return err
	}
	item := stock.Item{SKU: r.path("sku"), Title: in.Title, UnitPrice: in.UnitPrice, Currency: in.Currency}
	item, created, err := a.Stock.Put(r.Request().Context(), item, in.Available)
	if err != nil {
		return err
	}
	if created {
		setLocation(r, "/v1/stock/"+item.SKU)
		return r.answer(http.StatusCreated, item)
	}
	return r.answer(http.StatusOK, item)
}

func (a *API) adjustStock(r *request) error {
	var in struct {
		AdjustmentNo string `json:"adjustment_no"`
		Delta        int64  `json:"delta"`
		Reason       string `json:"reason"`
	}
	if err := r.decode(&in); err != nil {
		return err
	}
	item, created, err := a.Stock.Adjust(r.Request().Context(), r.path("sku"), in.AdjustmentNo, in.Delta, in.Reason)
	if err != nil {
		return err
	}
	if created {
		return r.answer(http.StatusCreated, item)
	}
	r.Response().Header().Set("Idempotent-Replayed", "true")
	return r.answer(http.StatusOK, item)
}
