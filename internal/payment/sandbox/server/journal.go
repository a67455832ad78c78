package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"orderd/internal/payment/sandbox/wire"
)

// record is one line of the journal: everything that one change changed, so that a crash keeps all of it or nothing.
type record struct {
	Charge *charge           `json:"charge,omitzero"` // as it is from now on
	Refund *refund           `json:"refund,omitzero"` // as it is from now on
	Ledger *wire.LedgerEntry `json:"ledger,omitzero"` // money moved
	Event  *event            `json:"event,omitzero"`  // a callback is owed
	Acked  string            `json:"acked,omitzero"`  // the callback with this webhook-id is owed no longer
}

// journal is an append-only file of JSON lines. Positions are file offsets: the end of a record's line.
type journal struct {
	file *os.File // nil: memory only

	mu     sync.Mutex
	size   int64
	broken error // set when the file's end is unsure: nothing may follow it

	syncing sync.Mutex // one fsync at a time; whoever waits meanwhile is covered by the next
	synced  atomic.Int64
}

// openJournal replays the file at path through apply. A last line that is cut short or unreadable is what a crash left:
// nobody got an answer for it, and it is removed. An unreadable line before the last is an error.
func openJournal(path string, apply func(r record, end int64)) (*journal, error) {
	if path == "" {
		return &journal{}, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file}
	if err := j.load(path, apply); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return j, nil
}

func (j *journal) load(path string, apply func(r record, end int64)) error {
	if err := lock(j.file); err != nil {
		return err
	}
	// A file that is not understood is left as it is.
	if err := j.replay(apply); err != nil {
		return err
	}
	if err := errors.Join(j.file.Truncate(j.size), j.file.Sync(), syncDir(path)); err != nil {
		return err
	}
	j.synced.Store(j.size)
	return nil
}

func (j *journal) replay(apply func(r record, end int64)) error {
	in := bufio.NewReaderSize(j.file, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // with or without the beginning of a line
		}
		if err != nil {
			return err
		}
		var r record
		if err := json.Unmarshal(bytes.TrimSpace(line), &r); err != nil {
			if _, more := in.Peek(1); errors.Is(more, io.EOF) {
				return nil
			}
			return fmt.Errorf("line %d: %w", n, err)
		}
		j.size += int64(len(line))
		apply(r, j.size)
	}
}

// append writes the record and returns its position. It survives the end of the process, but the machine's only after
// sync. On an error the file is as before.
func (j *journal) append(r record) (end int64, err error) {
	line, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return 0, j.broken
	}
	if j.file != nil {
		if _, err := j.file.WriteAt(line, j.size); err != nil {
			// Half a line may be there; it must go before another one follows.
			if errTruncate := j.file.Truncate(j.size); errTruncate != nil {
				j.broken = errors.Join(err, errTruncate)
			}
			return 0, err
		}
	}
	j.size += int64(len(line))
	return j.size, nil
}

// sync returns when everything up to end is on disk.
func (j *journal) sync(end int64) error {
	if j.file == nil || end <= j.synced.Load() {
		return nil
	}
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if end <= j.synced.Load() {
		return nil
	}
	j.mu.Lock()
	size, broken := j.size, j.broken
	j.mu.Unlock()
	if broken != nil {
		return broken
	}
	if err := j.file.Sync(); err != nil {
		// The kernel may have dropped the pages: a second fsync would succeed and lie.
		j.mu.Lock()
		defer j.mu.Unlock()
		j.broken = err
		return err
	}
	j.synced.Store(size)
	return nil
}

// syncAll returns when everything written so far is on disk.
func (j *journal) syncAll() error {
	j.mu.Lock()
	size := j.size
	j.mu.Unlock()
	return j.sync(size)
}

// close makes everything durable; later appends fail.
func (j *journal) close() error {
	err := j.syncAll()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken = os.ErrClosed
	}
	if j.file == nil {
		return err
	}
	return errors.Join(err, j.file.Close())
}

// syncDir makes a new file's name durable.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// commit journals the record and changes the state accordingly. The caller holds s.mu.
func (s *Server) commit(r record) error {
	end, err := s.journal.append(r)
	if err != nil {
		return err
	}
	s.apply(r, end)
	return nil
}

// apply changes the state by a record that ends at this position of the journal.
func (s *Server) apply(r record, end int64) {
	if r.Charge != nil {
		r.Charge.end = end
		s.charges[r.Charge.Request.PaymentNo] = *r.Charge
	}
	if r.Refund != nil {
		r.Refund.end = end
		s.refunds[r.Refund.Request.RefundNo] = *r.Refund
	}
	if r.Ledger != nil {
		s.ledger = append(s.ledger, *r.Ledger)
	}
	if r.Event != nil {
		r.Event.end = end
		s.unacked[r.Event.ID] = *r.Event
	}
	delete(s.unacked, r.Acked)
}
