package db_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/order"
	"orderd/internal/payment"
	"orderd/internal/stock"
)

// A batch of orders is one INSERT, the same on each engine, and a duplicate in the middle of it is seen.
func TestCreateOrders(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		require.NoError(t, d.Migrate(t.Context()))
		batch := func(from, n int, now db.Time) []order.Order {
			var list []order.Order
			for i := range n {
				list = append(list, order.Order{OrderNo: "O-" + strconv.Itoa(from+i), UserID: "u", Status: "CREATED", Currency: "CNY",
					Amount: 100, Version: 1, Note: "\U0001F600", CreatedAt: now, UpdatedAt: now, ExpiresAt: db.At(now.Add(time.Hour))})
			}
			return list
		}
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			orders := batch(0, 5, tx.Now)
			r := tx.Create(&orders)
			require.EqualValues(t, 5, r.RowsAffected)
			items := []order.Item{{OrderNo: "O-0", SKU: "A", Quantity: 2, UnitPrice: 25, Amount: 50},
				{OrderNo: "O-0", SKU: "B", Quantity: 1, UnitPrice: 50, Amount: 50}}
			return errors.Join(r.Error, tx.Create(&items).Error)
		}))
		var stored []order.Order
		require.NoError(t, d.Read(t.Context()).Order("id").Find(&stored).Error)
		require.Len(t, stored, 5)
		require.Equal(t, "O-4", stored[4].OrderNo)
		require.Equal(t, "\U0001F600", stored[0].Note)
		require.Nil(t, stored[0].PaidAt)
		require.Equal(t, stored[0].CreatedAt.Add(time.Hour), stored[0].ExpiresAt.Time)

		err := d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			orders := slices.Concat(batch(8, 2, tx.Now), batch(4, 1, tx.Now), batch(10, 2, tx.Now)) // the third is there already
			return tx.Create(&orders).Error
		})
		require.True(t, db.IsDuplicate(err), "%v", err)
		require.EqualValues(t, 5, number(t, d, "SELECT COUNT(*) FROM orders"))

		// Letters of either case make different order numbers.
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			orders := batch(0, 3, tx.Now)
			orders[0].OrderNo, orders[1].OrderNo, orders[2].OrderNo = "abc", "ABC", "abcd"
			return tx.Create(&orders).Error
		}))
		require.EqualValues(t, 1, number(t, d, "SELECT COUNT(*) FROM orders WHERE order_no = 'ABC'"))
	})
}

// Each model fits its table: what is created is found again, field by field.
func TestModelsFitTheirTables(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		require.NoError(t, d.Migrate(t.Context()))
		one, url := 1, "https://pay.example/1"
		p := payment.Payment{PaymentNo: "P", OrderNo: "O", Attempt: 1, Gateway: "sandbox", Status: "INIT", Amount: 100, Currency: "CNY",
			PayURL: &url, OpenSlot: &one, NextCheckAt: &at, CreatedAt: at, UpdatedAt: at}
		r := payment.Refund{RefundNo: "R", PaymentNo: "P", OrderNo: "O", Amount: 100, Currency: "CNY", Reason: "LATE_PAYMENT", Automatic: &one,
			Status: "PENDING", Restock: true, CreatedAt: at, UpdatedAt: at}
		s := stock.Item{SKU: "A", Title: "T", UnitPrice: 100, Currency: "CNY", Available: 1, Version: 1, CreatedAt: at, UpdatedAt: at}
		i := order.Item{OrderNo: "O", SKU: "A", Title: "T", Quantity: 1, UnitPrice: 100, Amount: 100}
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			return errors.Join(tx.Create(&p).Error, tx.Create(&r).Error, tx.Create(&s).Error, tx.Create(&i).Error)
		}))
		read := d.Read(t.Context())
		var p2 payment.Payment
		var r2 payment.Refund
		var s2 stock.Item
		var i2 order.Item
		require.NoError(t, errors.Join(read.Take(&p2).Error, read.Take(&r2).Error, read.Take(&s2).Error, read.Take(&i2).Error))
		require.Equal(t, []any{p, r, s, i}, []any{p2, r2, s2, i2})
	})
}
