package order

import (
	"fmt"
	"slices"
	"strings"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/payment"
	"orderd/internal/stock"
)

// createTx is the first stage: the order, its lines and its key's row, at the prices of this moment. The unique keys
// on order_no decide between twins, of the payment or else of the order: the loser's transaction runs again, and finds the
// order. The rows of the order are written by flushTx.
func (s *Service) createTx(tx *db.Tx, t *tail, ps []*placing) error {
	catalogue, err := t.catalogueTx(tx, skus(ps))
	if err != nil {
		return err
	}
	var created []*placing
	for _, p := range ps {
		if p.absent != nil { // of a token that nobody can vouch for, or to be resumed only
			p.err = p.absent
		} else if p.order, p.err = s.newOrder(p, catalogue, tx.Now); p.err == nil {
			p.creating = true
			created = append(created, p)
			t.orders = append(t.orders, p.order)
			t.move(p.order, fsm.Create, tx.Now, p.cause())
		} else if p.presumed() { // a refusal says that there is no such order: that must not be presumed
			p.err, p.twin, p.fresh = nil, true, false
		}
	}
	if len(created) == 0 {
		return nil
	}
	if err := msg.ReceiveTx(tx, receivedRows(created, tx.Now)); err != nil {
		return err
	}
	return idem.BindTx(tx, keyRows(created))
}

// insertOrdersTx writes new orders as what they have become in this transaction: their next stages needed no UPDATE.
func insertOrdersTx(tx *db.Tx, orders []*Order) error {
	if len(orders) == 0 {
		return nil
	}
	// Two processes that insert the same numbers in different orders would wait for each other.
	slices.SortFunc(orders, func(a, b *Order) int { return strings.Compare(a.OrderNo, b.OrderNo) })
	var items []Item
	for _, o := range orders {
		items = append(items, o.Items...)
	}
	if err := tx.Create(orders).Error; err != nil {
		return err
	}
	return tx.Create(&items).Error
}

// via names the door through which the request came.
func (p *placing) via() idem.Guard {
	switch {
	case p.Token != "":
		return idem.GuardToken
	case p.Key != "":
		return idem.GuardKey
	case p.OrderNo == "":
		return idem.GuardWindow
	}
	return "order_no"
}

// newOrder prices the lines, or refuses them. A refusal leaves no order and no key row.
func (s *Service) newOrder(p *placing, catalogue map[string]stock.Item, now db.Time) (*Order, error) {
	o := &Order{OrderNo: p.orderNo, UserID: p.UserID, Fingerprint: p.fingerprint, Gateway: p.Gateway, Note: p.Note,
		CreatedAt: now, UpdatedAt: now, ExpiresAt: db.At(now.Add(s.cfg.PayTimeout)), Refunds: []payment.Refund{}}
	var fields []fault.Field
	for _, l := range p.Lines {
		it, ok := catalogue[l.SKU]
		switch {
		case !ok:
			fields = append(fields, fault.Field{Field: "items", Code: "unknown_sku", Message: fmt.Sprintf("%s is not for sale", l.SKU)})
			continue
		case o.Currency == "":
			o.Currency = it.Currency
		case o.Currency != it.Currency:
			fields = append(fields, fault.Field{Field: "items", Code: "mixed_currencies",
				Message: fmt.Sprintf("%s is sold in %s, the lines before it in %s", l.SKU, it.Currency, o.Currency)})
		}
		// unit_price <= 10^10 and quantity <= 9999: the product fits, and so does the sum of 100 of them
		line := Item{OrderNo: o.OrderNo, SKU: l.SKU, Title: it.Title, Quantity: l.Quantity, UnitPrice: it.UnitPrice, Amount: l.Quantity * it.UnitPrice}
		o.Items = append(o.Items, line)
		o.Amount += line.Amount
	}
	if fields == nil && o.Amount > lineLimit {
		fields = append(fields, fault.Field{Field: "items", Code: "too_large", Message: fmt.Sprintf("the amount %d is over %d", o.Amount, int64(lineLimit))})
	}
	if fields == nil {
		fields = s.notTaken(o.Gateway, o.Amount, o.Currency)
	}
	if fields != nil {
		return nil, fault.Unprocessed(fields...)
	}
	if p.ExpectedAmount != nil && *p.ExpectedAmount != o.Amount {
		return nil, fault.New(fault.Conflict, "amount_changed", fmt.Sprintf("the order comes to %d %s", o.Amount, o.Currency),
			fault.Field{Field: "expected_amount", Code: "differs", Message: fmt.Sprintf("the server's own sum is %d", o.Amount)})
	}
	return o, nil
}

// notTaken tells that a gateway cannot take an amount: it would decline it for ever.
func (s *Service) notTaken(gateway string, amount int64, currency string) []fault.Field {
	if g, ok := s.Gateways[gateway]; ok && g.Takes(amount, currency) {
		return nil
	}
	return []fault.Field{{Field: "gateway", Code: "not_allowed", Message: fmt.Sprintf("%s does not take %d %s in minor units", gateway, amount, currency)}}
}

// skus returns the SKUs that orders, or requests that have none yet, are about.
func skus(ps []*placing) []string {
	var all []string
	for _, p := range ps {
		if p.order == nil {
			for _, l := range p.Lines {
				all = append(all, l.SKU)
			}
			continue
		}
		for _, it := range p.order.Items {
			all = append(all, it.SKU)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
