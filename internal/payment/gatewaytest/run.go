package gatewaytest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fsm"
	"orderd/internal/payment"
)

// Run runs the whole contract.
func Run(t *testing.T, h Harness) {
	t.Run("name", func(t *testing.T) {
		require.Equal(t, h.Name, h.Connect(t, "http://127.0.0.1:1").Name())
	})
	for name, test := range map[string]func(*testing.T, Harness){
		"charge":            charges,
		"money not taken":   notTaken,
		"paid":              paid,
		"declined":          declined,
		"unknown to it":     unknown,
		"closed":            closed,
		"refund":            refunds,
		"refused refund":    refusedRefunds,
		"list of movements": lists,
		"another's answer":  swapped,
		"tampered answer":   tampered,
		"faults of calls":   faults,
		"genuine callback":  genuine,
		"altered callback":  altered,
		"dated callback":    dated,
		"flawed callback":   flawed,
		"acknowledgement":   acknowledges,
		"concurrent charge": chargesAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
}

const amount = 1299

// request is a charge that can be paid for an hour.
func (h Harness) request(paymentNo string) payment.ChargeRequest {
	return payment.ChargeRequest{PaymentNo: paymentNo, Amount: amount, Currency: h.Currency, Subject: "Order 1 & more",
		ExpiresAt: time.Now().Add(time.Hour).UTC().Truncate(time.Second)}
}

// open charges, and opens the pay page.
func (h Harness) open(t *testing.T, company Company, g payment.Gateway, paymentNo string) payment.Charge {
	t.Helper()
	c, err := g.Charge(t.Context(), h.request(paymentNo))
	require.NoError(t, err)
	if company.Open != nil {
		company.Open(t, c)
	}
	return c
}

func ref(c payment.Charge) payment.Ref {
	return payment.Ref{PaymentNo: c.PaymentNo, TransactionID: c.TransactionID}
}

func charges(t *testing.T, h Harness) {
	company := h.Start(t)
	g := h.Connect(t, company.URL)
	r := h.request("P1")
	first, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, fsm.Pending, first.State)
	require.Equal(t, "P1", first.PaymentNo)
	page, err := url.Parse(first.PayURL)
	require.NoError(t, err)
	require.Contains(t, []string{"http", "https", "weixin"}, page.Scheme) // weixin: a code to be scanned
	require.NotEmpty(t, page.Host)

	again, err := g.Charge(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, fsm.Pending, again.State)
	require.Equal(t, ref(first), ref(again), "the same payment_no is the same charge")
	if company.Open != nil {
		company.Open(t, first)
	}
	c, err := g.Query(t.Context(), ref(first))
	require.NoError(t, err)
	require.Equal(t, []any{fsm.Pending, "P1"}, []any{c.State, c.PaymentNo})
}

// notTaken: money that the company cannot take is known without asking it, and declined if it is asked for all the same.
func notTaken(t *testing.T, h Harness) {
	var calls atomic.Int64
	g := h.Connect(t, serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) })))
	require.True(t, g.Takes(amount, h.Currency))
	none := []Money{{0, h.Currency}, {-1, h.Currency}, {amount, ""}, {amount, strings.ToLower(h.Currency)}, {amount, "XXX"}, {amount, h.Currency + " "}}
	for _, m := range append(none, h.NotTaken...) {
		require.False(t, g.Takes(m.Amount, m.Currency), m)
		r := h.request("P1")
		r.Amount, r.Currency = m.Amount, m.Currency
		c, err := g.Charge(t.Context(), r)
		require.NoError(t, err, m)
		require.Equal(t, payment.Charge{PaymentNo: "P1", State: fsm.Failed, Amount: m.Amount, Currency: m.Currency}, c)
	}
	require.Zero(t, calls.Load(), "nothing is sent")
}

func chargesAtOnce(t *testing.T, h Harness) {
	company := h.Start(t)
	g := h.Connect(t, company.URL)
	r := h.request("P1")
	type answer struct {
		charge payment.Charge
		err    error
	}
	const n = 8
	barrier, answers := make(chan struct{}), make(chan answer, n)
	for range n {
		go func() {
			<-barrier
			c, err := g.Charge(t.Context(), r)
			answers <- answer{c, err}
		}()
	}
	close(barrier)
	refs := map[payment.Ref]bool{}
	for range n {
		// A company may refuse the ones that come while the first is under way. It must not take them for other charges.
		if a := <-answers; a.err == nil {
			refs[ref(a.charge)] = true
		} else {
			require.NotErrorIs(t, a.err, payment.ErrNotFound)
		}
	}
	require.Len(t, refs, 1)
}

func paid(t *testing.T, h Harness) {
	company := h.Start(t)
	g := h.Connect(t, company.URL)
	opened := h.open(t, company, g, "P1")
	company.Pay(t, opened, amount)
	for name, call := range map[string]func() (payment.Charge, error){
		"query": func() (payment.Charge, error) { return g.Query(t.Context(), ref(opened)) },
		"close": func() (payment.Charge, error) { return g.Close(t.Context(), ref(opened)) },
		"after": func() (payment.Charge, error) { return g.Query(t.Context(), ref(opened)) },
	} {
		c, err := call()
		require.NoError(t, err, name)
		require.Equal(t, []any{fsm.Succeeded, "P1", int64(amount), h.Currency}, []any{c.State, c.PaymentNo, c.Amount, c.Currency}, name)
		require.NotEmpty(t, c.TransactionID, name)
		if opened.TransactionID != "" {
			require.Equal(t, opened.TransactionID, c.TransactionID, "a charge keeps its number")
		}
	}
	less := h.open(t, company, g, "P2")
	company.Pay(t, less, amount-1)
	c, err := g.Query(t.Context(), ref(less))
	require.NoError(t, err)
	require.Equal(t, []any{fsm.Succeeded, int64(amount - 1)}, []any{c.State, c.Amount}, "what was received, not what was asked for")
}

// declined: it is over, without any money. Some companies call it closed once we close it.
func declined(t *testing.T, h Harness) {
	company := h.Start(t)
	if company.Decline == nil {
		return
	}
	g := h.Connect(t, company.URL)
	opened := h.open(t, company, g, "P1")
	company.Decline(t, opened)
	over := []fsm.State{fsm.Failed}
	for _, call := range []func(context.Context, payment.Ref) (payment.Charge, error){g.Query, g.Close, g.Query} {
		c, err := call(t.Context(), ref(opened))
		require.NoError(t, err)
		require.Contains(t, over, c.State)
		require.Equal(t, "P1", c.PaymentNo)
		over = []fsm.State{fsm.Failed, fsm.Closed}
	}
	_, err := g.QueryRefund(t.Context(), "R1", ref(opened))
	require.ErrorIs(t, err, payment.ErrNotFound, "no money came")
}

func unknown(t *testing.T, h Harness) {
	g := h.Connect(t, h.Start(t).URL)
	for _, of := range []payment.Ref{{PaymentNo: "P404"}, {PaymentNo: "P404", TransactionID: h.TransactionID}} {
		_, err := g.Query(t.Context(), of)
		require.ErrorIs(t, err, payment.ErrNotFound)
		_, err = g.Close(t.Context(), of)
		require.ErrorIs(t, err, payment.ErrNotFound)
		_, err = g.QueryRefund(t.Context(), "R404", of)
		require.ErrorIs(t, err, payment.ErrNotFound)
	}
}

func closed(t *testing.T, h Harness) {
	company := h.Start(t)
	g := h.Connect(t, company.URL)
	opened := h.open(t, company, g, "P1")
	for range 2 {
		c, err := g.Close(t.Context(), ref(opened))
		require.NoError(t, err)
		require.Equal(t, []any{fsm.Closed, "P1"}, []any{c.State, c.PaymentNo})
	}
	c, err := g.Query(t.Context(), ref(opened))
	require.NoError(t, err)
	require.Equal(t, fsm.Closed, c.State)
}

// lists: a company that lists what it moved lists all of it.
func lists(t *testing.T, h Harness) {
	company := h.Start(t)
	g := h.Connect(t, company.URL)
	ledger, ok := g.(payment.Ledger)
	require.Equal(t, !h.AskedOnly, ok)
	if !ok {
		return
	}
	h.open(t, company, g, "P0") // is not paid
	opened := h.open(t, company, g, "P1")
	company.Pay(t, opened, amount-1)
	paid, err := g.Query(t.Context(), ref(opened))
	require.NoError(t, err)
	_, err = g.Refund(t.Context(), payment.RefundRequest{RefundNo: "R1", PaymentNo: "P1", TransactionID: paid.TransactionID, Amount: 300, Currency: h.Currency, Total: amount - 1})
	require.NoError(t, err)
	entries, err := ledger.Entries(t.Context(), time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for i, want := range []payment.Entry{{PaymentNo: "P1", Amount: amount - 1}, {PaymentNo: "P1", RefundNo: "R1", Amount: 300}} {
		got := entries[i]
		require.Equal(t, []any{want.PaymentNo, want.RefundNo, want.Amount, h.Currency}, []any{got.PaymentNo, got.RefundNo, got.Amount, got.Currency})
		require.False(t, got.At.IsZero())
	}
	entries, err = ledger.Entries(t.Context(), entries[1].At.Add(time.Minute))
	require.NoError(t, err)
	require.Empty(t, entries, "since then nothing moved")
}

// serve runs a handler that plays the company.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
