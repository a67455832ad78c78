package server

import (
	"bytes"
	"container/heap"
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"orderd/internal/payment/sandbox/wire"
)

const (
	callbackTimeout = 5 * time.Second
	longestGap      = time.Minute
)

// event is a callback that is owed until its receiver answers 2xx. Its id and body are the same at every try.
type event struct {
	ID        string     `json:"id"` // the webhook-id
	NotifyURL string     `json:"notify_url"`
	Payload   wire.Event `json:"payload"`

	end int64 // where its record ends in the journal
}

// delivery is an event in the queue.
type delivery struct {
	event
	due     time.Time
	tries   int
	held    bool // it was delayed or held back once; it is not hit by another fault
	waiting bool // held back until another event was sent
}

// sender delivers events: each when it is due, a bounded number at once.
type sender struct {
	server *Server
	key    []byte
	client *http.Client
	slots  chan struct{} // one for each delivery under way
	wake   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	queue   queue
	waiting bool // some in the queue are held back until another one was sent
}

func newSender(s *Server, key []byte) *sender {
	return &sender{
		server: s,
		key:    key,
		client: &http.Client{
			Timeout:       callbackTimeout,
			Transport:     &http.Transport{MaxIdleConnsPerHost: s.cfg.CallbackWorkers, IdleConnTimeout: 90 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots: make(chan struct{}, s.cfg.CallbackWorkers),
		wake:  make(chan struct{}, 1),
	}
}

func (d *sender) start() { d.done.Go(d.run) }

// wait returns when the server's context has ended and nothing is under way any more.
func (d *sender) wait() {
	d.done.Wait()
	d.client.CloseIdleConnections()
}

// add queues an event that is due now.
func (d *sender) add(e event) { d.push(&delivery{event: e, due: time.Now()}) }

// sendNow tries once, before it returns; if that fails the event is queued like any other.
func (d *sender) sendNow(ctx context.Context, e event) {
	it := &delivery{event: e, held: true}
	if d.attempt(ctx, it.event, "") {
		d.acknowledge(it.event)
		return
	}
	d.again(it)
}

func (d *sender) run() {
	for {
		it, wait := d.next()
		if it == nil {
			timer := time.NewTimer(wait)
			select {
			case <-d.server.ctx.Done():
				timer.Stop()
				return
			case <-d.wake:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		select {
		case <-d.server.ctx.Done():
			return
		case d.slots <- struct{}{}:
		}
		mode := ""
		if !it.held {
			mode = d.server.faults.draw("callback") // here, so that the draws are in the order of the queue
		}
		d.done.Go(func() {
			d.deliver(it, mode)
			<-d.slots
		})
	}
}

// next takes the first event that is due, or says how long nothing will be.
func (d *sender) next() (*delivery, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 {
		return nil, math.MaxInt64
	}
	if wait := time.Until(d.queue[0].due); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&d.queue).(*delivery), 0
}

func (d *sender) push(it *delivery) {
	d.mu.Lock()
	heap.Push(&d.queue, it)
	d.waiting = d.waiting || it.waiting
	d.mu.Unlock()
	d.rouse()
}

func (d *sender) rouse() {
	select {
	case d.wake <- struct{}{}:
	default: // it is awake already
	}
}

// deliver tries once, in the way that the faults demand, and queues the event again unless it is done with.
func (d *sender) deliver(it *delivery, mode string) {
	switch mode {
	case drop:
		d.acknowledge(it.event)
		return
	case delay, reorder:
		it.held, it.waiting = true, mode == reorder
		it.due = time.Now().Add(10 * d.server.cfg.CallbackBase)
		d.push(it)
		return
	}
	if d.attempt(d.server.ctx, it.event, mode) {
		d.acknowledge(it.event)
	} else {
		d.again(it)
	}
	d.release()
}

// again queues an event whose try failed: the gaps are the base, twice the base, ... up to a minute.
func (d *sender) again(it *delivery) {
	gap := longestGap
	if it.tries < 16 {
		gap = min(gap, d.server.cfg.CallbackBase<<it.tries)
	}
	it.tries++
	it.waiting = false
	it.due = time.Now().Add(gap)
	d.push(it)
}

// release lets the events go that were held back until another one was sent.
func (d *sender) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.waiting {
		return
	}
	d.waiting = false
	for _, it := range d.queue {
		if it.waiting {
			it.waiting, it.due = false, time.Now()
		}
	}
	heap.Init(&d.queue)
	d.rouse()
}

// acknowledge strikes the event off. If the process dies before, it is sent once more.
func (d *sender) acknowledge(e event) {
	d.server.mu.Lock()
	defer d.server.mu.Unlock()
	if err := d.server.commit(record{Acked: e.ID}); err != nil {
		d.server.cfg.Logger.Error("sandbox: journal", "error", err)
	}
}

// attempt sends the event once and reports whether it was acknowledged.
func (d *sender) attempt(ctx context.Context, e event, mode string) bool {
	// Nothing is told that the machine could still forget.
	if err := d.server.journal.sync(e.end); err != nil {
		d.server.cfg.Logger.Error("sandbox: journal", "error", err)
		return false
	}
	switch mode {
	case wrongAmount, wrongCurrency:
		d.post(ctx, lie(e, mode), "")
	case duplicate:
		var twin sync.WaitGroup
		twin.Go(func() { d.post(ctx, e, "") })
		defer twin.Wait()
	}
	return d.post(ctx, e, mode)
}

// lie is a message of its own that misreports what happened.
func lie(e event, mode string) event {
	e.ID = newID("msg_")
	switch data := &e.Payload.Data; {
	case mode == wrongAmount:
		data.Amount++
	case data.Currency == "USD":
		data.Currency = "EUR"
	default:
		data.Currency = "USD"
	}
	return e
}

// post sends one request, signed with a fresh timestamp, and reports whether the answer is 2xx.
func (d *sender) post(ctx context.Context, e event, mode string) bool {
	body, err := json.Marshal(e.Payload)
	if err != nil {
		d.server.cfg.Logger.Error("sandbox: callback", "error", err) // only by a defect of the types
		return false
	}
	at := d.server.now()
	if mode == oldTimestamp {
		at = at.Add(-time.Hour)
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	key := d.key
	if mode == badSignature {
		key = []byte("somebody else's key")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.NotifyURL, bytes.NewReader(body))
	if err != nil {
		d.server.cfg.Logger.Error("sandbox: callback", "error", err)
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "orderd-sandbox")
	req.Header.Set(wire.HeaderID, e.ID)
	req.Header.Set(wire.HeaderTimestamp, timestamp)
	req.Header.Set(wire.HeaderSignature, wire.Sign(key, e.ID, timestamp, body))
	log := d.server.cfg.Logger.With(slog.String("webhook_id", e.ID), slog.String("type", e.Payload.Type),
		slog.String("payment_no", e.Payload.Data.PaymentNo))
	res, err := d.client.Do(req)
	if err != nil {
		log.Debug("sandbox: callback not delivered", "error", err)
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxBody)) // so that the connection can be used again
	_ = res.Body.Close()
	log.Debug("sandbox: callback", "status", res.StatusCode)
	return res.StatusCode/100 == 2
}

// queue is a heap of deliveries, the one that is due first on top.
type queue []*delivery

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*delivery)) }
func (q *queue) Pop() any {
	old := *q
	it := old[len(old)-1]
	*q = old[:len(old)-1]
	return it
}
