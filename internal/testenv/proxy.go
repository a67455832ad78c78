package testenv

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of a server, with faults that are switched on and off while connections run through it.
type Proxy struct {
	Addr string // host:port to connect to

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	healed   chan struct{} // closed by Restore; nil unless in a black hole
	delay    time.Duration
	refuse   bool
	budget   int64 // bytes that may still pass when limited
	limited  bool
	requests cutRule
	answers  cutRule
	links    map[*link]struct{}
	cuts     int
}

// cutRule waits for the n-th request that contains match.
type cutRule struct {
	match []byte
	n     int
}

// link is one client's connection and its counterpart.
type link struct {
	client, server net.Conn
	cutAtAnswer    bool // the awaited request has passed: the answer must not
}

// NewProxy starts a proxy to target. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Restore()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Delay holds every chunk back by d, in both directions.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// BlackHole lets nothing through any more and leaves the connections open; new ones are accepted and hang too.
func (p *Proxy) BlackHole() {
	p.set(func() {
		if p.healed == nil {
			p.healed = make(chan struct{})
		}
	})
}

// Cut resets every connection. New ones work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		p.cuts++
		p.resetLocked(l)
	}
}

// Refuse resets every connection, also new ones, until Restore.
func (p *Proxy) Refuse() {
	p.set(func() { p.refuse = true })
	p.Cut()
}

// CloseAfterBytes resets the connection whose traffic exceeds n bytes from now on, counted over all connections and both
// directions. It happens once.
func (p *Proxy) CloseAfterBytes(n int64) { p.set(func() { p.budget, p.limited = n, true }) }

// CutBefore resets the connection on which the n-th request containing match is seen, without forwarding it: the server
// never got it. It happens once. A MySQL statement is sent as one readable chunk, so "COMMIT" is a usable match.
func (p *Proxy) CutBefore(match string, n int) {
	p.set(func() { p.requests = cutRule{[]byte(match), n} })
}

// CutAfter forwards the n-th request containing match and resets its connection when the server has answered, without
// forwarding the answer: it was done, and the client cannot know. It happens once.
func (p *Proxy) CutAfter(match string, n int) {
	p.set(func() { p.answers = cutRule{[]byte(match), n} })
}

// Cuts returns how many connections these faults have reset: a test of a fault that never happened proves nothing.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Restore switches every fault off. Connections that hung in a black hole go on.
func (p *Proxy) Restore() {
	p.set(func() {
		if p.healed != nil {
			close(p.healed)
			p.healed = nil
		}
		p.delay, p.refuse, p.limited = 0, false, false
		p.requests, p.answers = cutRule{}, cutRule{}
	})
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed by the test's end
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client}
	p.mu.Lock()
	p.links[l] = struct{}{}
	refuse := p.refuse
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	p.mu.Lock()
	if err != nil || refuse {
		p.resetLocked(l)
	}
	if _, alive := p.links[l]; !alive {
		p.mu.Unlock()
		if server != nil {
			_ = server.Close()
		}
		return
	}
	l.server = server
	p.mu.Unlock()

	p.running.Go(func() { p.copy(l, server, client, p.allowAnswer) })
	p.copy(l, client, server, p.allowRequest)
}

// copy forwards chunks until either side ends or a fault cuts the link.
func (p *Proxy) copy(l *link, from, to net.Conn, allow func(*link, []byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.hold()
			p.mu.Lock()
			pass := allow(l, buf[:n]) && p.withinBudgetLocked(n)
			p.mu.Unlock()
			if !pass {
				break
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetLocked(l)
}

// hold waits out the delay and the black hole.
func (p *Proxy) hold() {
	p.mu.Lock()
	delay, healed := p.delay, p.healed
	p.mu.Unlock()
	if delay > 0 {
		<-time.After(delay)
	}
	if healed != nil {
		<-healed
	}
}

func (p *Proxy) allowRequest(l *link, chunk []byte) bool {
	if p.requests.hit(chunk) {
		p.cuts++
		return false
	}
	if p.answers.hit(chunk) {
		l.cutAtAnswer = true
	}
	return true
}

func (p *Proxy) allowAnswer(l *link, _ []byte) bool {
	if l.cutAtAnswer {
		p.cuts++
	}
	return !l.cutAtAnswer
}

func (p *Proxy) withinBudgetLocked(n int) bool {
	if !p.limited {
		return true
	}
	if p.budget -= int64(n); p.budget >= 0 {
		return true
	}
	p.limited = false
	p.cuts++
	return false
}

func (r *cutRule) hit(chunk []byte) bool {
	if r.n == 0 || !bytes.Contains(chunk, r.match) {
		return false
	}
	r.n--
	return r.n == 0
}

// resetLocked closes both sides with RST instead of FIN: the peers see "connection reset", as after a crash.
func (p *Proxy) resetLocked(l *link) {
	if _, alive := p.links[l]; !alive {
		return
	}
	delete(p.links, l)
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}
