package testenv

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestDatabaseIsFreshAndComparesBinary(t *testing.T) {
	t.Parallel()
	for range 2 {
		db := open(t, Database(t))
		_, err := db.Exec("CREATE TABLE a (k VARCHAR(10) PRIMARY KEY)")
		require.NoError(t, err)
		_, err = db.Exec("INSERT INTO a VALUES ('abc'), ('ABC')")
		require.NoError(t, err)
	}
}

func TestOwnMariaDBKeepsItsDataOverACrash(t *testing.T) {
	t.Parallel()
	m := OwnMariaDB(t)
	db := open(t, m.Database(t))
	_, err := db.Exec("CREATE TABLE a (k INT PRIMARY KEY) ENGINE=InnoDB")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO a VALUES (1)")
	require.NoError(t, err)
	var tmp string
	require.NoError(t, db.QueryRow("SELECT @@tmpdir").Scan(&tmp))
	require.Equal(t, filepath.Join(m.dir, "tmp"), tmp, "in a shared one, the next server to start removes the temporary tables of this one")
	m.Kill()
	require.Error(t, db.Ping())
	_, ended := m.ended()
	require.True(t, ended)
	require.NoError(t, m.Restart())
	var n int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM a").Scan(&n))
	require.Equal(t, 1, n)
}

func TestClockOfMariaDBMoves(t *testing.T) {
	t.Parallel()
	m := OwnMariaDB(t)
	clock := m.FakeClock(t)
	db := open(t, m.Database(t))
	for _, by := range []time.Duration{0, time.Hour, -10 * time.Minute, 90 * time.Second, 0} {
		clock.Move(t, by)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, Poll(ctx, nil, func(ctx context.Context) error {
			var ahead float64 // seconds
			err := db.QueryRowContext(ctx, "SELECT UNIX_TIMESTAMP(NOW(6)) - ?",
				float64(time.Now().UnixMicro())/1e6).Scan(&ahead)
			if err == nil && (ahead < by.Seconds()-1 || ahead > by.Seconds()+1) {
				err = fmt.Errorf("the server is %v s ahead, not %v", ahead, by)
			}
			return err
		}))
	}
}

func TestRedisPausesAndRestarts(t *testing.T) {
	t.Parallel()
	r := Redis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.NoError(t, r.Pause())
	require.Error(t, ping(ctx, r.Addr))
	require.NoError(t, r.Resume())
	require.NoError(t, ping(t.Context(), r.Addr))
	r.Kill()
	require.Error(t, ping(t.Context(), r.Addr))
	require.NoError(t, r.Restart())
	require.NoError(t, ping(t.Context(), r.Addr))
	dir := r.dir
	r.Stop()
	require.NoDirExists(t, dir)
}

// The two cuts around a COMMIT: the client sees the same error, the server did opposite things.
func TestProxyCutsAroundCommit(t *testing.T) {
	t.Parallel()
	m := OwnMariaDB(t)
	p := NewProxy(t, m.Addr)
	direct := m.Database(t)
	admin := open(t, direct)
	_, err := admin.Exec("CREATE TABLE a (k INT PRIMARY KEY) ENGINE=InnoDB")
	require.NoError(t, err)
	db := open(t, "root@tcp("+p.Addr+")/"+direct[len(rootDSN(m.Addr)):])

	insert := func(k int) error {
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec(fmt.Sprintf("INSERT INTO a VALUES (%d)", k))
		require.NoError(t, err)
		return tx.Commit()
	}
	stored := func(k int) (n int) {
		require.NoError(t, admin.QueryRow("SELECT COUNT(*) FROM a WHERE k=?", k).Scan(&n))
		return n
	}
	p.CutBefore("COMMIT", 1)
	require.Error(t, insert(1))
	require.Equal(t, 0, stored(1))
	p.CutAfter("COMMIT", 1)
	require.Error(t, insert(2))
	require.Equal(t, 1, stored(2))
	require.NoError(t, insert(3), "a cut happens once")
	require.Equal(t, 2, p.Cuts())
}

func TestProxyHangsRefusesAndHeals(t *testing.T) {
	t.Parallel()
	r := Redis(t)
	p := NewProxy(t, r.Addr)
	require.NoError(t, ping(t.Context(), p.Addr))

	p.BlackHole()
	require.Error(t, ping(t.Context(), p.Addr))
	p.Restore()
	p.Refuse()
	require.Error(t, ping(t.Context(), p.Addr))
	p.Restore()
	require.NoError(t, ping(t.Context(), p.Addr))
	p.CloseAfterBytes(3)
	require.Error(t, ping(t.Context(), p.Addr))
	require.NoError(t, ping(t.Context(), p.Addr))

	began := time.Now()
	p.Delay(50 * time.Millisecond)
	require.NoError(t, ping(t.Context(), p.Addr))
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond, "there and back")
}

func TestDataOfDeadProcessesIsRemoved(t *testing.T) {
	t.Parallel()
	dead, err := Start(Run{Path: "/bin/true"})
	require.NoError(t, err)
	require.Zero(t, dead.ExitCode())
	mine, err := newDir("x")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(mine) })
	left := filepath.Join(filepath.Dir(mine), fmt.Sprintf("%s%d-x-1", dirPrefix, dead.PID()))
	require.NoError(t, os.Mkdir(left, 0o700))
	again, err := newDir("x")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(again) })
	require.NoDirExists(t, left)
	require.DirExists(t, mine)
}

func TestOwnRabbitMQSurvivesACrash(t *testing.T) {
	t.Parallel()
	b := OwnRabbitMQ(t)
	b.Kill()
	require.Error(t, b.ready(t.Context()))
	require.NoError(t, b.Restart())
}

func TestRabbitMQGivesEveryTestItsOwnQueues(t *testing.T) {
	t.Parallel()
	for range 2 {
		conn, err := amqp.Dial(RabbitMQ(t))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		ch, err := conn.Channel()
		require.NoError(t, err)
		q, err := ch.QueueDeclare("q", true, false, false, false, nil)
		require.NoError(t, err)
		require.Zero(t, q.Messages)
		require.NoError(t, ch.PublishWithContext(t.Context(), "", "q", false, false, amqp.Publishing{Body: []byte("x")}))
	}
}
