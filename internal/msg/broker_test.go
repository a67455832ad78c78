package msg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/msg"
	"orderd/internal/msg/rabbitmq"
	"orderd/internal/testenv"
)

// quick puts off for moments and gives up at the fourth try.
var quick = msg.Schedule{Delays: []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}, Tries: 4}

// world is a broker and its other side.
type world struct {
	msg.Broker
	t       *testing.T
	url     string           // of RabbitMQ
	channel *amqp.Channel    // the other side's
	local   *msg.Local       // instead of both
	out     chan msg.Message // events that came out of the local one
}

// eachBroker runs a test on both brokers: they keep one contract.
func eachBroker(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		test(t, onRabbitMQ(t, testenv.RabbitMQ(t)))
	})
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, onLocal(t))
	})
}

func onLocal(t *testing.T) *world {
	w := &world{t: t, local: msg.NewLocal(quick), out: make(chan msg.Message, 100_000)}
	w.Broker = w.local
	w.local.Subscribe(func(_ context.Context, m msg.Message) error { w.out <- m; return nil })
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

func onRabbitMQ(t *testing.T, url string) *world {
	w := &world{t: t, url: url, Broker: rabbit(t, url)}
	require.NoError(t, w.Ping(t.Context()))
	w.connect()
	return w
}

func rabbit(t *testing.T, url string) *rabbitmq.Broker {
	b, err := rabbitmq.New(rabbitmq.Config{URL: url, Schedule: quick, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func (w *world) connect() {
	conn, err := amqp.Dial(w.url)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	w.channel, err = conn.Channel()
	require.NoError(w.t, err)
	require.NoError(w.t, w.channel.Confirm(false))
}

// command sends a command from outside, as long as the broker refuses it: a queue that has just been declared may be without a
// leader for a moment.
func (w *world) command(body string) {
	w.t.Helper()
	if w.local != nil {
		w.local.Send([]byte(body))
		return
	}
	w.eventually(func() error {
		c, err := w.channel.PublishWithDeferredConfirm("", rabbitmq.Commands, true, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent})
		if err == nil && !c.Wait() {
			err = errors.New("the broker refused the command")
		}
		return err
	})
}

// events returns the ids of the next n events that come out, in their order.
func (w *world) events(n int) []string {
	w.t.Helper()
	ids := []string{}
	w.eventually(func() error {
		for len(ids) < n {
			select {
			case m := <-w.out:
				ids = append(ids, m.ID())
				continue
			default:
			}
			if w.local != nil {
				return fmt.Errorf("%d events of %d", len(ids), n)
			}
			d, ok, err := w.channel.Get(rabbitmq.Events, true)
			if err != nil || !ok {
				return fmt.Errorf("%d events of %d: %w", len(ids), n, err)
			}
			ids = append(ids, d.MessageId)
		}
		return nil
	})
	return ids
}

func (w *world) eventually(done func() error) { w.t.Helper(); eventually(w.t, done) }

func eventually(t *testing.T, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, testenv.Poll(ctx, nil, func(context.Context) error { return done() }))
}

// consume consumes until the returned function is called, which waits for the end, or the test ends.
func (w *world) consume(handle msg.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Consume(ctx, handle) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
	w.t.Cleanup(stop)
	return stop
}

// log notes what a handler gets.
type log struct {
	mu   sync.Mutex
	seen []string
}

func (l *log) add(d msg.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, string(d.Body))
}

func (l *log) distinct() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(slices.Compact(slices.Sorted(slices.Values(l.seen))))
}

func (l *log) count(body string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.seen {
		if s == body {
			n++
		}
	}
	return n
}

func (l *log) has(bodies ...string) error {
	for _, b := range bodies {
		if l.count(b) == 0 {
			return fmt.Errorf("%s has not come", b)
		}
	}
	return nil
}

func message(orderNo string, seq int64) msg.Message {
	m, err := msg.NewMessage(orderNo, seq, "order.paid", db.At(time.Now()), map[string]any{"order_no": orderNo})
	if err != nil {
		panic(err)
	}
	return m
}

func TestEventsComeOutInOrder(t *testing.T) {
	eachBroker(t, func(t *testing.T, w *world) {
		var ms []msg.Message
		var want []string
		for i := range 1200 { // more than one batch
			ms = append(ms, message("O1", int64(i+1)))
			want = append(want, ms[i].ID())
		}
		for i, err := range w.Publish(t.Context(), ms) {
			require.NoError(t, err, i)
		}
		require.Equal(t, want, w.events(len(want)))
	})
}

func TestUnroutableIsNoSuccess(t *testing.T) {
	t.Parallel()
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, msg.NewLocal(quick).Publish(t.Context(), []msg.Message{message("O1", 1)})[0], msg.ErrUnroutable)
	})
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		w := onRabbitMQ(t, testenv.RabbitMQ(t))
		_, err := w.channel.QueueDelete(rabbitmq.Events, false, false, false)
		require.NoError(t, err)
		require.ErrorIs(t, w.Publish(t.Context(), []msg.Message{message("O1", 1)})[0], msg.ErrUnroutable)
		// It declares the queue anew, and the next try arrives.
		require.NoError(t, w.Publish(t.Context(), []msg.Message{message("O1", 1)})[0])
		require.Equal(t, []string{"O1-1"}, w.events(1))
	})
}

func TestAnswersToCommands(t *testing.T) {
	eachBroker(t, func(t *testing.T, w *world) {
		var l log
		w.consume(func(_ context.Context, d msg.Delivery) msg.Answer {
			l.add(d)
			switch string(d.Body) {
			case "soon":
				if d.Tries < 2 {
					return msg.Later("not yet")
				}
			case "never":
				return msg.Later("no luck")
			case "broken":
				return msg.Park("cannot be read")
			case "panic":
				panic("a defect")
			}
			return msg.Answer{}
		})
		for _, body := range []string{"good", "soon", "never", "broken", "panic"} {
			w.command(body)
		}
		var parked map[string]msg.Parked
		w.eventually(func() error {
			list, err := w.Parked(t.Context(), 100)
			parked = map[string]msg.Parked{}
			for _, p := range list {
				parked[string(p.Body)] = p
			}
			if len(parked) < 3 || l.count("soon") < 3 {
				return fmt.Errorf("%d parked, %w", len(parked), err)
			}
			return err
		})
		require.Equal(t, 1, l.count("good"))
		require.Equal(t, 3, l.count("soon"))
		require.Equal(t, quick.Tries, l.count("never"))
		require.Equal(t, "cannot be read", parked["broken"].Reason)
		require.Equal(t, "panic: a defect", parked["panic"].Reason)
		require.Equal(t, "given up after 4 tries: no luck", parked["never"].Reason)
		require.WithinDuration(t, time.Now(), parked["broken"].At, time.Minute)

		n, err := w.Retry(t.Context(), parked["never"].Key)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		w.eventually(func() error {
			if n := l.count("never"); n < 2*quick.Tries {
				return fmt.Errorf("came %d times", n)
			}
			return nil
		})
		w.eventually(func() error { // and is parked again
			if n, err := w.Drop(t.Context(), parked["never"].Key); n != 1 {
				return fmt.Errorf("%d found, %w", n, err)
			}
			return nil
		})
		n, err = w.Drop(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		list, err := w.Parked(t.Context(), 100)
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

// Commands that fail for ever do not hold up the others.
func TestPoisonDelaysNobody(t *testing.T) {
	eachBroker(t, func(t *testing.T, w *world) {
		var bodies []string
		for i := range 120 {
			body := fmt.Sprintf("good-%d", i)
			if i < 20 {
				body = fmt.Sprintf("poison-%d", i)
			}
			bodies = append(bodies, body)
			w.command(body)
		}
		var l log
		began := time.Now()
		w.consume(func(_ context.Context, d msg.Delivery) msg.Answer {
			l.add(d)
			if string(d.Body[:4]) != "good" {
				return msg.Later("poison")
			}
			return msg.Answer{}
		})
		w.eventually(func() error { return l.has(bodies[20:]...) })
		t.Logf("100 good ones after %s", time.Since(began))
		w.eventually(func() error {
			list, err := w.Parked(t.Context(), 100)
			if len(list) != 20 {
				return fmt.Errorf("%d parked, %w", len(list), err)
			}
			return err
		})
		for _, body := range bodies[20:] {
			require.Equal(t, 1, l.count(body))
		}
	})
}

// At the end the commands in hand are finished, and the others given back.
func TestConsumerHandsBack(t *testing.T) {
	eachBroker(t, func(t *testing.T, w *world) {
		for i := range 200 {
			w.command(fmt.Sprint(i))
		}
		var before, after log
		goOn, first := make(chan struct{}), make(chan struct{}, 200)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- w.Consume(ctx, func(ctx context.Context, d msg.Delivery) msg.Answer {
				first <- struct{}{}
				<-goOn
				before.add(d)
				if ctx.Err() != nil {
					return msg.Later("cancelled")
				}
				return msg.Answer{}
			})
		}()
		<-first
		cancel()
		close(goOn)
		require.NoError(t, <-ended)
		require.NotEmpty(t, before.seen)
		require.Less(t, len(before.seen), 200)
		w.consume(func(_ context.Context, d msg.Delivery) msg.Answer { after.add(d); return msg.Answer{} })
		w.eventually(func() error {
			if n := len(before.seen) + after.distinct(); n < 200 {
				return fmt.Errorf("%d of 200", n)
			}
			return nil
		})
		for _, body := range before.seen {
			require.Zero(t, after.count(body), "finished and delivered again")
		}
	})
}
