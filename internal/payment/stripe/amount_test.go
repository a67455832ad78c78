package stripe

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/bojanz/currency"
	"github.com/stretchr/testify/require"
)

func TestAmounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code          string
		minor, stripe int64 // stripe 0: cannot be expressed
	}{
		{"USD", 1299, 1299}, {"CNY", 1, 1}, {"HUF", 1299, 1299}, {"TWD", 1299, 1299}, // their special cases are about payouts
		{"JPY", 500, 500}, {"KRW", 1, 1}, {"VND", 20000, 20000}, {"CLP", 990, 990}, {"XPF", 7, 7},
		{"ISK", 5, 500}, {"ISK", math.MaxInt64/100 + 1, 0}, {"ISK", math.MaxInt64 / 100, math.MaxInt64 / 100 * 100},
		{"MGA", 500, 5}, {"MGA", 501, 0}, {"MGA", 20, 0},
		{"KWD", 5120, 5120}, {"KWD", 5124, 0}, {"BHD", 10, 10}, {"TND", 9, 0},
		{"IQD", 1000, 0}, {"LYD", 1000, 0}, {"UGX", 1000, 0}, {"UYI", 1, 0}, {"CLF", 10000, 0}, {"UYW", 10000, 0},
		{"XXX", 1, 0}, {"usd", 1, 0}, {"", 1, 0}, {"USD", 0, 0}, {"USD", -1, 0}, {"USD", math.MaxInt64, math.MaxInt64},
	} {
		got, err := toStripe(c.minor, c.code)
		require.Equal(t, c.stripe == 0, err != nil, "%d %s: %v", c.minor, c.code, err)
		require.Equal(t, c.stripe, got, "%d %s", c.minor, c.code)
		if err == nil {
			minor, code, err := fromStripe(got, strings.ToLower(c.code))
			require.NoError(t, err)
			require.Equal(t, []any{c.minor, c.code}, []any{minor, code})
		}
	}
	for _, c := range []struct {
		amount int64
		code   string
	}{{501, "isk"}, {math.MaxInt64, "mga"}, {0, "usd"}, {-1, "usd"}, {1, "USD"}, {1, "ugx"}, {1, ""}, {1, "xxx"}} {
		_, _, err := fromStripe(c.amount, c.code)
		require.Error(t, err, "%d %s", c.amount, c.code)
	}
}

// Every currency either is refused or goes there and back as it was.
func TestEveryCurrency(t *testing.T) {
	t.Parallel()
	for _, code := range currency.GetCurrencyCodes() {
		for _, minor := range []int64{1, 10, 99, 100, 1000, 123456789, math.MaxInt64} {
			amount, err := toStripe(minor, code)
			if err != nil {
				continue
			}
			back, same, err := fromStripe(amount, strings.ToLower(code))
			require.NoError(t, err, code)
			require.Equal(t, []any{minor, code}, []any{back, same})
		}
		_, err := toStripe(100_000, code)
		require.Equal(t, slices.Contains(taken, code), err == nil, code)
	}
	for _, code := range taken {
		require.True(t, currency.IsValid(code), code)
	}
}
