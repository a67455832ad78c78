package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"orderd/internal/msg"
)

// sendBatch bounds the messages that are under way without a confirm: as many returns must fit into their channel.
const sendBatch = 512

var (
	errNacked = errors.New("rabbitmq: the broker refused the message, or was lost before it confirmed it")
	errLost   = errors.New("rabbitmq: the connection was lost")
)

// outgoing is a message and where it goes.
type outgoing struct {
	exchange, key string
	amqp.Publishing
}

// sender publishes with confirms. One batch at a time has the channel.
type sender struct {
	b *Broker

	turn    chan struct{} // a mutex for what is below that can be waited for with a context
	link    *link
	channel *amqp.Channel
	returns chan amqp.Return
}

// Ping implements msg.Broker.
func (b *Broker) Ping(ctx context.Context) error {
	unlock, err := b.send.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return b.send.connect(ctx)
}

// Publish implements msg.Broker. Events are persistent; the id is the AMQP message-id too.
func (b *Broker) Publish(ctx context.Context, events []msg.Message) []error {
	ms := make([]outgoing, len(events))
	for i, e := range events {
		ms[i] = outgoing{Events, e.Event, amqp.Publishing{MessageId: e.ID(), Type: e.Event, Timestamp: e.CreatedAt.Time, AppId: "orderd",
			ContentType: "application/cloudevents+json", DeliveryMode: amqp.Persistent, Body: []byte(e.Payload)}}
	}
	return b.send.all(ctx, ms)
}

// all publishes ms in their order and waits until each is confirmed, or ctx ends. An error for each.
func (s *sender) all(ctx context.Context, ms []outgoing) []error {
	errs := make([]error, 0, len(ms))
	unlock, err := s.lock(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(ms))
	}
	defer unlock()
	for len(ms) > 0 {
		n := min(len(ms), sendBatch)
		errs = append(errs, s.batch(ctx, ms[:n])...)
		ms = ms[n:]
	}
	return errs
}

func (s *sender) batch(ctx context.Context, ms []outgoing) []error {
	if err := s.connect(ctx); err != nil {
		return slices.Repeat([]error{err}, len(ms))
	}
	errs := make([]error, len(ms))
	// A broker that no longer reads blocks the write to it: when the time is over, the socket is closed under the writer.
	stop := s.link.abortWhenDone(ctx)
	confirms := make([]*amqp.DeferredConfirmation, len(ms))
	for i, m := range ms {
		confirms[i], errs[i] = s.channel.PublishWithDeferredConfirm(m.exchange, m.key, true, false, m.Publishing)
	}
	for i, c := range confirms {
		if errs[i] == nil {
			errs[i] = confirmed(ctx, c)
		}
	}
	if !stop() {
		s.reset()
	}
	// A message that no queue takes comes back first, and is then confirmed: the return decides.
	returned := map[string]bool{}
	for range len(s.returns) {
		r := <-s.returns
		returned[r.MessageId] = true
	}
	for i, m := range ms {
		if errs[i] == nil && returned[m.MessageId] {
			errs[i] = fmt.Errorf("%w: exchange %q, key %q", msg.ErrUnroutable, m.exchange, m.key)
		}
	}
	for _, err := range errs {
		if err != nil {
			s.reset() // late confirms must not meet the next batch; and the next connection declares everything anew
			break
		}
	}
	return errs
}

func confirmed(ctx context.Context, c *amqp.DeferredConfirmation) error {
	ack, err := c.WaitContext(ctx)
	if err == nil && !ack {
		err = errNacked
	}
	return err
}

func (s *sender) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connect makes sure that there is a channel. The caller has the lock.
func (s *sender) connect(ctx context.Context) error {
	if s.channel != nil && !s.channel.IsClosed() {
		return nil
	}
	s.reset()
	l, err := s.b.dial(ctx)
	if err != nil {
		return err
	}
	stop := l.abortWhenDone(ctx)
	ch, err := l.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err == nil && !stop() {
		err = errLost
	}
	if err != nil {
		l.abort()
		return err
	}
	s.link, s.channel, s.returns = l, ch, ch.NotifyReturn(make(chan amqp.Return, sendBatch))
	return nil
}

// reset drops the connection. The caller has the lock.
func (s *sender) reset() {
	if s.link != nil {
		s.link.abort()
	}
	s.link, s.channel = nil, nil
}
