package testenv

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	amqp "github.com/rabbitmq/amqp091-go"
)

// AMQPEnv and AMQPAdminEnv name a broker that tests use instead of starting one: its AMQP URL, and the URL of its
// management plugin, both with a user who may create virtual hosts.
const (
	AMQPEnv      = "ORDERD_TEST_AMQP_URL"
	AMQPAdminEnv = "ORDERD_TEST_AMQP_ADMIN"
)

// The shared broker lives as long as the test process.
var sharedBroker = sync.OnceValues(func() (Broker, error) {
	if url := os.Getenv(AMQPEnv); url != "" {
		return Broker{url: url, admin: os.Getenv(AMQPAdminEnv)}, nil
	}
	return startRabbitMQ()
})

// RabbitMQ makes an empty virtual host on the shared broker and returns its AMQP URL. It is deleted when the test ends.
func RabbitMQ(t testing.TB) string {
	t.Helper()
	b, err := sharedBroker()
	if err != nil {
		t.Fatal(err)
	}
	name := "t_" + ulid.Make().String()
	if err := b.manage(http.MethodPut, "/api/vhosts/"+name); err != nil {
		t.Fatalf("create a virtual host: %v", err)
	}
	t.Cleanup(func() {
		if err := b.manage(http.MethodDelete, "/api/vhosts/"+name); err != nil {
			t.Errorf("delete a virtual host: %v", err)
		}
	})
	return strings.TrimSuffix(b.url, "/") + "/" + name
}

// Broker is a RabbitMQ. Server is nil if it was not started here.
type Broker struct {
	*Server
	url, admin string
}

// URL returns the AMQP URL of its default virtual host.
func (b Broker) URL() string { return b.url }

// manage calls the management plugin. The user who creates a virtual host has every right on it.
func (b Broker) manage(method, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.admin+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("%s: %w", AMQPAdminEnv, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return nil
}

// OwnRabbitMQ starts a broker for this test alone. It takes about 8 s.
func OwnRabbitMQ(t testing.TB) Broker {
	t.Helper()
	b, err := startRabbitMQ()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

func startRabbitMQ() (b Broker, err error) {
	// The packaged wrapper changes to the user rabbitmq, which would cut the tie to this process.
	path := "/usr/lib/rabbitmq/bin/rabbitmq-server"
	if _, err := os.Stat(path); err != nil {
		if path, err = Find("rabbitmq-server"); err != nil {
			return b, err
		}
	}
	epmdPath, err := Find("epmd")
	if err != nil {
		return b, err
	}
	var ports [4]int
	for i := range ports {
		if ports[i], err = FreePort(); err != nil {
			return b, err
		}
	}
	dir, err := newDir("rabbitmq")
	if err != nil {
		return b, err
	}
	port, dist, names := strconv.Itoa(ports[0]), strconv.Itoa(ports[1]), strconv.Itoa(ports[2])
	// Erlang's name server is started here, on a port of its own: one that Erlang starts by itself outlives everybody.
	epmd, err := Start(Run{Path: epmdPath, Args: []string{"-port", names, "-address", "127.0.0.1"}, Dir: dir})
	if err != nil {
		_ = os.RemoveAll(dir)
		return b, err
	}
	s := &Server{Addr: "127.0.0.1:" + port, dir: dir, aux: epmd}
	b = Broker{s, "amqp://guest:guest@" + s.Addr + "/", fmt.Sprintf("http://guest:guest@127.0.0.1:%d", ports[3])}
	in := func(name string) string { return filepath.Join(dir, name) }
	s.run = Run{Path: path, Dir: dir, Env: []string{
		"HOME=" + dir, "ERL_EPMD_PORT=" + names, "ERL_EPMD_ADDRESS=127.0.0.1",
		"RUNNING_UNDER_SYSTEMD=true", // exec Erlang instead of keeping a shell in front of it, so that signals reach it
		fmt.Sprintf("RABBITMQ_NODENAME=orderd%d@localhost", ports[0]),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT=" + port, "RABBITMQ_DIST_PORT=" + dist,
		"RABBITMQ_MNESIA_BASE=" + in("mnesia"), "RABBITMQ_LOG_BASE=" + in("logs"), "RABBITMQ_LOGS=-",
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq"), "RABBITMQ_CONF_ENV_FILE=" + in("env"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + in("plugins"), "RABBITMQ_PID_FILE=" + in("pid"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
	}}
	s.ready = func(context.Context) error {
		conn, err := amqp.DialConfig(b.url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
			return net.DialTimeout(network, addr, time.Second)
		}})
		if err != nil {
			return err
		}
		if err := conn.Close(); err != nil {
			return err
		}
		return b.manage(http.MethodGet, "/api/vhosts")
	}
	conf := fmt.Sprintf("log.console = true\ndisk_free_limit.absolute = 50MB\n"+
		"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = %d\n", ports[3])
	for name, text := range map[string]string{
		"rabbitmq.conf": conf, "plugins": "[rabbitmq_management].\n", "env": "",
	} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			s.Stop()
			return b, err
		}
	}
	if err := s.Restart(); err != nil {
		s.Stop()
		return b, err
	}
	return b, nil
}
