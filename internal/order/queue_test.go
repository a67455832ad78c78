package order_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"orderd/internal/fsm"
	"orderd/internal/httpapi"
	"orderd/internal/msg"
	"orderd/internal/msg/rabbitmq"
	"orderd/internal/testenv"
)

// queue is a broker and how to send to it.
type queue struct {
	msg.Broker
	send func(body string)
}

// eachQueue runs a test with commands that go through RabbitMQ to MySQL, and through the local broker to SQLite.
func eachQueue(t *testing.T, test func(t *testing.T, b *bundle, q queue)) {
	t.Helper()
	t.Parallel()
	quick := msg.Schedule{Delays: []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}, Tries: 8}
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		url := testenv.RabbitMQ(t)
		r, err := rabbitmq.New(rabbitmq.Config{URL: url, Schedule: quick, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		require.NoError(t, r.Ping(t.Context()))
		test(t, setup(t, "mysql"), queue{r, sender(t, url)})
	})
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		l := msg.NewLocal(quick)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		test(t, setup(t, "sqlite"), queue{l, func(body string) { l.Send([]byte(body)) }})
	})
}

// sender sends commands to RabbitMQ as others do.
func sender(t testing.TB, url string) func(body string) {
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	ch, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, ch.Confirm(false))
	return func(body string) {
		c, err := ch.PublishWithDeferredConfirm("", rabbitmq.Commands, true, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
		require.NoError(t, err)
		require.True(t, c.Wait())
	}
}

// consume runs a consumer until the test ends.
func (b *bundle) consume(q queue) {
	check, err := httpapi.Checker()
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- q.Consume(ctx, b.Commands(check)) }()
	b.t.Cleanup(func() {
		cancel()
		require.NoError(b.t, <-ended)
	})
}

func (b *bundle) eventually(done func() error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	require.NoError(b.t, testenv.Poll(ctx, nil, func(context.Context) error { return done() }))
}

// Each message goes to both of two consumers, and every effect is there once.
func TestTwoConsumers(t *testing.T) {
	eachQueue(t, func(t *testing.T, b *bundle, q queue) {
		b.consume(q)
		b.consume(q)
		sku := b.sku(1299, 1000)
		var ids []string
		for i := range 50 {
			ids = append(ids, no("m"))
			for range 2 {
				q.send(command(ids[i], "order.place", placeData("", sku, 2)))
			}
		}
		for _, id := range ids {
			b.eventually(func() error {
				if r := b.inbox(id); r == nil || r.Duplicates < 1 {
					return fmt.Errorf("%s: %+v", id, r)
				}
				return nil
			})
		}
		require.EqualValues(t, 900, b.left(sku))
		b.clean()
	})
}

// A cancel that overtakes its order waits for it; one whose order never comes is parked. Neither goes round for ever.
func TestCancelBeforeOrder(t *testing.T) {
	eachQueue(t, func(t *testing.T, b *bundle, q queue) {
		b.consume(q)
		sku, orderNo, never := b.sku(1299, 10), no("ord"), no("ord")
		q.send(command(no("m"), "order.cancel", cancelData(orderNo)))
		q.send(command(no("m"), "order.cancel", cancelData(never)))
		b.eventually(func() error {
			if n := testutil.ToFloat64(b.metrics.Commands.WithLabelValues("order.cancel", "put_off")); n < 2 {
				return fmt.Errorf("put off %v times", n)
			}
			return nil
		})
		q.send(command(no("m"), "order.place", placeData(orderNo, sku, 2)))
		b.eventually(func() error {
			o, err := b.Get(t.Context(), user, orderNo)
			if err == nil && o.Status != fsm.Cancelled {
				err = fmt.Errorf("is %s", o.Status)
			}
			return err
		})
		require.EqualValues(t, 10, b.left(sku))
		b.eventually(func() error {
			parked, err := q.Parked(t.Context(), 10)
			if len(parked) != 1 {
				return fmt.Errorf("%d parked", len(parked))
			}
			require.Contains(t, string(parked[0].Body), never)
			require.Contains(t, parked[0].Reason, "given up after 8 tries")
			return err
		})
		b.clean()
	})
}

// The two benchmarks place b.N orders, by 64 commands at a time from RabbitMQ and by 64 callers:
//
//	go test ./internal/order -run '^$' -bench 'Commands|Callers' -benchtime 3000x
func BenchmarkCommands(b *testing.B) {
	o := setup(b, "mysql")
	sku := o.sku(1299, 1_000_000)
	url := testenv.RabbitMQ(b)
	q, err := rabbitmq.New(rabbitmq.Config{URL: url, Log: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	defer func() { require.NoError(b, q.Close()) }()
	require.NoError(b, q.Ping(b.Context()))
	send := sender(b, url)
	for i := range b.N {
		send(command(fmt.Sprint("m-", i), "order.place", placeData("", sku, 1)))
	}
	b.ResetTimer()
	check, err := httpapi.Checker()
	require.NoError(b, err)
	handle := o.Commands(check)
	ctx, cancel := context.WithCancel(b.Context())
	var left atomic.Int64
	left.Store(int64(b.N))
	require.NoError(b, q.Consume(ctx, func(ctx context.Context, d msg.Delivery) msg.Answer {
		a := handle(ctx, d)
		if left.Add(-1) == 0 {
			cancel()
		}
		return a
	}))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
	require.EqualValues(b, 1_000_000-b.N, o.left(sku))
}

func BenchmarkCallers(b *testing.B) {
	o := setup(b, "mysql")
	sku := o.sku(1299, 1_000_000)
	b.ResetTimer()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for next.Add(1) <= int64(b.N) {
				_, err := o.Place(b.Context(), request(no("ord"), sku, 1))
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}
