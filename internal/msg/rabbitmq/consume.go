package rabbitmq

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"orderd/internal/msg"
)

// Headers of commands.
const (
	triesHeader  = "x-orderd-tries"     // how often it has been put off
	reasonHeader = "x-orderd-reason"    // why it was put off or parked
	parkedHeader = "x-orderd-parked-at" // when it was parked
)

// Consume implements msg.Broker. It connects again, for ever, when the connection is lost.
func (b *Broker) Consume(ctx context.Context, handle msg.Handler) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := b.consume(ctx, handle)
		if ctx.Err() != nil {
			return nil
		}
		b.c.Log.WarnContext(ctx, "consumer disconnected", "error", err)
		if time.Since(began) > time.Minute {
			failures = 0
		}
		if !pause(ctx, failures) {
			return nil
		}
	}
	return nil
}

// consume handles commands over one connection until it breaks or ctx ends.
func (b *Broker) consume(ctx context.Context, handle msg.Handler) error {
	l, err := b.dial(ctx)
	if err != nil {
		return err
	}
	// Closing the connection gives back what is not acknowledged: the broker delivers it again.
	defer l.abort()
	closed, deliveries, err := b.subscribe(ctx, l)
	if err != nil {
		return err
	}
	var inHand sync.WaitGroup // at most Prefetch: the broker sends no more
	defer func() {
		inHand.Wait()
		_ = l.CloseDeadline(time.Now().Add(dialTime)) // in order, so that the last acks arrive
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-deliveries:
			if !ok {
				select {
				case err := <-closed:
					if err != nil {
						return err
					}
				default: // the broker ended the subscription alone: its queue was deleted, or has another leader
				}
				return errLost
			}
			inHand.Go(func() { b.settle(ctx, d, handle) })
		}
	}
}

// subscribe asks for commands. A queue that has no leader just now, as after a restart of the broker, does not answer, and
// the library waits for it without an end: ours is to close the socket.
func (b *Broker) subscribe(ctx context.Context, l *link) (closed chan *amqp.Error, deliveries <-chan amqp.Delivery, err error) {
	ctx, cancel := context.WithTimeout(ctx, subscribeTime)
	defer cancel()
	stop := l.abortWhenDone(ctx)
	defer stop()
	ch, err := l.Channel()
	if err != nil {
		return nil, nil, err
	}
	if err := ch.Qos(b.c.Prefetch, 0, false); err != nil {
		return nil, nil, err
	}
	closed = ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err = ch.Consume(Commands, "", false, false, false, false, nil)
	return closed, deliveries, err
}

// settle has a command handled and tells the broker. To put it off or park it, a copy is sent and confirmed before the
// original is acknowledged: dying in between leaves two, and the inbox knows the second one. A failed ack is no error:
// the connection is gone, and the command comes again.
func (b *Broker) settle(ctx context.Context, d amqp.Delivery, handle msg.Handler) {
	in := msg.Delivery{Body: d.Body, Tries: tries(d.Headers)}
	answer := b.c.Schedule.Judge(ctx, handle, in)
	if answer.Done() {
		_ = d.Ack(false)
		return
	}
	out := outgoing{key: delayQueue(b.c.Schedule.Delay(in.Tries)), Publishing: amqp.Publishing{MessageId: d.MessageId,
		ContentType: d.ContentType, DeliveryMode: amqp.Persistent, Body: d.Body,
		Headers: amqp.Table{triesHeader: int32(in.Tries + 1), reasonHeader: short(answer.Reason)}}}
	if answer.Parked() {
		out.key = parking
		out.Headers[parkedHeader] = time.Now().UTC()
	}
	if err := b.sendOne(context.WithoutCancel(ctx), out); err != nil {
		b.c.Log.WarnContext(ctx, "command not put off or parked; it comes again", "queue", out.key, "error", err)
		_ = d.Nack(false, true)
		return
	}
	_ = d.Ack(false)
}

func (b *Broker) sendOne(ctx context.Context, m outgoing) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	return b.send.all(ctx, []outgoing{m})[0]
}

func tries(h amqp.Table) int {
	switch n := h[triesHeader].(type) { // other clients may write other widths
	case int32:
		return max(0, int(n))
	case int64:
		return max(0, int(min(n, 1<<20)))
	}
	return 0
}

// short bounds a header: a frame must take all of them.
func short(s string) string { return s[:min(len(s), 1000)] }
