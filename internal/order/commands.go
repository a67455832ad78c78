package order

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"orderd/internal/db"
	"orderd/internal/fault"
	"orderd/internal/fsm"
	"orderd/internal/idem"
	"orderd/internal/msg"
	"orderd/internal/payment"
)

// The commands, and the data of each.
const (
	placeCommand  = "order.place"   // {"user_id", ...the body of POST /v1/orders}
	cancelCommand = "order.cancel"  // {"user_id", "order_no", ...the body of POST /v1/orders/{order_no}/cancel}
	checkCommand  = "payment.check" // {"payment_no"}: something may have happened to this payment
)

// Check checks a body against the contract of an HTTP operation. Commands are held to the same rules.
type Check func(operation string, body []byte) error

// Commands returns the handler of what the queue may ask for. It does what the request of the same name does, by the same
// functions.
//
// A command that comes again has no second effect: its row in the inbox, written in the transaction of the effect, knows
// it. What cannot be read is parked at once. A refusal by the rules is recorded, and done with. All else is put off, and
// parked in the end: a dependency is away, or a command overtook what it is about.
func (s *Service) Commands(check Check) msg.Handler {
	return func(ctx context.Context, d msg.Delivery) msg.Answer {
		c, err := msg.Decode(d.Body)
		if err != nil {
			return s.unreadable(ctx, c, err)
		}
		known, err := msg.Find(ctx, s.DB, msg.ID{Source: c.Source, MessageID: c.ID})
		if err != nil {
			return s.answer(c, "put_off", msg.Later(err.Error()))
		}
		if known != nil {
			return s.repeated(ctx, c, *known)
		}
		run, err := s.command(c, check)
		if err != nil {
			return s.unreadable(ctx, c, err)
		}
		done, err := run(ctx)
		return s.ran(ctx, c, done, err)
	}
}

// doing carries a command out.
type doing func(context.Context) (doneFor, error)

// doneFor says which order a command was about, and whether its own row in the inbox was written with the effect.
type doneFor struct {
	orderNo  string
	recorded bool
}

// command reads what c asks for and returns what does it.
func (s *Service) command(c msg.Command, check Check) (doing, error) {
	switch c.Type {
	case placeCommand:
		return s.placeCommand(c, check)
	case cancelCommand:
		return s.cancelCommand(c, check)
	case checkCommand:
		return s.checkCommand(c)
	}
	return nil, fmt.Errorf("there is no type %.64q", c.Type)
}

func (s *Service) placeCommand(c msg.Command, check Check) (doing, error) {
	var user string
	body, err := split(c.Data, map[string]*string{"user_id": &user})
	if err == nil {
		err = errors.Join(valid("user_id", users, user), check("placeOrder", body))
	}
	if err != nil {
		return nil, err
	}
	var in struct {
		OrderNo        string `json:"order_no"`
		Items          []Line `json:"items"`
		Gateway        string `json:"gateway"`
		Note           string `json:"note"`
		ExpectedAmount *int64 `json:"expected_amount"`
	}
	err = json.Unmarshal(body, &in, json.RejectUnknownMembers(true))
	return func(ctx context.Context) (doneFor, error) {
		res, err := s.Place(ctx, PlaceRequest{UserID: user, OrderNo: in.OrderNo, Lines: in.Items, Gateway: in.Gateway, Note: in.Note,
			ExpectedAmount: in.ExpectedAmount, Received: received(c)})
		return doneFor{res.Order.OrderNo, res.Created}, err
	}, err
}

func (s *Service) cancelCommand(c msg.Command, check Check) (doing, error) {
	var user, orderNo string
	body, err := split(c.Data, map[string]*string{"user_id": &user, "order_no": &orderNo})
	if err == nil {
		err = errors.Join(valid("user_id", users, user), valid("order_no", nos, orderNo), check("cancelOrder", body))
	}
	if err != nil {
		return nil, err
	}
	var in struct {
		Reason string `json:"reason"`
	}
	err = json.Unmarshal(body, &in, json.RejectUnknownMembers(true))
	return func(ctx context.Context) (doneFor, error) {
		a, r := Actor{UserID: user}, received(c)
		res, err := s.cancelFor(ctx, a, orderNo, in.Reason, cause{actor: a.String(), cause: causeOf(r), detail: in.Reason, received: r})
		return doneFor{orderNo, err == nil && res.Guard == ""}, err
	}, err
}

// checkCommand takes the message for a hint, never for a fact: what happened is asked of the gateway, and its answer
// settled under its own row in the inbox. So the hint needs none; and a forged one costs a question.
func (s *Service) checkCommand(c msg.Command) (doing, error) {
	var paymentNo string
	rest, err := split(c.Data, map[string]*string{"payment_no": &paymentNo})
	if err == nil && string(rest) != "{}" {
		err = errors.New("data has unknown members")
	}
	if err == nil {
		err = valid("payment_no", nos, paymentNo)
	}
	return func(ctx context.Context) (doneFor, error) {
		return doneFor{recorded: true}, s.CheckPayment(ctx, paymentNo)
	}, err
}

// CheckPayment asks the gateway about a payment and settles its answer. Errors are those of Settle, and not_found.
func (s *Service) CheckPayment(ctx context.Context, paymentNo string) error {
	p, err := s.findPayment(ctx, paymentNo)
	if err != nil {
		return err
	}
	if p == nil {
		return fault.New(fault.NotFound, "not_found", "there is no such payment")
	}
	gateway, ok := s.Gateways[p.Gateway]
	if !ok {
		return errGateway(fmt.Errorf("gateway %q is not configured", p.Gateway))
	}
	limited, cancel := context.WithTimeout(ctx, workerTime)
	defer cancel()
	charge, err := s.query(limited, gateway, p.Ref())
	switch {
	case errors.Is(err, payment.ErrNotFound): // not sent yet: nothing has happened to it
		return nil
	case err != nil:
		return errGateway(err)
	case charge.State == fsm.Pending:
		return nil
	}
	_, err = s.Settle(ctx, answer(p.Gateway, charge))
	return err
}

// repeated deals with a command that is in the inbox. Its effect is there; an order that did not get through all stages,
// because the process died, goes on under the number that the command was given.
func (s *Service) repeated(ctx context.Context, c msg.Command, known msg.Received) msg.Answer {
	if known.PayloadHash != c.Hash {
		s.alert(ctx, "message_conflict", "source", c.Source, "message_id", c.ID)
		return s.answer(c, "parked", msg.Park("this id came before with another content"))
	}
	s.stopped(idem.GuardInbox)
	err := msg.CountDuplicates(ctx, s.DB, []msg.ID{{Source: c.Source, MessageID: c.ID}})
	if err == nil && known.Kind == placeCommand && known.Outcome == applied {
		err = s.resume(ctx, known.OrderNo)
	}
	if err != nil && !refused(err) {
		return s.answer(c, "put_off", msg.Later(err.Error()))
	}
	return s.answer(c, "repeated", msg.Answer{})
}

// ran turns the outcome into what the broker is told. What had no effect is recorded now: dying before it, the command
// comes again and has none again.
func (s *Service) ran(ctx context.Context, c msg.Command, done doneFor, err error) msg.Answer {
	outcome, result := ignored, "done"
	switch {
	case errors.Is(err, errAnswered): // recorded by its twin
	case fault.Is(err, "message_conflict") && c.Type != checkCommand:
		return s.answer(c, "parked", msg.Park("this id came before with another content"))
	case err != nil && !refused(err):
		return s.answer(c, "put_off", msg.Later(err.Error()))
	case err != nil:
		outcome, result = "refused:"+fault.As(err).Code, "refused"
		s.Log.InfoContext(ctx, "command refused", "source", c.Source, "message_id", c.ID, "type", c.Type, "order_no", done.orderNo, "error", err)
	}
	if !done.recorded {
		if err := s.record(ctx, c, done.orderNo, outcome); err != nil {
			return s.answer(c, "put_off", msg.Later(err.Error()))
		}
	}
	return s.answer(c, result, msg.Answer{})
}

// refused reports whether the rules forbid what was asked, so that asking again is of no use.
func refused(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code != "order_in_progress" && slices.Contains([]fault.Kind{fault.Forbidden, fault.Gone, fault.Conflict, fault.Unprocessable}, f.Kind)
}

// record writes a command that had no effect to the inbox. If it is there already it was a twin's, which is counted.
func (s *Service) record(ctx context.Context, c msg.Command, orderNo, outcome string) error {
	return s.DB.InTx(ctx, "command_record", func(tx *db.Tx) error {
		r := received(c)
		known, err := msg.Known(tx.DB, []msg.ID{{Source: r.Source, MessageID: r.MessageID}})
		if err != nil || len(known) > 0 && outcome != ignored {
			return err // out of stock: the order's creation was its effect
		}
		if len(known) > 0 {
			return msg.CountDuplicatesTx(tx, []msg.ID{{Source: r.Source, MessageID: r.MessageID}})
		}
		r.OrderNo, r.Outcome, r.ReceivedAt = orderNo, outcome, tx.Now
		return msg.ReceiveTx(tx, []msg.Received{*r})
	})
}

func (s *Service) unreadable(ctx context.Context, c msg.Command, err error) msg.Answer {
	s.Log.WarnContext(ctx, "command cannot be read", "source", c.Source, "message_id", c.ID, "type", fmt.Sprintf("%.64s", c.Type), "error", err)
	reason := "cannot be read: " + err.Error()
	if f := fault.As(err); f != nil {
		for _, field := range f.Fields {
			reason += fmt.Sprintf("; %s %s", field.Field, field.Message)
		}
	}
	return s.answer(c, "parked", msg.Park(reason))
}

func (s *Service) answer(c msg.Command, result string, a msg.Answer) msg.Answer {
	if !slices.Contains([]string{placeCommand, cancelCommand, checkCommand}, c.Type) {
		c.Type = "unknown" // a label's values must be few
	}
	s.Metrics.Commands.WithLabelValues(c.Type, result).Inc()
	return a
}

// What numbers and users look like, as the contract says for requests.
var (
	users = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,64}$`)
	nos   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{5,31}$`)
)

func valid(member string, form *regexp.Regexp, value string) error {
	if !form.MatchString(value) {
		return fmt.Errorf("%s is missing or malformed", member)
	}
	return nil
}

// split takes string members out of a JSON object and returns the rest of it.
func split(data []byte, members map[string]*string) (rest []byte, err error) {
	var object map[string]jsontext.Value
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("data is no object: %w", err)
	}
	for name, value := range members {
		if raw, ok := object[name]; ok {
			if err := json.Unmarshal(raw, value); err != nil {
				return nil, fmt.Errorf("data: %s: %w", name, err)
			}
			delete(object, name)
		}
	}
	return json.Marshal(object, json.Deterministic(true))
}
