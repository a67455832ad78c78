package server

import (
	"net/http"
	"slices"
	"strconv"

	"orderd/internal/payment/sandbox/wire"
)

// entry is the next ledger entry, of amount minor units in the currency that was received. The caller holds s.mu and
// commits it together with the change that moves the money.
func (s *Server) entry(kind string, c charge, refundNo string, amount int64) *wire.LedgerEntry {
	return &wire.LedgerEntry{
		Seq: int64(len(s.ledger)) + 1, Kind: kind, PaymentNo: c.Request.PaymentNo, RefundNo: refundNo,
		TransactionID: c.TransactionID, Amount: amount, Currency: c.ReceivedCurrency, At: s.now(),
	}
}

// getLedger answers all movements of money after the given seq, in order; ?limit= cuts the answer short.
func (s *Server) getLedger(r *http.Request, _ []byte, _ string) answer {
	after, limit := int64(0), int64(0)
	for name, into := range map[string]*int64{"after": &after, "limit": &limit} {
		if value := r.URL.Query().Get(name); value != "" {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				return problem(http.StatusBadRequest, "invalid_request", name+" must be a number")
			}
			*into = n
		}
	}
	s.mu.Lock()
	entries := s.ledger[min(after, int64(len(s.ledger))):]
	if limit > 0 {
		entries = entries[:min(limit, int64(len(entries)))]
	}
	entries = slices.Clone(entries)
	s.mu.Unlock()
	if err := s.journal.syncAll(); err != nil {
		return s.failed(err)
	}
	return answer{http.StatusOK, wire.Ledger{Entries: append([]wire.LedgerEntry{}, entries...)}}
}
