package e2e

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// lockLimit bounds every answer while somebody else has the order's lock: 2 s of waiting, and the work around it.
const lockLimit = 4 * time.Second

func (e *env) keys(t testing.TB) *redis.Client {
	t.Helper()
	r := redis.NewClient(&redis.Options{Addr: e.redis.Addr})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func lockKey(orderNo string) string { return "orderd:lock:" + orderNo }

// soon calls f and fails the test if that took longer than limit.
func soon(t testing.TB, limit time.Duration, f func() answer) answer {
	t.Helper()
	began := time.Now()
	a := f()
	if took := time.Since(began); took > limit {
		t.Errorf("answered after %v, the limit is %v: %s", took, limit, a)
	}
	return a
}

// The holder of a lock is paused until the lock is no longer its own. The database alone keeps the books, and
// the late unlock does not take the lock from whoever has it by then.
func TestLockIsLostByAPausedHolder(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	e.mute(t)
	other := e.start(t)
	keys := e.keys(t)
	buyer := other.as(t, "u1")
	left := int64(100)
	sku := other.admin(t).stock(100, left)
	for hit := 0; hit < min(rounds(t), 3); {
		o := buyer.mustPlace(sku, 1)
		left--
		cb := e.paidAtGateway(t, o)
		paused := e.startBinary(t, failpointBinary, []string{"ORDERD_FAILPOINT=settle.begin:1:stop"})
		answered := make(chan answer, 1)
		go func() { answered <- paused.as(t, "u1").during().callback(cb) }()
		settled(t, func() error {
			if paused.stopped(t) {
				return nil
			}
			return errors.New("it runs")
		})
		// Its time is over. On a busy machine Redis may not have answered it in time: then it went on without.
		held := keys.Del(t.Context(), lockKey(o.OrderNo)).Val() == 1
		if held {
			hit++
			a := soon(t, 10*time.Second, func() answer {
				return buyer.during().do(http.MethodPost, "/v1/orders/"+o.OrderNo+"/cancel", nil)
			})
			require.Contains(t, []int{http.StatusConflict, http.StatusServiceUnavailable}, a.Status, "it was paid: %s", a)
			require.NoError(t, keys.Set(t.Context(), lockKey(o.OrderNo), "another's", time.Minute).Err())
		}
		require.NoError(t, paused.Cont())
		if a := <-answered; a.Status != http.StatusOK {
			require.Equal(t, http.StatusServiceUnavailable, a.Status, "%s", a)
			require.Equal(t, http.StatusOK, buyer.callback(cb).Status, "the gateway sends again")
		}
		if held {
			require.Equal(t, "another's", keys.Get(t.Context(), lockKey(o.OrderNo)).Val(), "the late unlock freed another's lock")
			require.NoError(t, keys.Del(t.Context(), lockKey(o.OrderNo)).Err())
		}
		require.Zero(t, paused.Term())
		require.Equal(t, "PAID", buyer.order(o.OrderNo).Status)
		require.Equal(t, 1, buyer.happened(o.OrderNo, "pay"))
		require.Equal(t, left, buyer.available(sku))
	}
	e.auditSettled(t)
}

// While the lock is held for longer than anybody waits, every answer comes in time and can be acted on.
func TestLockIsHeldForLong(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	e.mute(t)
	o := e.start(t)
	admin, buyer := o.admin(t), o.as(t, "u1")
	sku := admin.stock(100, 10)
	keys := e.keys(t)
	held := func(orderNo string) {
		require.NoError(t, keys.Set(t.Context(), lockKey(orderNo), "another's", time.Minute).Err())
	}
	unpaid, waiting := buyer.mustPlace(sku, 1), buyer.mustPlace(sku, 1)
	cb := e.paidAtGateway(t, waiting)
	paid := buyer.mustPlace(sku, 1)
	require.Equal(t, http.StatusOK, buyer.callback(e.paidAtGateway(t, paid)).Status)
	fresh := newNo("new")
	for _, orderNo := range []string{unpaid.OrderNo, waiting.OrderNo, paid.OrderNo, fresh} {
		held(orderNo)
	}
	calls := []struct {
		name string
		want int
		call func() answer
	}{
		{"place", http.StatusConflict, func() answer { return buyer.place(want(fresh, sku, 1)) }},
		{"place again", http.StatusOK, func() answer { return buyer.place(want(unpaid.OrderNo, sku, 1)) }},
		{"open attempt", http.StatusOK, func() answer { return buyer.do(http.MethodPost, "/v1/orders/"+unpaid.OrderNo+"/payments", obj{}) }},
		{"cancel", http.StatusConflict, func() answer { return buyer.do(http.MethodPost, "/v1/orders/"+unpaid.OrderNo+"/cancel", nil) }},
		{"callback", http.StatusOK, func() answer { return buyer.callback(cb) }}, // the gateway's guard is the database
		{"ship", http.StatusConflict, func() answer {
			return admin.do(http.MethodPost, "/v1/orders/"+paid.OrderNo+"/ship", obj{"tracking_no": "T-1"})
		}},
	}
	for i, a := range gather(len(calls), func(i int) answer { return soon(t, lockLimit, calls[i].call) }) {
		require.Equal(t, calls[i].want, a.Status, "%s: %s", calls[i].name, a)
		if a.Status == http.StatusConflict {
			require.Equal(t, "order_in_progress", a.code(), calls[i].name)
			require.NotEmpty(t, a.Header.Get("Retry-After"), calls[i].name)
		}
	}
	for _, orderNo := range []string{unpaid.OrderNo, waiting.OrderNo, paid.OrderNo, fresh} {
		require.NoError(t, keys.Del(t.Context(), lockKey(orderNo)).Err())
	}
	require.Equal(t, http.StatusCreated, buyer.place(want(fresh, sku, 1)).Status)
	e.auditSettled(t)
}

// Twins that do not come at once, but at every distance.
func TestTwinsApart(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	a := &arena{env: e, t: t}
	for range 2 {
		a.buyers = append(a.buyers, e.start(t).as(t, "u1"))
	}
	a.admin = e.start(t).admin(t)
	for apart := range 50 {
		sku := a.admin.stock(100, 10)
		body := want(newNo("apart"), sku, 3)
		a.oneOrder(gather(2, func(i int) answer {
			<-time.After(time.Duration(i*apart) * time.Millisecond) // the distance is what is tested
			return a.at(i).place(body)
		}))
		require.EqualValues(t, 7, a.admin.available(sku))
	}
	e.auditSettled(t)
}

// What a client calls an order cannot reach another's lock, or any other key.
func TestLockNames(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t)
	buyer := o.as(t, "u1")
	sku := o.admin(t).stock(100, 10)
	for _, orderNo := range []string{"lock:1", "orders:a:b", "******", "{order}", "lock 123", "lock\n123"} {
		require.Equal(t, http.StatusUnprocessableEntity, buyer.place(want(orderNo, sku, 1)).Status, "%q", orderNo)
	}
	keys := e.keys(t)
	require.Empty(t, keys.Keys(t.Context(), "*").Val())
	require.NoError(t, keys.Set(t.Context(), lockKey("abc-001"), "another's", time.Minute).Err())
	for _, orderNo := range []string{"ABC-001", "abc-0011", "lock-1", "window", "orderd"} {
		require.Equal(t, http.StatusCreated, buyer.place(want(orderNo, sku, 1)).Status, orderNo)
	}
	require.NoError(t, keys.Del(t.Context(), lockKey("abc-001")).Err())
	require.Empty(t, keys.Keys(t.Context(), "orderd:lock:*").Val())
	e.auditSettled(t)
}

// A Redis that hangs, or refuses to store anything, costs a moment and no order.
func TestRedisHangsOrIsFull(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t)
	buyer := o.as(t, "u1")
	sku := o.admin(t).stock(100, 10)
	keys := e.keys(t)

	require.NoError(t, keys.ConfigSet(t.Context(), "maxmemory", "1").Err())
	full := soon(t, time.Second, func() answer { return buyer.place(want(newNo("full"), sku, 1)) })
	require.Equal(t, http.StatusCreated, full.Status, "a Redis that is full has not said that the lock is taken: %s", full)
	require.NoError(t, keys.ConfigSet(t.Context(), "maxmemory", "0").Err())

	require.NoError(t, e.redis.Pause())
	for range 5 {
		a := soon(t, 2*time.Second, func() answer { return buyer.place(want(newNo("hang"), sku, 1)) })
		require.Equal(t, http.StatusCreated, a.Status, "%s", a)
	}
	require.Positive(t, o.metric(t, `orderd_lock_answers_total{answer="down"}`))
	require.Equal(t, http.StatusServiceUnavailable,
		soon(t, 2*time.Second, func() answer { return buyer.during().do(http.MethodPost, "/v1/order-tokens", nil) }).Status)
	require.NoError(t, e.redis.Resume())
	settled(t, func() error {
		return expect(buyer.during().do(http.MethodPost, "/v1/order-tokens", nil), http.StatusCreated)
	})
	require.EqualValues(t, 4, buyer.available(sku))
	e.auditSettled(t)
}
