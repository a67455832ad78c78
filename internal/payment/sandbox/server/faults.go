package server

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"orderd/internal/payment/sandbox/wire"
)

// Modes of faults. On charge, query, close and refund:
const (
	timeoutBefore    = "timeout_before"     // nothing is done, and the answer never comes
	timeoutAfter     = "timeout_after"      // it is done, and the answer never comes
	errorBefore      = "error_before"       // 500, nothing is done
	errorAfter       = "error_after"        // 500, though it is done
	slow             = "slow"               // it is done, the answer takes Config.SlowFor longer
	garbage          = "garbage"            // it is done, the answer is 200 and no JSON
	decline          = "decline"            // a new charge (201) or refund is FAILED
	staleQuery       = "stale_query"        // the answer is PENDING whatever has become of it
	closedButPayable = "closed_but_payable" // close answers CLOSED, the shopper can still pay
)

// On callback. Each but before_response is drawn for every try.
const (
	drop           = "drop"            // the callback is lost for ever
	delay          = "delay"           // it is sent ten times Config.CallbackBase later
	duplicate      = "duplicate"       // it is sent twice at once
	reorder        = "reorder"         // it is held back until another one was sent, or as long as by delay
	beforeResponse = "before_response" // paid (or refunded) at once, and reported before the merchant has its answer
	wrongAmount    = "wrong_amount"    // another message, which lies, goes before it
	wrongCurrency  = "wrong_currency"  // another message, which lies, goes before it
	badSignature   = "bad_signature"   // this try is not signed by us
	oldTimestamp   = "old_timestamp"   // this try is signed an hour ago
)

var everyCall = []string{timeoutBefore, timeoutAfter, errorBefore, errorAfter, slow, garbage}

var modes = map[string][]string{
	"charge":   append([]string{decline}, everyCall...),
	"query":    append([]string{staleQuery}, everyCall...),
	"close":    append([]string{closedButPayable}, everyCall...),
	"refund":   append([]string{decline}, everyCall...),
	"callback": {drop, delay, duplicate, reorder, beforeResponse, wrongAmount, wrongCurrency, badSignature, oldTimestamp},
}

// faults decides which call goes wrong. The zero value lets everything go right.
type faults struct {
	mu    sync.Mutex
	rules []*faultRule
}

type faultRule struct {
	on, mode string
	rate     float64
	left     int // how often it may still fire; negative: no limit
	random   *rand.Rand
}

// draw returns the mode of the first rule for this point that fires, or "".
func (f *faults) draw(on string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.on == on && r.left != 0 && r.random.Float64() < r.rate {
			r.left--
			return r.mode
		}
	}
	return ""
}

// set replaces all rules.
func (f *faults) set(in wire.Faults) error {
	rules := make([]*faultRule, 0, len(in.Rules))
	for i, r := range in.Rules {
		rate := 1.0
		if r.Rate != nil {
			rate = *r.Rate
		}
		if !slices.Contains(modes[r.On], r.Mode) || !(rate >= 0 && rate <= 1) || r.Times < 0 {
			return fmt.Errorf("rules[%d]: no such mode there, a rate outside 0..1 or negative times", i)
		}
		on, left := r.On, r.Times
		if r.Mode == beforeResponse {
			on = beforeResponse // it is drawn while the call is answered, not when the callback is sent
		}
		if left == 0 {
			left = -1
		}
		rules = append(rules, &faultRule{on: on, mode: r.Mode, rate: rate, left: left, random: rand.New(rand.NewPCG(in.Seed, uint64(i)))})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = rules
	return nil
}

// putFaults replaces the faults. They are not kept over a restart.
func (s *Server) putFaults(r *http.Request, body []byte, _ string) answer {
	var in wire.Faults
	if refusal, ok := decode(r, body, &in); !ok {
		return refusal
	}
	if err := s.faults.set(in); err != nil {
		return problem(http.StatusUnprocessableEntity, "validation_failed", err.Error())
	}
	return answer{http.StatusOK, in}
}
