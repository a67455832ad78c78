package wechatpay

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/signed"
)

// transaction is a charge as the query and the callback tell it.
type transaction struct {
	AppID         string `json:"appid"` // the query may leave it out
	MchID         string `json:"mchid"`
	OutTradeNo    string `json:"out_trade_no"`
	TransactionID string `json:"transaction_id"` // once it is paid
	TradeState    string `json:"trade_state"`
	Amount        struct {
		Total    jsontext.Value `json:"total"`
		Currency string         `json:"currency"` // may be left out: CNY
	} `json:"amount"`
}

// charge reads a transaction; ok is false if it does not say what its state must say. A paid one stays Succeeded when
// something was refunded (REFUND): refunds have books of their own.
func (t *transaction) charge() (c payment.Charge, ok bool) {
	states := map[string]fsm.State{
		"SUCCESS": fsm.Succeeded, "REFUND": fsm.Succeeded, "NOTPAY": fsm.Pending, "USERPAYING": fsm.Pending, "ACCEPT": fsm.Pending,
		"CLOSED": fsm.Closed, "REVOKED": fsm.Closed, "PAYERROR": fsm.Failed,
	}
	c = payment.Charge{PaymentNo: t.OutTradeNo, TransactionID: t.TransactionID, Currency: t.Amount.Currency}
	if c.State, ok = states[t.TradeState]; !ok || !signed.Token(t.OutTradeNo) || t.TransactionID != "" && !signed.Token(t.TransactionID) {
		return c, false
	}
	if c.Currency == "" {
		c.Currency = currency
	}
	c.Amount, ok = fen(t.Amount.Total)
	if c.State != fsm.Succeeded {
		return c, ok || t.Amount.Total == nil
	}
	return c, ok && t.TransactionID != "" && len(c.Currency) == 3 && strings.Trim(c.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// fen reads a positive whole number, also as 1299.0, exactly.
func fen(v jsontext.Value) (int64, bool) {
	if v.Kind() != '0' {
		return 0, false
	}
	whole, fraction, _ := strings.Cut(string(v), ".")
	if strings.Trim(fraction, "0") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64) // refuses an exponent
	return n, err == nil && n > 0
}
