package sandbox_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/payment"
	"orderd/internal/payment/sandbox/server"
	"orderd/internal/payment/sandbox/wire"
)

// Each way in which a call can go wrong: whether the caller sees an error, and what happened at the gateway.
func TestFaultsOfCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode       string
		lost, done bool
	}{
		{"timeout_before", true, false},
		{"timeout_after", true, true},
		{"error_before", true, false},
		{"error_after", true, true},
		{"slow", false, true},
		{"garbage", true, true},
	} {
		t.Run("charge "+c.mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.sabotage(t, wire.Rule{On: "charge", Mode: c.mode, Times: 1})
			_, err := b.Charge(brief(t), charge("p-1"))
			require.Equal(t, c.lost, err != nil, err)
			require.NotErrorIs(t, err, payment.ErrNotFound)
			_, err = b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
			if c.done {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, payment.ErrNotFound)
			}
		})
		t.Run("close "+c.mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.open(t, "p-1")
			b.sabotage(t, wire.Rule{On: "close", Mode: c.mode, Times: 1})
			_, err := b.Close(brief(t), payment.Ref{PaymentNo: "p-1"})
			require.Equal(t, c.lost, err != nil, err)
			got, err := b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
			require.NoError(t, err)
			require.Equal(t, c.done, got.State == fsm.Closed)
		})
		t.Run("refund "+c.mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.open(t, "p-1")
			b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded"})
			b.sabotage(t, wire.Rule{On: "refund", Mode: c.mode, Times: 1})
			_, err := b.Refund(brief(t), payment.RefundRequest{RefundNo: "r-1", PaymentNo: "p-1", Amount: 1})
			require.Equal(t, c.lost, err != nil, err)
			_, err = b.QueryRefund(t.Context(), "r-1", payment.Ref{PaymentNo: "p-1"})
			require.Equal(t, c.done, err == nil, err)
		})
		t.Run("query "+c.mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.open(t, "p-1")
			b.sabotage(t, wire.Rule{On: "query", Mode: c.mode, Times: 1})
			_, err := b.Query(brief(t), payment.Ref{PaymentNo: "p-1"})
			require.Equal(t, c.lost, err != nil, err)
		})
	}
}

func TestDecline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sabotage(t, wire.Rule{On: "charge", Mode: "decline"}, wire.Rule{On: "refund", Mode: "decline", Times: 1})
	r := charge("p-1")
	for range 2 { // FAILED stays FAILED
		c, err := b.Charge(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, fsm.Failed, c.State)
	}
	b.sabotage(t, wire.Rule{On: "refund", Mode: "decline", Times: 1})
	b.open(t, "p-2")
	b.pay(t, "p-2", wire.PayRequest{Outcome: "succeeded"})
	b.next(t)
	refund := payment.RefundRequest{RefundNo: "auto-p-2", PaymentNo: "p-2", Amount: 1299}
	first, err := b.Refund(t.Context(), refund)
	require.NoError(t, err)
	require.Equal(t, fsm.Failed, first.State)
	require.Equal(t, payment.RefundFailed, b.next(t).Kind)
	second, err := b.Refund(t.Context(), refund) // a failed refund may be tried again under its number
	require.NoError(t, err)
	require.Equal(t, []any{fsm.Succeeded, first.RefundID}, []any{second.State, second.RefundID})
	require.Equal(t, payment.RefundSucceeded, b.next(t).Kind)
}

func TestStaleQuery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open(t, "p-1")
	b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded", Amount: new(int64(5))})
	b.sabotage(t, wire.Rule{On: "query", Mode: "stale_query", Times: 1})
	c, err := b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, []any{fsm.Pending, int64(1299)}, []any{c.State, c.Amount})
	c, err = b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, []any{fsm.Succeeded, int64(5)}, []any{c.State, c.Amount})
}

func TestClosedButPayable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open(t, "p-1")
	b.sabotage(t, wire.Rule{On: "close", Mode: "closed_but_payable"})
	c, err := b.Close(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, fsm.Closed, c.State)
	require.Equal(t, payment.PaymentClosed, b.next(t).Kind)
	b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded"})
	require.Equal(t, payment.PaymentSucceeded, b.next(t).Kind)
	c, err = b.Close(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, fsm.Succeeded, c.State)
}

// payUnder pays a charge while callbacks go wrong in the given way, once.
func payUnder(t *testing.T, mode string, options ...func(*server.Config)) *bundle {
	t.Helper()
	b := setup(t, options...)
	b.open(t, "p-1")
	b.sabotage(t, wire.Rule{On: "callback", Mode: mode, Times: 1})
	b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded"})
	return b
}

func TestCallbackDropped(t *testing.T) {
	t.Parallel()
	b := payUnder(t, "drop")
	b.open(t, "p-2")
	b.pay(t, "p-2", wire.PayRequest{Outcome: "succeeded"})
	require.Equal(t, "p-2", b.next(t).PaymentNo)
	require.Empty(t, b.calls, "the dropped one must not come later")
	c, err := b.Query(t.Context(), payment.Ref{PaymentNo: "p-1"})
	require.NoError(t, err)
	require.Equal(t, fsm.Succeeded, c.State)
}

func TestCallbackDelayed(t *testing.T) {
	t.Parallel()
	start := time.Now()
	b := payUnder(t, "delay")
	require.Equal(t, "p-1", b.next(t).PaymentNo)
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
}

func TestCallbackDuplicated(t *testing.T) {
	t.Parallel()
	b := payUnder(t, "duplicate")
	require.Equal(t, b.next(t), b.next(t))
}

func TestCallbacksReordered(t *testing.T) {
	t.Parallel()
	b := payUnder(t, "reorder", func(c *server.Config) { c.CallbackBase = time.Minute }) // it must not go by time
	_, err := b.Refund(t.Context(), payment.RefundRequest{RefundNo: "r-1", PaymentNo: "p-1", Amount: 1})
	require.NoError(t, err)
	require.Equal(t, payment.RefundSucceeded, b.next(t).Kind)
	require.Equal(t, payment.PaymentSucceeded, b.next(t).Kind)
}

func TestCallbackBeforeResponse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sabotage(t, wire.Rule{On: "callback", Mode: "before_response", Times: 2})
	var answered atomic.Bool
	var early atomic.Int64
	inside := func(payment.Notice) {
		if !answered.Load() {
			early.Add(1)
		}
	}
	b.inside.Store(&inside)
	c, err := b.Charge(t.Context(), charge("p-1"))
	answered.Store(true)
	require.NoError(t, err)
	require.Equal(t, fsm.Succeeded, c.State)
	require.Equal(t, payment.PaymentSucceeded, b.next(t).Kind)
	answered.Store(false)
	_, err = b.Refund(t.Context(), payment.RefundRequest{RefundNo: "r-1", PaymentNo: "p-1", Amount: 1})
	answered.Store(true)
	require.NoError(t, err)
	require.Equal(t, payment.RefundSucceeded, b.next(t).Kind)
	require.EqualValues(t, 2, early.Load())
}

func TestLyingCallbackHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"wrong_amount", "wrong_currency"} {
		b := payUnder(t, mode)
		lie, truth := b.next(t), b.next(t)
		require.NotEqual(t, lie.MessageID, truth.MessageID)
		require.Equal(t, mode == "wrong_amount", lie.Amount != 1299)
		require.Equal(t, mode == "wrong_currency", lie.Currency != "CNY")
		require.Equal(t, []any{int64(1299), "CNY"}, []any{truth.Amount, truth.Currency})
		ledger, err := b.Ledger(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, []any{int64(1299), "CNY"}, []any{ledger[0].Amount, ledger[0].Currency})
	}
}

func TestUnverifiableCallbackIsFollowedByAnHonestOne(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"bad_signature", "old_timestamp"} {
		b := payUnder(t, mode)
		got := b.arrival(t)
		require.True(t, fault.Is(got.err, "unauthenticated"), mode)
		require.Equal(t, "p-1", b.next(t).PaymentNo, mode)
	}
}

func TestCallbackIsRepeatedUntilAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.refusals.Store(3)
	b.open(t, "p-1")
	b.pay(t, "p-1", wire.PayRequest{Outcome: "succeeded"})
	first := b.next(t)
	for range 3 {
		require.Equal(t, first, b.next(t))
	}
	b.open(t, "p-2")
	b.pay(t, "p-2", wire.PayRequest{Outcome: "succeeded"})
	require.Equal(t, "p-2", b.next(t).PaymentNo)
	require.Empty(t, b.calls)
}

// Many orders at once: each charge is answered and each callback arrives, once.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 50
	var done sync.WaitGroup
	barrier := make(chan struct{})
	for i := range n {
		done.Go(func() {
			<-barrier
			no := fmt.Sprintf("p-%d", i)
			if _, err := b.Charge(t.Context(), charge(no)); err != nil {
				t.Error(err)
				return
			}
			if status, _ := b.raw(t, http.MethodPost, "/v1/charges/"+no+"/pay", wire.PayRequest{Outcome: "succeeded"}); status != 200 {
				t.Error(status)
			}
		})
	}
	close(barrier)
	done.Wait()
	seen := map[string]bool{}
	for range n {
		seen[b.next(t).PaymentNo] = true
	}
	require.Len(t, seen, n)
}
