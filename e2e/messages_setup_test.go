package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

// mailbox is the other side of RabbitMQ: it sends commands, and keeps the events that came out.
type mailbox struct {
	t       testing.TB
	url     string
	channel *amqp.Channel
	events  map[string]int // deliveries by message id
	last    map[string]int // the highest number that an order's events have reached
}

// withRabbitMQ is an env on MariaDB, Redis and RabbitMQ.
func withRabbitMQ(t testing.TB, url string, vars ...string) (*env, *mailbox) {
	t.Helper()
	e := newEnv(t, mariadbRedis, append(vars, "ORDERD_AMQP_URL="+url)...)
	return e, &mailbox{t: t, url: url, events: map[string]int{}, last: map[string]int{}}
}

// connect waits, by its error, for the queues, which a replica declares soon after its start: a command that no queue
// takes would be confirmed, and gone.
func (m *mailbox) connect() error {
	if m.channel != nil && !m.channel.IsClosed() {
		return nil
	}
	conn, err := amqp.Dial(m.url)
	if err != nil {
		return err
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclarePassive("orderd.commands", true, false, false, false, nil)
	}
	if err == nil {
		err = ch.Confirm(false)
	}
	if err == nil {
		m.channel = ch
	}
	return err
}

func (m *mailbox) send(id, kind string, data obj) {
	m.t.Helper()
	body, err := json.Marshal(obj{"specversion": "1.0", "id": id, "source": "/shop", "type": kind, "data": data})
	require.NoError(m.t, err)
	m.sendRaw(string(body))
}

func (m *mailbox) sendRaw(body string) {
	m.t.Helper()
	settled(m.t, func() error {
		if err := m.connect(); err != nil {
			return err
		}
		c, err := m.channel.PublishWithDeferredConfirm("", "orderd.commands", true, false,
			amqp.Publishing{Body: []byte(body), ContentType: "application/cloudevents+json", DeliveryMode: amqp.Persistent})
		if err != nil {
			return err
		}
		if !c.Wait() {
			return fmt.Errorf("the command was not confirmed")
		}
		return nil
	})
}

// receive takes the events that are there. An event that has not come before must be the next one of its order.
func (m *mailbox) receive() error {
	if err := m.connect(); err != nil {
		return err
	}
	for {
		d, ok, err := m.channel.Get("orderd.events", true)
		if err != nil || !ok {
			return err
		}
		i := strings.LastIndex(d.MessageId, "-")
		orderNo := d.MessageId[:i]
		n, err := strconv.Atoi(d.MessageId[i+1:])
		if err != nil {
			return err
		}
		if m.events[d.MessageId]++; n > m.last[orderNo]+1 {
			m.t.Errorf("%s came after number %d", d.MessageId, m.last[orderNo])
		}
		m.last[orderNo] = max(m.last[orderNo], n)
	}
}

// receivesAll waits until every event of the orders has come.
func (m *mailbox) receivesAll(c *client, orderNos []string) {
	m.t.Helper()
	for _, orderNo := range orderNos {
		come := func() error {
			if err := m.receive(); err != nil {
				return err
			}
			if o := c.order(orderNo); m.last[orderNo] != int(o.Version) {
				return fmt.Errorf("%s: %d events of %d", orderNo, m.last[orderNo], o.Version)
			}
			return nil
		}
		err := poll(m.t, come)
		for range 3 { // a broker that was killed takes minutes, on a busy machine, until its queue answers again
			if err == nil {
				break
			}
			err = poll(m.t, come)
		}
		require.NoError(m.t, err)
	}
}

// carriedOut waits until effect says that the commands have had theirs, and then sees that none is left: not waiting, not
// put off, and, as the replica has given back what it had when it ends, not in hand. The replica runs again afterwards.
func (m *mailbox) carriedOut(o *orderd, effect func() error) {
	m.t.Helper()
	left := func() error {
		if err := m.connect(); err != nil {
			return err
		}
		for _, name := range []string{"orderd.commands", "orderd.delay.1s", "orderd.delay.10s", "orderd.delay.1m0s"} {
			q, err := m.channel.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return err
			}
			if q.Messages > 0 {
				return fmt.Errorf("%s has %d", name, q.Messages)
			}
		}
		return nil
	}
	// A cancel of an order whose process died is put off for 1 s, 10 s and 60 s: longer than settled waits. And the effect can
	// be there for a moment while some are put off: as much was taken and given back.
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(m.t, testenv.Poll(ctx, nil, func(context.Context) error {
		if err := left(); err != nil {
			return err
		}
		return effect()
	}))
	settled(m.t, func() error {
		if err := left(); err != nil {
			return err
		}
		require.Zero(m.t, o.Term())
		err := left() // it may have been busy with one: then once more
		o.Restart(m.t)
		return err
	})
	settled(m.t, effect)
}

// leaves is the effect of commands that take from a SKU.
func (c *client) leaves(sku string, want int) func() error {
	return func() error {
		if n := c.available(sku); n != int64(want) {
			return fmt.Errorf("%d left of %s, not %d", n, sku, want)
		}
		return nil
	}
}

// killed waits for the end of a process that a failpoint kills.
func (p *process) killed(t testing.TB) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(settleLimit):
		t.Fatalf("%s was not killed at its failpoint", p.name)
	}
}
