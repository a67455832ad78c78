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
	op     string
	hot    bool
	prefix string // of its order numbers
	n      int
	rng    *rand.Rand
	places *conn // where it sends orders
	calls  *conn // where it sends callbacks

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
	return &customer{shop: s, op: setup.op, hot: setup.hot, rng: rng, prefix: fmt.Sprintf("%s-%d-%d-", s.run, measurement, i),
		places: &conn{addr: addrs[i%n]}, calls: &conn{addr: addrs[(i+1)%n]}}
}

func (c *customer) close() {
	c.places.close()
	c.calls.close()
}

func (c *customer) warm(context.Context) error {
	switch c.op {
	case flood: // four thousand at once would be measured before the measurement
		return nil
	case place, replay, get:
		return c.place()
	}
	if err := c.place(); err != nil {
		return err
	}
	return c.pay("applied")
}

func (c *customer) do(ctx context.Context) (refused bool, err error) {
	switch c.op {
	case place:
		return false, c.place()
	case life:
		if err := c.place(); err != nil {
			return false, err
		}
		return false, c.pay("applied")
	case replay:
		return false, c.replay()
	case get:
		return false, c.get()
	case duplicate:
		return false, c.pay("duplicate")
	case flood:
		return c.flood(ctx)
	}
	return false, fmt.Errorf("no operation %q", c.op)
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
func (c *customer) place() error {
	c.order()
	r, err := c.send()
	if err != nil {
		return err
	}
	var o placed
	if r.status != http.StatusCreated {
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
func (c *customer) pay(want string) error {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	r, err := c.calls.roundTrip(c.form("POST /v1/payments/callbacks/sandbox", c.event.body, wire.HeaderID+": "+c.event.id,
		wire.HeaderTimestamp+": "+now, wire.HeaderSignature+": "+wire.Sign(c.key, c.event.id, now, c.event.body)))
	if err != nil {
		return err
	}
	var result struct {
		Result string `json:"result"`
	}
	if r.status != http.StatusOK || json.Unmarshal(r.body, &result) != nil || result.Result != want {
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

// flood places an order; who is refused comes again with the same order when they were told to.
func (c *customer) flood(ctx context.Context) (refused bool, err error) {
	if c.body == nil {
		c.order()
	}
	r, err := c.send()
	if err != nil {
		return false, err
	}
	switch {
	case r.status == http.StatusCreated, r.status == http.StatusOK:
		c.body = nil
		return false, nil
	case r.status == http.StatusServiceUnavailable && r.retryAfter > 0:
		again := time.NewTimer(time.Duration(r.retryAfter) * time.Second)
		defer again.Stop()
		select {
		case <-again.C:
		case <-ctx.Done():
		}
		return true, nil
	}
	return false, fmt.Errorf("flood: %s", r)
}
