package testenv

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/oklog/ulid/v2"
)

// MySQLEnv names a server that tests use instead of starting one: a DSN with the right to create databases.
const MySQLEnv = "ORDERD_TEST_MYSQL_DSN"

// The shared server lives as long as the test process: that is why it cannot belong to one test.
var shared = sync.OnceValues(func() (string, error) {
	if dsn := os.Getenv(MySQLEnv); dsn != "" {
		return dsn, nil
	}
	s, err := startMariaDB()
	if err != nil {
		return "", err
	}
	return rootDSN(s.Addr), nil
})

// Database creates an empty database on the shared server and returns its DSN. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	dsn, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return database(t, dsn)
}

// MariaDB is a server of one test's own, for tests that pause, kill and restart it.
type MariaDB struct{ *Server }

// OwnMariaDB starts a MariaDB for this test alone, with further mariadbd options if given. It takes about 1.5 s.
func OwnMariaDB(t testing.TB, options ...string) MariaDB {
	t.Helper()
	return MariaDB{own(t, func() (*Server, error) { return startMariaDB(options...) })}
}

// Database creates an empty database and returns its DSN.
func (m MariaDB) Database(t testing.TB) string {
	t.Helper()
	return database(t, rootDSN(m.Addr))
}

func rootDSN(addr string) string { return "root@tcp(" + addr + ")/" }

func database(t testing.TB, server string) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		t.Fatalf("%s: %v", MySQLEnv, err)
	}
	name := "t_" + ulid.Make().String()
	admin := func(statement string) error {
		db, err := sql.Open("mysql", server)
		if err != nil {
			return err
		}
		defer db.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err = db.ExecContext(ctx, statement)
		return err
	}
	if err := admin("CREATE DATABASE " + name + " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"); err != nil {
		t.Fatalf("create a database: %v", err)
	}
	t.Cleanup(func() { _ = admin("DROP DATABASE " + name) }) // a server that the test killed has nothing to drop
	cfg.DBName = name
	return cfg.FormatDSN()
}

// InstallMariaDB makes an empty database in the directory data, whose root has no password. tmp is a directory for temporary
// tables that no other server uses: a starting mariadbd removes what it takes for left behind.
func InstallMariaDB(ctx context.Context, data, tmp string) error {
	install, err := Find("mariadb-install-db")
	if err != nil {
		return err
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, install, "--no-defaults", "--user="+me.Username, "--datadir="+data, "--tmpdir="+tmp,
		"--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput()
	if err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, tail(out))
	}
	return nil
}

func startMariaDB(options ...string) (*Server, error) {
	server, err := Find("mariadbd")
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := newDir("mariadb")
	if err != nil {
		return nil, err
	}
	data, tmp := filepath.Join(dir, "data"), filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := InstallMariaDB(ctx, data, tmp); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s := &Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), dir: dir}
	s.run = Run{Path: server, Dir: dir, Args: append([]string{
		"--no-defaults", "--user=" + me.Username, "--datadir=" + data, "--tmpdir=" + tmp,
		"--port=" + strconv.Itoa(port), "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(dir, "s"), "--pid-file=" + filepath.Join(dir, "pid"),
		"--skip-name-resolve", "--max-connections=500", "--lock-wait-timeout=10",
		"--innodb-flush-log-at-trx-commit=1", // as in production: what the service sees as committed is
		"--innodb-buffer-pool-size=128M", "--performance-schema=OFF",
	}, options...)}
	s.ready = func(ctx context.Context) error {
		db, err := sql.Open("mysql", rootDSN(s.Addr)+"?timeout=1s&readTimeout=2s")
		if err != nil {
			return err
		}
		defer db.Close()
		return db.PingContext(ctx)
	}
	if err := s.Restart(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}
