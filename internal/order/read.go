package order

import (
	"context"

	"gorm.io/gorm"

	"orderd/internal/payment"
)

// readOrders reads whole orders with their items, newest attempt and refunds, in no particular order.
func readOrders(q *gorm.DB, orderNos []string) ([]*Order, error) {
	if len(orderNos) == 0 {
		return nil, nil
	}
	var orders []*Order
	if err := q.Where("order_no IN ?", orderNos).Find(&orders).Error; err != nil || len(orders) == 0 {
		return nil, err
	}
	return orders, fill(q, orders)
}

// fill adds to orders what stands in other tables.
func fill(q *gorm.DB, orders []*Order) error {
	byNo := make(map[string]*Order, len(orders))
	var nos, withMoney []string
	var attempts int64
	for _, o := range orders {
		o.Items, o.Refunds = []Item{}, []payment.Refund{}
		byNo[o.OrderNo] = o
		nos = append(nos, o.OrderNo)
		if o.Attempts > 0 {
			withMoney = append(withMoney, o.OrderNo)
		}
		attempts = max(attempts, o.Attempts)
	}
	var items []Item
	if err := q.Where("order_no IN ?", nos).Order("order_no, sku").Find(&items).Error; err != nil {
		return err
	}
	for _, it := range items {
		o := byNo[it.OrderNo]
		o.Items = append(o.Items, it)
	}
	if len(withMoney) == 0 {
		return nil
	}
	var payments []payment.Payment
	if err := q.Where("order_no IN ?", withMoney).Find(&payments).Error; err != nil {
		return err
	}
	received := false
	for i := range payments {
		p := &payments[i]
		received = received || p.ReceivedAmount > 0
		if p.OpenSlot == nil { // nobody is to be sent there any more
			p.PayURL = nil
		}
		if o := byNo[p.OrderNo]; p.Attempt == o.Attempts {
			o.Payment = p
		}
	}
	if !received { // only money that came can go back
		return nil
	}
	var refunds []payment.Refund
	if err := q.Where("order_no IN ?", withMoney).Order("created_at, refund_no").Find(&refunds).Error; err != nil {
		return err
	}
	for _, r := range refunds {
		o := byNo[r.OrderNo]
		o.Refunds = append(o.Refunds, r)
	}
	return nil
}

// find returns the order with this number, or nil. It is the caller's own to change.
func (s *Service) find(ctx context.Context, orderNo string) (*Order, error) {
	o, ok, err := s.orders.Get(ctx, orderNo)
	if err != nil || !ok {
		return nil, err
	}
	if o.Payment != nil {
		p := *o.Payment
		o.Payment = &p
	}
	return &o, nil
}

// findPayment returns the payment with this number, or nil.
func (s *Service) findPayment(ctx context.Context, paymentNo string) (*payment.Payment, error) {
	p, ok, err := s.payments.Get(ctx, paymentNo)
	if err != nil || !ok {
		return nil, err
	}
	return &p, nil
}

// runFind is the batch function of find.
func (s *Service) runFind(ctx context.Context, orderNos []string) (map[string]Order, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	orders, err := readOrders(s.DB.Read(ctx), orderNos)
	found := make(map[string]Order, len(orders))
	for _, o := range orders {
		found[o.OrderNo] = *o
	}
	return found, err
}

// runFindPayments is the batch function of findPayment.
func (s *Service) runFindPayments(ctx context.Context, paymentNos []string) (map[string]payment.Payment, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	return payment.FindAll(ctx, s.DB, paymentNos)
}

// Get returns an order, or 404 not_found: also for another user's.
func (s *Service) Get(ctx context.Context, a Actor, orderNo string) (Order, error) {
	o, err := s.find(ctx, orderNo)
	if err != nil {
		return Order{}, err
	}
	if o == nil || !a.may(o) {
		return Order{}, errNoOrder()
	}
	return *o, nil
}
