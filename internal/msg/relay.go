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

// RelayBatch is how many orders one round of a relay takes on.
const RelayBatch = 500

const (
	relayLease  = 20 * time.Second // how long a claimed order is one relay's
	publishTime = 5 * time.Second  // until all of a round must be confirmed: well inside the lease
	maxBackoff  = time.Minute      // between tries of an event that nobody takes
	firstRest   = 200 * time.Millisecond
	maxRest     = 5 * time.Second // between tries to reach the broker
)

// Relay publishes the outbox. Any number of relays may run: an order is claimed by a lease on its head, the first of its
// events that is not marked, set by compare-and-set.
//
// The events that follow a head go out in the same round, each when the broker has the one before it. The next head is the
// first that is not marked then. So the events of an order go out one after the other, however many relays there are, and
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

// RunOnce makes one round and returns the number of events that the broker has. An event that it does not have
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
	orders, err := r.claim(ctx)
	if err != nil || len(orders) == 0 {
		return 0, err
	}
	// What was claimed is seen through, also at shutdown. Dying after the claim: the lease runs out, and any relay goes on.
	deadline, cancel := context.WithDeadline(context.WithoutCancel(ctx), began.Add(publishTime))
	defer cancel()
	failpoint.Here("relay.publish")
	published, unsent := r.publish(deadline, orders)
	// Dying here: the broker has them and nobody knows. They are published again, under the same ids.
	failpoint.Here("relay.published")
	return len(published), r.settle(context.WithoutCancel(ctx), published, unsent)
}

// notSent is an event that the broker does not have, as far as we know.
type notSent struct {
	pending
	err error
}

// publish hands over the first event of each order, then the second one of those whose first the broker has, and so on.
func (r *Relay) publish(ctx context.Context, orders [][]pending) (published []int64, unsent []notSent) {
	for len(orders) > 0 {
		events := make([]Message, len(orders))
		for i, o := range orders {
			events[i] = o[0].Message
		}
		var next [][]pending
		for i, err := range r.Broker.Publish(ctx, events) {
			o := orders[i]
			if err != nil { // what follows it waits
				unsent = append(unsent, notSent{o[0], err})
				continue
			}
			if published = append(published, o[0].ID); len(o) > 1 {
				next = append(next, o[1:])
			}
		}
		orders = next
	}
	return published, unsent
}

// ping keeps a relay without a broker from claiming what it could not publish.
func (r *Relay) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	return r.Broker.Ping(ctx)
}

// claim takes the lease of up to RelayBatch heads, and returns the events of each of their orders.
func (r *Relay) claim(ctx context.Context) ([][]pending, error) {
	var heads []int64
	err := r.DB.Read(ctx).Raw(`SELECT m.id FROM outbox_messages m
		WHERE m.published_at IS NULL AND m.lease_until < ?
		AND NOT EXISTS (SELECT 1 FROM outbox_messages before_it
			WHERE before_it.order_no = m.order_no AND before_it.seq = m.seq - 1 AND before_it.published_at IS NULL)
		ORDER BY m.id LIMIT ?`, r.DB.SQLNow(), RelayBatch).Scan(&heads).Error
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	n, err := r.DB.Exec(ctx, "relay_claim", `UPDATE outbox_messages SET lease_owner = ?, lease_until = ?
		WHERE id IN ? AND published_at IS NULL AND lease_until < ?`,
		r.Owner, r.DB.SQLNowPlus(relayLease), heads, r.DB.SQLNow())
	if err != nil || n == 0 {
		return nil, err
	}
	var events []pending
	err = r.DB.Read(ctx).Raw(`SELECT m.* FROM outbox_messages head JOIN outbox_messages m ON m.order_no = head.order_no AND m.seq >= head.seq
		WHERE head.id IN ? AND head.lease_owner = ? AND head.published_at IS NULL AND head.lease_until > ? AND m.published_at IS NULL
		ORDER BY head.id, m.seq`, heads, r.Owner, r.DB.SQLNowPlus(publishTime)).Scan(&events).Error
	var orders [][]pending
	for i, e := range events {
		if i == 0 || e.OrderNo != events[i-1].OrderNo {
			orders = append(orders, nil)
		}
		orders[len(orders)-1] = append(orders[len(orders)-1], e)
	}
	return orders, err
}

// settle gives back what the broker does not have, at once if the broker failed, after a while if it does not want this
// very event; and then marks what it has.
func (r *Relay) settle(ctx context.Context, published []int64, unsent []notSent) error {
	var again []int64
	refused := map[int64][]int64{} // by attempts
	var failure error
	for _, f := range unsent {
		if !errors.Is(f.err, ErrUnroutable) {
			again, failure = append(again, f.ID), f.err
			continue
		}
		refused[f.Attempts] = append(refused[f.Attempts], f.ID)
		r.Metrics.Alerts.WithLabelValues("event_unroutable").Inc()
		r.Log.ErrorContext(ctx, "alert: event_unroutable", "message_id", f.Message.ID(), "event", f.Event)
	}
	r.Metrics.Events.WithLabelValues("published").Add(float64(len(published)))
	r.Metrics.Events.WithLabelValues("failed").Add(float64(len(unsent)))
	err := r.release(ctx, again, r.DB.SQLNow())
	for attempts, ids := range refused {
		err = errors.Join(err, r.release(ctx, ids, r.DB.SQLNowPlus(min(time.Second<<min(attempts, 10), maxBackoff))))
	}
	err = errors.Join(err, r.mark(ctx, published))
	if failure != nil {
		err = errors.Join(err, fmt.Errorf("%d events not confirmed: %w", len(again), failure))
	}
	return err
}

// mark says of events that the broker has them. That is true whoever holds the lease by now.
func (r *Relay) mark(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := r.DB.Exec(ctx, "relay_mark", "UPDATE outbox_messages SET published_at = ? WHERE id IN ? AND published_at IS NULL", r.DB.SQLNow(), ids)
	return err
}

// release ends the lease of events that the broker does not have: of heads, and of events that would be heads now, which
// have none. Until until nobody claims them. A relay that was paused until another one took over takes no lease from it.
func (r *Relay) release(ctx context.Context, ids []int64, until any) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := r.DB.Exec(ctx, "relay_release", `UPDATE outbox_messages SET attempts = attempts + 1, lease_owner = 0, lease_until = ?
		WHERE id IN ? AND lease_owner IN (0, ?) AND published_at IS NULL`, until, ids, r.Owner)
	return err
}
