package alipay

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0.01": 1, "0.1": 10, "1": 100, "1.15": 115, "12.99": 1299, "20": 2000, "88.88": 8888, "1.1": 110, "0.29": 29, "4.35": 435, "100000000.00": maxAmount,
	} {
		got, err := fen(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "0", "0.0", "0.00", "-1", "+1", " 1", "1 ", "1\n", ".5", "1.", ".", "00", "01", "00.01", "1.234", "1.000", "1,00", "1e2", "0x1", "1_000", "NaN", "Inf", "١",
		"100000000.01", "1000000000", "99999999999999999999", "1.2.3", "1.2-", "12.9９",
	} {
		_, err := fen(text)
		require.Error(t, err, text)
	}
	for _, n := range []int64{1, 9, 10, 99, 100, 101, 1299, maxAmount} {
		got, err := fen(yuan(n))
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
}

// FuzzFen: what is accepted is exactly the number that it says, and survives the way back.
func FuzzFen(f *testing.F) {
	for _, s := range []string{"12.99", "0.01", "20", "1.5", "-1", "1e9", "1.234"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := fen(s)
		if err != nil {
			return
		}
		says, ok := new(big.Rat).SetString(s)
		if !ok || says.Cmp(big.NewRat(n, 100)) != 0 || n <= 0 || n > maxAmount {
			t.Fatalf("%q was read as %d", s, n)
		}
		if again, err := fen(yuan(n)); err != nil || again != n {
			t.Fatalf("%d went out as %q and came back as %d", n, yuan(n), again)
		}
	})
}
