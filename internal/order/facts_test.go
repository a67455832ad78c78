package order

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// However many payments come by, the newest are known, and no more than so many are kept.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m memory
	for i := range 3 * remembered {
		m.note(strconv.Itoa(i), facts{amount: int64(i)})
		require.LessOrEqual(t, len(m.newer)+len(m.rest), remembered)
		for _, ago := range []int{0, remembered/2 - 1} {
			if i >= ago {
				f, ok := m.get(strconv.Itoa(i - ago))
				require.True(t, ok)
				require.EqualValues(t, i-ago, f.amount)
			}
		}
	}
	_, ok := m.get("0")
	require.False(t, ok)
}
