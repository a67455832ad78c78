package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/oklog/ulid/v2"

	"orderd/internal/httpapi"
	"orderd/internal/stock"
)

// listeners are opened before anything is served, so that every part knows the others' addresses, also with port 0.
type listeners struct {
	api, ops, sandbox net.Listener // sandbox is nil when it is elsewhere
}

func (s *Settings) listen() (*listeners, error) {
	l := &listeners{}
	var err error
	if l.api, err = net.Listen("tcp", s.Addr); err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	if l.ops, err = net.Listen("tcp", s.OpsAddr); err != nil {
		return nil, errors.Join(fmt.Errorf("--ops-addr: %w", err), l.close())
	}
	if s.SandboxURL == "" && s.playMoney() {
		if l.sandbox, err = net.Listen("tcp", s.SandboxAddr); err != nil {
			return nil, errors.Join(fmt.Errorf("--sandbox-addr: %w", err), l.close())
		}
	}
	return l, nil
}

// urls returns where the sandbox gateway listens, and where gateways reach the API.
func (l *listeners) urls(s *Settings) (sandbox, public string) {
	sandbox, public = s.SandboxURL, s.PublicURL
	if l.sandbox != nil {
		sandbox = "http://" + l.sandbox.Addr().String()
	}
	if public == "" {
		public = "http://" + l.api.Addr().String()
	}
	return sandbox, public
}

// close closes those that no server has closed.
func (l *listeners) close() error {
	var err error
	for _, x := range []net.Listener{l.api, l.ops, l.sandbox} {
		if x == nil {
			continue
		}
		if e := x.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// welcome prints what to paste next.
func welcome(w io.Writer, auth *httpapi.Auth, l *listeners) error {
	token, err := auth.Mint("demo", []string{"orders", "admin"}, 24*time.Hour)
	if err != nil {
		return nil //nolint:nilerr // with a public key only, tokens come from elsewhere
	}
	url := "http://" + l.api.Addr().String()
	orderNo := "demo-" + ulid.Make().String()[16:]
	_, err = fmt.Fprintf(w, `
Embedded mode: SQLite, in-process Redis, sandbox gateway. Paste these into another terminal:

TOKEN='%[1]s'
curl -sS %[2]s/v1/stock -H "Authorization: Bearer $TOKEN"
curl -sS %[2]s/v1/orders -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '{"order_no":"%[3]s","items":[{"sku":"TEA-250","quantity":2}]}'
curl -sS %[2]s/v1/orders/%[3]s -H "Authorization: Bearer $TOKEN"

The second one places an order; open its pay_url in a browser and press Pay, then the third shows it PAID. Send the
second again: the same order, never another. API reference: %[2]s/docs

`, token, url, orderNo)
	return err
}

// catalogue is what embedded mode has for sale. JPY has no minor unit: 1800 is 1800 yen.
var catalogue = []struct {
	stock.Item
	quantity int64
}{
	{stock.Item{SKU: "TEA-250", Title: "Longjing green tea, 250 g", UnitPrice: 12900, Currency: "CNY"}, 200},
	{stock.Item{SKU: "TEA-500", Title: "Longjing green tea, 500 g", UnitPrice: 23900, Currency: "CNY"}, 100},
	{stock.Item{SKU: "CUP-BLUE", Title: "Porcelain cup, blue", UnitPrice: 4550, Currency: "CNY"}, 300},
	{stock.Item{SKU: "POT-CLAY", Title: "Yixing clay teapot", UnitPrice: 68000, Currency: "CNY"}, 25},
	{stock.Item{SKU: "TRAY-BAMBOO", Title: "Bamboo tea tray", UnitPrice: 15800, Currency: "CNY"}, 40},
	{stock.Item{SKU: "MATCHA-30", Title: "Uji matcha, 30 g", UnitPrice: 1800, Currency: "JPY"}, 150},
	{stock.Item{SKU: "WHISK", Title: "Bamboo whisk", UnitPrice: 2600, Currency: "JPY"}, 60},
	{stock.Item{SKU: "BOWL-RAKU", Title: "Raku tea bowl, the last one", UnitPrice: 24000, Currency: "JPY"}, 1},
}

// seed fills an empty catalogue.
func seed(ctx context.Context, s *stock.Service) error {
	if items, _, err := s.List(ctx, 1, ""); err != nil || len(items) > 0 {
		return err
	}
	for _, it := range catalogue {
		if _, _, err := s.Put(ctx, it.Item, &it.quantity); err != nil {
			return fmt.Errorf("seed the catalogue: %w", err)
		}
	}
	return nil
}
