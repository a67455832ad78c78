package rabbitmq

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"orderd/internal/msg"
)

// What is declared on the broker. Everything is durable and survives the loss of a node.
//
//	orderd.events     topic exchange; the routing key is the event's type: order.paid. Others bind their queues here
//	orderd.events     queue with all events, so that none is ever unroutable
//	orderd.commands   queue: send commands here, through the default exchange
//	orderd.delay.1s   queues without a consumer: what lies there so long goes back to orderd.commands
//	orderd.parked     queue of commands that were given up
const (
	Events   = "orderd.events"
	Commands = "orderd.commands"
	parking  = "orderd.parked"
)

// deliveryLimit bounds how often a command may take the process, or its connection, down with it. It is well above what a
// few bad restarts do to the innocent ones that were in hand as well.
const deliveryLimit = 100

func delayQueue(d time.Duration) string { return "orderd.delay." + d.String() }

// declare is the same on every start, and changes nothing that is there. A queue that is there with other arguments is an
// error: somebody must decide what happens to its messages.
func declare(c *amqp.Connection, s msg.Schedule) error {
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	if err := ch.ExchangeDeclare(Events, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange %s: %w", Events, err)
	}
	queues := map[string]amqp.Table{
		Events:   {},
		parking:  {},
		Commands: forwarded(parking, amqp.Table{"x-delivery-limit": int32(deliveryLimit)}),
	}
	for _, d := range s.Delays {
		queues[delayQueue(d)] = forwarded(Commands, amqp.Table{amqp.QueueMessageTTLArg: d.Milliseconds()})
	}
	for name, args := range queues {
		args[amqp.QueueTypeArg] = amqp.QueueTypeQuorum
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			return fmt.Errorf("declare queue %s: %w", name, err)
		}
	}
	if err := ch.QueueBind(Events, "#", Events, false, nil); err != nil {
		return fmt.Errorf("bind queue %s: %w", Events, err)
	}
	return ch.Close()
}

// forwarded lets the queue move to another one what it may not keep, and wait for that one's confirm: the default
// strategy would lose it if the other is not available.
func forwarded(to string, args amqp.Table) amqp.Table {
	args["x-dead-letter-exchange"] = ""
	args["x-dead-letter-routing-key"] = to
	args["x-dead-letter-strategy"] = "at-least-once"
	args[amqp.QueueOverflowArg] = amqp.QueueOverflowRejectPublish
	return args
}
