package db

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// Time is a UTC instant in microseconds, as the tables hold it: DATETIME(6) on MySQL, integer microseconds since 1970
// on SQLite. JSON shows it as RFC 3339 with all six digits.
type Time struct{ time.Time }

const timeFormat = "2006-01-02T15:04:05.000000Z"

// At returns t as UTC microseconds.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Microsecond)} }

// AtPtr is At for a nullable column.
func AtPtr(t time.Time) *Time {
	v := At(t)
	return &v
}

// Value implements driver.Valuer. The zero Time is an error: some code forgot to set it, and MariaDB would take it as
// the day 0000-00-00.
func (t Time) Value() (driver.Value, error) {
	if t.IsZero() {
		return nil, errors.New("db: a time was not set")
	}
	return At(t.Time).Time, nil
}

// GormDataType implements gorm's interface. With a type of its own, gorm leaves created_at and updated_at alone: it would
// fill them from the process's clock.
func (Time) GormDataType() string { return "datetime" }

// Scan implements sql.Scanner.
func (t *Time) Scan(src any) error {
	switch v := src.(type) {
	case time.Time:
		*t = At(v)
	case int64: // SQLite expressions lose the column's declared type
		*t = At(time.UnixMicro(v))
	default:
		return fmt.Errorf("db: cannot read a time from %T", src)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(timeFormat) + `"`), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(b []byte) error {
	v, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(b))
	*t = At(v)
	return err
}
