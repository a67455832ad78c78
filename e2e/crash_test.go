package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/failpoint/scan"
	"orderd/internal/testenv"
)

// flow is a way through the service on which it is killed at every point it passes.
type flow struct {
	name    string
	engines []string
	vars    []string // of every replica
	workers bool     // the victim's workers run: the point lies in one
	faults  []rule   // of the gateway, while the victim lives
	points  string   // "place.stage:2" is the second pass
	// drive leads the victim to its point. It is called until the victim is dead; no call need get an answer.
	drive func(v *victim)
	// finish does on a healthy replica what the client and the gateway do again, until it returns nil.
	finish  func(v *victim) error
	status  string // that the order ends in
	left    int64  // of ten in stock, three ordered
	charges int    // that the gateway was paid, an order
}

// sweptElsewhere are the points that need a broker, or rows that are a month old; their own tests kill the service there.
var sweptElsewhere = []string{"relay", "consumer", "command_", "inbox_", "prune_"}

func TestCrashSweep(t *testing.T) {
	t.Parallel()
	for _, f := range flows {
		for _, engine := range f.engines {
			t.Run(f.name+"/"+engine, func(t *testing.T) {
				t.Parallel()
				sweep(t, f, engine)
			})
		}
	}
}

// A flow fails when it does not pass one of its points. So every point that the code has is in a flow.
func TestCrashSweepIsComplete(t *testing.T) {
	t.Parallel()
	var swept []string
	for _, f := range flows {
		for _, point := range strings.Fields(f.points) {
			name, _, _ := strings.Cut(point, ":")
			swept = append(swept, name)
		}
	}
	names, err := scan.Names("../internal")
	require.NoError(t, err)
	for _, name := range names {
		if !slices.Contains(swept, name) && !slices.ContainsFunc(sweptElsewhere, func(p string) bool { return strings.HasPrefix(name, p) }) {
			t.Errorf("no flow is killed at %s", name)
		}
	}
	for _, name := range swept {
		if !slices.Contains(names, name) {
			t.Errorf("there is no failpoint %s", name)
		}
	}
}

// victim is a replica that is armed, and the order that it dies with.
type victim struct {
	*env
	t       testing.TB
	point   string
	armed   *orderd
	buyer   *client // of the armed replica, later of the healthy one
	admin   *client
	sku     string
	orderNo string
	at      time.Time // of its callbacks
}

// sweep starts all victims of a flow before there is any order, kills each at its point, and then lets a healthy replica
// finish what they left behind.
func sweep(t *testing.T, f flow, engine string) {
	e := newEnv(t, engine, f.vars...)
	interval := "1h" // the workers' first round finds nothing, and there is no second
	if f.workers {
		interval = "50ms"
	}
	port, err := testenv.FreePort()
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", port) // of the healthy replica, to which the gateway reports from the beginning
	var victims []*victim
	for _, point := range strings.Fields(f.points) {
		name, pass, _ := strings.Cut(point, ":")
		n, _ := strconv.Atoi(pass)
		own := *e
		vars := []string{"ORDERD_WORKER_INTERVAL=" + interval}
		if engine == embedded {
			own.vars = cloneWith(e.vars, "ORDERD_DATA_DIR="+t.TempDir()) // one process a file
		} else {
			vars = append(vars, "ORDERD_PUBLIC_URL=http://"+addr)
		}
		v := &victim{env: &own, t: t, point: name, orderNo: newNo("crash"), at: time.Now()}
		v.armed = own.startFailpoint(t, name, max(n, 1), vars...)
		victims = append(victims, v)
	}
	e.sandbox.faults(t, 1, f.faults...)
	together(len(victims), func(i int) { victims[i].die(f) })
	for _, v := range victims {
		if v.armed.Alive() {
			t.Fatalf("%s was not passed", v.point)
		}
	}
	e.sandbox.heal(t)
	var healthy *orderd
	if engine != embedded {
		healthy = e.start(t, "ORDERD_ADDR="+addr)
	}
	for _, v := range victims {
		o := healthy
		if o == nil {
			o = v.armed
			o.Restart(t, "ORDERD_FAILPOINT=", "ORDERD_WORKER_INTERVAL=100ms")
		}
		v.buyer, v.admin = o.as(t, "u1").during(), o.admin(t).during()
	}
	together(len(victims), func(i int) { victims[i].rise(f) })
	charges := 0
	for _, entry := range e.sandbox.ledger(t) {
		if entry.Kind == "charge" {
			charges++
		}
	}
	require.Equal(t, len(victims)*f.charges, charges, "charges in the gateway's ledger")
	if engine != embedded {
		e.auditSettled(t)
		return
	}
	for _, v := range victims { // each has a database of its own: the gateway's ledger is that of them all
		v.succeeds(t, "audit")
	}
}

// die drives the replica to its point.
func (v *victim) die(f flow) {
	v.buyer, v.admin = v.armed.as(v.t, "u1").during(), v.armed.admin(v.t).during()
	v.sku = newNo("SKU")
	for end := time.Now().Add(settleLimit); v.armed.Alive() && time.Now().Before(end); {
		v.try(v.admin, http.MethodPut, "/v1/stock/"+v.sku, v.item())
		f.drive(v)
	}
}

// rise finishes what the dead replica began, and checks that it happened once.
func (v *victim) rise(f flow) {
	if a := v.admin.do(http.MethodPut, "/v1/stock/"+v.sku, v.item()); a.Status >= 500 || a.Status < 200 {
		v.t.Errorf("%s: the SKU: %s", v.point, a)
		return
	}
	if err := poll(v.t, func() error { return f.finish(v) }); err != nil {
		v.t.Errorf("%s: not finished: %v", v.point, err)
		return
	}
	if f.status != "" {
		if o := v.buyer.order(v.orderNo); o.Status != f.status {
			v.t.Errorf("%s: the order ended %s", v.point, o.Status)
		}
	}
	if left := v.buyer.available(v.sku); left != f.left {
		v.t.Errorf("%s: %d left in stock, want %d", v.point, left, f.left)
	}
	for range 2 { // and once more, like a client that still does not believe it
		if err := f.finish(v); err != nil {
			v.t.Errorf("%s: finished, and then: %v", v.point, err)
		}
	}
	if left := v.buyer.available(v.sku); left != f.left {
		v.t.Errorf("%s: %d left in stock after repeats, want %d", v.point, left, f.left)
	}
}

// item is the body that creates the SKU; a repeat without available only confirms it.
func (v *victim) item() obj {
	item := obj{"title": "Crash", "unit_price": 100, "currency": "CNY", "available": 10}
	if a := v.try(v.admin, http.MethodGet, "/v1/stock/"+v.sku, nil); a.Status == http.StatusOK {
		delete(item, "available")
	}
	return item
}

// try calls a replica that may die of it; the zero answer says that there was none.
func (v *victim) try(c *client, method, path string, body any, header ...string) answer {
	a, err := c.try(method, path, body, header...)
	if err != nil {
		return answer{}
	}
	return a
}

func (v *victim) place() answer {
	return v.try(v.buyer, http.MethodPost, "/v1/orders", want(v.orderNo, v.sku, 3), "Idempotency-Key: "+v.orderNo)
}

func (v *victim) post(c *client, what string, body any) answer {
	return v.try(c, http.MethodPost, "/v1/orders/"+v.orderNo+"/"+what, body)
}

// placed places the order, again and again if need be, and returns it once the gateway has its charge; nil if it was not
// to be.
func (v *victim) placed() *orderView {
	if a := v.place(); a.Status == http.StatusOK || a.Status == http.StatusCreated || a.Status == http.StatusAccepted {
		if o := a.order(v.t); o.Payment != nil && o.transaction() != "" {
			return &o
		}
	}
	return nil
}

// payAt plays the shopper, also one who comes twice.
func (v *victim) payAt(o *orderView, outcome string) {
	v.sandbox.do(v.t, http.MethodPost, "/v1/charges/"+o.Payment.PaymentNo+"/pay", obj{"outcome": outcome}, 200, 201, 202, 204, 409)
}

// report sends the gateway's callback for the order: the same one each time.
func (v *victim) report(o *orderView, kind string) answer {
	cb := succeeded(*o, o.transaction())
	cb.ID, cb.Type, cb.At = v.orderNo+kind, kind, v.at
	body, header := cb.sign(v.t)
	anonymous := *v.buyer
	anonymous.token = ""
	a, _ := anonymous.exchange(v.t.Context(), http.MethodPost, "/v1/payments/callbacks/sandbox", body, header)
	return a
}
