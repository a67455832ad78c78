package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"testing"
	"time"
)

// sandbox is the payment gateway: a process of its own that no test kills, because its ledger is the second opinion.
type sandbox struct {
	url string
}

// ledgerEntry is one movement of money in the gateway's books.
type ledgerEntry struct {
	Seq           int64  `json:"seq"`
	Kind          string `json:"kind"` // charge or refund
	PaymentNo     string `json:"payment_no"`
	RefundNo      string `json:"refund_no"`
	TransactionID string `json:"transaction_id"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
}

// rule makes the sandbox misbehave. Rate 1 and Times n: the next n calls.
type rule struct {
	On    string  `json:"on"` // charge, query, close, refund or callback
	Mode  string  `json:"mode"`
	Rate  float64 `json:"rate"`
	Times int     `json:"times,omitempty"`
}

func startSandbox(t testing.TB, e *env) *sandbox {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	vars := maps.Clone(e.vars)
	vars["ORDERD_SANDBOX_ADDR"], vars["ORDERD_DATA_DIR"] = "127.0.0.1:0", t.TempDir()
	p := launch(t, &process{
		name: "orderd sandbox", path: path, args: []string{"sandbox"}, vars: vars, want: []string{"sandbox"},
	})
	return &sandbox{url: p.url("sandbox")}
}

// do calls the sandbox; the answer's status must be one of want.
func (s *sandbox) do(t testing.TB, method, path string, body any, want ...int) answer {
	t.Helper()
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, &content)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+sandboxAPIKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: callLimit}).Do(req)
	if err != nil {
		t.Errorf("sandbox %s %s: %v", method, path, err)
		return answer{}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	a := answer{Status: resp.StatusCode, Header: resp.Header, Body: data}
	for _, status := range want {
		if err == nil && a.Status == status {
			return a
		}
	}
	t.Errorf("sandbox %s %s: %v, %s; want status %v", method, path, err, a, want)
	return a
}

// pay plays the shopper who pays what is asked. The callback follows.
func (s *sandbox) pay(t testing.TB, paymentNo string) {
	t.Helper()
	s.payAs(t, paymentNo, obj{"outcome": "succeeded"})
}

// payAs plays any shopper: outcome succeeded or failed, and another amount or currency.
func (s *sandbox) payAs(t testing.TB, paymentNo string, how obj) answer {
	t.Helper()
	return s.do(t, http.MethodPost, "/v1/charges/"+paymentNo+"/pay", how, 200, 201, 202, 204)
}

// ledger returns everything that moved money, in order.
func (s *sandbox) ledger(t testing.TB) []ledgerEntry {
	t.Helper()
	var all []ledgerEntry
	for after := int64(0); ; {
		var page struct {
			Entries []ledgerEntry `json:"entries"`
		}
		s.do(t, http.MethodGet, fmt.Sprintf("/v1/ledger?after=%d", after), nil, 200).decode(t, &page)
		if len(page.Entries) == 0 {
			return all
		}
		all = append(all, page.Entries...)
		after = page.Entries[len(page.Entries)-1].Seq
	}
}

// faults replaces the fault rules; none means healed. The seed makes rates below 1 repeatable.
func (s *sandbox) faults(t testing.TB, seed int64, rules ...rule) {
	t.Helper()
	s.do(t, http.MethodPut, "/v1/faults", obj{"seed": seed, "rules": append([]rule{}, rules...)}, 200, 204)
}

// heal removes all fault rules.
func (s *sandbox) heal(t testing.TB) {
	t.Helper()
	s.faults(t, 1)
}

const callLimit = 20 * time.Second
