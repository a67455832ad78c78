package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// arena is two replicas on one database: every race is run against both at once. Its rounds share the environment and use
// order numbers and SKUs of their own.
type arena struct {
	*env
	t      testing.TB
	admin  *client
	buyers []*client // the same user, at each replica
}

func newArena(t *testing.T, vars ...string) *arena {
	t.Helper()
	e := newEnv(t, mariadbRedis, vars...)
	a := &arena{env: e, t: t}
	for _, o := range e.crossed(t) {
		a.admin = o.admin(t)
		a.buyers = append(a.buyers, o.as(t, "u1"))
	}
	return a
}

// on is the arena for a subtest.
func (a *arena) on(t testing.TB) *arena {
	b := *a
	b.t, b.admin, b.buyers = t, a.admin.on(t), nil
	for _, c := range a.buyers {
		b.buyers = append(b.buyers, c.on(t))
	}
	return &b
}

// on is the client for a subtest.
func (c *client) on(t testing.TB) *client {
	d := *c
	d.t = t
	return &d
}

// at returns the buyer at the i-th replica, in turn.
func (a *arena) at(i int) *client { return a.buyers[i%len(a.buyers)] }

// races are run with Redis and without it: the lock only saves work.
var races = []struct {
	name string
	run  func(a *arena)
}{
	{"the same order_no", (*arena).sameOrderNo},
	{"the same key", (*arena).sameKey},
	{"the last unit", (*arena).lastUnit},
	{"carts in opposite order", (*arena).oppositeCarts},
	{"random carts", (*arena).randomCarts},
	{"neighbouring numbers", (*arena).neighbours},
	{"the same callback", (*arena).sameCallback},
	{"callback before the gateway's answer", (*arena).callbackBeforeAnswer},
	{"callback against cancel", (*arena).callbackAgainstCancel},
	{"callback against resubmission", (*arena).callbackAgainstResubmission},
	{"cancel against a new attempt", (*arena).cancelAgainstAttempt},
	{"both attempts paid", (*arena).bothAttemptsPaid},
	{"ship", (*arena).ship},
}

func TestRaces(t *testing.T) {
	t.Parallel()
	runRaces(newArena(t), t, rounds(t))
}

// The lock is a courtesy: everything holds when Redis is dead.
func TestRacesWithoutRedis(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.redis.Kill()
	runRaces(a, t, (rounds(t)+1)/2)
}

func runRaces(a *arena, t *testing.T, n int) {
	for _, race := range races {
		t.Run(race.name, func(t *testing.T) {
			for range n {
				a.sandbox.heal(t)
				if race.run(a.on(t)); t.Failed() {
					break // the first round that went wrong tells it all
				}
			}
			a.sandbox.heal(t)
			a.auditSettled(t)
			a.ledgerAgrees(t)
		})
	}
}

// ledgerAgrees compares what the gateway was paid with what the orders say: nobody pays twice, and what is not of an
// order goes back.
func (a *arena) ledgerAgrees(t testing.TB) {
	t.Helper()
	charged := map[string]int{}
	for _, entry := range a.sandbox.ledger(t) {
		if entry.Kind == "charge" {
			charged[entry.PaymentNo]++
		}
	}
	for paymentNo, n := range charged {
		require.Equal(t, 1, n, "payment %s was charged %d times", paymentNo, n)
	}
}

// count returns how many answers have each status.
func count(answers []answer) map[int]int {
	n := map[int]int{}
	for _, a := range answers {
		n[a.Status]++
	}
	return n
}

// oneOrder checks the answers to twins: at most one created the order, the others saw the same one or were told to wait.
func (a *arena) oneOrder(answers []answer) orderView {
	var o orderView
	created := 0
	for _, x := range answers {
		switch {
		case x.Status == http.StatusConflict && x.code() == "order_in_progress":
			require.NotEmpty(a.t, x.Header.Get("Retry-After"))
			continue
		case x.Status == http.StatusCreated || x.Status == http.StatusAccepted:
			created++
		default:
			require.Equal(a.t, http.StatusOK, x.Status, "%s", x)
			require.Equal(a.t, "true", x.Header.Get("Idempotent-Replayed"))
			require.NotEmpty(a.t, x.guard())
		}
		seen := x.order(a.t)
		if o.OrderNo == "" {
			o = seen
		}
		require.Equal(a.t, o.OrderNo, seen.OrderNo)
		require.Equal(a.t, o.Amount, seen.Amount)
		if o.Payment != nil && seen.Payment != nil {
			require.Equal(a.t, o.Payment.PaymentNo, seen.Payment.PaymentNo)
		}
	}
	require.LessOrEqual(a.t, created, 1, "created more than once: %v", count(answers))
	require.NotEmpty(a.t, o.OrderNo, "nobody got the order: %v", count(answers))
	return o
}

func (a *arena) sameOrderNo() {
	sku := a.admin.stock(100, 10)
	body := want(newNo("same"), sku, 3)
	a.oneOrder(gather(50, func(i int) answer { return a.at(i).place(body) }))
	require.EqualValues(a.t, 7, a.admin.available(sku))
}

func (a *arena) sameKey() {
	sku := a.admin.stock(100, 10)
	key := "Idempotency-Key: " + newNo("key")
	a.oneOrder(gather(20, func(i int) answer { return a.at(i).place(want("", sku, 3), key) }))
	require.EqualValues(a.t, 7, a.admin.available(sku))
}

func (a *arena) lastUnit() {
	sku := a.admin.stock(100, 1)
	answers := gather(50, func(i int) answer { return a.place(i, want(newNo("last"), sku, 1)) })
	require.Equal(a.t, map[int]int{201: 1, 409: 49}, count(answers))
	for _, x := range answers {
		if x.Status == http.StatusConflict {
			require.Equal(a.t, "out_of_stock", x.code())
		}
	}
	require.Zero(a.t, a.admin.available(sku))
}

// ungrouped says that the suite runs without group commit. Then rivals for a SKU may run out of tries for its version, and
// are told to send the same again. Otherwise nobody is.
var ungrouped = os.Getenv("ORDERD_BATCH_SIZE") == "1"

// place places an order at the i-th replica.
func (a *arena) place(i int, body obj, header ...string) answer {
	if !ungrouped {
		return a.at(i).place(body, header...)
	}
	for tries := 1; ; tries++ {
		x := a.at(i).during().place(body, header...)
		if x.Status != http.StatusServiceUnavailable || tries == 20 {
			return x
		}
		require.Equal(a.t, "unavailable", x.code())
		require.NotEmpty(a.t, x.Header.Get("Retry-After"))
	}
}

func lines(quantity int, skus ...string) []obj {
	var all []obj
	for _, sku := range skus {
		all = append(all, obj{"sku": sku, "quantity": quantity})
	}
	return all
}

// allCreated checks that no rival cost anybody their order.
func (a *arena) allCreated(answers []answer) {
	for _, x := range answers {
		if !ungrouped || x.Status != http.StatusOK { // stored by the try before, as far as its first stage
			require.Equal(a.t, http.StatusCreated, x.Status, "%s", x)
		}
	}
}

func (a *arena) oppositeCarts() {
	first, second := a.admin.stock(100, 100), a.admin.stock(200, 100)
	a.allCreated(gather(20, func(i int) answer {
		cart := []string{first, second}
		if i/2%2 == 1 {
			slices.Reverse(cart)
		}
		return a.place(i, obj{"order_no": newNo("cart"), "items": lines(1, cart...)})
	}))
	require.EqualValues(a.t, 80, a.admin.available(first))
	require.EqualValues(a.t, 80, a.admin.available(second))
}

func (a *arena) randomCarts() {
	skus := make([]string, 8)
	for i := range skus {
		skus[i] = a.admin.stock(100, 100)
	}
	carts := make([][]string, 20)
	left := map[string]int64{}
	for i := range carts {
		for _, n := range rand.Perm(len(skus))[:5] {
			carts[i] = append(carts[i], skus[n])
			left[skus[n]]++
		}
	}
	a.allCreated(gather(len(carts), func(i int) answer {
		return a.place(i, obj{"order_no": newNo("cart"), "items": lines(1, carts[i]...)})
	}))
	for _, sku := range skus {
		require.EqualValues(a.t, 100-left[sku], a.admin.available(sku))
	}
}

// Inserts beside each other in every index: where locks on the gaps between keys would wait for each other.
func (a *arena) neighbours() {
	sku := a.admin.stock(100, 100)
	base := newNo("n")
	a.allCreated(gather(20, func(i int) answer {
		return a.place(i, want(fmt.Sprintf("%s-%02d", base, i), sku, 1), fmt.Sprintf("Idempotency-Key: %s-%02d", base, i))
	}))
	require.EqualValues(a.t, 80, a.admin.available(sku))
}
