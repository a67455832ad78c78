package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

// Without RabbitMQ events go to a broker in the process: each is marked when it was taken.
func TestMessagesInProcess(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		c := o.as(t, "u1")
		paid := e.paid(t, c, o.admin(t).stock(1299, 10), 1)
		settled(t, func() error {
			if n := o.metric(t, `orderd_events_total{result="published"}`); n < float64(paid.Version) {
				return fmt.Errorf("%v of %d published", n, paid.Version)
			}
			return nil
		})
		e.auditSettled(t)
	})
}

// Where the relay and the consumer are killed, in turn; most often at the place where both sides know different things.
var (
	relayPoints = []string{"relay.published", "relay_claim.commit", "relay.published", "relay_claim.committed", "relay.published",
		"relay.publish", "relay.published", "relay_mark.commit", "relay.published", "relay_mark.committed"}
	consumerPoints = []string{"consumer.committed", "place.commit", "consumer.committed", "place.committed", "consumer.committed",
		"command_record.begin", "consumer.committed", "command_record.commit", "consumer.committed", "command_record.committed",
		"inbox_duplicate.commit", "inbox_duplicate.committed"}
)

// The relay is killed around the broker's confirm and its own mark, again and again: every event comes out, those of an
// order in their order, some of them twice under one id.
func TestMessagesRelayKilled(t *testing.T) {
	t.Parallel()
	e, m := withRabbitMQ(t, testenv.RabbitMQ(t))
	o := e.startFailpoint(t, "relay.published", 2)
	sku := o.admin(t).stock(1299, 100000)
	c := o.as(t, "u1")
	var orderNos []string
	for round := range rounds(t) {
		for o.Alive() {
			orderNo := newNo("ord")
			if a, err := c.try(http.MethodPost, "/v1/orders", want(orderNo, sku, 1)); err == nil && a.Status == http.StatusCreated {
				orderNos = append(orderNos, orderNo)
			}
		}
		o.killed(t)
		o.Restart(t, fmt.Sprintf("ORDERD_FAILPOINT=%s:%d", relayPoints[round%len(relayPoints)], 1+round%3))
	}
	o.Restart(t, "ORDERD_FAILPOINT=")
	m.receivesAll(c, orderNos)
	repeated := 0
	for _, n := range m.events {
		repeated += n - 1
	}
	require.Positive(t, repeated, "no relay died between confirm and mark")
	t.Logf("%d events of %d orders, %d of them repeated", len(m.events), len(orderNos), repeated)
	e.auditSettled(t)
}

// The consumer is killed around the commit of a command's effect and its ack, again and again: every effect is there,
// once.
func TestMessagesConsumerKilled(t *testing.T) {
	t.Parallel()
	e, m := withRabbitMQ(t, testenv.RabbitMQ(t))
	o := e.startFailpoint(t, consumerPoints[0], 3)
	const stock = 100000
	sku := o.admin(t).stock(1299, stock)
	sent, kills := 0, 0
	for round := range rounds(t) {
		for o.Alive() {
			sent++
			id, data := newNo("m"), obj{"user_id": "u1", "items": []obj{{"sku": sku, "quantity": 2}}}
			m.send(id, "order.place", data)
			m.send(id, "order.place", data)                                                                         // has had its effect
			m.send(newNo("m"), "order.place", obj{"user_id": "u1", "items": []obj{{"sku": "NONE", "quantity": 2}}}) // is refused
			if sent > 200*(round+1) {
				t.Fatalf("%s was not killed at its failpoint", o.name)
			}
		}
		kills++
		o.Restart(t, fmt.Sprintf("ORDERD_FAILPOINT=%s:%d", consumerPoints[(round+1)%len(consumerPoints)], 1+round%3))
	}
	o.Restart(t, "ORDERD_FAILPOINT=")
	m.carriedOut(o, o.admin(t).leaves(sku, stock-2*sent))
	t.Logf("%d commands, %d kills", 3*sent, kills)
	e.auditSettled(t)
}

// A consumer that is killed at any moment, with commands in hand: each has its effect once, and none is missing.
func TestMessagesConsumerKilledAnyTime(t *testing.T) {
	t.Parallel()
	e, m := withRabbitMQ(t, testenv.RabbitMQ(t))
	o := e.start(t)
	sku := o.admin(t).stock(1299, 1000)
	var cancelled []string
	for i := range 100 {
		orderNo := newNo("ord")
		m.send(newNo("m"), "order.place", obj{"user_id": "u1", "order_no": orderNo, "items": []obj{{"sku": sku, "quantity": 2}}})
		if i%2 == 0 {
			m.send(newNo("m"), "order.cancel", obj{"user_id": "u1", "order_no": orderNo, "reason": "changed my mind"})
			cancelled = append(cancelled, orderNo)
		}
		if i%20 == 0 {
			o.Restart(t)
		}
	}
	c := o.as(t, "u1")
	m.carriedOut(o, o.admin(t).leaves(sku, 1000-2*50))
	for _, orderNo := range cancelled {
		c.becomes(orderNo, "CANCELLED")
	}
	e.auditSettled(t)
}

// SIGTERM while commands come in: those in hand are finished, the others left to the next replica, none is lost.
func TestMessagesShutdown(t *testing.T) {
	t.Parallel()
	e, m := withRabbitMQ(t, testenv.RabbitMQ(t))
	o := e.start(t)
	admin := o.admin(t)
	sku := admin.stock(1299, 1000)
	settled(t, m.connect)
	require.NoError(t, o.Stop()) // so that the commands are all there when it goes on
	for range 200 {
		m.send(newNo("m"), "order.place", obj{"user_id": "u1", "items": []obj{{"sku": sku, "quantity": 1}}})
	}
	require.NoError(t, o.proc.Signal(syscall.SIGTERM))
	require.NoError(t, o.Cont())
	require.Zero(t, o.Term())
	o.Restart(t)
	m.carriedOut(o, admin.leaves(sku, 800))
	e.auditSettled(t)
}

// RabbitMQ is gone for a while under load: orders do not notice, and when it is back all their events come out, in order.
func TestMessagesBrokerStopped(t *testing.T) {
	t.Parallel()
	down := 10 * time.Second
	if text := os.Getenv("BROKER_DOWN"); text != "" {
		var err error
		down, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	broker := testenv.OwnRabbitMQ(t)
	e, m := withRabbitMQ(t, broker.URL())
	o := e.start(t)
	sku := o.admin(t).stock(1299, 1_000_000)
	c := o.as(t, "u1")
	var mu sync.Mutex
	var orderNos []string
	var slowest time.Duration
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				orderNo := newNo("ord")
				a := c.place(want(orderNo, sku, 1))
				mu.Lock()
				if a.Status != http.StatusCreated {
					t.Errorf("while RabbitMQ is away: %s", a)
				}
				orderNos, slowest = append(orderNos, orderNo), max(slowest, time.Since(began))
				mu.Unlock()
				e.sandbox.pay(t, a.order(t).Payment.PaymentNo)
			}
		})
	}
	settled(t, m.receive)
	broker.Term()      // killed hard, RabbitMQ 3.10 may keep its quorum queues to itself for minutes afterwards
	<-time.After(down) // the fault's length
	if err := broker.Restart(); err != nil {
		t.Error(err)
	}
	close(stop)
	load.Wait()
	require.Less(t, slowest, 5*time.Second)
	for _, orderNo := range orderNos {
		c.becomes(orderNo, "PAID")
	}
	m.receivesAll(c, orderNos)
	t.Logf("%d orders, %d events, slowest answer %s", len(orderNos), len(m.events), slowest)
	e.auditSettled(t)
}

// What cannot be read is parked, and seen to by hand.
func TestMessagesParked(t *testing.T) {
	t.Parallel()
	e, m := withRabbitMQ(t, testenv.RabbitMQ(t))
	o := e.start(t)
	sku := o.admin(t).stock(1299, 1000)
	m.sendRaw(`{"broken":`)
	m.send("m-1", "order.steal", obj{})
	for range 100 {
		m.send(newNo("m"), "order.place", obj{"user_id": "u1", "items": []obj{{"sku": sku, "quantity": 1}}})
	}
	m.carriedOut(o, o.admin(t).leaves(sku, 900))
	var list string
	settled(t, func() error {
		var code int
		if code, list = e.command(t, "parked", "list"); code != 0 || strings.Count(list, "cannot be read") != 2 {
			return fmt.Errorf("exit code %d\n%s", code, list)
		}
		return nil
	})
	key := ""
	for line := range strings.Lines(list) {
		if strings.Contains(line, "order.steal") {
			key = strings.Fields(line)[0]
		}
	}
	code, out := e.command(t, "parked", "drop", key)
	require.Zero(t, code, out)
	code, out = e.command(t, "parked", "drop", key)
	require.NotZero(t, code, out)
	code, out = e.command(t, "parked", "retry", "--all")
	require.Zero(t, code, out)
	require.Contains(t, out, "1 sent again")
	settled(t, func() error {
		if n := o.metric(t, `orderd_commands_total{result="parked",type="unknown"}`); n != 1 {
			return fmt.Errorf("parked %v times", n)
		}
		return nil
	})
}
