package msg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orderd/internal/failpoint"
)

// Broker carries events out and commands in. Two ship, and keep one contract: package rabbitmq, and Local, which lives in
// this process.
type Broker interface {
	// Ping reports whether the broker takes messages now; it connects if need be.
	Ping(ctx context.Context) error
	// Publish hands events over in the order given and returns an error for each. nil means that the broker has stored it:
	// after any other answer it may or may not have arrived, and must be published again, under the same id.
	// ErrUnroutable means that nobody would get it.
	Publish(ctx context.Context, events []Message) []error
	// Consume hands the commands that arrive to handle, several at a time and in no order, until ctx ends; then it lets
	// those in hand finish and gives the others back. A command that is not answered for, because the process died or the
	// connection broke, comes again.
	Consume(ctx context.Context, handle Handler) error
	// Parked returns up to limit commands that were given up, oldest first.
	Parked(ctx context.Context, limit int) ([]Parked, error)
	// Retry sends parked commands again, as if they were new; Drop forgets them. Both return how many they found; no key:
	// all.
	Retry(ctx context.Context, keys ...string) (int, error)
	Drop(ctx context.Context, keys ...string) (int, error)
	Close() error
}

// ErrUnroutable says that no queue takes the event: it stays in the outbox, and somebody should look.
var ErrUnroutable = errors.New("msg: no queue takes this event")

// Delivery is a command as it arrived.
type Delivery struct {
	Body  []byte
	Tries int // how often it has been put off
}

// Handler has the effect of a command and says what is to be done with it. The context is not cancelled at shutdown.
type Handler func(ctx context.Context, d Delivery) Answer

// Answer says what becomes of a command. The zero value means that it is done with, be it carried out or refused.
type Answer struct {
	do     action
	Reason string
}

type action int

const (
	done action = iota
	later
	park
)

// Done reports whether the command is done with.
func (a Answer) Done() bool { return a.do == done }

// Parked reports whether the command is to be set aside.
func (a Answer) Parked() bool { return a.do == park }

// Later puts a command off: what failed may work in a while.
func Later(reason string) Answer { return Answer{later, reason} }

// Park sets a command aside for a person: trying again is of no use.
func Park(reason string) Answer { return Answer{park, reason} }

// Parked is a command that was given up.
type Parked struct {
	Key    string // names it: derived from the body, so that the same command has the same key
	Reason string
	At     time.Time // when it was parked; zero if the broker did it
	Body   []byte
}

// Schedule says how long a command is put off, time after time, and when it is given up.
type Schedule struct {
	Delays []time.Duration // default 1 s, 10 s, 60 s; the last one is repeated
	Tries  int             // default 12: about ten minutes
}

// WithDefaults fills in what is not set.
func (s Schedule) WithDefaults() Schedule {
	if len(s.Delays) == 0 {
		s.Delays = []time.Duration{time.Second, 10 * time.Second, time.Minute}
	}
	if s.Tries == 0 {
		s.Tries = 12
	}
	return s
}

// Delay returns how long to wait after a command was tried tries+1 times.
func (s Schedule) Delay(tries int) time.Duration { return s.Delays[min(tries, len(s.Delays)-1)] }

// Judge lets handle have the command's effect and bounds its wishes: after the last try, or a panic, it is parked. The
// caller then tells the broker. Dying before it does so: the command comes again, and the inbox knows it.
func (s Schedule) Judge(ctx context.Context, handle Handler, d Delivery) (a Answer) {
	defer func() {
		if p := recover(); p != nil {
			a = Park(fmt.Sprintf("panic: %v", p))
		}
	}()
	a = handle(context.WithoutCancel(ctx), d)
	failpoint.Here("consumer.committed")
	if a.do == later && d.Tries+1 >= s.Tries {
		a = Park(fmt.Sprintf("given up after %d tries: %s", s.Tries, a.Reason))
	}
	return a
}
