package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"orderd/internal/payment/sandbox/wire"
)

const (
	skuCount  = 1000
	userCount = 1000
	unitPrice = 1299 // minor units
)

func skuName(i int) string { return fmt.Sprintf("SKU-%04d", i) }

// shop is what the customers of a run share.
type shop struct {
	run    string   // makes order numbers of this run its own
	tokens []string // one per user
	key    []byte   // signs callbacks
}

func newShop(run string) (*shop, error) {
	s := &shop{run: run}
	var err error
	if s.key, err = wire.ParseSecret(webhookSecret); err != nil {
		return nil, err
	}
	for i := range userCount {
		claims := jwt.MapClaims{"sub": fmt.Sprintf("user-%d", i), "scope": "orders", "aud": "orderd", "exp": time.Now().Add(24 * time.Hour).Unix()}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(jwtSecret))
		if err != nil {
			return nil, err
		}
		s.tokens = append(s.tokens, token)
	}
	return s, nil
}

// customer is one client of orderd. With two replicas it places at one and the gateway's callback reaches the other.
type customer struct {
	*shop
	op        string
	hot       bool
	refusable bool
	refused   int    // answers of 503 with Retry-After in the operation under way
	prefix    string // of its order numbers
	n         int
	rng       *rand.Rand
	places    *conn // where it sends orders
	calls     *conn // where it sends callbacks

	token   string // of the user of its newest order
	body    []byte // which asked for that
	orderNo string
	event   callback
	request []byte
}

// callback is the message that pays the newest order.
type callback struct {
	id   string
	body []byte
}

// placed is what is read of an order.
type placed struct {
	Status  string `json:"status"`
	Amount  int64  `json:"amount"`
	Payment *struct {
		PaymentNo     string `json:"payment_no"`
		TransactionID string `json:"transaction_id"`
		Status        string `json:"status"`
	} `json:"payment"`
}

func (s *shop) customer(setup setup, measurement, i int, rng *rand.Rand, addrs []string) *customer {
	n := len(addrs)
	return &customer{shop: s, op: setup.op, hot: setup.hot, refusable: setup.refusable, rng: rng, prefix: fmt.Sprintf("%s-%d-%d-", s.run, measurement, i),
		places: &conn{addr: addrs[i%n]}, calls: &conn{addr: addrs[(i+1)%n]}}
}

func (c *customer) close() {
	c.places.close()
	c.calls.close()
}

func (c *customer) warm(ctx context.Context) error {
	switch c.op {
	case flood: // four thousand at once would be measured before the measurement
		return nil
	case place, replay, get:
		return c.place(ctx)
	}
	if err := c.place(ctx); err != nil {
		return err
	}
	return c.pay(ctx, "applied")
}

func (c *customer) do(ctx context.Context) (refused int, err error) {
	c.refused = 0
	switch c.op {
	case place, flood:
		err = c.place(ctx)
	case life:
		if err = c.place(ctx); err == nil {
			err = c.pay(ctx, "applied")
		}
	case replay:
		err = c.replay()
	case get:
		err = c.get()
	case duplicate:
		err = c.pay(ctx, "duplicate")
	default:
		err = fmt.Errorf("no operation %q", c.op)
	}
	return c.refused, err
}

// insist sends a request again, as late as it is told to, for as long as the answer is 503 with Retry-After. Where that
// is no answer to expect, one such is an error like any other.
func (c *customer) insist(stop context.Context, send func() (reply, error)) (reply, error) {
	for {
		r, err := send()
		if err != nil || !c.refusable || r.status != http.StatusServiceUnavailable || r.retryAfter == 0 {
			return r, err
		}
		c.refused++
		again := time.NewTimer(time.Duration(r.retryAfter) * time.Second)
		select {
		case <-again.C:
		case <-stop.Done():
			again.Stop()
			return r, errStopped
		}
	}
}

// order makes up the next order, of one or two SKUs.
func (c *customer) order() {
	c.n++
	c.orderNo = c.prefix + strconv.Itoa(c.n)
	c.token = c.tokens[c.rng.IntN(userCount)]
	items := `{"sku":"` + skuName(0) + `","quantity":1}`
	if !c.hot {
		first := c.rng.IntN(skuCount)
		items = `{"sku":"` + skuName(first) + `","quantity":1}`
		if c.rng.IntN(2) == 0 {
			items += `,{"sku":"` + skuName((first+1+c.rng.IntN(skuCount-1))%skuCount) + `","quantity":2}`
		}
	}
	c.body = []byte(`{"order_no":"` + c.orderNo + `","items":[` + items + `]}`)
}

func (c *customer) send() (reply, error) {
	return c.places.roundTrip(c.form("POST /v1/orders", c.body, "Authorization: Bearer "+c.token))
}

// form writes a whole request.
func (c *customer) form(line string, body []byte, headers ...string) []byte {
	b := append(c.request[:0], line...)
	b = append(b, " HTTP/1.1\r\nHost: orderd\r\n"...)
	for _, h := range headers {
		b = append(append(b, h...), "\r\n"...)
	}
	if body != nil {
		b = append(b, "Content-Type: application/json\r\nContent-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(body)), 10), "\r\n"...)
	}
	c.request = append(append(b, "\r\n"...), body...)
	return c.request
}

// place places a new order, which must be created and wait for its payment.
func (c *customer) place(stop context.Context) error {
	c.order()
	r, err := c.insist(stop, c.send)
	if err != nil {
		return err
	}
	var o placed
	if r.status != http.StatusCreated && (r.status != http.StatusOK || c.refused == 0) { // 200: it was there after all
		return fmt.Errorf("place: %s", r)
	}
	if err := json.Unmarshal(r.body, &o); err != nil {
		return fmt.Errorf("place: %w: %s", err, r)
	}
	if o.Status != "PAYING" || o.Payment == nil || o.Payment.Status != wire.Pending || o.Payment.TransactionID == "" {
		return fmt.Errorf("place: not waiting for a payment: %s", r)
	}
	c.event.id = "msg-" + c.orderNo
	c.event.body, err = json.Marshal(wire.Event{Type: wire.PaymentSucceeded, CreatedAt: time.Now().UTC(), Data: wire.EventData{MerchantID: merchantID,
		PaymentNo: o.Payment.PaymentNo, TransactionID: o.Payment.TransactionID, Amount: o.Amount, Currency: "CNY"}})
	return err
}

// pay sends the callback for the newest order. It is signed anew each time: a signature lasts five minutes.
func (c *customer) pay(stop context.Context, want string) error {
	r, err := c.insist(stop, func() (reply, error) {
		now := strconv.FormatInt(time.Now().Unix(), 10)
		return c.calls.roundTrip(c.form("POST /v1/payments/callbacks/sandbox", c.event.body, wire.HeaderID+": "+c.event.id,
			wire.HeaderTimestamp+": "+now, wire.HeaderSignature+": "+wire.Sign(c.key, c.event.id, now, c.event.body)))
	})
	if err != nil {
		return err
	}
	var result struct {
		Result string `json:"result"`
	}
	if err := json.Unmarshal(r.body, &result); r.status != http.StatusOK || err != nil {
		return fmt.Errorf("callback: %s", r)
	}
	if result.Result != want && (result.Result != "duplicate" || c.refused == 0) { // a duplicate: it was settled after all
		return fmt.Errorf("callback: not %q: %s", want, r)
	}
	return nil
}

// replay sends the newest order again.
func (c *customer) replay() error {
	r, err := c.send()
	if err == nil && (r.status != http.StatusOK || !r.replayed) {
		err = fmt.Errorf("replay: %s", r)
	}
	return err
}

func (c *customer) get() error {
	r, err := c.places.roundTrip(c.form("GET /v1/orders/"+c.orderNo, nil, "Authorization: Bearer "+c.token))
	if err == nil && r.status != http.StatusOK {
		err = fmt.Errorf("get: %s", r)
	}
	return err
}
