package msg

import (
	"context"
	"time"

	"orderd/internal/db"
)

// pruneBatch bounds one DELETE, so that it holds few locks for a short time.
const pruneBatch = 200

// Prune removes published messages, and received ones, that are older than keep: at most pruneBatch of each. It returns
// how many. What is not published stays, however old it is; a received message has had its outcome from the start.
func Prune(ctx context.Context, d *db.DB, keep time.Duration) (int, error) {
	var ids []int64
	err := d.Read(ctx).Model(&Message{}).Where("published_at < ?", d.SQLNowPlus(-keep)).
		Order("published_at").Limit(pruneBatch).Pluck("id", &ids).Error
	if err != nil {
		return 0, err
	}
	var sent, received int64
	if len(ids) > 0 {
		sent, err = d.Exec(ctx, "prune_outbox", "DELETE FROM outbox_messages WHERE id IN ? AND published_at < ?", ids, d.SQLNowPlus(-keep))
		if err != nil {
			return 0, err
		}
	}
	var rows []Received
	err = d.Read(ctx).Where("received_at < ?", d.SQLNowPlus(-keep)).Order("received_at").Limit(pruneBatch).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return int(sent), err
	}
	pairs := make([][2]string, len(rows))
	for i, r := range rows {
		pairs[i] = [2]string{r.Source, r.MessageID}
	}
	condition, args := db.AnyPair("source", "message_id", pairs)
	received, err = d.Exec(ctx, "prune_inbox", "DELETE FROM inbox_messages WHERE "+condition+" AND received_at < ?", append(args, d.SQLNowPlus(-keep))...)
	return int(sent + received), err
}
