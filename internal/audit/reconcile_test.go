package audit_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/audit"
	"orderd/internal/fsm"
	"orderd/internal/order"
	"orderd/internal/payment"
)

// bought is an order that is paid, at the gateway and here, and of which part was sent back.
func (s *shop) bought(t *testing.T, orderNo string) order.Order {
	t.Helper()
	o := s.paying(t, orderNo)
	s.atGateway(t, o.Payment.PaymentNo)
	s.settle(t, o, payment.PaymentSucceeded, o.Amount, "applied")
	_, err := s.orders.Refund(t.Context(), admin, order.RefundRequest{OrderNo: orderNo, RefundNo: "back-" + orderNo, Amount: 100})
	require.NoError(t, err)
	return o
}

// atGateway plays the shopper, whose payment we are not told of.
func (s *shop) atGateway(t *testing.T, paymentNo string) {
	t.Helper()
	s.bank(t, http.MethodPost, "/v1/charges/"+paymentNo+"/pay", map[string]any{"outcome": "succeeded"})
}

func (s *shop) reconcile(t *testing.T, g payment.Gateway) audit.Report {
	t.Helper()
	done := 0
	report, err := audit.Reconcile(t.Context(), s.db, map[string]payment.Gateway{"sandbox": g}, time.Now().Add(-time.Hour), func(n, total int) {
		require.Equal(t, done+1, n)
		require.LessOrEqual(t, n, total)
		done = n
	})
	require.NoError(t, err)
	return report
}

// mute is a gateway that cannot list what it moved.
type mute struct{ payment.Gateway }

// A break is made by hand in books that agree. asked: it is also found by asking a gateway that lists nothing.
var breaks = []struct {
	name  string
	make  func(t *testing.T, s *shop, o order.Order)
	want  func(o order.Order) audit.Break
	asked bool
}{
	{"payment only ours", func(t *testing.T, s *shop, o order.Order) {
		exec(t, s.db, "INSERT INTO payments (payment_no, order_no, attempt, gateway, transaction_id, amount, currency, received_amount, received_currency, status, created_at, updated_at) "+
			"SELECT 'P-ours', order_no, 9, gateway, 'txn_ours', 7, currency, 7, currency, status, created_at, updated_at FROM payments WHERE payment_no = '"+o.Payment.PaymentNo+"'")
	}, func(order.Order) audit.Break {
		return audit.Break{Kind: audit.OnlyOurs, PaymentNo: "P-ours", Ours: "7 CNY", Theirs: "nothing"}
	}, true},
	{"payment only theirs", func(t *testing.T, s *shop, _ order.Order) {
		_, err := s.port.Charge(t.Context(), payment.ChargeRequest{PaymentNo: "P-theirs", Amount: 9, Currency: "JPY", Subject: "x", ExpiresAt: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		s.atGateway(t, "P-theirs")
	}, func(order.Order) audit.Break {
		return audit.Break{Kind: audit.OnlyTheirs, PaymentNo: "P-theirs", Ours: "nothing", Theirs: "9 JPY"}
	}, false},
	{"payment's amount", func(t *testing.T, s *shop, o order.Order) {
		exec(t, s.db, "UPDATE payments SET received_amount = received_amount + 1 WHERE payment_no = '"+o.Payment.PaymentNo+"'")
	}, func(o order.Order) audit.Break {
		return audit.Break{Kind: audit.Amount, PaymentNo: o.Payment.PaymentNo, Ours: "401 CNY", Theirs: "400 CNY"}
	}, true},
	{"payment's currency", func(t *testing.T, s *shop, o order.Order) {
		exec(t, s.db, "UPDATE payments SET received_currency = 'JPY' WHERE payment_no = '"+o.Payment.PaymentNo+"'")
	}, func(o order.Order) audit.Break {
		return audit.Break{Kind: audit.Amount, PaymentNo: o.Payment.PaymentNo, Ours: "400 JPY", Theirs: "400 CNY"}
	}, true},
	{"paid there, open here", func(t *testing.T, s *shop, _ order.Order) {
		s.atGateway(t, s.paying(t, "order-open").Payment.PaymentNo)
	}, func(order.Order) audit.Break {
		return audit.Break{Kind: audit.Status, PaymentNo: "of order-open", Ours: "PENDING", Theirs: "400 CNY"}
	}, true},
	{"paid there, closed here", func(t *testing.T, s *shop, _ order.Order) {
		o := s.paying(t, "order-open")
		s.bank(t, http.MethodPut, "/v1/faults", map[string]any{"rules": []any{map[string]any{"on": "close", "mode": "closed_but_payable"},
			map[string]any{"on": "callback", "mode": "drop"}}})
		_, err := s.orders.Cancel(t.Context(), buyer, o.OrderNo, "")
		require.NoError(t, err)
		s.atGateway(t, o.Payment.PaymentNo)
	}, func(order.Order) audit.Break {
		return audit.Break{Kind: audit.Status, PaymentNo: "of order-open", Ours: "CLOSED", Theirs: "400 CNY"}
	}, true},
	{"paid here, open there", func(t *testing.T, s *shop, _ order.Order) {
		s.paid(t, "order-open")
	}, func(order.Order) audit.Break {
		return audit.Break{Kind: audit.Status, PaymentNo: "of order-open", Ours: "400 CNY", Theirs: "PENDING"}
	}, true},
	{"refund only ours", func(t *testing.T, s *shop, o order.Order) {
		exec(t, s.db, "INSERT INTO refunds (refund_no, payment_no, order_no, gateway, amount, currency, reason, note, status, refund_id, created_at, updated_at) "+
			"SELECT 'R-ours', payment_no, order_no, gateway, 3, currency, reason, note, status, 'rfd_ours', created_at, updated_at FROM refunds WHERE order_no = '"+o.OrderNo+"'")
	}, func(o order.Order) audit.Break {
		return audit.Break{Kind: audit.OnlyOurs, PaymentNo: o.Payment.PaymentNo, RefundNo: "R-ours", Ours: "3 CNY", Theirs: "nothing"}
	}, true},
	{"refund only theirs", func(t *testing.T, s *shop, o order.Order) {
		_, err := s.port.Refund(t.Context(), payment.RefundRequest{RefundNo: "R-theirs", PaymentNo: o.Payment.PaymentNo, Amount: 5, Currency: "CNY"})
		require.NoError(t, err)
	}, func(o order.Order) audit.Break {
		return audit.Break{Kind: audit.OnlyTheirs, PaymentNo: o.Payment.PaymentNo, RefundNo: "R-theirs", Ours: "nothing", Theirs: "5 CNY"}
	}, false},
	{"refund's amount", func(t *testing.T, s *shop, o order.Order) {
		exec(t, s.db, "UPDATE refunds SET amount = 99 WHERE order_no = '"+o.OrderNo+"'")
	}, func(o order.Order) audit.Break {
		return audit.Break{Kind: audit.Amount, PaymentNo: o.Payment.PaymentNo, RefundNo: "back-order-1", Ours: "99 CNY", Theirs: "100 CNY"}
	}, true},
	{"sent back there, failed here", func(t *testing.T, s *shop, o order.Order) {
		exec(t, s.db, "UPDATE refunds SET status = 'FAILED' WHERE order_no = '"+o.OrderNo+"'")
	}, func(o order.Order) audit.Break {
		return audit.Break{Kind: audit.Status, PaymentNo: o.Payment.PaymentNo, RefundNo: "back-order-1", Ours: "FAILED", Theirs: "100 CNY"}
	}, true},
	{"sent back here, failed there", func(t *testing.T, s *shop, o order.Order) {
		s.bank(t, http.MethodPut, "/v1/faults", map[string]any{"rules": []any{map[string]any{"on": "refund", "mode": "decline"},
			map[string]any{"on": "callback", "mode": "drop"}}})
		_, err := s.orders.Refund(t.Context(), admin, order.RefundRequest{OrderNo: o.OrderNo, RefundNo: "back-2", Amount: 50})
		require.NoError(t, err)
		exec(t, s.db, "UPDATE refunds SET status = 'SUCCEEDED' WHERE refund_no = 'back-2'")
	}, func(o order.Order) audit.Break {
		return audit.Break{Kind: audit.Status, PaymentNo: o.Payment.PaymentNo, RefundNo: "back-2", Ours: "50 CNY", Theirs: "FAILED"}
	}, true},
}

// Every kind of difference is found, and nothing else: by the gateway's own list, and, but for what only the gateway knows,
// by asking it about ours.
func TestReconcile(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"mysql", "sqlite"} {
		for _, b := range breaks {
			t.Run(engine+"/"+b.name, func(t *testing.T) {
				t.Parallel()
				s := open(t, engine)
				s.sku(t, "TEA", 100)
				s.sku(t, "CUP", 100)
				o := s.bought(t, "order-1")
				s.bought(t, "order-2")
				clean := audit.Report{Breaks: []audit.Break{}, Unlisted: []string{}}
				require.Equal(t, clean, s.reconcile(t, s.port))
				b.make(t, s, o)

				want := b.want(o)
				want.Gateway = "sandbox"
				if orderNo, ok := strings.CutPrefix(want.PaymentNo, "of "); ok {
					late, err := s.orders.Get(t.Context(), admin, orderNo)
					require.NoError(t, err)
					want.PaymentNo = late.Payment.PaymentNo
				}
				require.Equal(t, []audit.Break{want}, s.reconcile(t, s.port).Breaks)
				asked := audit.Report{Breaks: []audit.Break{}, Unlisted: []string{"sandbox"}}
				if b.asked {
					asked.Breaks = append(asked.Breaks, want)
				}
				require.Equal(t, asked, s.reconcile(t, mute{s.port}))
				// What is older than asked for is left alone, unless the gateway lists it.
				report, err := audit.Reconcile(t.Context(), s.db, map[string]payment.Gateway{"sandbox": s.port}, time.Now().Add(time.Hour), nil)
				require.NoError(t, err)
				require.Equal(t, clean, report)
			})
		}
	}
}

// list is a gateway that lists what it is told to, and answers no question.
type list struct {
	payment.Gateway
	entries []payment.Entry
	err     error
}

func (l list) Entries(context.Context, time.Time) ([]payment.Entry, error) { return l.entries, l.err }

func (list) Query(context.Context, payment.Ref) (payment.Charge, error) {
	return payment.Charge{}, errors.New("away")
}

func (list) QueryRefund(context.Context, string, payment.Ref) (payment.RefundAnswer, error) {
	return payment.RefundAnswer{State: fsm.Succeeded, Amount: 1}, errors.New("away")
}

// A gateway that is away, or says a thing twice, is never taken to agree.
func TestReconcileInDoubt(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.sku(t, "TEA", 100)
		s.sku(t, "CUP", 100)
		o := s.bought(t, "order-1")
		no := o.Payment.PaymentNo
		require.Equal(t, []audit.Break{
			{Kind: audit.NoAnswer, Gateway: "sandbox", PaymentNo: no, Ours: "400 CNY", Theirs: "no answer"},
			{Kind: audit.NoAnswer, Gateway: "sandbox", PaymentNo: no, RefundNo: "back-order-1", Ours: "100 CNY", Theirs: "no answer"},
		}, s.reconcile(t, list{Gateway: s.port}).Breaks)

		entries, err := s.port.Entries(t.Context(), time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.Empty(t, s.reconcile(t, list{Gateway: s.port, entries: entries}).Breaks)
		twice := append(slices.Clone(entries), entries[0])
		require.Equal(t, []audit.Break{{Kind: audit.Amount, Gateway: "sandbox", PaymentNo: no, Ours: "400 CNY", Theirs: "400 CNY and 400 CNY"}},
			s.reconcile(t, list{Gateway: s.port, entries: twice}).Breaks)

		away := map[string]payment.Gateway{"sandbox": list{Gateway: s.port, err: errors.New("away")}}
		_, err = audit.Reconcile(t.Context(), s.db, away, time.Now().Add(-time.Hour), nil)
		require.ErrorContains(t, err, "gateway sandbox: away")
	})
}
