package stock

import (
	"context"
	"encoding/base64"
	"errors"
	"regexp"

	"github.com/bojanz/currency"
	"gorm.io/gorm"

	"orderd/internal/db"
	"orderd/internal/fault"
)

// Service keeps the catalogue.
type Service struct{ db *db.DB }

// NewService returns a Service on d.
func NewService(d *db.DB) *Service { return &Service{db: d} }

// Get returns a SKU, or 404.
func (s *Service) Get(ctx context.Context, sku string) (Item, error) {
	var it Item
	err := s.db.Read(ctx).Where("sku = ?", sku).Take(&it).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return it, errNoSKU()
	}
	return it, err
}

// List returns SKUs by name, limit at a time, and the cursor of the next page ("" after the last).
func (s *Service) List(ctx context.Context, limit int, cursor string) ([]Item, string, error) {
	after, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(after) > 0 && !skuPattern.Match(after) {
		return nil, "", fault.New(fault.Invalid, "invalid_request", "the query has faults",
			fault.Field{Field: "cursor", Code: "invalid", Message: "is not one that this list gave out"})
	}
	items := []Item{}
	if err := s.db.Read(ctx).Where("sku > ?", string(after)).Order("sku").Limit(limit + 1).Find(&items).Error; err != nil {
		return nil, "", err
	}
	if len(items) <= limit {
		return items, "", nil
	}
	items = items[:limit]
	return items, base64.RawURLEncoding.EncodeToString([]byte(items[limit-1].SKU)), nil
}

var skuPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Put creates a SKU with its opening stock (available, 0 when not given), or changes title and price of one that
// exists; created tells which. Its quantity then changes by adjustments only: available is refused, and so is another
// currency, as open orders hold prices in the first.
func (s *Service) Put(ctx context.Context, it Item, available *int64) (out Item, created bool, err error) {
	if !currency.IsValid(it.Currency) {
		return Item{}, false, fault.Unprocessed(fault.Field{Field: "currency", Code: "unknown", Message: "is no ISO 4217 currency"})
	}
	err = s.db.InTx(ctx, "stock_put", func(tx *db.Tx) error {
		known, err := ReadTx(tx, []string{it.SKU})
		if err != nil {
			return err
		}
		old, exists := known[it.SKU]
		if exists && created && old.CreatedAt.Equal(out.CreatedAt.Time) {
			return nil // ours: the answer to our COMMIT was lost, and this is the second run
		}
		if created = !exists; created {
			out = it
			return openTx(tx, &out, available)
		}
		var fields []fault.Field
		if available != nil {
			fields = append(fields, fault.Field{Field: "available", Code: "not_allowed", Message: "the SKU exists: use an adjustment"})
		}
		if it.Currency != old.Currency {
			fields = append(fields, fault.Field{Field: "currency", Code: "not_allowed", Message: "cannot change: it is " + old.Currency})
		}
		if fields != nil {
			return fault.Unprocessed(fields...)
		}
		out = old
		out.Title, out.UnitPrice = it.Title, it.UnitPrice
		out.Version++
		r := tx.Exec("UPDATE stock SET title = ?, unit_price = ?, version = version + 1, updated_at = ? WHERE sku = ? AND version = ?",
			it.Title, it.UnitPrice, tx.Now, it.SKU, old.Version)
		if r.Error == nil && r.RowsAffected == 0 {
			return ErrVersion
		}
		return r.Error
	})
	return out, created, err
}

func openTx(tx *db.Tx, it *Item, available *int64) error {
	if available != nil {
		it.Available = *available
	}
	it.Version, it.CreatedAt, it.UpdatedAt = 1, tx.Now, tx.Now
	if err := tx.Create(it).Error; err != nil {
		return err
	}
	return tx.Create(&Movement{SKU: it.SKU, Kind: Opening, Ref: "opening", Delta: it.Available, At: tx.Now}).Error
}

// Adjust changes a SKU's quantity by delta, once per SKU and adjustmentNo: the same again changes nothing (created is false),
// another delta under the number is 422 adjustment_no_reused, and a result below zero 409 out_of_stock.
func (s *Service) Adjust(ctx context.Context, sku, adjustmentNo string, delta int64, reason string) (out Item, created bool, err error) {
	err = s.db.InTx(ctx, "stock_adjust", func(tx *db.Tx) error {
		// Before the row: a row that was read first could be from before the movement, and so the answer to a repeat.
		var before []Movement
		if err := tx.Where("sku = ? AND kind = ? AND ref = ?", sku, Adjust, adjustmentNo).Find(&before).Error; err != nil {
			return err
		}
		known, err := ReadTx(tx, []string{sku})
		if err != nil {
			return err
		}
		old, exists := known[sku]
		if !exists {
			return errNoSKU()
		}
		if len(before) > 0 {
			if before[0].Delta != delta {
				return fault.New(fault.Unprocessable, "adjustment_no_reused", "this adjustment_no stands for another adjustment",
					fault.Field{Field: "adjustment_no", Code: "reused", Message: "was used for another delta of this SKU"})
			}
			out, created = old, false
			return nil
		}
		if old.Available+delta < 0 {
			return fault.New(fault.Conflict, "out_of_stock", "the stock does not suffice for this adjustment",
				fault.Field{Field: "delta", Code: "out_of_stock", Message: "would bring the quantity below zero"})
		}
		out, created = old, true
		out.Available += delta
		out.Version++
		return MoveTx(tx, []Movement{{SKU: sku, Kind: Adjust, Ref: adjustmentNo, Delta: delta, Reason: reason, At: tx.Now}},
			map[string]int64{sku: old.Version})
	})
	return out, created, err
}

func errNoSKU() error { return fault.New(fault.NotFound, "not_found", "there is no such SKU") }
