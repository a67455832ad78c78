package order_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/db/cut"
	"orderd/internal/fsm"
	"orderd/internal/httpapi"
	"orderd/internal/msg"
	"orderd/internal/payment"
)

// command writes a command as its sender does. data is JSON.
func command(id, kind, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop","type":%q,"data":%s}`, id, kind, data)
}

func placeData(orderNo, sku string, quantity int) string {
	if orderNo != "" {
		orderNo = fmt.Sprintf(`"order_no":%q,`, orderNo)
	}
	return fmt.Sprintf(`{"user_id":"u1",%s"items":[{"sku":%q,"quantity":%d}]}`, orderNo, sku, quantity)
}

func cancelData(orderNo string) string {
	return fmt.Sprintf(`{"user_id":"u1","order_no":%q,"reason":"changed my mind"}`, orderNo)
}

// handler is what a consumer calls.
func (b *bundle) handler() func(body string) msg.Answer {
	b.t.Helper()
	check, err := httpapi.Checker()
	require.NoError(b.t, err)
	handle := b.Commands(check)
	return func(body string) msg.Answer {
		return handle(context.WithoutCancel(b.t.Context()), msg.Delivery{Body: []byte(body)})
	}
}

// inbox returns what is known of the shop's message, nil for nothing.
func (b *bundle) inbox(id string) *msg.Received {
	b.t.Helper()
	r, err := msg.Find(b.t.Context(), b.db, msg.ID{Source: "queue:/shop", MessageID: id})
	require.NoError(b.t, err)
	return r
}

// A command without an order_no: whatever comes again, and however often at once, there is one order.
func TestPlaceCommand(t *testing.T) {
	eachCommit(t, func(t *testing.T, b *bundle) {
		handle, sku := b.handler(), b.sku(1299, 100)
		for round := range 5 {
			id := no("m")
			body := command(id, "order.place", placeData("", sku, 2))
			var twins sync.WaitGroup
			for range 4 {
				twins.Go(func() { require.True(t, handle(body).Done()) })
			}
			twins.Wait()
			require.True(t, handle(body).Done())
			r := b.inbox(id)
			require.Equal(t, "applied", r.Outcome)
			o := b.get(r.OrderNo)
			require.Equal(t, "u1", o.UserID)
			require.Equal(t, fsm.Paying, o.Status)
			require.EqualValues(t, 100-2*(round+1), b.left(sku))
			require.EqualValues(t, 1, o.Attempts)
		}
		b.clean()
	})
}

// The gateway does not answer when the command comes first: the order stands, and the next delivery finishes it under
// the number that it was given.
func TestRepeatedCommandResumes(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		handle, sku, id := b.handler(), b.sku(1299, 10), no("m")
		b.gateways["sandbox"].fault(t, "charge", "error_before")
		body := command(id, "order.place", placeData("", sku, 2))
		require.True(t, handle(body).Done())
		r := b.inbox(id)
		require.Equal(t, fsm.Unknown, b.get(r.OrderNo).Payment.Status)
		b.gateways["sandbox"].heal(t)
		require.True(t, handle(body).Done())
		require.Equal(t, fsm.Unknown, b.get(r.OrderNo).Payment.Status, "the gateway does not know it: once is not enough")
		b.later(payment.SureAfter)
		require.True(t, handle(body).Done())
		require.Equal(t, fsm.Pending, b.get(r.OrderNo).Payment.Status)
		require.EqualValues(t, 2, b.inbox(id).Duplicates)
		require.EqualValues(t, 8, b.left(sku))
		b.clean()
	})
}

// The connection breaks at every statement of a command, before or after it took effect, and around every COMMIT. The
// command that comes again ends with one effect.
func TestCommandsSurviveEveryCut(t *testing.T) {
	t.Parallel()
	cuts := &cut.Point{}
	b := setup(t, "mysql", func(o *options) { o.db.Wrap = cuts.Wrap })
	handle, sku := b.handler(), b.sku(1299, 100000)
	for _, place := range []bool{true, false} {
		hits := func(where cut.Where) bool {
			id, left := no("m"), b.left(sku)
			body, want := command(id, "order.place", placeData("", sku, 2)), left-2
			if !place {
				body, want = command(id, "order.cancel", cancelData(b.placed(sku).OrderNo)), left
			}
			cuts.Arm(where, 1)
			a := handle(body)
			made := cuts.Disarm()
			require.False(t, a.Parked(), "%+v: %s", where, a.Reason)
			b.due("payments")
			require.True(t, handle(body).Done(), "%+v", where)
			require.Equal(t, want, b.left(sku), "%+v", where)
			require.Equal(t, "applied", b.inbox(id).Outcome, "%+v", where)
			return made == 1
		}
		require.True(t, hits(cut.BeforeCommit))
		require.True(t, hits(cut.AfterCommit))
		k := 1
		for hits(cut.BeforeStatement(k)) && hits(cut.AfterStatement(k)) {
			k++
		}
		require.Greater(t, k, 6)
	}
	b.clean()
}

// Refusals by the rules are recorded, and the same command is not carried out later when they would allow it.
func TestRefusedCommands(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		handle, sku := b.handler(), b.sku(1299, 10)
		id, later := no("m"), no("SKU")
		body := command(id, "order.place", placeData("", later, 1))
		require.True(t, handle(body).Done())
		require.Equal(t, "refused:validation_failed", b.inbox(id).Outcome, "there is no such SKU")
		require.True(t, handle(body).Done())

		o := b.placed(sku)
		b.gateways["sandbox"].pay(t, o.Payment.PaymentNo, "")
		require.True(t, handle(command(no("m"), "payment.check", fmt.Sprintf(`{"payment_no":%q}`, o.Payment.PaymentNo))).Done())
		require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status, "settled from the gateway's own answer")
		id = no("m")
		require.True(t, handle(command(id, "order.cancel", cancelData(o.OrderNo))).Done())
		require.Equal(t, "refused:invalid_transition", b.inbox(id).Outcome)
		require.Equal(t, fsm.Paid, b.get(o.OrderNo).Status)

		id = no("m")
		require.True(t, handle(command(id, "order.place", placeData(no("ord"), sku, 9))).Done())
		require.Equal(t, "applied", b.inbox(id).Outcome, "out of stock: the order exists")

		next := b.placed(sku)
		require.True(t, handle(command(no("m"), "order.cancel", cancelData(next.OrderNo))).Done())
		require.Equal(t, fsm.Cancelled, b.get(next.OrderNo).Status)
		b.clean()
	})
}

// A message is no proof: it moves no money, whatever it says.
func TestForgedHint(t *testing.T) {
	each(t, func(t *testing.T, b *bundle) {
		handle, o := b.handler(), b.placed(b.sku(1299, 10))
		for _, body := range []string{
			command("f1", "payment.check", fmt.Sprintf(`{"payment_no":%q}`, o.Payment.PaymentNo)),
			command("f2", "payment.check", fmt.Sprintf(`{"payment_no":%q,"status":"SUCCEEDED"}`, o.Payment.PaymentNo)),
			command("f3", "payment.paid", fmt.Sprintf(`{"payment_no":%q}`, o.Payment.PaymentNo)),
			command("f4", "order.paid", fmt.Sprintf(`{"order_no":%q}`, o.OrderNo)),
		} {
			handle(body)
			require.Equal(t, fsm.Paying, b.get(o.OrderNo).Status)
		}
		b.clean()
	})
}

func TestUnreadableCommands(t *testing.T) {
	t.Parallel()
	b := setup(t, "sqlite")
	handle, sku := b.handler(), b.sku(1299, 10)
	good := command("good", "order.place", placeData("", sku, 1))
	for name, c := range map[string]struct{ body, reason string }{
		"empty":           {"", "no CloudEvents JSON"},
		"broken JSON":     {good[:len(good)-1], "no CloudEvents JSON"},
		"two documents":   {good + good, "no CloudEvents JSON"},
		"name twice":      {strings.Replace(good, `"id":`, `"id":"x","id":`, 1), "duplicate"},
		"invalid UTF-8":   {strings.Replace(good, "good", "g\xff", 1), "no CloudEvents JSON"},
		"no object":       {`[]`, "no CloudEvents JSON"},
		"too long":        {strings.Replace(good, `"u1"`, `"`+strings.Repeat("u", 64<<10)+`"`, 1), "more than 65536"},
		"another version": {strings.Replace(good, `"1.0"`, `"2.0"`, 1), "specversion"},
		"no version":      {strings.Replace(good, `"specversion":"1.0",`, ``, 1), "specversion"},
		"no id":           {strings.Replace(good, `"id":"good",`, ``, 1), "id is missing"},
		"long id":         {strings.Replace(good, `"good"`, `"`+strings.Repeat("i", 65)+`"`, 1), "id is missing"},
		"no source":       {strings.Replace(good, `"source":"/shop",`, ``, 1), "source is missing"},
		"unknown type":    {strings.Replace(good, `order.place`, `order.steal`, 1), "no type"},
		"no data":         {`{"specversion":"1.0","id":"x","source":"/shop","type":"order.place"}`, "data"},
		"data no object":  {command("x", "order.cancel", `"O1"`), "data"},
		"no user":         {strings.Replace(good, `"user_id":"u1",`, ``, 1), "user_id"},
		"odd user":        {strings.Replace(good, `"u1"`, `"u 1"`, 1), "user_id"},
		"user no text":    {strings.Replace(good, `"u1"`, `1`, 1), "user_id"},
		"unknown member":  {strings.Replace(good, `"items"`, `"price":1,"items"`, 1), "price"},
		"no items":        {command("x", "order.place", `{"user_id":"u1","items":[]}`), "items"},
		"SKU twice":       {command("x", "order.place", `{"user_id":"u1","items":[{"sku":"a","quantity":1},{"sku":"a","quantity":1}]}`), "items[1].sku"},
		"quantity 0":      {strings.Replace(good, `"quantity":1`, `"quantity":0`, 1), "quantity"},
		"quantity 1.0":    {strings.Replace(good, `"quantity":1`, `"quantity":1.0`, 1), "quantity"},
		"odd order_no":    {command("x", "order.cancel", `{"user_id":"u1","order_no":"'; --"}`), "order_no"},
		"no payment":      {command("x", "payment.check", `{}`), "payment_no"},
	} {
		a := handle(c.body)
		require.True(t, a.Parked(), name)
		require.Contains(t, a.Reason, c.reason, name)
	}
	require.True(t, handle(good).Done())
	require.True(t, handle(strings.Replace(good, `"quantity":1`, `"quantity":2`, 1)).Parked(), "the same id with another content")
	require.EqualValues(t, 9, b.left(sku))
	b.clean()
}
