package idem

import (
	"context"
	"slices"
	"strings"
	"time"

	"orderd/internal/db"
)

// KeyTTL is how long an Idempotency-Key stands for its order.
const KeyTTL = 24 * time.Hour

// Key is one row of idempotency_keys: (UserID, Key) is unique, so that a key is one user's, and its insert in the
// transaction that creates the order decides between twins. It names an order and stores no answer: what is replayed is
// the order as it is now, and a failure is not replayed at all.
//
// The classic mistake is to keep keys in a cache: a flush executes everything a second time.
type Key struct {
	UserID      string `gorm:"primaryKey"`
	Key         string `gorm:"column:idempotency_key;primaryKey"`
	OrderNo     string
	Fingerprint string
	CreatedAt   db.Time
	ExpiresAt   db.Time
}

// TableName implements gorm's Tabler.
func (Key) TableName() string { return "idempotency_keys" }

// FindKey returns what a user's key stands for, or nil.
func FindKey(ctx context.Context, d *db.DB, userID, key string) (*Key, error) {
	var rows []Key
	err := d.Read(ctx).Where("user_id = ? AND idempotency_key = ? AND expires_at > ?", userID, key, d.SQLNow()).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// KeysTx returns the live ones of the keys, given as pairs of user and key. Expired ones that the reaper has not come to
// yet are removed, so that they can be bound anew.
func KeysTx(tx *db.Tx, pairs [][2]string) ([]Key, error) {
	var live []Key
	if len(pairs) == 0 {
		return nil, nil
	}
	condition, args := db.AnyPair("user_id", "idempotency_key", pairs)
	if err := tx.Where(condition, args...).Find(&live).Error; err != nil {
		return nil, err
	}
	found := len(live)
	live = slices.DeleteFunc(live, func(k Key) bool { return !k.ExpiresAt.After(tx.Now.Time) })
	if len(live) == found {
		return live, nil
	}
	return live, tx.Exec("DELETE FROM idempotency_keys WHERE "+condition+" AND expires_at <= ?", append(args, tx.Now)...).Error
}

// BindTx inserts keys for KeyTTL from now.
func BindTx(tx *db.Tx, keys []Key) error {
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.UserID+" "+a.Key, b.UserID+" "+b.Key) })
	for i := range keys {
		keys[i].CreatedAt, keys[i].ExpiresAt = tx.Now, db.At(tx.Now.Add(KeyTTL))
	}
	return tx.Create(&keys).Error
}

// PruneKeys removes keys past their time, at most limit, and returns how many.
func PruneKeys(ctx context.Context, d *db.DB, limit int) (int64, error) {
	var rows []Key
	if err := d.Read(ctx).Where("expires_at <= ?", d.SQLNow()).Order("expires_at").Limit(limit).Find(&rows).Error; err != nil || len(rows) == 0 {
		return 0, err
	}
	pairs := make([][2]string, len(rows))
	for i, r := range rows {
		pairs[i] = [2]string{r.UserID, r.Key}
	}
	condition, args := db.AnyPair("user_id", "idempotency_key", pairs)
	return d.Exec(ctx, "prune_keys", "DELETE FROM idempotency_keys WHERE "+condition+" AND expires_at <= ?", append(args, d.SQLNow())...)
}
