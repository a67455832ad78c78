package docs

import (
	"fmt"
	"strings"
)

// scheme is one row of README's table.
type scheme struct {
	name, page     string
	catches        string
	file, line     string // where it lives: the one line that has this text
	test, testName string // the test that shows it
}

const live = "internal/httpapi/live_test.go"

var eight = []scheme{
	{"Server-issued token", "token", "a form that is sent again", "internal/idem/token.go", "var takeScript", "internal/idem/token_test.go", "TestTokenIsFirstOnce"},
	{"Idempotency-Key", "idempotency-key", "a retry of the same intention", "internal/idem/key.go", "func BindTx", live, "TestPlaceAndReplay"},
	{"Repeat window", "repeat-window", "a double click without any identity", "internal/idem/window.go", "func (w *Windows) Claim", live, "TestDoubleClick"},
	{"Unique index", "unique-index", "a second insert, whatever else failed", "migrations/mysql/00001_orders.sql", "UNIQUE KEY uk_order_no", "internal/order/place_test.go", "TestTwinsAndTheLastUnit"},
	{"Optimistic lock", "optimistic-lock", "a decision on numbers that have changed", "internal/stock/move.go", "func MoveTx", "internal/stock/stock_test.go", "TestConcurrentReservationsNeverOversell"},
	{"State machine", "state-machine", "a step that may not follow, or a lost race", "internal/fsm/tables.go", "var Orders =", "e2e/races_test.go", "TestRaces"},
	{"Message table", "message-table", "a callback or message that comes again", "internal/msg/inbox.go", "func ReceiveTx", live, "TestCallbacks"},
	{"Distributed lock", "distributed-lock", "twins at work at the same time (saves work, decides nothing)", "internal/idem/lock.go", "func (l *Locker) Acquire", "e2e/races_test.go", "TestRacesWithoutRedis"},
}

func schemes(p place) (string, error) {
	var out strings.Builder
	out.WriteString("| scheme | catches | code | test |\n|---|---|---|---|\n")
	for _, s := range eight {
		lines, err := readLines(s.file)
		if err != nil {
			return "", err
		}
		at, err := theLine(lines, s.line)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s.file, err)
		}
		test, _, err := findTest(s.test, s.testName)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", p.to(s.name, "docs/"+s.page+".md"), s.catches,
			p.to(s.file, s.file, at+1), p.to("`"+s.testName+"`", s.test, test))
	}
	return out.String(), nil
}
