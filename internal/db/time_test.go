package db_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
)

type moment struct {
	Name      string `gorm:"primaryKey"`
	At        db.Time
	Maybe     *db.Time
	CreatedAt db.Time
}

func momentTable(t *testing.T, d *db.DB) {
	column := "DATETIME(6)"
	if d.Dialect == "sqlite" {
		column = "DATETIME"
	}
	exec(t, d, "CREATE TABLE moments (name VARCHAR(8) PRIMARY KEY, at "+column+" NOT NULL, maybe "+column+" NULL, created_at "+column+" NOT NULL)")
}

func TestTimeRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		momentTable(t, d)
		// Not UTC, with nanoseconds: stored as UTC microseconds, truncated so that it is never in the future.
		east := time.FixedZone("east", 8*3600)
		a := db.At(time.Date(2026, 2, 3, 4, 5, 6, 123456999, east))
		b := db.At(time.Date(2026, 2, 2, 20, 5, 6, 123457000, time.UTC)) // one microsecond later
		require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
			return tx.Create([]moment{{Name: "a", At: a, Maybe: &b, CreatedAt: tx.Now}, {Name: "b", At: b, CreatedAt: tx.Now}}).Error
		}))
		var list []moment
		require.NoError(t, d.Read(t.Context()).Order("at DESC").Find(&list).Error)
		require.Len(t, list, 2)
		require.Equal(t, "b", list[0].Name)
		require.Equal(t, b, list[0].At)
		require.Nil(t, list[0].Maybe)
		require.Equal(t, a, list[1].At)
		require.Equal(t, b, *list[1].Maybe)
		require.Equal(t, 123456000, list[1].At.Nanosecond())
		require.Equal(t, time.UTC, list[1].At.Location())

		// Comparisons in SQL, to the microsecond, with a Go value and between columns.
		require.EqualValues(t, 1, number(t, d, "SELECT COUNT(*) FROM moments WHERE at < ?", b))
		require.EqualValues(t, 2, number(t, d, "SELECT COUNT(*) FROM moments WHERE at <= ?", b))
		require.EqualValues(t, 1, number(t, d, "SELECT COUNT(*) FROM moments WHERE at = ?", a))
		require.EqualValues(t, 1, number(t, d, "SELECT COUNT(*) FROM moments WHERE maybe > at"))
		require.EqualValues(t, 1, number(t, d, "SELECT COUNT(*) FROM moments WHERE maybe IS NULL"))

		var low, high, none, either *db.Time
		row := d.Read(t.Context()).Raw("SELECT MIN(at), MAX(at), MAX(CASE WHEN name = 'x' THEN at END), MIN(COALESCE(maybe, at)) FROM moments").Row()
		require.NoError(t, row.Scan(&low, &high, &none, &either))
		require.Equal(t, a, *low)
		require.Equal(t, b, *high)
		require.Nil(t, none)
		require.Equal(t, b, *either)
	})
}

// A forgotten time is an error: neither gorm's own clock nor the day 0000-00-00 may fill in.
func TestUnsetTime(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		momentTable(t, d)
		now := db.At(time.Now())
		err := d.InTx(t.Context(), "test", func(tx *db.Tx) error { return tx.Create(&moment{Name: "a", At: now}).Error })
		require.ErrorContains(t, err, "a time was not set")
	})
}

func TestDatabaseClock(t *testing.T) {
	fixed := time.Date(2040, 1, 2, 3, 4, 5, 6789, time.UTC)
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(dialect, func(t *testing.T) {
			d := open(t, dialect, func(c *db.Config) { c.Now = func() time.Time { return fixed } })
			momentTable(t, d)
			near := func(at time.Time) {
				t.Helper()
				if dialect == "sqlite" {
					require.Equal(t, fixed.Truncate(time.Microsecond), at)
				} else { // the server of this test runs on this machine
					require.WithinDuration(t, time.Now(), at, 5*time.Second)
				}
				require.Equal(t, time.UTC, at.Location())
			}
			now, err := d.Now(t.Context())
			require.NoError(t, err)
			near(now)
			require.NoError(t, d.InTx(t.Context(), "test", func(tx *db.Tx) error {
				near(tx.Now.Time)
				return tx.Exec("INSERT INTO moments VALUES ('a', ?, ?, ?)", d.SQLNow(), d.SQLNowPlus(-time.Minute), tx.Now).Error
			}))
			var m moment
			require.NoError(t, d.Read(t.Context()).First(&m).Error)
			near(m.At.Time)
			near(m.Maybe.Add(time.Minute))
			require.EqualValues(t, 1, number(t, d, "SELECT COUNT(*) FROM moments WHERE at < ? AND maybe < ?", d.SQLNowPlus(time.Hour), d.SQLNow()))
			require.EqualValues(t, 0, number(t, d, "SELECT COUNT(*) FROM moments WHERE at < ?", d.SQLNowPlus(-time.Hour)))
		})
	}
}

func TestTimeJSON(t *testing.T) {
	at := db.At(time.Date(2026, 1, 2, 3, 4, 5, 120000999, time.UTC))
	b, err := json.Marshal(at)
	require.NoError(t, err)
	require.Equal(t, `"2026-01-02T03:04:05.120000Z"`, string(b))
	var back db.Time
	require.NoError(t, json.Unmarshal([]byte(`"2026-01-02T11:04:05.120+08:00"`), &back))
	require.Equal(t, at, back)
	require.Error(t, json.Unmarshal([]byte(`"yesterday"`), &back))
}
