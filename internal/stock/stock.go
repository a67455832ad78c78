// Package stock keeps the items for sale: a versioned quantity per SKU, and a ledger of every movement of it.
package stock

import "orderd/internal/db"

// Item is a SKU. UnitPrice is in minor units of Currency; Available is never negative and equals the sum of its movements.
type Item struct {
	SKU       string  `json:"sku" gorm:"column:sku;primaryKey"`
	Title     string  `json:"title"`
	UnitPrice int64   `json:"unit_price"`
	Currency  string  `json:"currency"`
	Available int64   `json:"available"`
	Version   int64   `json:"version"`
	CreatedAt db.Time `json:"-"`
	UpdatedAt db.Time `json:"-"`
}

// TableName implements gorm's Tabler.
func (Item) TableName() string { return "stock" }
