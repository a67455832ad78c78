package order

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"orderd/internal/fault"
)

// List returns orders, newest first, and the cursor of the next page ("" after the last). A user sees their own; an
// admin all, or those of q.UserID.
func (s *Service) List(ctx context.Context, a Actor, q ListQuery) ([]Order, string, error) {
	if !a.Admin {
		q.UserID = a.UserID
	}
	query := s.DB.Read(ctx).Order("id DESC").Limit(q.Limit + 1)
	if q.Cursor != "" {
		before, err := s.openCursor(q)
		if err != nil {
			return nil, "", err
		}
		query = query.Where("id < ?", before)
	}
	if q.UserID != "" {
		query = query.Where("user_id = ?", q.UserID)
	}
	if q.Status != "" {
		query = query.Where("status = ?", q.Status)
	}
	var rows []*Order
	if err := query.Find(&rows).Error; err != nil {
		return nil, "", err
	}
	next := ""
	if len(rows) > q.Limit {
		rows = rows[:q.Limit]
		next = s.sealCursor(q, rows[q.Limit-1].ID)
	}
	orders := make([]Order, len(rows))
	if len(rows) > 0 {
		if err := fill(s.DB.Read(ctx), rows); err != nil {
			return nil, "", err
		}
	}
	for i, o := range rows {
		orders[i] = *o
	}
	return orders, next, nil
}

// A cursor is an order's id with a MAC over it and the filter: it cannot be made up, nor used for another list.

func (s *Service) sealCursor(q ListQuery, id int64) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(id))
	return base64.RawURLEncoding.EncodeToString(append(raw, s.cursorMAC(q, raw)...))
}

func (s *Service) openCursor(q ListQuery) (int64, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	if err != nil || len(b) != 24 || !hmac.Equal(b[8:], s.cursorMAC(q, b[:8])) {
		return 0, fault.New(fault.Invalid, "invalid_request", "the query has faults",
			fault.Field{Field: "cursor", Code: "invalid", Message: "is not one that this list gave out"})
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

func (s *Service) cursorMAC(q ListQuery, id []byte) []byte {
	mac := hmac.New(sha256.New, s.cfg.Secret)
	mac.Write(slices.Concat([]byte("orders cursor\x00"+q.UserID+"\x00"+q.Status+"\x00"), id))
	return mac.Sum(nil)[:16]
}
