package server

import (
	_ "embed"
	"html/template"
	"net/http"
	"strconv"

	"github.com/bojanz/currency"

	"orderd/internal/payment/sandbox/wire"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle []byte

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// pageData is what the shopper sees; Status is empty if there is no such charge.
type pageData struct {
	PaymentNo string
	Subject   string
	Amount    string // "CN¥12.99", "¥1,299"
	Status    string
	Payable   bool
}

// showPage shows a charge to the shopper, who has no key: the payment_no in the link is all that is asked for.
func (s *Server) showPage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	c, known, err := s.look(r.PathValue("payment_no"))
	s.mu.Unlock()
	if err == nil {
		err = s.journal.sync(c.promise())
	}
	if err != nil {
		s.write(w, s.failed(err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	data := pageData{}
	if known {
		shown := s.show(r, c)
		data = pageData{
			PaymentNo: shown.PaymentNo, Subject: c.Request.Subject, Amount: formatAmount(shown.Amount, shown.Currency),
			Status: shown.Status, Payable: c.payable(),
		}
	} else {
		w.WriteHeader(http.StatusNotFound)
	}
	if err := pageTemplate.Execute(w, data); err != nil {
		s.cfg.Logger.Debug("sandbox: page", "error", err) // the shopper is gone
	}
}

// submitPage takes the shopper's decision and shows the page again, whatever came of it.
func (s *Server) submitPage(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	outcome := r.PostFormValue("outcome")
	if outcome != "succeeded" && outcome != "failed" {
		s.write(w, problem(http.StatusUnprocessableEntity, "validation_failed", "outcome is succeeded or failed"))
		return
	}
	c, _, _, err := s.pay(r.PathValue("payment_no"), wire.PayRequest{Outcome: outcome})
	if err == nil {
		err = s.journal.sync(c.promise())
	}
	if err != nil {
		s.write(w, s.failed(err))
		return
	}
	http.Redirect(w, r, r.URL.EscapedPath(), http.StatusSeeOther) // so that reloading the page does not submit again
}

func showStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(pageStyle)
}

// formatAmount writes minor units in the currency's own way: two decimals for CNY, none for JPY, three for KWD.
func formatAmount(minor int64, code string) string {
	amount, err := currency.NewAmountFromInt64(minor, code)
	if err != nil { // not of ISO 4217, which no charge is
		return strconv.FormatInt(minor, 10) + " " + code
	}
	return currency.NewFormatter(currency.NewLocale("en")).Format(amount)
}
