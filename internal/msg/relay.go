package msg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"orderd/internal/db"
	"orderd/internal/failpoint"
	"orderd/internal/metrics"
)

const (
	relayBatch  = 500              // events per round, of as many orders
	relayLease  = 20 * time.Second // how long a claimed event is one relay's
	publishTime = 5 * time.Second  // until a batch must be confirmed: well inside the lease
	maxBackoff  = time.Minute      // between tries of an event that nobody takes
	firstRest   = 200 * time.Millisecond
	maxRest     = 5 * time.Second // between tries to reach the broker
)

// Relay publishes the outbox. Any number of relays may run: an event is claimed by a lease, set by compare-and-set.
//
// Of an order only the head is ever published, the first event that is not marked yet: the next one has its turn when
// the mark is committed. So the events of an order go out one after the other, however many relays there are, and
// whichever of them dies.
type Relay struct {
	DB      *db.DB
	Broker  Broker
	Owner   int64 // this relay's number in leases: not 0, and no other's
	Metrics *metrics.Metrics
	Log     *slog.Logger

	failures int       // of the broker, in a row
	rest     time.Time // until then it is left alone
}

// pending is a row of the outbox that is not published.
type pending struct {
	ID       int64
	Attempts int64
	Message  `gorm:"embedded"`
}

// RunOnce publishes one batch and returns the number of events that the broker has. An event that it does not have
// stays. The error is that of the broker or the database as a whole; after it the broker is left alone for a while, and
// RunOnce does nothing. One goroutine calls it.
func (r *Relay) RunOnce(ctx context.Context) (int, error) {
	if time.Now().Before(r.rest) {
		return 0, nil
	}
	n, err := r.round(ctx)
	if err == nil || n > 0 {
		r.failures = 0
		return n, err
	}
	d := min(firstRest<<min(r.failures, 10), maxRest)
	r.rest = time.Now().Add(d/2 + rand.N(d/2))
	r.failures++
	return 0, fmt.Errorf("relay: %w", err)
}

func (r *Relay) round(ctx context.Context) (int, error) {
	if err := r.ping(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	batch, err := r.claim(ctx)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	// A claimed batch is seen through, also at shutdown. Dying after the claim: the lease runs out, and any relay goes on.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), began.Add(publishTime))
	defer cancel()
	events := make([]Message, len(batch))
	for i, p := range batch {
		events[i] = p.Message
	}
	failpoint.Here("relay.publish")
	errs := r.Broker.Publish(ctx, events)
	// Dying here: the broker has them and nobody knows. They are published again, under the same ids.
	failpoint.Here("relay.published")
	return r.settle(context.WithoutCancel(ctx), batch, errs)
}

// ping keeps a relay without a broker from claiming what it could not publish.
func (r *Relay) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	return r.Broker.Ping(ctx)
}

// claim takes the lease of up to relayBatch heads.
func (r *Relay) claim(ctx context.Context) ([]pending, error) {
	var ids []int64
	err := r.DB.Read(ctx).Raw(`SELECT m.id FROM outbox_messages m
		WHERE m.published_at IS NULL AND m.lease_until < ?
		AND NOT EXISTS (SELECT 1 FROM outbox_messages before_it
			WHERE before_it.order_no = m.order_no AND before_it.seq = m.seq - 1 AND before_it.published_at IS NULL)
		ORDER BY m.id LIMIT ?`, r.DB.SQLNow(), relayBatch).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	n, err := r.DB.Exec(ctx, "relay_claim", `UPDATE outbox_messages SET lease_owner = ?, lease_until = ?
		WHERE id IN ? AND published_at IS NULL AND lease_until < ?`,
		r.Owner, r.DB.SQLNowPlus(relayLease), ids, r.DB.SQLNow())
	if err != nil || n == 0 {
		return nil, err
	}
	var batch []pending
	err = r.DB.Read(ctx).Table("outbox_messages").Where("id IN ? AND lease_owner = ? AND published_at IS NULL AND lease_until > ?",
		ids, r.Owner, r.DB.SQLNowPlus(publishTime)).Order("id").Find(&batch).Error
	return batch, err
}

// settle marks what the broker has, and gives the rest back: at once if the broker failed, after a while if it does not
// want this very event.
func (r *Relay) settle(ctx context.Context, batch []pending, errs []error) (int, error) {
	var published, unsent []int64
	refused := map[int64][]int64{} // by attempts
	var failure error
	for i, p := range batch {
		switch err := errs[i]; {
		case err == nil:
			published = append(published, p.ID)
		case errors.Is(err, ErrUnroutable):
			refused[p.Attempts] = append(refused[p.Attempts], p.ID)
			r.Metrics.Alerts.WithLabelValues("event_unroutable").Inc()
			r.Log.ErrorContext(ctx, "alert: event_unroutable", "message_id", p.MessageID, "event", p.Event)
		default:
			unsent, failure = append(unsent, p.ID), err
		}
	}
	r.Metrics.Events.WithLabelValues("published").Add(float64(len(published)))
	r.Metrics.Events.WithLabelValues("failed").Add(float64(len(batch) - len(published)))
	err := r.mark(ctx, published)
	for attempts, ids := range refused {
		err = errors.Join(err, r.release(ctx, ids, r.DB.SQLNowPlus(min(time.Second<<min(attempts, 10), maxBackoff))))
	}
	err = errors.Join(err, r.release(ctx, unsent, r.DB.SQLNow()))
	if failure != nil {
		err = errors.Join(err, fmt.Errorf("%d events not confirmed: %w", len(unsent), failure))
	}
	return len(published), err
}

func (r *Relay) mark(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	// lease_owner: of a relay that was paused until another took over, only the other marks.
	_, err := r.DB.Exec(ctx, "relay_mark", `UPDATE outbox_messages SET published_at = ?
		WHERE id IN ? AND lease_owner = ? AND published_at IS NULL`, r.DB.SQLNow(), ids, r.Owner)
	return err
}

// release ends the lease of events that the broker does not have. Until until nobody claims them.
func (r *Relay) release(ctx context.Context, ids []int64, until any) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := r.DB.Exec(ctx, "relay_release", `UPDATE outbox_messages SET attempts = attempts + 1, lease_owner = 0, lease_until = ?
		WHERE id IN ? AND lease_owner = ? AND published_at IS NULL`, until, ids, r.Owner)
	return err
}
