// Package fsm holds the state machines of orders, payments and refunds. Each is one table on looplab/fsm, without
// callbacks: the table says what is legal, what the guarded SQL may match (Sources), what the audit accepts and what
// the diagrams show. Who wins a race is decided by SQL, never by the machine: a machine lives in one process.
package fsm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/looplab/fsm"
)

// State is a stored status. None is the state of what does not exist yet.
type State string

// Event is what moves a machine from one State to the next.
type Event string

const None State = ""

// Edge is one row of a machine's table: Event leads from any state of From to To.
type Edge struct {
	Event Event
	From  []State
	To    State
}

// Machine is a state machine's table. It is safe for concurrent use.
type Machine struct {
	Name  string
	Edges []Edge
	pool  sync.Pool
}

// newMachine checks what looplab/fsm accepts silently: a pair (event, source) given twice, where the last would win.
func newMachine(name string, edges ...Edge) *Machine {
	seen := map[string]bool{}
	var events fsm.Events
	for _, e := range edges {
		var from []string
		for _, s := range e.From {
			pair := string(e.Event) + "<" + string(s)
			if seen[pair] {
				panic("fsm: " + name + " has two edges for " + pair)
			}
			seen[pair] = true
			from = append(from, label(s))
		}
		events = append(events, fsm.EventDesc{Name: string(e.Event), Src: from, Dst: string(e.To)})
	}
	m := &Machine{Name: name, Edges: edges}
	m.pool.New = func() any { return fsm.NewFSM(start, events, nil) }
	return m
}

// start stands for None inside looplab/fsm, whose diagrams need a name for it.
const start = "start"

func label(s State) string {
	if s == None {
		return start
	}
	return string(s)
}

// IllegalError says that the machine has no edge for Event from From.
type IllegalError struct {
	Machine string
	From    State
	Event   Event
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("%s: %s is not possible from %s", e.Machine, e.Event, label(e.From))
}

// Next returns the state that event leads to from from, or an *IllegalError.
func (m *Machine) Next(from State, event Event) (State, error) {
	f := m.pool.Get().(*fsm.FSM)
	f.SetState(label(from))
	// The machine has no callbacks and must not see a caller's context: one that is already done would wedge it for ever.
	if err := f.Event(context.Background(), string(event)); err != nil {
		return "", &IllegalError{Machine: m.Name, From: from, Event: event} // f is dropped, not pooled: its state is in doubt
	}
	to := State(f.Current())
	m.pool.Put(f)
	return to, nil
}

// Sources returns the states that event may start from: the list for `WHERE status IN (...)`.
func (m *Machine) Sources(event Event) []State {
	var from []State
	for _, e := range m.Edges {
		if e.Event == event {
			from = append(from, e.From...)
		}
	}
	return from
}

// Target returns the state that event leads to.
func (m *Machine) Target(event Event) State {
	for _, e := range m.Edges {
		if e.Event == event {
			return e.To
		}
	}
	panic(fmt.Sprintf("fsm: %s has no event %s", m.Name, event))
}

// States returns all states but None, in the order of the table.
func (m *Machine) States() []State {
	var states []State
	for _, e := range m.Edges {
		for _, s := range append(slices.Clone(e.From), e.To) {
			if s != None && !slices.Contains(states, s) {
				states = append(states, s)
			}
		}
	}
	return states
}

// Events returns all events, in the order of the table.
func (m *Machine) Events() []Event {
	var events []Event
	for _, e := range m.Edges {
		if !slices.Contains(events, e.Event) {
			events = append(events, e.Event)
		}
	}
	return events
}

// Mermaid draws the table as a mermaid state diagram, the same text each time.
func (m *Machine) Mermaid() string {
	f := m.pool.Get().(*fsm.FSM)
	defer m.pool.Put(f)
	f.SetState(start)
	text, err := fsm.VisualizeWithType(f, fsm.MermaidStateDiagram)
	if err != nil {
		panic(err) // only for a diagram type that looplab/fsm does not know
	}
	text = strings.Replace(text, "    [*] --> start\n", "", 1)
	return strings.Replace(text, "    start --> ", "    [*] --> ", 1)
}
