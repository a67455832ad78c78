package testenv

import (
	"errors"
	"fmt"
	"os"
)

// StartShared starts one set of servers for many test processes, and returns the environment that points tests at them.
func StartShared(rabbitmq bool) (env []string, stop func(), err error) {
	type result struct {
		Broker
		err error
	}
	broker := make(chan result, 1)
	if rabbitmq {
		go func() { // it takes longest
			s, err := startRabbitMQ()
			broker <- result{s, err}
		}()
	} else {
		broker <- result{}
	}
	db, err := startMariaDB()
	rabbit := <-broker
	stop = func() {
		for _, s := range []*Server{db, rabbit.Server} {
			if s != nil {
				if log, ended := s.ended(); ended { // a failed test may have been its victim
					fmt.Fprintf(os.Stderr, "%s ended by itself:\n%s\n", s.Addr, log)
				}
				s.Stop()
			}
		}
	}
	if err := errors.Join(err, rabbit.err); err != nil {
		stop()
		return nil, nil, err
	}
	env = append(env, MySQLEnv+"="+rootDSN(db.Addr))
	if rabbitmq {
		env = append(env, AMQPEnv+"="+rabbit.url, AMQPAdminEnv+"="+rabbit.admin)
	}
	return env, stop, nil
}
