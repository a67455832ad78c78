package order_test

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"orderd/internal/db/cut"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/order"
	"orderd/internal/testenv"
)

// traffic notes what a service sends to its database.
type traffic struct {
	cut.Point
	mu     sync.Mutex
	within bool // a transaction
	reads  []read
	before func() // what happens before the next BEGIN
}

type read struct {
	table  string
	within bool // a transaction
}

// watched is a flow whose statements are noted.
func watched(t *testing.T) (*bundle, *traffic) {
	w := &traffic{}
	w.Sending = w.note
	return setup(t, "mysql", func(o *options) { o.db.Wrap = w.Wrap }), w
}

var selectFrom = regexp.MustCompile("^SELECT .* FROM `?([a-z_]+)`? ")

func (w *traffic) note(statement string) {
	if statement == "BEGIN" && w.before != nil {
		f := w.before
		w.before = nil
		f()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch from := selectFrom.FindStringSubmatch(statement); {
	case statement == "BEGIN":
		w.within = true
	case statement == "COMMIT":
		w.within = false
	case from != nil:
		w.reads = append(w.reads, read{from[1], w.within})
	}
}

// during returns the tables that f reads, outside of transactions and in them.
func (w *traffic) during(f func()) (outside, within []string) {
	w.reads = nil
	f()
	for _, r := range w.reads {
		if r.within {
			within = append(within, r.table)
		} else {
			outside = append(outside, r.table)
		}
	}
	return outside, within
}

// locks is how often an order's lock was asked for.
func (b *bundle) locks() (n float64) {
	for _, answer := range []string{"held", "busy", "down"} {
		n += testutil.ToFloat64(b.metrics.LockAnswers.WithLabelValues(answer))
	}
	return n
}

// another is a second process on the same database, with the same Redis and gateways.
func (b *bundle) another() *bundle {
	other := *b
	other.Service = order.New(order.Config{Gateway: "sandbox", Secret: []byte(strings.Repeat("s", 32)), Owner: "another"}, b.Deps)
	return &other
}

// A process does not read what it knows for ever: of a payment that it opened, and that one has succeeded.
func TestAKnownPaymentIsNotRead(t *testing.T) {
	t.Parallel()
	b, w := watched(t)
	sku := b.sku(1299, 100)
	settle := func(by *bundle, orderNo, want string) (outside, within []string, locks float64) {
		t.Helper()
		o := b.get(orderNo)
		n := b.notice("sandbox", o.Payment.PaymentNo)
		n.MessageID = "about " + o.Payment.PaymentNo
		before := b.locks()
		outside, within = w.during(func() {
			out, err := by.Settle(t.Context(), n)
			require.NoError(t, err)
			require.Equal(t, want, out.Result)
		})
		return outside, within, b.locks() - before
	}
	repeat := []string{"inbox_messages"}

	mine := b.placed(sku)
	b.gateways["sandbox"].pay(t, mine.Payment.PaymentNo, "")
	outside, within, locks := settle(b, mine.OrderNo, "applied")
	require.Empty(t, outside, "this process opened it")
	require.Equal(t, []string{"inbox_messages", "payments", "orders"}, within)
	require.EqualValues(t, 1, locks)
	outside, within, locks = settle(b, mine.OrderNo, "duplicate")
	require.Equal(t, repeat, outside, "this process settled it")
	require.Empty(t, within)
	require.Zero(t, locks)

	theirs, others := b.placed(sku), b.another()
	b.gateways["sandbox"].pay(t, theirs.Payment.PaymentNo, "")
	outside, _, locks = settle(others, theirs.OrderNo, "applied")
	require.Equal(t, []string{"payments"}, outside, "the other process learns of it")
	require.EqualValues(t, 1, locks)
	_, _, locks = settle(b, theirs.OrderNo, "duplicate")
	require.EqualValues(t, 1, locks, "this one does not know yet that it is settled")
	for _, by := range []*bundle{b, others} {
		outside, within, locks = settle(by, theirs.OrderNo, "duplicate")
		require.Equal(t, repeat, outside)
		require.Empty(t, within)
		require.Zero(t, locks)
	}
	for _, o := range []order.Order{mine, theirs} {
		require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
	}
	b.clean()
}

// A new order is not looked for in the transaction that creates it.
func TestANewOrderIsNotReadAgain(t *testing.T) {
	t.Parallel()
	b, w := watched(t)
	sku := b.sku(1299, 100)
	outside, within := w.during(func() { b.placed(sku) })
	require.Equal(t, []string{"orders"}, outside)
	require.Equal(t, []string{"stock"}, within)
	keyed := request("", sku, 2)
	keyed.Key = no("key")
	outside, within = w.during(func() { b.must(b.Place(t.Context(), keyed)) })
	require.Equal(t, []string{"idempotency_keys"}, outside)
	require.Equal(t, []string{"idempotency_keys", "stock"}, within)
	b.clean()
}

// An order that a process which cannot see our lock creates after we have looked for it is found by the index: ours is a
// repeat, also when it would be refused by now.
func TestAnOrderThatComesInBetween(t *testing.T) {
	t.Parallel()
	b, w := watched(t)
	redis := idem.Embedded(b.Log)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	other := b.another()
	other.Locks = idem.NewLocker(redis, b.metrics, b.Log, idem.LockOptions{})
	between := func(r order.PlaceRequest, then func()) (created, res order.Result) {
		w.before = func() {
			created = b.must(other.Place(t.Context(), r))
			then()
		}
		res = b.must(b.Place(t.Context(), r))
		require.True(t, created.Created)
		require.False(t, res.Created)
		require.Equal(t, created.Order.Payment.PaymentNo, res.Order.Payment.PaymentNo)
		return created, res
	}

	sku := b.sku(1299, 100)
	_, res := between(request(no("ord"), sku, 2), func() {})
	require.Equal(t, idem.GuardUniqueIndex, res.Guard)
	require.EqualValues(t, 98, b.left(sku))

	wanted := int64(2 * 1299)
	r := request(no("ord"), sku, 2)
	r.ExpectedAmount = &wanted
	_, res = between(r, func() { b.reprice(sku, 1) })
	require.Equal(t, idem.GuardState, res.Guard)
	require.Equal(t, wanted, res.Order.Amount)
	require.EqualValues(t, 96, b.left(sku))

	r.OrderNo = no("ord")
	_, err := b.Place(t.Context(), r)
	require.True(t, fault.Is(err, "amount_changed"), "%v", err)

	clicked, wanted := request("", sku, 2), 2 // a double click: the window leads the second one to the number of the first
	clicked.ExpectedAmount = new(int64(wanted))
	_, res = between(clicked, func() { b.reprice(sku, 7) })
	require.EqualValues(t, wanted, res.Order.Amount)
	require.EqualValues(t, 94, b.left(sku))
	b.clean()
}

// A payment that this process remembers, and that the database was set back before, is unknown: it is read the next time.
func TestARememberedPaymentThatIsGone(t *testing.T) {
	t.Parallel()
	b, w := watched(t)
	sku := b.sku(1299, 100)
	o, neighbour := b.placed(sku), b.placed(sku)
	b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
	b.gateways["sandbox"].pay(t, neighbour.Payment.PaymentNo, "")
	n := b.notice("sandbox", o.Payment.PaymentNo)
	for _, table := range []string{"payments", "stock_movements", "order_items", "order_events", "outbox_messages", "orders"} {
		column := "order_no"
		if table == "stock_movements" {
			column = "ref"
		}
		_, err := b.db.Exec(t.Context(), "test", "DELETE FROM "+table+" WHERE "+column+" = ?", o.OrderNo)
		require.NoError(t, err)
	}
	outside, within := w.during(func() {
		_, err := b.Settle(t.Context(), n)
		require.True(t, fault.Is(err, "not_found"), "%v", err)
	})
	require.Empty(t, outside)
	require.Equal(t, []string{"inbox_messages", "payments", "orders"}, within, "once: it is not tried again and again")
	outside, within = w.during(func() {
		_, err := b.Settle(t.Context(), n)
		require.True(t, fault.Is(err, "not_found"), "%v", err)
	})
	require.Equal(t, []string{"payments"}, outside)
	require.Empty(t, within)
	_, err := b.Settle(t.Context(), b.notice("sandbox", neighbour.Payment.PaymentNo))
	require.NoError(t, err)
}

// What was rolled back is not known: the next callback settles the payment, under the lock as the first did.
func TestASuccessThatWasRolledBackIsNotKnown(t *testing.T) {
	t.Parallel()
	b, w := watched(t)
	o := b.placed(b.sku(1299, 100))
	b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
	n := b.notice("sandbox", o.Payment.PaymentNo)
	w.Arm(cut.BeforeCommit, 1000)
	_, err := b.Settle(t.Context(), n)
	require.Positive(t, w.Disarm())
	require.True(t, fault.Is(err, "outcome_unknown"), "%v", err)
	require.Equal(t, fsm.Paying, b.get(o.OrderNo).Status)

	locks := b.locks()
	out, err := b.Settle(t.Context(), n)
	require.NoError(t, err)
	require.Equal(t, "applied", out.Result)
	require.EqualValues(t, 1, b.locks()-locks)
	require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)
	b.clean()
}

// A twin that waited for the lock while the order was made is told so: it was the lock that kept it from doing the same work.
func TestATwinWaitedForTheLock(t *testing.T) {
	t.Parallel()
	b, w := watched(t)
	server := testenv.Redis(t)
	redis, err := idem.Open(idem.Config{Addr: server.Addr, LockTimeout: 5 * time.Second}, b.Log) // the machine may be busy
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	b.Locks = idem.NewLocker(redis, b.metrics, b.Log, idem.LockOptions{})
	asked := goredis.NewClient(&goredis.Options{Addr: server.Addr})
	t.Cleanup(func() { require.NoError(t, asked.Close()) })

	r := request(no("ord"), b.sku(1299, 100), 1)
	var twin errgroup.Group
	var res order.Result
	w.before = func() { // the first one has the lock
		twin.Go(func() (err error) {
			res, err = b.Place(t.Context(), r)
			return err
		})
		b.eventually(func() error {
			stats, err := asked.Info(t.Context(), "commandstats").Result()
			if err == nil && (!strings.Contains(stats, "cmdstat_set:") || strings.Contains(stats, "cmdstat_set:calls=1,")) {
				err = errors.New("the twin has not asked for the lock")
			}
			return err
		})
	}
	first := b.must(b.Place(t.Context(), r))
	require.NoError(t, twin.Wait())
	require.True(t, first.Created)
	require.False(t, res.Created)
	require.Equal(t, idem.GuardLock, res.Guard)
	require.Equal(t, first.Order.Payment.PaymentNo, res.Order.Payment.PaymentNo)
	b.clean()
}
