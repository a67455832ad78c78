package e2e

import (
	"database/sql"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"orderd/internal/testenv"
)

// commit is COMMIT as the driver sends it: a query command.
const commit = "\x03COMMIT"

// The connection breaks at the COMMIT of every transaction of an order's life, before the server got it, or
// after it was done and before the answer came. The client hears of success, or is asked to send the same again.
func TestConnectionBreaksAtCommit(t *testing.T) {
	t.Parallel()
	for _, stages := range []string{"together", "each"} {
		t.Run(stages, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, mariadbRedis, "ORDERD_STAGE_COMMIT="+stages)
			e.mute(t)
			cfg, err := mysql.ParseDSN(e.vars["ORDERD_DB_DSN"])
			require.NoError(t, err)
			proxy := testenv.NewProxy(t, cfg.Addr)
			cfg.Addr = proxy.Addr
			o := e.start(t, "ORDERD_DB_DSN="+cfg.FormatDSN(), "ORDERD_WORKER_INTERVAL=1h") // only the requests commit
			commits := 1
			if stages == "each" {
				commits = 3
			}
			for name, cut := range map[string]func(string, int){"before": proxy.CutBefore, "after": proxy.CutAfter} {
				t.Run(name, func(t *testing.T) {
					for n := range commits {
						life(t, e, o, func(n int, call func() answer) answer {
							before := proxy.Cuts()
							cut(commit, n)
							a := call()
							require.Equal(t, before+1, proxy.Cuts(), "the connection did not break: %s", a)
							return a
						}, n+1)
					}
				})
			}
			e.auditSettled(t)
		})
	}
}

// life takes one order from nothing to SHIPPED and another to CANCELLED; broken breaks the connection at the n-th COMMIT
// of a call.
func life(t *testing.T, e *env, o *orderd, broken func(n int, call func() answer) answer, n int) {
	admin, buyer := o.admin(t), o.as(t, "u1").during()
	sku := admin.stock(100, 10)
	again := func(n int, call func() answer, wanted ...int) answer {
		a := broken(n, call)
		if a.Status != http.StatusServiceUnavailable {
			require.NoError(t, expect(a, wanted...))
		}
		a = call()
		require.NoError(t, expect(a, wanted...))
		return a
	}
	body := want(newNo("cut"), sku, 3)
	paid := again(n, func() answer { return buyer.place(body) }, 200, 201).order(t)
	cb := e.paidAtGateway(t, paid)
	again(1, func() answer { return buyer.callback(cb) }, 200)
	again(1, func() answer {
		return admin.during().do(http.MethodPost, "/v1/orders/"+paid.OrderNo+"/ship", obj{"tracking_no": "T-1"})
	}, 200)
	require.Equal(t, []string{"create", "reserve", "open_payment", "pay", "ship"}, buyer.history(paid.OrderNo))
	require.EqualValues(t, 7, buyer.available(sku))

	given := buyer.mustPlace(sku, 3)
	again(1, func() answer { return buyer.do(http.MethodPost, "/v1/orders/"+given.OrderNo+"/cancel", nil) }, 200)
	require.Equal(t, []string{"create", "reserve", "open_payment", "cancel"}, buyer.history(given.OrderNo))
	require.EqualValues(t, 7, buyer.available(sku))
}

// downLimit bounds an answer without a database; pausedLimit one from a database that has stopped in the middle.
const (
	downLimit   = 3 * time.Second
	pausedLimit = 10 * time.Second
)

// Whatever the database suffers, clients are asked to come again, and the service needs no restart.
func TestDatabaseOutages(t *testing.T) {
	t.Parallel()
	server := testenv.OwnMariaDB(t, "--max-connections=20")
	dsn := server.Database(t)
	root, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer root.Close()
	run := func(statement string) {
		t.Helper()
		_, err := root.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	run("CREATE USER app IDENTIFIED BY 'app'")
	run("GRANT ALL ON *.* TO app") // but for SUPER, which read_only does not bind
	run("REVOKE SUPER, READ_ONLY ADMIN, CONNECTION ADMIN ON *.* FROM app")
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	cfg.User, cfg.Passwd = "app", "app"
	e := newEnv(t, mariadbRedis, "ORDERD_DB_DSN="+cfg.FormatDSN())
	o := e.start(t)
	buyer := o.as(t, "u1").during()
	sku := o.admin(t).stock(100, 1000)
	known := buyer.mustPlace(sku, 1)
	var orders []obj
	// refused places orders during a fault: each is created, or refused in time and with the advice to come again.
	refused := func(t *testing.T, limit time.Duration) (n int) {
		t.Helper()
		var bodies []obj
		for range 20 {
			bodies = append(bodies, want(newNo("out"), sku, 1))
		}
		for _, a := range gather(len(bodies), func(i int) answer {
			return soon(t, limit, func() answer { return buyer.on(t).place(bodies[i]) })
		}) {
			if a.Status == http.StatusServiceUnavailable {
				require.NotEmpty(t, a.Header.Get("Retry-After"))
				n++
				continue
			}
			require.NoError(t, expect(a, 200, 201, 202))
		}
		orders = append(orders, bodies...)
		return n
	}
	// healed lets every client come again, and looks at the books.
	healed := func(t *testing.T) {
		t.Helper()
		for _, body := range orders {
			settled(t, func() error { return expect(buyer.on(t).place(body), 200, 201, 202) })
		}
		require.EqualValues(t, 999-len(orders), buyer.available(sku))
		e.auditSettled(t)
	}

	t.Run("killed", func(t *testing.T) {
		server.Kill()
		require.Equal(t, 20, refused(t, downLimit))
		require.Equal(t, http.StatusServiceUnavailable, buyer.do(http.MethodGet, "/v1/orders/"+known.OrderNo, nil).Status)
		require.NoError(t, server.Restart())
		healed(t)
	})
	t.Run("paused", func(t *testing.T) {
		require.NoError(t, server.Pause())
		require.Equal(t, 20, refused(t, pausedLimit))
		require.NoError(t, server.Resume())
		healed(t)
	})
	t.Run("read-only", func(t *testing.T) {
		run("SET GLOBAL read_only = 1")
		require.Equal(t, 20, refused(t, pausedLimit))
		require.Equal(t, http.StatusOK, buyer.do(http.MethodGet, "/v1/orders/"+known.OrderNo, nil).Status)
		run("SET GLOBAL read_only = 0")
		healed(t)
	})
	t.Run("no connection free", func(t *testing.T) {
		require.NoError(t, o.Stop()) // it must find none, and not be the first to take some
		require.NoError(t, server.Restart())
		app, err := sql.Open("mysql", cfg.FormatDSN())
		require.NoError(t, err)
		defer app.Close()
		var taken []*sql.Conn
		for {
			c, err := app.Conn(t.Context())
			if err != nil {
				break
			}
			taken = append(taken, c)
		}
		require.NoError(t, o.Cont())
		require.Positive(t, refused(t, downLimit))
		for _, c := range taken {
			require.NoError(t, c.Close())
		}
		require.NoError(t, app.Close())
		healed(t)
	})
}

// A row is locked for longer than the service waits. Nothing is done by half.
func TestRowIsLockedForLong(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t)
	buyer := o.as(t, "u1").during()
	sku := o.admin(t).stock(100, 10)
	given := buyer.mustPlace(sku, 3)
	release := hold(t, e.sql(t), given.OrderNo)
	a := soon(t, pausedLimit, func() answer { return buyer.do(http.MethodPost, "/v1/orders/"+given.OrderNo+"/cancel", nil) })
	require.NoError(t, expect(a, http.StatusConflict, http.StatusServiceUnavailable))
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Equal(t, "PAYING", buyer.order(given.OrderNo).Status)
	require.EqualValues(t, 7, buyer.available(sku), "stock came back without the order being cancelled")
	release()
	settled(t, func() error {
		return expect(buyer.do(http.MethodPost, "/v1/orders/"+given.OrderNo+"/cancel", nil), 200)
	})
	require.EqualValues(t, 10, buyer.available(sku))
	e.auditSettled(t)
}

// The gateway has taken the charge and its answer never came. That is no failure, and no second charge: whether the client
// sends the order again, or nobody does and the gateway is asked, or the shopper has paid meanwhile and the gateway tells.
func TestGatewayTimesOut(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		for i, how := range []string{"sent again", "asked", "told"} {
			t.Run(how, func(t *testing.T) {
				buyer := o.as(t, "u1")
				sku := o.admin(t).stock(100, 10)
				e.sandbox.faults(t, 1, rule{On: "charge", Mode: "timeout_after", Rate: 1, Times: 1})
				body := want(newNo("late"), sku, 3)
				a := buyer.place(body)
				require.Equal(t, http.StatusAccepted, a.Status, "%s", a)
				require.NotEmpty(t, a.Header.Get("Retry-After"))
				first := a.order(t)
				require.Equal(t, []string{"PAYING", "UNKNOWN"}, []string{first.Status, first.Payment.Status})
				if how != "told" {
					settled(t, func() error {
						if how == "sent again" {
							buyer.place(body)
						}
						if now := buyer.order(first.OrderNo); now.Payment.Status != "PENDING" {
							return fmt.Errorf("the payment is %s", now.Payment.Status)
						}
						return nil
					})
				}
				e.sandbox.pay(t, first.Payment.PaymentNo)
				now := buyer.becomes(first.OrderNo, "PAID")
				require.Equal(t, first.Payment.PaymentNo, now.Payment.PaymentNo)
				require.Equal(t, []string{"create", "reserve", "open_payment", "pay"}, buyer.history(now.OrderNo))
				require.Len(t, e.sandbox.ledger(t), i+1)
				require.EqualValues(t, 7, buyer.available(sku))
			})
		}
		require.EqualValues(t, 3, o.metric(t, `orderd_gateway_calls_total{call="charge",gateway="sandbox",outcome="unknown"}`))
		require.Zero(t, o.metric(t, `orderd_gateway_calls_total{call="charge",gateway="sandbox",outcome="pending"}`), "it was sent again")
		e.auditSettled(t)
	})
}
