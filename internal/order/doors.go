package order

import (
	"context"
	"errors"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/idem"
)

// enter leads the request to its order_no, by the strongest identity that it has. Whatever else is given must agree.
// From there on there is one path, and the unique index on order_no judges.
func (s *Service) enter(ctx context.Context, p *placing) error {
	p.orderNo = p.OrderNo
	if p.Token != "" {
		if err := s.enterByToken(ctx, p); err != nil {
			return err
		}
	}
	if p.Key != "" {
		if err := s.enterByKey(ctx, p); err != nil {
			return err
		}
	}
	if p.orderNo != "" {
		return nil
	}
	p.orderNo, p.fresh = newNo("O"), true
	if p.Key != "" || p.Received != nil {
		return nil // two twins have two numbers: the unique row of the key or message lets one in, the other finds it
	}
	held, first, err := s.Windows.Claim(ctx, p.Window, p.orderNo)
	if err != nil { // without Redis nothing can tell a repeat from a second order
		return errWithoutIdentity(err)
	}
	if !first {
		p.orderNo, p.fresh, p.door = held, false, idem.GuardWindow
	}
	return nil
}

func (s *Service) enterByToken(ctx context.Context, p *placing) error {
	orderNo, err := s.Tokens.Parse(p.Token, p.UserID)
	if err != nil {
		return err
	}
	if p.orderNo != "" && p.orderNo != orderNo {
		return fault.Unprocessed(fault.Field{Field: "order_no", Code: "differs", Message: "is not the one of the Idempotent-Token"})
	}
	p.orderNo = orderNo
	taken, err := s.Tokens.Take(ctx, p.Token, p.UserID)
	if err != nil { // Redis is away, or has forgotten the token: the database may know its order
		p.absent = err
	}
	if !taken.First {
		p.door = idem.GuardToken
	}
	return nil
}

func (s *Service) enterByKey(ctx context.Context, p *placing) error {
	key, err := idem.FindKey(ctx, s.DB, p.UserID, p.Key)
	if err != nil || key == nil {
		return err
	}
	return p.bind(key)
}

// bind takes the order_no that the request's key stands for.
func (p *placing) bind(key *idem.Key) error {
	if (p.OrderNo != "" || p.Token != "") && p.orderNo != key.OrderNo {
		return fault.New(fault.Unprocessable, "idempotency_key_reused", "this Idempotency-Key stands for another order",
			fault.Field{Field: "order_no", Code: "differs", Message: "is not the one that the key stands for"})
	}
	p.orderNo, p.bound, p.fresh = key.OrderNo, true, false
	if p.door == "" {
		p.door = idem.GuardKey
	}
	return nil
}

// leave tells the doors how it went. Dying before it does no harm: a token stays PROCESSING and is resumed, a window
// closes by itself.
func (s *Service) leave(ctx context.Context, p *placing, err error) {
	f := fault.As(err)
	stored := p.order != nil // committed, also when out of stock
	refused := !stored && f != nil && (f.Kind == fault.Unprocessable || f.Kind == fault.Conflict && f.Code != "order_in_progress" || f.Kind == fault.Limited)
	var e error
	switch {
	case p.Token != "" && stored:
		e = s.Tokens.Processed(ctx, p.Token)
	case p.Token != "" && refused && p.door == "":
		e = s.Tokens.Back(ctx, p.Token)
	case p.Window != "" && p.OrderNo == "" && p.Token == "" && p.Key == "" && refused && p.door == "":
		e = s.Windows.Free(ctx, p.Window, p.orderNo)
	}
	if e != nil {
		s.Log.WarnContext(ctx, "a door was not told the outcome", "order_no", p.orderNo, "error", e)
	}
}

// IssueToken makes an order_no and a token for it, bound to the user. Without Redis: 503.
func (s *Service) IssueToken(ctx context.Context, userID string) (Token, error) {
	orderNo := newNo("O")
	token, ttl, err := s.Tokens.Issue(ctx, userID, orderNo)
	if err != nil {
		return Token{}, err
	}
	now, err := s.DB.Now(ctx)
	return Token{Token: token, OrderNo: orderNo, ExpiresAt: db.At(now.Add(ttl))}, err
}

// Key returns what the user's Idempotency-Key stands for, or 404.
func (s *Service) Key(ctx context.Context, a Actor, key string) (KeyView, error) {
	row, err := idem.FindKey(ctx, s.DB, a.UserID, key)
	if err != nil {
		return KeyView{}, err
	}
	if row == nil {
		return KeyView{}, fault.New(fault.NotFound, "not_found", "this key stands for no order of yours")
	}
	var o Order
	err = s.DB.Read(ctx).Select("status").Where("order_no = ?", row.OrderNo).Take(&o).Error
	return KeyView{Key: key, OrderNo: row.OrderNo, OrderStatus: o.Status, CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt}, err
}

func errWithoutIdentity(err error) error {
	f := fault.As(err)
	if f == nil || !errors.Is(err, idem.ErrDown) {
		return err
	}
	named := *f
	named.Message = "repeats cannot be recognised just now: send an order_no in the body, or the header Idempotency-Key"
	return &named
}
