package order

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/stock"
)

// reserveTx is the second stage: it shares out the stock in the order of arrival, whole orders only. Who does not get
// theirs stays CREATED and may ask again; the others become RESERVED. What was decided on the quantities read here is
// written under their versions, as the last thing in the transaction.
func (s *Service) reserveTx(tx *db.Tx, t *tail, ps []*placing) error {
	catalogue, err := t.catalogueTx(tx, skus(ps))
	if err != nil {
		return err
	}
	left := make(map[string]int64, len(catalogue))
	for sku, it := range catalogue {
		left[sku] = it.Available
	}
	t.versions = map[string]int64{}
	var reserved, refused []*placing
	for _, p := range ps {
		if p.err = short(p.order, left); p.err != nil {
			// The sweeper leaves a refused order alone; a client that asks again gets a new decision.
			p.order.RefusedAt, p.order.UpdatedAt = &tx.Now, tx.Now
			refused = append(refused, p)
			continue
		}
		p.order.RefusedAt = nil
		reserved = append(reserved, p)
		for _, it := range p.order.Items {
			left[it.SKU] -= it.Quantity
			t.versions[it.SKU] = catalogue[it.SKU].Version
			t.moves = append(t.moves, stock.Movement{SKU: it.SKU, Kind: stock.Reserve, Ref: p.orderNo, Delta: -it.Quantity, At: tx.Now})
		}
	}
	if nos := stored(refused); len(nos) > 0 {
		err := tx.Exec("UPDATE orders SET refused_at = ?, updated_at = ? WHERE order_no IN ? AND status = ?", tx.Now, tx.Now, nos, fsm.Created).Error
		if err != nil {
			return err
		}
	}
	if nos := stored(reserved); len(nos) > 0 {
		r := tx.Exec("UPDATE orders SET status = ?, version = version + 1, refused_at = NULL, updated_at = ? WHERE order_no IN ? AND status IN ?",
			fsm.Reserved, tx.Now, nos, fsm.Orders.Sources(fsm.Reserve))
		if err := db.Exactly(len(nos), r); err != nil {
			return err
		}
	}
	for _, p := range reserved {
		t.move(p.order, fsm.Reserve, tx.Now, p.cause())
	}
	return nil
}

// short names the lines that the stock does not suffice for.
func short(o *Order, left map[string]int64) error {
	var fields []fault.Field
	for _, it := range o.Items {
		if left[it.SKU] < it.Quantity {
			fields = append(fields, fault.Field{Field: "items", Code: "out_of_stock", Message: fmt.Sprintf("%s: %d wanted, %d left", it.SKU, it.Quantity, left[it.SKU])})
		}
	}
	if fields == nil {
		return nil
	}
	f := fault.New(fault.Conflict, "out_of_stock", "the stock does not suffice; send the same request again to ask once more", fields...)
	f.OrderNo = o.OrderNo
	return f
}

// openPaymentTx is the third stage: the intent to charge is committed before the gateway is called. A callback that
// comes before the gateway's answer finds its payment, and after a crash everybody knows which payment_no to ask for.
func (s *Service) openPaymentTx(tx *db.Tx, t *tail, ps []*placing) error {
	// As in insertOrdersTx: the payments of new orders are what twins meet at first.
	slices.SortFunc(ps, func(a, b *placing) int { return strings.Compare(a.orderNo, b.orderNo) })
	attempts := make([]payment.Payment, len(ps))
	for i, p := range ps {
		attempts[i] = payment.Payment{PaymentNo: p.paymentNo, OrderNo: p.orderNo, Attempt: p.order.Attempts + 1, Gateway: p.order.Gateway,
			Amount: p.order.Amount, Currency: p.order.Currency}
	}
	if err := payment.OpenTx(tx, s.cfg.Owner, tx.Now.Add(gatewayTime+leaseReserve), attempts); err != nil {
		return err
	}
	expires := db.At(tx.Now.Add(s.cfg.PayTimeout).Truncate(time.Microsecond))
	if nos := stored(ps); len(nos) > 0 {
		r := tx.Exec("UPDATE orders SET status = ?, version = version + 1, attempts = attempts + 1, expires_at = ?, updated_at = ? WHERE order_no IN ? AND status IN ?",
			fsm.Paying, expires, tx.Now, nos, fsm.Orders.Sources(fsm.OpenPayment))
		if err := db.Exactly(len(nos), r); err != nil {
			return err
		}
	}
	for i, p := range ps {
		p.opening = true
		p.order.Attempts++
		p.order.ExpiresAt = expires
		p.order.Payment = &attempts[i]
		t.move(p.order, fsm.OpenPayment, tx.Now, p.cause())
	}
	return nil
}

// cause says who moves the order on: its user, or the sweeper.
func (p *placing) cause() cause {
	if p.resume {
		return cause{actor: "sweeper", cause: "resume"}
	}
	if p.Received != nil {
		return cause{actor: "user:" + p.UserID, cause: causeOf(p.Received)}
	}
	return cause{actor: "user:" + p.UserID, cause: string(p.via())}
}
