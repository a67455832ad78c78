// Package rabbitmq is the broker port on RabbitMQ 3.10 or later: quorum queues, publisher confirms, manual acks.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"orderd/internal/msg"
)

const (
	dialTime  = 2 * time.Second // for connecting, TLS and login together
	heartbeat = 5 * time.Second // a silent broker is given up after about twice that
	sendTime  = 5 * time.Second // until a single message must be confirmed

	subscribeTime = 10 * time.Second // until the broker must have begun to send commands
)

// Config says which broker to use, and how.
type Config struct {
	URL      string // amqp:// or amqps://user:password@host:5672/vhost
	Schedule msg.Schedule
	Prefetch int // commands in hand at a time; default 64
	Log      *slog.Logger
}

// Broker implements msg.Broker. It is safe for concurrent use. Publishing and consuming have a connection each: a broker
// that is short of memory stops reading from those that publish.
type Broker struct {
	c    Config
	send sender
}

var _ msg.Broker = (*Broker)(nil)

// New returns a broker that connects when it is used. It only refuses a URL that it cannot read.
func New(c Config) (*Broker, error) {
	if _, err := amqp.ParseURI(c.URL); err != nil {
		var parse *url.Error
		if errors.As(err, &parse) { // which repeats the URL, password and all
			err = parse.Err
		}
		return nil, fmt.Errorf("the broker's URL: %w", err)
	}
	c.Schedule = c.Schedule.WithDefaults()
	if c.Prefetch == 0 {
		c.Prefetch = 64
	}
	b := &Broker{c: c}
	b.send = sender{b: b, turn: make(chan struct{}, 1)}
	return b, nil
}

// Close closes the publishing connection. Consume ends with its context.
func (b *Broker) Close() error {
	unlock, err := b.send.lock(context.Background()) // a batch has its time limit
	if err == nil {
		b.send.reset()
		unlock()
	}
	return err
}

// link is a connection whose socket can be closed under it: the protocol's own way to close waits for the other side.
type link struct {
	*amqp.Connection
	socket net.Conn
}

// dial connects and declares what we need. This is cheap, and mends what somebody has deleted.
func (b *Broker) dial(ctx context.Context) (*link, error) {
	l := &link{}
	var err error
	l.Connection, err = amqp.DialConfig(b.c.URL, amqp.Config{
		Heartbeat: heartbeat, Properties: amqp.Table{"connection_name": "orderd"},
		Dial: func(network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTime}
			socket, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			l.socket = socket
			return socket, socket.SetDeadline(time.Now().Add(dialTime)) // lifted by the library after the login
		}})
	if err != nil {
		return nil, err
	}
	stop := l.abortWhenDone(ctx)
	defer stop()
	if err := declare(l.Connection, b.c.Schedule); err != nil {
		l.abort()
		return nil, err
	}
	return l, nil
}

func (l *link) abortWhenDone(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = l.socket.Close() })
}

func (l *link) abort() {
	_ = l.socket.Close()
	_ = l.Close()
}

// pause waits between attempts to connect: 0.1 s, then longer, up to 5 s. It returns false when ctx ends.
func pause(ctx context.Context, failures int) bool {
	d := min(100*time.Millisecond<<min(failures, 6), 5*time.Second)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d/2 + rand.N(d/2)):
		return true
	}
}
