package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

// mute lets the gateway keep its callbacks for itself: the test sends them.
func (e *env) mute(t testing.TB) {
	t.Helper()
	e.sandbox.faults(t, 1, rule{On: "callback", Mode: "drop", Rate: 1})
}

// paidAtGateway pays o's newest attempt and returns the callback that the gateway owes, with an id and a time of its own:
// sent again, it is the same message.
func (e *env) paidAtGateway(t testing.TB, o orderView) callback {
	t.Helper()
	e.sandbox.pay(t, o.Payment.PaymentNo)
	return message(o)
}

// message is the message that o's newest attempt was paid as asked.
func message(o orderView) callback {
	cb := succeeded(o, o.transaction())
	cb.ID, cb.At = newNo("msg"), time.Now()
	return cb
}

// result is what a callback was answered: applied, duplicate, ignored or refund_opened; else the code of the refusal.
func (a answer) result(t testing.TB) string {
	t.Helper()
	if a.Status != http.StatusOK {
		return a.code()
	}
	var v struct {
		Result string `json:"result"`
	}
	a.decode(t, &v)
	return v.Result
}

// history returns the names of the order's events, in order.
func (c *client) history(orderNo string) []string {
	c.t.Helper()
	var v struct {
		Events []struct {
			Kind  string `json:"kind"`
			Event string `json:"event"`
		} `json:"events"`
	}
	c.do(http.MethodGet, "/v1/orders/"+orderNo+"/timeline", nil).decode(c.t, &v)
	var events []string
	for _, e := range v.Events {
		if e.Kind == "event" {
			events = append(events, e.Event)
		}
	}
	return events
}

// happened counts an event of the order.
func (c *client) happened(orderNo, event string) int {
	c.t.Helper()
	n := 0
	for _, e := range c.history(orderNo) {
		if e == event {
			n++
		}
	}
	return n
}

// fields names the members that a refusal complains of.
func (a answer) fields(t testing.TB) []string {
	t.Helper()
	var v struct {
		Errors []struct {
			Field string `json:"field"`
		} `json:"errors"`
	}
	a.decode(t, &v)
	var names []string
	for _, f := range v.Errors {
		names = append(names, f.Field)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// cart is the body of an order for several SKUs, given as sku, quantity, sku, quantity ...
func cart(orderNo string, lines ...any) obj {
	items := []obj{}
	for i := 0; i < len(lines); i += 2 {
		items = append(items, obj{"sku": lines[i], "quantity": lines[i+1]})
	}
	body := obj{"items": items}
	if orderNo != "" {
		body["order_no"] = orderNo
	}
	return body
}

// replicas starts two replicas, or the one that an embedded database allows, twice in the result.
func (e *env) replicas(t testing.TB, vars ...string) [2]*orderd {
	t.Helper()
	first := e.start(t, vars...)
	if e.engine == embedded {
		return [2]*orderd{first, first}
	}
	return [2]*orderd{first, e.start(t, vars...)}
}

// crossed starts replicas as above; what the gateway has to report of the second one's calls, it reports to the first.
func (e *env) crossed(t testing.TB, vars ...string) [2]*orderd {
	t.Helper()
	first := e.start(t, vars...)
	if e.engine == embedded {
		return [2]*orderd{first, first}
	}
	return [2]*orderd{first, e.start(t, append(vars, "ORDERD_PUBLIC_URL="+first.url("api"))...)}
}

// sql opens the database beside the service, as an operator would; MariaDB only.
func (e *env) sql(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", e.vars["ORDERD_DB_DSN"])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// hold locks the row of an order until release is called.
func hold(t testing.TB, db *sql.DB, orderNo string) (release func()) {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	var id int64
	require.NoError(t, tx.QueryRow("SELECT id FROM orders WHERE order_no = ? FOR UPDATE", orderNo).Scan(&id))
	done := false
	release = func() {
		if !done {
			done = true
			require.NoError(t, tx.Rollback())
		}
	}
	t.Cleanup(release)
	return release
}

// blocked waits until such a statement of the service waits for a row that is held.
func blocked(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	settled(t, func() error {
		var n int
		err := db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Query' AND info LIKE ?", statement+"%").Scan(&n)
		if err == nil && n == 0 {
			err = fmt.Errorf("no %s is waiting", statement)
		}
		return err
	})
}

// withDSN returns the setting ORDERD_DB_DSN for a DSN with a further parameter.
func withDSN(dsn, parameter string) string {
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return "ORDERD_DB_DSN=" + dsn + separator + parameter
}

// proxied returns the DSN of a fresh database, reached through a proxy.
func proxied(t testing.TB) (dsn string, proxy *testenv.Proxy) {
	t.Helper()
	return through(t, testenv.Database(t))
}

// through returns dsn, led through a proxy.
func through(t testing.TB, dsn string) (string, *testenv.Proxy) {
	t.Helper()
	head, rest, _ := strings.Cut(dsn, "tcp(")
	addr, tail, ok := strings.Cut(rest, ")")
	require.True(t, ok, "a DSN over TCP")
	proxy := testenv.NewProxy(t, addr)
	return head + "tcp(" + proxy.Addr + ")" + tail, proxy
}

// statusIs returns an error unless the answer has the status.
func statusIs(a answer, status int) error {
	if a.Status != status {
		return fmt.Errorf("want status %d: %s", status, a)
	}
	return nil
}
