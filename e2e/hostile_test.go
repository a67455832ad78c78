package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// hostility is everything that the gateway can do wrong, each now and then. A claimed amount is a lie of the message, a
// wrong amount is what the shopper really pays.
var hostility = []rule{
	{On: "charge", Mode: "error_after", Rate: 0.05},
	{On: "charge", Mode: "error_before", Rate: 0.05},
	{On: "charge", Mode: "timeout_after", Rate: 0.01},
	{On: "charge", Mode: "timeout_before", Rate: 0.01},
	{On: "charge", Mode: "garbage", Rate: 0.02},
	{On: "charge", Mode: "decline", Rate: 0.02},
	{On: "query", Mode: "stale_query", Rate: 0.1},
	{On: "query", Mode: "error_before", Rate: 0.05},
	{On: "close", Mode: "closed_but_payable", Rate: 0.3},
	{On: "close", Mode: "error_after", Rate: 0.05},
	{On: "refund", Mode: "error_after", Rate: 0.1},
	{On: "refund", Mode: "error_before", Rate: 0.1},
	{On: "refund", Mode: "decline", Rate: 0.1},
	{On: "callback", Mode: "before_response", Rate: 0.03},
	{On: "callback", Mode: "drop", Rate: 0.1},
	{On: "callback", Mode: "duplicate", Rate: 0.1},
	{On: "callback", Mode: "reorder", Rate: 0.1},
	{On: "callback", Mode: "delay", Rate: 0.05},
	{On: "callback", Mode: "wrong_amount", Rate: 0.03},
	{On: "callback", Mode: "wrong_currency", Rate: 0.03},
	{On: "callback", Mode: "bad_signature", Rate: 0.03},
	{On: "callback", Mode: "old_timestamp", Rate: 0.03},
}

// number reads a count from the environment.
func number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// Shoppers of every kind at a hostile gateway: those who pay, pay too little, pay in another currency, are declined and
// try again, cancel, cancel and pay all the same, ask for their money back, never come, or come too late. When it is
// over, our books are the gateway's, every unit of money is applied or sent back once, and the stock is exact.
//
// SEEDS says how many seeds (3), ORDERS how many orders for each (300).
func TestAHostileGateway(t *testing.T) {
	t.Parallel()
	for seed := range number(t, "SEEDS", 3) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			e := newEnv(t, mariadbRedis, "ORDERD_PAY_TIMEOUT=6s", "ORDERD_CLOSE_GRACE=2s")
			c := &campaign{t: t, e: e, seed: uint64(seed) + 1, opening: 100_000}
			for range 2 {
				o := e.start(t)
				c.buyers = append(c.buyers, o.as(t, "u1").during())
				c.admins = append(c.admins, o.admin(t).during())
			}
			c.sku = c.admins[0].stock(1299, c.opening)
			e.sandbox.faults(t, int64(c.seed), hostility...)
			c.run(number(t, "ORDERS", 300))
			e.sandbox.heal(t)
			c.settle()
			c.explain()
		})
	}
}

type campaign struct {
	t       *testing.T
	e       *env
	seed    uint64
	sku     string
	opening int64
	buyers  []*client // on each replica
	admins  []*client
	late    atomic.Int64
}

func (c *campaign) run(orders int) {
	var all errgroup.Group
	all.SetLimit(16)
	for i := range orders {
		all.Go(func() error {
			c.shop(rand.New(rand.NewPCG(c.seed, uint64(i))), c.buyers[i%2], c.admins[i%2])
			return nil
		})
	}
	_ = all.Wait()
}

// shop plays one shopper. Answers may be refusals: what must hold is asked at the end.
func (c *campaign) shop(r *rand.Rand, buyer, admin *client) {
	orderNo := newNo("ord")
	a := buyer.place(want(orderNo, c.sku, 1+r.IntN(3)))
	for range r.IntN(3) { // an impatient one
		a = buyer.place(want(orderNo, c.sku, 1))
	}
	o, ok := c.look(buyer, orderNo)
	if !ok || o.Payment == nil {
		return
	}
	act := r.IntN(100)
	if o.Payment.Status == "FAILED" { // declined: try again
		buyer.do(http.MethodPost, "/v1/orders/"+orderNo+"/payments", obj{})
		if o, ok = c.look(buyer, orderNo); !ok {
			return
		}
	}
	pay := func(how obj) {
		how["outcome"] = "succeeded"
		c.e.sandbox.do(c.t, http.MethodPost, "/v1/charges/"+o.Payment.PaymentNo+"/pay", how, 200, 201, 202, 204, 404, 409, 422)
	}
	switch {
	case act < 55:
		pay(obj{})
	case act < 60:
		pay(obj{"amount": 1})
	case act < 64:
		pay(obj{"amount": o.Amount, "currency": "JPY"})
	case act < 72:
		pay(obj{})
		buyer.do(http.MethodPost, "/v1/orders/"+orderNo+"/cancel", obj{"reason": "too late"})
	case act < 82:
		buyer.do(http.MethodPost, "/v1/orders/"+orderNo+"/cancel", obj{"reason": "changed my mind"})
		pay(obj{})
	case act < 92:
		pay(obj{})
		for range 2 {
			admin.do(http.MethodPost, "/v1/orders/"+orderNo+"/refunds", obj{"refund_no": newNo("ref"), "amount": 1 + r.Int64N(o.Amount)})
		}
	case act < 96: // left to expire, and paid after that
		if c.late.Add(1) <= 5 { // a few: each waits for its time
			settled(c.t, func() error {
				now, _ := c.look(buyer, orderNo)
				if now.Status == "PAYING" {
					return fmt.Errorf("order %s has not expired", orderNo)
				}
				return nil
			})
			pay(obj{})
		}
	}
	_ = a
}

func (c *campaign) look(buyer *client, orderNo string) (orderView, bool) {
	a := buyer.do(http.MethodGet, "/v1/orders/"+orderNo, nil)
	if a.Status != http.StatusOK {
		return orderView{}, false
	}
	return a.order(c.t), true
}

// settle waits until nothing is open any more. What waits for its next time to be looked at is due now.
func (c *campaign) settle() {
	db := c.e.sql(c.t)
	settled(c.t, func() error {
		for _, table := range []string{"payments", "refunds"} {
			if _, err := db.Exec("UPDATE " + table + " SET next_check_at = UTC_TIMESTAMP(6) WHERE next_check_at > UTC_TIMESTAMP(6) AND lease_until IS NULL"); err != nil {
				return err
			}
		}
		var open int
		err := db.QueryRow(`SELECT (SELECT COUNT(*) FROM orders WHERE status IN ('RESERVED', 'PAYING')) + (SELECT COUNT(*) FROM payments WHERE next_check_at IS NOT NULL)
			+ (SELECT COUNT(*) FROM refunds WHERE next_check_at IS NOT NULL)`).Scan(&open)
		if err == nil && open > 0 {
			err = fmt.Errorf("%d orders, payments and refunds are still being looked at", open)
		}
		return err
	})
	c.e.auditSettled(c.t)
}

// explain accounts for the stock and the money, from the gateway's side.
func (c *campaign) explain() {
	db := c.e.sql(c.t)
	var sold int64
	require.NoError(c.t, db.QueryRow(`SELECT COALESCE(SUM(i.quantity), 0) FROM orders o JOIN order_items i ON i.order_no = o.order_no
		WHERE o.paid_amount > 0`).Scan(&sold))
	require.Equal(c.t, c.opening-sold, c.admins[0].available(c.sku), "what is not paid for is back on the shelf")

	kept := map[string]int64{}
	for _, entry := range c.e.sandbox.ledger(c.t) {
		if entry.Kind == "charge" {
			kept[entry.Currency] += entry.Amount
		} else {
			kept[entry.Currency] -= entry.Amount
		}
	}
	var ours int64
	require.NoError(c.t, db.QueryRow("SELECT COALESCE(SUM(paid_amount - refunded_amount), 0) FROM orders").Scan(&ours))
	require.Equal(c.t, map[string]int64{"CNY": ours, "JPY": 0}, map[string]int64{"CNY": kept["CNY"], "JPY": kept["JPY"]},
		"the gateway holds for us what our orders are paid with, and no more")
	require.Positive(c.t, ours)
}
