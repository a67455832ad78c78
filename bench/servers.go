package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"orderd/internal/testenv"
)

// startTime is how long a server may take to answer; on idle cores it is a second or two.
const startTime = 2 * time.Minute

// server is a process that the bench has started.
type server struct {
	*testenv.Process
	addr string
}

// mariadb is a private MariaDB with everything that a COMMIT promises switched on.
type mariadb struct {
	server
	version string
	admin   *sql.DB
}

// startMariaDB starts a MariaDB whose data are in dir, which it fills if it is new. memory is of the buffer pool.
func startMariaDB(ctx context.Context, dir, memory string) (_ *mariadb, err error) {
	path, err := testenv.Find("mariadbd")
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	data, tmp := filepath.Join(dir, "mariadb"), filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		draft := data + ".new" // an interrupted installation must not look like a database
		if err := errors.Join(os.RemoveAll(draft), testenv.InstallMariaDB(ctx, draft, tmp)); err != nil {
			return nil, err
		}
		if err := os.Rename(draft, data); err != nil {
			return nil, err
		}
	}
	port, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	m := &mariadb{server: server{addr: fmt.Sprintf("127.0.0.1:%d", port)}}
	m.Process, err = startLogged(dir, "mariadbd", path, nil, "--no-defaults", "--user="+me.Username, "--datadir="+data, "--tmpdir="+tmp, "--port="+strconv.Itoa(port),
		"--bind-address=127.0.0.1", "--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"), "--skip-name-resolve",
		"--max-connections=600", "--performance-schema=OFF", "--innodb-buffer-pool-size="+memory, "--innodb-log-file-size=512M",
		"--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON") // durable, as in production
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	if m.admin, err = sql.Open("mysql", "root@tcp("+m.addr+")/?timeout=1s"); err != nil {
		return m, err
	}
	m.admin.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := testenv.Poll(ctx, m.Done(), m.admin.PingContext); err != nil {
		return m, fmt.Errorf("mariadbd: %w\n%s", err, logTail(dir, "mariadbd"))
	}
	return m, m.admin.QueryRowContext(ctx, "SELECT VERSION()").Scan(&m.version)
}

// stop ends it in order: a large database would take long to recover.
func (m *mariadb) stop() {
	if m.admin != nil {
		m.admin.Close()
	}
	m.Term(time.Minute)
}

// create makes an empty database and returns its DSN.
func (m *mariadb) create(ctx context.Context, name string) (string, error) {
	_, err := m.admin.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	return m.dsn(name), err
}

func (m *mariadb) dsn(name string) string {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", m.addr, name
	return c.FormatDSN()
}

// statements is how many statements clients have sent so far, this one included.
func (m *mariadb) statements(ctx context.Context) (n int64, err error) {
	var name string
	err = m.admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

// startRedis starts a private Redis, which keeps nothing on disk.
func startRedis(ctx context.Context, dir string) (*server, error) {
	path, err := testenv.Find("redis-server")
	if err != nil {
		return nil, err
	}
	port, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	r := &server{addr: fmt.Sprintf("127.0.0.1:%d", port)}
	r.Process, err = startLogged(dir, "redis-server", path, nil, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err = testenv.Poll(ctx, r.Done(), func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", r.addr)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		r.Kill()
		return nil, fmt.Errorf("redis-server: %w\n%s", err, logTail(dir, "redis-server"))
	}
	return r, nil
}

// logTail returns the end of what a process logged: the directory does not outlive the run.
func logTail(dir, name string) []byte {
	text, _ := os.ReadFile(filepath.Join(dir, name+".log"))
	return text[max(0, len(text)-2000):]
}

// startLogged starts a program whose output goes to a file in dir.
func startLogged(dir, name, path string, env []string, args ...string) (*testenv.Process, error) {
	out, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	return testenv.Start(testenv.Run{Path: path, Args: args, Env: env, Dir: dir, Stdout: out, Stderr: out})
}
