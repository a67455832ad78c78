package msg_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/msg"
	"orderd/internal/msg/rabbitmq"
	"orderd/internal/testenv"
)

// The queue is deleted under its consumer: the broker ends the subscription and says nothing else. The consumer declares
// the queue anew and goes on.
func TestConsumerSurvivesItsQueue(t *testing.T) {
	t.Parallel()
	w := onRabbitMQ(t, testenv.RabbitMQ(t))
	var l log
	w.consume(func(_ context.Context, d msg.Delivery) msg.Answer {
		l.add(d)
		return msg.Answer{}
	})
	w.command("before")
	w.eventually(func() error { return l.has("before") })
	_, err := w.channel.QueueDelete(rabbitmq.Commands, false, false, false)
	require.NoError(t, err)
	w.eventually(func() error { // until it is there again
		_, err := w.channel.QueueDeclarePassive(rabbitmq.Commands, true, false, false, false, nil)
		if err != nil {
			w.connect() // a failed look closes the channel
		}
		return err
	})
	w.command("after")
	w.eventually(func() error { return l.has("after") })
}
