package rabbitmq

import (
	"context"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"orderd/internal/msg"
)

// Parked implements msg.Broker.
func (b *Broker) Parked(ctx context.Context, limit int) ([]msg.Parked, error) {
	var list []msg.Parked
	err := b.walk(ctx, func(d amqp.Delivery) (bool, error) {
		if len(list) < limit {
			at, _ := d.Headers[parkedHeader].(time.Time)
			list = append(list, msg.Parked{Key: msg.Key(d.Body), Reason: reason(d.Headers), At: at, Body: d.Body})
		}
		return len(list) < limit, nil
	})
	return list, err
}

// Retry implements msg.Broker. A command is taken from the parked ones when the broker has its copy: dying in between
// leaves both, and the inbox knows the second one.
func (b *Broker) Retry(ctx context.Context, keys ...string) (int, error) {
	return b.take(ctx, keys, func(d amqp.Delivery) error {
		return b.sendOne(ctx, outgoing{key: Commands, Publishing: amqp.Publishing{MessageId: d.MessageId, ContentType: d.ContentType,
			DeliveryMode: amqp.Persistent, Body: d.Body}})
	})
}

// Drop implements msg.Broker.
func (b *Broker) Drop(ctx context.Context, keys ...string) (int, error) {
	return b.take(ctx, keys, func(amqp.Delivery) error { return nil })
}

func (b *Broker) take(ctx context.Context, keys []string, first func(amqp.Delivery) error) (int, error) {
	n := 0
	err := b.walk(ctx, func(d amqp.Delivery) (bool, error) {
		if len(keys) > 0 && !slices.Contains(keys, msg.Key(d.Body)) {
			return true, nil
		}
		if err := first(d); err != nil {
			return false, err
		}
		n++
		return true, d.Ack(false)
	})
	return n, err
}

// walk shows the parked commands to each, until it returns false. Those that it does not acknowledge are given back,
// in their places, when the connection closes.
func (b *Broker) walk(ctx context.Context, each func(amqp.Delivery) (bool, error)) error {
	l, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer l.abort()
	stop := l.abortWhenDone(ctx)
	defer stop()
	ch, err := l.Channel()
	if err != nil {
		return err
	}
	q, err := ch.QueueDeclarePassive(parking, true, false, false, false, nil)
	if err != nil {
		return err
	}
	for range q.Messages { // not those that are parked meanwhile
		d, ok, err := ch.Get(parking, false)
		if err != nil || !ok {
			return err
		}
		if more, err := each(d); err != nil || !more {
			return err
		}
	}
	return l.CloseDeadline(time.Now().Add(dialTime)) // in order, so that the last ack arrives
}

// reason tells why a command is here. If we did not say so, the broker moved it: it was delivered too often.
func reason(h amqp.Table) string {
	if r, ok := h[reasonHeader].(string); ok {
		if _, ours := h[parkedHeader]; ours {
			return r
		}
	}
	return "delivered too often without an answer: it takes its consumer down"
}
