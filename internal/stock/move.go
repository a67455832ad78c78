package stock

import (
	"fmt"
	"slices"
	"strings"

	"orderd/internal/db"
)

// Kinds of movement.
const (
	Opening = "OPENING" // the quantity a SKU starts with
	Reserve = "RESERVE" // taken by an order
	Release = "RELEASE" // given back by a cancelled order
	Return  = "RETURN"  // given back with a refund
	Adjust  = "ADJUST"  // counted anew by a person
)

// ErrVersion says that a SKU had changed since its version was read. The transaction is run again, and reads it afresh.
var ErrVersion = fmt.Errorf("stock: another version: %w", db.ErrConflict)

// Movement changes a SKU's quantity by Delta, once: (SKU, Kind, Ref) is unique. Ref is an order_no or adjustment_no.
type Movement struct {
	SKU    string `gorm:"column:sku"`
	Kind   string
	Ref    string
	Delta  int64
	Reason string
	At     db.Time
}

// TableName implements gorm's Tabler.
func (Movement) TableName() string { return "stock_movements" }

// ReadTx returns the rows of the given SKUs, by SKU; unknown ones are missing.
func ReadTx(tx *db.Tx, skus []string) (map[string]Item, error) {
	var rows []Item
	if err := tx.Where("sku IN ?", skus).Find(&rows).Error; err != nil {
		return nil, err
	}
	items := make(map[string]Item, len(rows))
	for _, r := range rows {
		items[r.SKU] = r
	}
	return items, nil
}

// MoveTx books the movements and changes the quantities by one statement over all SKUs. Stock comes last in a
// transaction: a popular SKU's row is locked from here to COMMIT, by everybody.
//
// versions, where given, are those that the decision to take stock was based on: a row with another version is not
// changed, and the error is ErrVersion. Zero rows taken for success would be an oversell. Giving back needs none: it is
// right whatever the quantity is now.
func MoveTx(tx *db.Tx, moves []Movement, versions map[string]int64) error {
	if len(moves) == 0 {
		return nil
	}
	slices.SortFunc(moves, func(a, b Movement) int { // every transaction locks in this order, so none waits in a circle
		return strings.Compare(a.SKU+" "+a.Ref, b.SKU+" "+b.Ref)
	})
	if err := tx.Create(&moves).Error; err != nil {
		return err
	}
	delta := map[string]int64{}
	var skus []string
	for _, m := range moves {
		if !slices.Contains(skus, m.SKU) {
			skus = append(skus, m.SKU)
		}
		delta[m.SKU] += m.Delta
	}
	change, changeArgs := bySKU(skus, delta)
	sql := "UPDATE stock SET available = available + " + change + ", version = version + 1, updated_at = ? WHERE sku IN ? AND available + " + change + " >= 0"
	args := append(append(slices.Clone(changeArgs), tx.Now, skus), changeArgs...)
	if versions != nil {
		version, versionArgs := bySKU(skus, versions)
		sql += " AND version = " + version
		args = append(args, versionArgs...)
	}
	r := tx.Exec(sql, args...)
	if r.Error == nil && r.RowsAffected != int64(len(skus)) {
		return ErrVersion
	}
	return r.Error
}

// bySKU forms CASE sku WHEN ? THEN ? ... END.
func bySKU(skus []string, values map[string]int64) (sql string, args []any) {
	for _, sku := range skus {
		args = append(args, sku, values[sku])
	}
	return "CASE sku" + strings.Repeat(" WHEN ? THEN ?", len(skus)) + " END", args
}
