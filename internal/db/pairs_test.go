package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/db"
)

func TestAnyPair(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		exec(t, d, "CREATE TABLE pairs (a VARCHAR(8), b VARCHAR(8), PRIMARY KEY (a, b))")
		exec(t, d, "INSERT INTO pairs VALUES ('1', 'x'), ('1', 'y'), ('2', 'x'), ('2', 'y')")
		for _, test := range []struct {
			pairs [][2]string
			want  int64
		}{
			{[][2]string{{"1", "y"}}, 1},
			{[][2]string{{"1", "x"}, {"2", "y"}, {"3", "x"}}, 2}, // pairs, not all combinations
			{[][2]string{{"' OR 1=1 --", "x"}}, 0},
		} {
			condition, args := db.AnyPair("a", "b", test.pairs)
			require.Equal(t, test.want, number(t, d, "SELECT COUNT(*) FROM pairs WHERE "+condition, args...), "%v", test.pairs)
		}
	})
}
