package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"unicode/utf8"

	"orderd/internal/msg"
)

type parkedCommand struct {
	List  parkedList  `cmd:"" help:"List the commands that were given up, oldest first, and why."`
	Retry parkedRetry `cmd:"" help:"Send commands again."`
	Drop  parkedDrop  `cmd:"" help:"Forget commands."`
}

type parkedList struct {
	Limit int `default:"100" help:"How many at most."`
}

// Run prints the parked commands.
func (p parkedList) Run(ctx context.Context, s *Settings, c console) error {
	return s.withBroker(c, func(b msg.Broker) error {
		list, err := b.Parked(ctx, p.Limit)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "KEY\tPARKED\tREASON\tBODY")
		for _, m := range list {
			at := "-"
			if !m.At.IsZero() {
				at = m.At.UTC().Format("2006-01-02 15:04:05 MST")
			}
			fmt.Fprintf(w, "%s\t%s\t%q\t%s\n", m.Key, at, m.Reason, excerpt(m.Body))
		}
		return w.Flush()
	})
}

// excerpt shows what may be anything, quoted, so that it does nothing to the terminal.
func excerpt(body []byte) string {
	const most = 200
	text := string(body[:min(len(body), most)])
	if len(body) > most {
		for !utf8.ValidString(text) && len(text) > most-utf8.UTFMax {
			text = text[:len(text)-1]
		}
		text += "..."
	}
	return fmt.Sprintf("%q", text)
}

// chosen are the commands to act on.
type chosen struct {
	Keys []string `arg:"" optional:"" help:"Keys, as list shows them."`
	All  bool     `help:"All of them."`
}

func (k chosen) act(c console, what string, do func(keys ...string) (int, error)) error {
	if k.All == (len(k.Keys) > 0) {
		return errors.New("give keys, or --all")
	}
	n, err := do(k.Keys...)
	fmt.Fprintf(c.out, "%d %s\n", n, what)
	if err == nil && n < len(k.Keys) {
		err = errors.New("not every key was found")
	}
	return err
}

type parkedRetry struct {
	chosen
}

// Run sends parked commands again, as if they were new.
func (p parkedRetry) Run(ctx context.Context, s *Settings, c console) error {
	return s.withBroker(c, func(b msg.Broker) error {
		return p.act(c, "sent again", func(keys ...string) (int, error) { return b.Retry(ctx, keys...) })
	})
}

type parkedDrop struct {
	chosen
}

// Run forgets parked commands.
func (p parkedDrop) Run(ctx context.Context, s *Settings, c console) error {
	return s.withBroker(c, func(b msg.Broker) error {
		return p.act(c, "dropped", func(keys ...string) (int, error) { return b.Drop(ctx, keys...) })
	})
}

func (s *Settings) withBroker(c console, use func(msg.Broker) error) error {
	if s.AMQPURL == "" {
		return errors.New("there is no queue without RabbitMQ: set ORDERD_AMQP_URL")
	}
	b, err := s.openBroker(s.logger(c))
	if err != nil {
		return err
	}
	return errors.Join(use(b), b.Close())
}
