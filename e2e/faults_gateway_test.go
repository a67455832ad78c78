package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/payment/signed/signedtest"
)

// calls reads how often the sandbox was called with that outcome.
func (o *orderd) calls(t testing.TB, call, outcome string) float64 {
	t.Helper()
	return o.metric(t, fmt.Sprintf("orderd_gateway_calls_total{call=%q,gateway=\"sandbox\",outcome=%q}", call, outcome))
}

// The charge never reached the gateway, and its answer never came. The gateway must say twice, five seconds apart, that it
// does not know it; then it is sent again, under the same number.
func TestChargeThatNeverArrived(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		buyer := o.as(t, "u1")
		sku := o.admin(t).stock(100, 10)
		e.sandbox.faults(t, 1, rule{On: "charge", Mode: "timeout_before", Rate: 1, Times: 2})
		patient, hasty := want(newNo("ord"), sku, 1), want(newNo("ord"), sku, 1)
		placed := gather(2, func(i int) answer { return buyer.place([]obj{patient, hasty}[i]) })
		began := time.Now()
		for i, a := range placed {
			first := a.order(t)
			require.Equal(t, http.StatusAccepted, a.Status, "%s", a)
			require.Equal(t, []string{"PAYING", "UNKNOWN"}, []string{first.Status, first.Payment.Status})
			settled(t, func() error {
				if i == 1 { // this one sends it again and again; the other leaves it to the service
					again := buyer.place(hasty)
					require.Equal(t, http.StatusOK, again.Status)
					require.Equal(t, again.order(t).Payment.Status == "UNKNOWN", again.Header.Get("Retry-After") != "")
				}
				now := buyer.order(first.OrderNo)
				require.Equal(t, first.Payment.PaymentNo, now.Payment.PaymentNo)
				if now.Payment.Status == "UNKNOWN" {
					return fmt.Errorf("it is still not known whether order %s has a charge", now.OrderNo)
				}
				require.Equal(t, "PENDING", now.Payment.Status)
				return nil
			})
			require.Greater(t, time.Since(began), 5*time.Second)
			e.sandbox.pay(t, first.Payment.PaymentNo)
			buyer.becomes(first.OrderNo, "PAID")
		}
		require.EqualValues(t, 2, o.calls(t, "charge", "unknown"))
		require.EqualValues(t, 2, o.calls(t, "charge", "pending"))
		require.GreaterOrEqual(t, o.calls(t, "query", "not_found"), 4.0)
		require.Len(t, e.sandbox.ledger(t), 2)
		require.EqualValues(t, 8, buyer.available(sku))
		e.auditSettled(t)
	})
}

// Until it is known whether there is a charge, there is nothing to cancel and no other gateway to go to.
func TestCancelOfAChargeThatNeverArrived(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	o := e.start(t, "ORDERD_WORKER_INTERVAL=1h")
	buyer := o.as(t, "u1").during()
	sku := o.admin(t).stock(100, 10)
	e.sandbox.faults(t, 1, rule{On: "charge", Mode: "error_before", Rate: 1, Times: 1})
	placed := buyer.place(want(newNo("ord"), sku, 3)).order(t)
	cancel := func() answer { return buyer.do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/cancel", nil) }
	began := time.Now()
	a := cancel()
	require.Equal(t, "outcome_unknown", a.code(), "%s", a)
	require.Equal(t, "5", a.Header.Get("Retry-After"))
	require.Equal(t, "PAYING", buyer.order(placed.OrderNo).Status)
	require.EqualValues(t, 7, buyer.available(sku))
	a = buyer.do(http.MethodPost, "/v1/orders/"+placed.OrderNo+"/payments", obj{})
	require.Equal(t, http.StatusAccepted, a.Status, "%s", a)
	settled(t, func() error { return statusIs(cancel(), http.StatusOK) })
	require.Greater(t, time.Since(began), 5*time.Second)
	require.EqualValues(t, 10, buyer.available(sku))
	require.Empty(t, e.sandbox.ledger(t))
	e.auditSettled(t)
}

// A decline is a definite answer: this attempt is over, the order is not. The next attempt has a number of its own, and
// at no time two are open.
func TestDeclinedCharge(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		buyer := o.as(t, "u1")
		sku := o.admin(t).stock(100, 10)
		e.sandbox.faults(t, 1, rule{On: "charge", Mode: "decline", Rate: 1, Times: 2})
		body := want(newNo("ord"), sku, 3)
		a := buyer.place(body)
		require.Equal(t, http.StatusCreated, a.Status, "%s", a)
		numbers := map[string]bool{}
		for attempt := int64(1); attempt <= 3; attempt++ {
			now := a.order(t)
			require.Equal(t, "PAYING", now.Status)
			require.Equal(t, attempt, now.Payment.Attempt)
			require.False(t, numbers[now.Payment.PaymentNo], "a number was used again")
			numbers[now.Payment.PaymentNo] = true
			if e.engine == mariadbRedis {
				var open int
				require.NoError(t, e.sql(t).QueryRow("SELECT COUNT(*) FROM payments WHERE order_no = ? AND open_slot = 1", now.OrderNo).Scan(&open))
				require.Equal(t, map[bool]int{true: 0, false: 1}[attempt < 3], open)
			}
			if attempt == 3 {
				require.Equal(t, "PENDING", now.Payment.Status)
				e.sandbox.pay(t, now.Payment.PaymentNo)
				break
			}
			require.Equal(t, "FAILED", now.Payment.Status)
			require.Nil(t, now.Payment.PayURL)
			again := buyer.place(body)
			require.Equal(t, http.StatusOK, again.Status)
			require.Equal(t, now.Payment, again.order(t).Payment, "a repeat opens no attempt by itself")
			a = buyer.do(http.MethodPost, "/v1/orders/"+now.OrderNo+"/payments", obj{})
			require.Equal(t, http.StatusCreated, a.Status, "%s", a)
		}
		buyer.becomes(a.order(t).OrderNo, "PAID")
		require.Len(t, e.sandbox.ledger(t), 1)
		require.EqualValues(t, 7, buyer.available(sku))
		e.auditSettled(t)
	})
}

// proxy stands between orderd and the sandbox. spoil, if there is one, answers instead of the gateway, which has done what
// it was asked for. away: nothing gets through and nothing is answered.
type proxy struct {
	*httptest.Server
	spoil   atomic.Pointer[http.HandlerFunc]
	away    atomic.Bool
	dropped atomic.Int64 // calls while it was away
}

func newProxy(t testing.TB, e *env) *proxy {
	t.Helper()
	target, err := url.Parse(e.sandbox.url)
	require.NoError(t, err)
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.away.Load() {
			p.dropped.Add(1)
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client is gone
			<-r.Context().Done()
			return
		}
		if spoil := p.spoil.Load(); spoil != nil {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			(*spoil)(w, r)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

const paidAnswer = `{"payment_no":"P","transaction_id":"txn_forged","status":"SUCCEEDED","amount":300,"currency":"CNY"}`

// Answers that cannot be believed, or do not end: the outcome is unknown, the client hears so in time, and when the gateway
// speaks again there is the one charge that it had all the while.
func TestAnswersOfTheGatewayThatCannotBeBelieved(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		followed.Add(1)
		_, _ = io.WriteString(w, paidAnswer)
	}))
	t.Cleanup(elsewhere.Close)
	e := newEnv(t, mariadbRedis)
	p := newProxy(t, e)
	o := e.start(t, "ORDERD_SANDBOX_URL="+p.URL, "ORDERD_WORKER_INTERVAL=1h")
	buyer := o.as(t, "u1")
	sku := o.admin(t).stock(100, 100)
	as := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, spoil := range map[string]http.HandlerFunc{
		"slow body": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"payment_no":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"huge body": as("application/json", `{"x":"`+strings.Repeat("x", 2<<20)+`"}`),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
		"another content type": as("text/html", paidAnswer),
		"another payment's":    as("application/json", paidAnswer),
		"no JSON":              as("application/json", "<h1>welcome</h1>"),
		"nothing":              as("application/json", ""),
	} {
		t.Run(name, func(t *testing.T) {
			buyer := buyer.on(t)
			p.spoil.Store(&spoil)
			body := want(newNo("ord"), sku, 3)
			a := soon(t, 4*time.Second, func() answer { return buyer.place(body) })
			require.Equal(t, http.StatusAccepted, a.Status, "%s", a)
			first := a.order(t)
			require.Equal(t, []string{"PAYING", "UNKNOWN"}, []string{first.Status, first.Payment.Status})
			require.Nil(t, first.Payment.PayURL)
			a = soon(t, 4*time.Second, func() answer { return buyer.place(body) }) // the answer to the question is no better
			require.Equal(t, http.StatusOK, a.Status, "%s", a)
			require.Equal(t, first.Payment, a.order(t).Payment)
			p.spoil.Store(nil)
			settled(t, func() error { // the breaker may be open for a second
				if now := buyer.place(body).order(t); now.Payment.Status != "PENDING" {
					return fmt.Errorf("the payment is %s", now.Payment.Status)
				}
				return nil
			})
			require.Equal(t, http.StatusOK, buyer.do(http.MethodPost, "/v1/orders/"+first.OrderNo+"/cancel", nil).Status)
		})
	}
	require.Zero(t, followed.Load(), "a redirect was followed")
	require.EqualValues(t, 100, buyer.available(sku))
	require.Empty(t, e.sandbox.ledger(t))
	e.auditSettled(t)
}

// A company that signs its answers: one whose signature is a stranger's says nothing, whatever it says.
func TestSignatureOfTheGatewaysAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t, 1)
	stranger := signedtest.Key(t)
	const answer = `{"code_url":"weixin://wxpay/bizpayurl?pr=forged"}`
	body := want(newNo("ord"), s.sku, 1)
	body["gateway"] = "wechatpay"
	for _, key := range []bool{false, true} {
		s.company(func(w http.ResponseWriter, _ *http.Request) {
			by := stranger
			if key {
				by = s.wechatKey
			}
			for name, values := range signedtest.WechatPay(t, by, wechatSerial, seconds(0), []byte(answer)) {
				w.Header()[name] = values
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
		body["order_no"] = newNo("ord")
		a := s.buyer.place(body)
		if !key {
			require.Equal(t, http.StatusAccepted, a.Status, "%s", a)
			require.Equal(t, "UNKNOWN", a.order(t).Payment.Status)
			require.Nil(t, a.order(t).Payment.PayURL)
			continue
		}
		require.Equal(t, http.StatusCreated, a.Status, "%s", a)
		require.Equal(t, "weixin://wxpay/bizpayurl?pr=forged", *a.order(t).Payment.PayURL)
	}
	s.audit(t)
}

// The gateway is away for a while. Orders are taken, soon without waiting for it; what needs it says so and changes nothing.
// When it is back, everything goes on without the clients.
func TestGatewayIsAway(t *testing.T) {
	t.Parallel()
	e := newEnv(t, mariadbRedis)
	p := newProxy(t, e)
	o := e.start(t, "ORDERD_SANDBOX_URL="+p.URL)
	buyer := o.as(t, "u1").during()
	sku := o.admin(t).stock(100, 100)
	before := buyer.mustPlace(sku, 1)
	p.away.Store(true)
	bodies := make([]obj, 30)
	for i := range bodies {
		bodies[i] = want(newNo("ord"), sku, 1)
	}
	for i, body := range bodies[:6] { // the breaker opens
		a := soon(t, 4*time.Second, func() answer { return buyer.place(body) })
		require.Equal(t, http.StatusAccepted, a.Status, "order %d: %s", i, a)
	}
	waited, began := p.dropped.Load(), time.Now()
	for _, a := range gather(len(bodies)-6, func(i int) answer { return buyer.place(bodies[6+i]) }) {
		require.Equal(t, http.StatusAccepted, a.Status, "%s", a)
		require.Equal(t, "UNKNOWN", a.order(t).Payment.Status)
	}
	require.LessOrEqual(t, p.dropped.Load()-waited, int64(time.Since(began).Seconds())+2, "one call a second asks whether it is back")
	a := buyer.do(http.MethodPost, "/v1/orders/"+before.OrderNo+"/cancel", nil)
	require.Equal(t, "gateway_unavailable", a.code(), "%s", a)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Equal(t, "PAYING", buyer.order(before.OrderNo).Status)
	require.EqualValues(t, 69, buyer.available(sku))

	p.away.Store(false)
	began = time.Now()
	canary := want(newNo("ord"), sku, 1)
	settled(t, func() error {
		if a := buyer.place(canary); a.order(t).Payment.Status != "PENDING" {
			canary = want(newNo("ord"), sku, 1) // this one has its own wait before it
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	require.Less(t, time.Since(began), 10*time.Second)
	for _, body := range bodies {
		settled(t, func() error {
			if now := buyer.order(body["order_no"].(string)); now.Payment.Status != "PENDING" {
				return fmt.Errorf("the payment of order %s is %s", now.OrderNo, now.Payment.Status)
			}
			return nil
		})
	}
	e.auditSettled(t)
}

// The gateway's callbacks never arrive: it is asked, and the payment is found.
func TestCallbacksNeverCome(t *testing.T) {
	forEachEngine(t, func(t *testing.T, e *env) {
		o := e.start(t)
		e.mute(t)
		buyer := o.as(t, "u1")
		placed := buyer.mustPlace(o.admin(t).stock(100, 10), 3)
		e.sandbox.pay(t, placed.Payment.PaymentNo)
		began := time.Now()
		buyer.becomes(placed.OrderNo, "PAID")
		require.Less(t, time.Since(began), 30*time.Second)
		for _, result := range []string{"applied", "duplicate", "unauthenticated", "not_found"} {
			require.Zero(t, o.metric(t, fmt.Sprintf("orderd_callbacks_total{gateway=\"sandbox\",result=%q}", result)))
		}
		require.Equal(t, []string{"create", "reserve", "open_payment", "pay"}, buyer.history(placed.OrderNo))
		e.auditSettled(t)
	})
}

// Twenty copies of one callback reach three replicas at once.
func TestOneCallbackAtThreeReplicas(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.buyers = append(a.buyers, a.start(t).as(t, "u1"))
	for range (rounds(t) + 9) / 10 {
		a.sameCallback()
	}
	a.auditSettled(t)
}
