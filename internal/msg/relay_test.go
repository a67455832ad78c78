package msg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"orderd/internal/db"
	"orderd/internal/metrics"
	"orderd/internal/msg"
	"orderd/internal/msg/rabbitmq"
	"orderd/internal/testenv"
)

// open opens an empty database: SQLite beside the local broker, MySQL's protocol beside RabbitMQ.
func open(t testing.TB, dialect string) *db.DB {
	t.Helper()
	c := db.Config{Path: filepath.Join(t.TempDir(), "orderd.db")}
	if dialect == "mysql" {
		c = db.Config{DSN: testenv.Database(t)}
	}
	d, err := db.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.Migrate(t.Context()))
	return d
}

// eachDialect runs test on an empty database of each kind.
func eachDialect(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Parallel()
	for _, dialect := range []string{"mysql", "sqlite"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, dialect))
		})
	}
}

func (w *world) database() *db.DB {
	if w.local != nil {
		return open(w.t, "sqlite")
	}
	return open(w.t, "mysql")
}

func relay(d *db.DB, b msg.Broker, owner int64) *msg.Relay {
	return &msg.Relay{DB: d, Broker: b, Owner: owner, Metrics: metrics.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
}

// fill writes the events 1..seqs of each of n orders to the outbox.
func fill(t testing.TB, d *db.DB, n, seqs int) {
	t.Helper()
	for first := 0; first < n; first += 500 {
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			var ms []msg.Message
			for i := first; i < min(n, first+500); i++ {
				for seq := range seqs {
					m, err := msg.NewMessage(fmt.Sprintf("O%06d", i), int64(seq+1), "order.paid", tx.Now, map[string]int{"seq": seq + 1})
					if err != nil {
						return err
					}
					ms = append(ms, m)
				}
			}
			return msg.AppendTx(tx, ms)
		}))
	}
}

func count(t testing.TB, d *db.DB, where string) (n int64) {
	t.Helper()
	require.NoError(t, d.Read(t.Context()).Model(&msg.Message{}).Where(where).Count(&n).Error)
	return n
}

// dropping is a broker whose confirms get lost now and then, after the events arrived or before.
type dropping struct{ msg.Broker }

func (b dropping) Publish(ctx context.Context, ms []msg.Message) []error {
	errs := make([]error, len(ms))
	for i := range ms {
		lost := rand.IntN(10)
		if lost > 0 {
			errs[i] = b.Broker.Publish(ctx, ms[i:i+1])[0]
		}
		if lost < 2 {
			errs[i] = errors.New("no confirm")
		}
	}
	return errs
}

// Three relays, and confirms that get lost: every event comes out, at least once, and those of an order in their order.
func TestRelaysKeepTheOrder(t *testing.T) {
	eachBroker(t, func(t *testing.T, w *world) {
		d := w.database()
		const orders, seqs = 60, 4
		fill(t, d, orders, seqs)
		var relays sync.WaitGroup
		for i := range 3 {
			r := relay(d, dropping{w.Broker}, int64(i+1))
			relays.Go(func() {
				for count(t, d, "published_at IS NULL") > 0 {
					_, _ = r.RunOnce(t.Context())
				}
			})
		}
		relays.Wait()
		w.last("end")
		next := map[string]int{}
		for {
			id := w.events(1)[0]
			if id == "end-1" {
				break
			}
			orderNo, seq, _ := strings.Cut(id, "-")
			n := int(seq[0] - '0')
			require.LessOrEqual(t, n, next[orderNo]+1, "%s came before the one before it", id)
			next[orderNo] = max(next[orderNo], n)
		}
		require.Len(t, next, orders)
		for orderNo, n := range next {
			require.Equal(t, seqs, n, orderNo)
		}
	})
}

// last publishes an event that is known to be the last.
func (w *world) last(orderNo string) {
	w.t.Helper()
	require.NoError(w.t, w.Publish(w.t.Context(), []msg.Message{message(orderNo, 1)})[0])
}

// An event that no queue takes stays, with all that follow it in its order, and holds up no other order.
func TestUnroutableStays(t *testing.T) {
	t.Parallel()
	d := open(t, "sqlite")
	b := msg.NewLocal(quick)
	var got []string
	b.Subscribe(func(_ context.Context, m msg.Message) error {
		if m.OrderNo == "O000000" {
			return fmt.Errorf("nobody: %w", msg.ErrUnroutable)
		}
		got = append(got, m.ID())
		return nil
	})
	fill(t, d, 2, 2)
	r := relay(d, b, 1)
	for range 4 {
		_, err := r.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"O000001-1", "O000001-2"}, got)
	require.EqualValues(t, 2, count(t, d, "published_at IS NULL"))
	require.EqualValues(t, 1, count(t, d, "attempts = 1 AND lease_owner = 0"), "tried once, and then left alone for a while")
}

// An event in the middle that no queue takes: what is before it is out, what follows it waits, and so does the event
// itself, for a while.
func TestUnroutableInTheMiddle(t *testing.T) {
	eachDialect(t, func(t *testing.T, d *db.DB) {
		b := msg.NewLocal(quick)
		var got []string
		b.Subscribe(func(_ context.Context, m msg.Message) error {
			got = append(got, m.ID())
			if m.Seq == 2 && len(got) < 4 {
				return fmt.Errorf("nobody: %w", msg.ErrUnroutable)
			}
			return nil
		})
		fill(t, d, 1, 3)
		r := relay(d, b, 1)
		for _, want := range []int{1, 0, 0} {
			n, err := r.RunOnce(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		require.EqualValues(t, 1, count(t, d, "seq = 2 AND attempts = 1 AND published_at IS NULL"))
		got = append(got, "a second later")
		_, err := d.Exec(t.Context(), "test", "UPDATE outbox_messages SET lease_until = ? WHERE seq = 2", d.SQLNowPlus(-time.Second))
		require.NoError(t, err)
		n, err := relay(d, b, 2).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, []string{"O000000-1", "O000000-2", "a second later", "O000000-2", "O000000-3"}, got)
	})
}

// A relay that was paused past its lease, until another one took over: it gives back nothing that is the other's, and what
// the broker has it marks.
func TestPausedRelay(t *testing.T) {
	for _, confirm := range []error{nil, errors.New("no confirm")} {
		t.Run(fmt.Sprint(confirm), func(t *testing.T) {
			eachDialect(t, func(t *testing.T, d *db.DB) {
				fill(t, d, 1, 2)
				b := msg.NewLocal(quick)
				b.Subscribe(func(context.Context, msg.Message) error { // the pause, in which its lease runs out
					_, err := d.Exec(t.Context(), "test", "UPDATE outbox_messages SET lease_owner = 2, lease_until = ? WHERE seq = 1", d.SQLNowPlus(time.Minute))
					return errors.Join(err, confirm)
				})
				n, err := relay(d, b, 1).RunOnce(t.Context())
				require.ErrorIs(t, err, confirm)
				require.EqualValues(t, n, count(t, d, "published_at IS NOT NULL"))
				require.Equal(t, confirm == nil, n == 2)
				require.EqualValues(t, 1, count(t, d, "seq = 1 AND lease_owner = 2 AND attempts = 0"), "the other's lease")
			})
		})
	}
}

// Another relay takes over and publishes while the first is paused between two events: what comes out is in order, but for
// what comes twice.
func TestRelayIsPausedBetweenTwoEvents(t *testing.T) {
	eachDialect(t, func(t *testing.T, d *db.DB) {
		fill(t, d, 1, 3)
		var got []string
		other := msg.NewLocal(quick)
		other.Subscribe(func(_ context.Context, m msg.Message) error { got = append(got, m.ID()); return nil })
		b := msg.NewLocal(quick)
		b.Subscribe(func(_ context.Context, m msg.Message) error {
			got = append(got, m.ID())
			if m.Seq == 2 { // the pause
				_, err := d.Exec(t.Context(), "test", "UPDATE outbox_messages SET lease_until = ? WHERE lease_owner = 1", d.SQLNowPlus(-time.Second))
				require.NoError(t, err)
				n, err := relay(d, other, 2).RunOnce(t.Context())
				require.NoError(t, err)
				require.Equal(t, 3, n)
			}
			return nil
		})
		_, err := relay(d, b, 1).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"O000000-1", "O000000-2", "O000000-1", "O000000-2", "O000000-3", "O000000-3"}, got)
		require.Zero(t, count(t, d, "published_at IS NULL"))
	})
}

// While the broker does not answer the relay fails in time, and when it does again all comes out.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	broker := testenv.RabbitMQ(t)
	proxy, url := proxied(t, broker)
	w := onRabbitMQ(t, broker)
	d := open(t, "mysql")
	fill(t, d, 20, 1)
	r := relay(d, rabbit(t, url), 1)
	require.NoError(t, r.Broker.Ping(t.Context()))
	proxy.BlackHole()
	began := time.Now()
	n, err := r.RunOnce(t.Context())
	require.Error(t, err)
	require.Zero(t, n)
	require.Less(t, time.Since(began), 12*time.Second)
	require.EqualValues(t, 20, count(t, d, "published_at IS NULL AND lease_owner = 0"), "given back at once")
	began = time.Now()
	n, err = r.RunOnce(t.Context())
	require.NoError(t, err, "the broker is left alone")
	require.Zero(t, n)
	require.Less(t, time.Since(began), 2*time.Second)
	proxy.Restore()
	eventually(t, func() error {
		_, err := r.RunOnce(t.Context())
		if left := count(t, d, "published_at IS NULL"); left > 0 {
			return fmt.Errorf("%d left, %w", left, err)
		}
		return nil
	})
	require.Len(t, w.events(20), 20)
}

// proxied returns a proxy in front of the broker, and the URL through it.
func proxied(t *testing.T, url string) (*testenv.Proxy, string) {
	host := url[strings.LastIndex(url, "@")+1 : strings.LastIndex(url, "/")]
	p := testenv.NewProxy(t, host)
	return p, strings.Replace(url, host, p.Addr, 1)
}

// The link breaks just before the ack: the command comes again.
func TestLostAck(t *testing.T) {
	t.Parallel()
	broker := testenv.RabbitMQ(t)
	proxy, url := proxied(t, broker)
	w := onRabbitMQ(t, broker)
	w.Broker = rabbit(t, url)
	var l log
	w.consume(func(_ context.Context, d msg.Delivery) msg.Answer {
		l.add(d)
		if l.count(string(d.Body)) == 1 {
			proxy.Cut()
		}
		return msg.Answer{}
	})
	for i := range 5 {
		body := fmt.Sprint("c", i)
		w.command(body)
		w.eventually(func() error {
			if n := l.count(body); n < 2 {
				return fmt.Errorf("came %d times", n)
			}
			return nil
		})
	}
	w.eventually(func() error {
		q, err := w.channel.QueueDeclarePassive(rabbitmq.Commands, true, false, false, false, nil)
		if err == nil && q.Messages > 0 {
			err = fmt.Errorf("%d left", q.Messages)
		}
		return err
	})
}

func TestPrune(t *testing.T) {
	eachDialect(t, func(t *testing.T, d *db.DB) {
		fill(t, d, 150, 2)
		age := func(statement string) {
			_, err := d.Exec(t.Context(), "test", statement, d.SQLNowPlus(-time.Hour))
			require.NoError(t, err)
		}
		age("UPDATE outbox_messages SET created_at = ?")
		age("UPDATE outbox_messages SET published_at = ? WHERE seq = 1")
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			return msg.ReceiveTx(tx, []msg.Received{
				{Source: "queue:a", MessageID: "new", Outcome: "ignored", ReceivedAt: tx.Now},
				{Source: "queue:a", MessageID: "old", Outcome: "ignored", ReceivedAt: db.At(tx.Now.Add(-time.Hour))},
			})
		}))
		removed := 0
		for {
			n, err := msg.Prune(t.Context(), d, 30*time.Minute)
			require.NoError(t, err)
			if n == 0 {
				break
			}
			removed += n
		}
		require.Equal(t, 151, removed)
		require.EqualValues(t, 150, count(t, d, "seq = 2"), "not published: kept, however old")
		known, err := msg.Find(t.Context(), d, msg.ID{Source: "queue:a", MessageID: "new"})
		require.NoError(t, err)
		require.NotNil(t, known)
	})
}

// BenchmarkRelay publishes b.N outbox rows to quorum queues.
//
//	go test ./internal/msg -run '^$' -bench Relay -benchtime 20000x
func BenchmarkRelay(b *testing.B) {
	d := open(b, "mysql")
	broker, err := rabbitmq.New(rabbitmq.Config{URL: testenv.RabbitMQ(b), Log: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	defer func() { require.NoError(b, broker.Close()) }()
	require.NoError(b, broker.Ping(b.Context()))
	fill(b, d, max(1, b.N/4), 4)
	r := relay(d, broker, 1)
	b.ResetTimer()
	n := 0
	for {
		published, err := r.RunOnce(b.Context())
		require.NoError(b, err)
		if published == 0 {
			break
		}
		n += published
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}
