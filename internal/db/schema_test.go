package db_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
)

// uniqueKeys are the guards that a duplicate meets last; primary keys are among them.
var uniqueKeys = map[string][]string{
	"orders":           {"id", "order_no"},
	"order_items":      {"order_no,sku"},
	"order_events":     {"order_no,seq"},
	"stock":            {"sku"},
	"stock_movements":  {"sku,kind,ref"},
	"payments":         {"payment_no", "order_no,attempt", "gateway,transaction_id", "order_no,open_slot", "order_no,applied"},
	"refunds":          {"refund_no", "payment_no,automatic", "gateway,refund_id"},
	"idempotency_keys": {"user_id,idempotency_key"},
	"inbox_messages":   {"source,message_id"},
	"outbox_messages":  {"id", "order_no,seq"},
}

// plainText are the columns for people's text; all other text is identifiers, in ASCII.
var plainText = []string{"order_events.detail", "order_items.title", "orders.cancel_reason", "orders.note", "orders.tracking_no",
	"outbox_messages.payload", "payments.pay_url", "refunds.note", "stock.title", "stock_movements.reason"}

// table is what both engines can say of a table.
type table struct {
	columns map[string]string // name -> type and NULL or NOT NULL
	unique  []string
	indexes []string
}

func TestSchema(t *testing.T) {
	t.Parallel()
	my, lite := open(t, "mysql"), open(t, "sqlite")
	require.NoError(t, my.Migrate(t.Context()))
	require.NoError(t, lite.Migrate(t.Context()))
	mySchema, liteSchema := mysqlSchema(t, my), sqliteSchema(t, lite)

	require.ElementsMatch(t, slices.Collect(maps.Keys(uniqueKeys)), slices.Collect(maps.Keys(mySchema)))
	for name, want := range uniqueKeys {
		require.ElementsMatch(t, want, mySchema[name].unique, name)
		require.Equal(t, mySchema[name].columns, liteSchema[name].columns, name)
		require.ElementsMatch(t, mySchema[name].unique, liteSchema[name].unique, name)
		require.ElementsMatch(t, mySchema[name].indexes, liteSchema[name].indexes, name)
		for column := range mySchema[name].columns {
			require.NotContains(t, column, "delete", "nothing is deleted, so nothing can be marked as deleted")
		}
	}

	var text []string
	for _, row := range query(t, my, "SELECT CONCAT(table_name, '.', column_name), collation_name FROM information_schema.columns "+
		"WHERE table_schema = DATABASE() AND collation_name IS NOT NULL AND table_name NOT LIKE 'goose%'") {
		if row[1] == "utf8mb4_bin" {
			text = append(text, row[0])
		} else {
			require.Equal(t, "ascii_bin", row[1], row[0])
		}
	}
	require.ElementsMatch(t, plainText, text)
}

// query returns the rows as text.
func query(t *testing.T, d *db.DB, q string, args ...any) (list [][]string) {
	t.Helper()
	rows, err := d.Read(t.Context()).Raw(q, args...).Rows()
	require.NoError(t, err)
	defer rows.Close()
	names, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		row, ptrs := make([]string, len(names)), make([]any, len(names))
		for i := range row {
			ptrs[i] = &row[i]
		}
		require.NoError(t, rows.Scan(ptrs...))
		list = append(list, row)
	}
	require.NoError(t, rows.Err())
	return list
}

func mysqlSchema(t *testing.T, d *db.DB) map[string]table {
	tables := map[string]table{}
	for _, r := range query(t, d, "SELECT table_name, column_name, column_type, is_nullable FROM information_schema.columns "+
		"WHERE table_schema = DATABASE() AND table_name NOT LIKE 'goose%'") {
		x, ok := tables[r[0]]
		if !ok {
			x.columns = map[string]string{}
		}
		x.columns[r[1]] = kind(r[2]) + map[string]string{"YES": " NULL", "NO": " NOT NULL"}[r[3]]
		tables[r[0]] = x
	}
	for _, r := range query(t, d, "SELECT table_name, non_unique, GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ',') "+
		"FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name NOT LIKE 'goose%' GROUP BY table_name, index_name, non_unique") {
		x := tables[r[0]]
		if r[1] == "0" {
			x.unique = append(x.unique, r[2])
		} else {
			x.indexes = append(x.indexes, r[2])
		}
		tables[r[0]] = x
	}
	return tables
}

func sqliteSchema(t *testing.T, d *db.DB) map[string]table {
	tables := map[string]table{}
	for _, r := range query(t, d, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'goose%' AND name NOT LIKE 'sqlite%'") {
		name := r[0]
		x := table{columns: map[string]string{}}
		for _, c := range query(t, d, "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?)", name) {
			null := " NULL"
			if c[2] == "1" || c[3] != "0" {
				null = " NOT NULL"
			}
			x.columns[c[0]] = kind(c[1]) + null
			if c[1] == "INTEGER" && c[3] == "1" { // the row id: a key without an index
				x.unique = append(x.unique, c[0])
			}
		}
		for _, i := range query(t, d, "SELECT name, \"unique\" FROM pragma_index_list(?)", name) {
			columns := query(t, d, "SELECT name FROM pragma_index_info(?) ORDER BY seqno", i[0])
			key := strings.Join(slices.Concat(columns...), ",")
			if i[1] == "1" {
				x.unique = append(x.unique, key)
			} else {
				x.indexes = append(x.indexes, key)
			}
		}
		tables[name] = x
	}
	return tables
}

var displayWidth = regexp.MustCompile(`^(bigint|datetime)\(\d+\)$`)

// kind gives a type the name that both engines share.
func kind(columnType string) string {
	k := displayWidth.ReplaceAllString(strings.ToLower(columnType), "$1")
	switch k {
	case "integer":
		return "bigint"
	case "mediumtext":
		return "text"
	}
	return k
}

// length returns n of varchar(n), or 0.
func length(kind string) (n int) {
	_, _ = fmt.Sscanf(kind, "varchar(%d)", &n)
	return n
}
