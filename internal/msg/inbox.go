package msg

import (
	"context"
	"maps"
	"slices"

	"gorm.io/gorm"

	"orderd/internal/db"
)

// Received is one row of the inbox: a message that had its effect. (Source, MessageID) is the key.
type Received struct {
	Source      string `gorm:"primaryKey"`
	MessageID   string `gorm:"primaryKey"`
	PayloadHash string // hex SHA-256 of what was received
	OrderNo     string
	Kind        string // what it reported
	Outcome     string // applied, refund_opened, ignored, or refused: and the code of the refusal
	Duplicates  int64  // later arrivals
	ReceivedAt  db.Time
}

// TableName implements gorm's Tabler.
func (Received) TableName() string { return "inbox_messages" }

// ID names a message in the inbox.
type ID struct{ Source, MessageID string }

// Known returns those of the ids that are in the inbox.
func Known(q *gorm.DB, ids []ID) (map[ID]Received, error) {
	known := map[ID]Received{}
	pairs := make([][2]string, len(ids))
	for i, id := range ids {
		pairs[i] = [2]string{id.Source, id.MessageID}
	}
	condition, args := db.AnyPair("source", "message_id", pairs)
	var rows []Received
	if err := q.Where(condition, args...).Find(&rows).Error; err != nil {
		return nil, err
	}
	for _, r := range rows {
		known[ID{r.Source, r.MessageID}] = r
	}
	return known, nil
}

// Find returns what the inbox has of a message, or nil.
func Find(ctx context.Context, d *db.DB, id ID) (*Received, error) {
	var rows []Received
	err := d.Read(ctx).Where("source = ? AND message_id = ?", id.Source, id.MessageID).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// ReceiveTx writes messages to the inbox, before their effect and in its transaction. A duplicate key means that a twin
// is being handled at this moment: the transaction is run again, and then finds it known.
//
// The classic mistake is to write the row after the effect, or elsewhere (a cache): whoever dies in between has had the
// effect and will have it again.
func ReceiveTx(tx *db.Tx, ms []Received) error {
	if len(ms) == 0 {
		return nil
	}
	return tx.Create(&ms).Error
}

// CountDuplicates notes one more arrival of messages that are known, or two of one that is named twice. Dying before it
// loses a count.
func CountDuplicates(ctx context.Context, d *db.DB, ids []ID) error {
	return countDuplicates(ids, func(statement string, args ...any) error {
		_, err := d.Exec(ctx, "inbox_duplicate", statement, args...)
		return err
	})
}

// CountDuplicatesTx is CountDuplicates in a transaction.
func CountDuplicatesTx(tx *db.Tx, ids []ID) error {
	return countDuplicates(ids, func(statement string, args ...any) error { return tx.Exec(statement, args...).Error })
}

func countDuplicates(ids []ID, exec func(statement string, args ...any) error) error {
	times := map[ID]int{}
	for _, id := range ids {
		times[id]++
	}
	pairs := map[int][][2]string{}
	for id, n := range times {
		pairs[n] = append(pairs[n], [2]string{id.Source, id.MessageID})
	}
	for _, n := range slices.Sorted(maps.Keys(pairs)) {
		condition, args := db.AnyPair("source", "message_id", pairs[n])
		if err := exec("UPDATE inbox_messages SET duplicates = duplicates + ? WHERE "+condition, append([]any{n}, args...)...); err != nil {
			return err
		}
	}
	return nil
}
