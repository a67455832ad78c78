package fsm

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var machines = []*Machine{Orders, Payments, Refunds}

// Every state and event of every machine, also those of the other machines: what is in the table happens, and nothing
// else does.
func TestEveryStateAndEvent(t *testing.T) {
	t.Parallel()
	states, events := []State{None, "NO_SUCH_STATE"}, []Event{"", "no_such_event"}
	for _, m := range machines {
		states, events = append(states, m.States()...), append(events, m.Events()...)
	}
	for _, m := range machines {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for _, from := range states {
				for _, event := range events {
					want, legal := edge(m, from, event)
					to, err := m.Next(from, event)
					if legal {
						require.NoError(t, err, "%s from %q", event, from)
						require.Equal(t, want, to, "%s from %q", event, from)
						continue
					}
					require.Equal(t, &IllegalError{Machine: m.Name, From: from, Event: event}, err)
					require.Empty(t, to)
				}
			}
		})
	}
}

// edge reads the table.
func edge(m *Machine, from State, event Event) (to State, ok bool) {
	for _, e := range m.Edges {
		if e.Event == event && slices.Contains(e.From, from) {
			return e.To, true
		}
	}
	return "", false
}

// What the table is read for: the list of `WHERE status IN (...)`, the new status, the CHECK constraints.
func TestTableIsReadInFull(t *testing.T) {
	t.Parallel()
	require.Equal(t, []State{Created, Reserved, Paying}, Orders.Sources(Cancel))
	require.Equal(t, []State{Paying}, Orders.Sources(Pay))
	require.Equal(t, []State{None}, Orders.Sources(Create))
	require.Equal(t, []State{Init, Pending, Unknown, Failed, Closed}, Payments.Sources(Succeed), "money that came is always booked")
	require.Equal(t, Cancelled, Orders.Target(Cancel))
	require.Equal(t, []State{Created, Reserved, Paying, Paid, Shipped, Completed, Cancelled, Refunded}, Orders.States())
	require.Equal(t, []State{Init, Unknown, Pending, Failed, Closed, Succeeded}, Payments.States())
	require.Equal(t, []State{Pending, Unknown, Failed, Succeeded}, Refunds.States())
	require.Equal(t, []Event{Create, Reserve, OpenPayment, Pay, Ship, Complete, Cancel, Refund}, Orders.Events())
	require.Empty(t, Refunds.Sources(Accept), "an event of another machine starts nowhere")
	require.PanicsWithValue(t, "fsm: refund has no event accept", func() { Refunds.Target(Accept) })
}

// An end state that could be left would bring a closed order back to life.
func TestEndStates(t *testing.T) {
	t.Parallel()
	ends := map[string][]State{"order": {Cancelled, Refunded}, "payment": {Succeeded}, "refund": {Succeeded}}
	for _, m := range machines {
		for _, s := range m.States() {
			leaves := slices.ContainsFunc(m.Edges, func(e Edge) bool { return slices.Contains(e.From, s) })
			require.Equal(t, slices.Contains(ends[m.Name], s), !leaves, "%s %s", m.Name, s)
		}
	}
}

func TestIllegalErrorSaysWhat(t *testing.T) {
	t.Parallel()
	_, err := Orders.Next(Paid, Cancel)
	require.EqualError(t, err, "order: cancel is not possible from PAID")
	_, err = Orders.Next(None, Pay)
	require.EqualError(t, err, "order: pay is not possible from start")
	var illegal *IllegalError
	require.ErrorAs(t, err, &illegal)
	require.Equal(t, None, illegal.From)
}

// The machines are pooled, and each one remembers where it stood. An answer must depend on the question alone.
func TestConcurrentQuestionsDoNotMix(t *testing.T) {
	t.Parallel()
	const askers, questions = 16, 500
	barrier := make(chan struct{})
	failures := make(chan error, askers)
	var all sync.WaitGroup
	for i := range askers {
		all.Go(func() {
			<-barrier
			for j := range questions {
				e := Orders.Edges[(i+j)%len(Orders.Edges)]
				from := e.From[j%len(e.From)]
				if to, err := Orders.Next(from, e.Event); err != nil || to != e.To {
					failures <- errors.Join(err, errors.New(string(e.Event)+" led to "+string(to)))
					return
				}
				if to, err := Orders.Next(Refunded, e.Event); err == nil {
					failures <- errors.New(string(e.Event) + " led from REFUNDED to " + string(to))
					return
				}
			}
		})
	}
	close(barrier)
	all.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
}

// looplab/fsm itself takes the last of two edges and says nothing.
func TestEdgeGivenTwiceIsRefused(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "fsm: broken has two edges for pay<PAYING", func() {
		newMachine("broken", Edge{Pay, []State{Paying}, Paid}, Edge{Pay, []State{Created, Paying}, Cancelled})
	})
	require.NotPanics(t, func() {
		newMachine("two ways", Edge{Pay, []State{Paying}, Paid}, Edge{Pay, []State{Created}, Cancelled})
	})
}
