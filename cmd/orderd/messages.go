package main

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"orderd/internal/db"
	"orderd/internal/httpapi"
	"orderd/internal/idem"
	"orderd/internal/metrics"
	"orderd/internal/msg"
	"orderd/internal/msg/rabbitmq"
	"orderd/internal/order"
)

const (
	pruneInterval = time.Minute
	pruneKeys     = 500 // Idempotency-Keys a round
)

// openBroker returns RabbitMQ if it is configured, else a broker in this process, whose events end in the debug log.
func (s *Settings) openBroker(log *slog.Logger) (msg.Broker, error) {
	if s.AMQPURL != "" {
		return rabbitmq.New(rabbitmq.Config{URL: s.AMQPURL, Log: log})
	}
	if !s.embedded() {
		log.Warn("no RabbitMQ is configured: events go nowhere, and no commands come in")
	}
	local := msg.NewLocal(msg.Schedule{})
	local.Subscribe(func(ctx context.Context, m msg.Message) error {
		log.DebugContext(ctx, "event", "message_id", m.ID(), "event", m.Event)
		return nil
	})
	return local, nil
}

// consume carries out commands until ctx ends, and then gives back those that are not in hand.
func consume(ctx context.Context, b msg.Broker, orders *order.Service) error {
	check, err := httpapi.Checker()
	if err != nil {
		return err
	}
	return b.Consume(ctx, orders.Commands(check))
}

// publish runs the relay and the pruner until ctx ends.
func (s *Settings) publish(ctx context.Context, working *errgroup.Group, b msg.Broker, d *db.DB, m *metrics.Metrics, log *slog.Logger) {
	relay := &msg.Relay{DB: d, Broker: b, Owner: 1 + rand.Int64N(math.MaxInt64), Metrics: m, Log: log}
	working.Go(func() error {
		work(ctx, "relay", s.WorkerInterval, log, func(ctx context.Context) (int, error) {
			n, err := relay.RunOnce(ctx)
			if n < msg.RelayBatch { // not a full round, or not all went out: what comes meanwhile shares the next one
				n = 0
			}
			return n, err
		})
		return nil
	})
	working.Go(func() error {
		work(ctx, "pruner", pruneInterval, log, func(ctx context.Context) (int, error) {
			messages, err := msg.Prune(ctx, d, s.Keep)
			if err != nil {
				return messages, err
			}
			keys, err := idem.PruneKeys(ctx, d, pruneKeys)
			return messages + int(keys), err
		})
		return nil
	})
}
