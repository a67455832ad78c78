package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// answerTime is how long an answer may take.
const answerTime = 30 * time.Second

// conn is an HTTP/1.1 client on one connection that stays open. net/http would take as much of the two cores as what is
// measured; this reads what orderd sends, and fails on anything else.
type conn struct {
	addr string
	tcp  net.Conn
	in   *bufio.Reader
	body []byte
}

// reply is an answer. Its body is valid until the next one.
type reply struct {
	status     int
	retryAfter int // seconds; 0: there was none
	replayed   bool
	body       []byte
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, bytes.TrimSpace(r.body)) }

func (c *conn) close() {
	if c.tcp != nil {
		c.tcp.Close()
		c.tcp = nil
	}
}

// roundTrip sends a whole request and reads the answer to its end.
func (c *conn) roundTrip(request []byte) (reply, error) {
	if c.tcp == nil {
		var err error
		if c.tcp, err = net.DialTimeout("tcp", c.addr, answerTime); err != nil {
			return reply{}, err
		}
		c.in = bufio.NewReaderSize(c.tcp, 4<<10)
	}
	if err := c.tcp.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return reply{}, err
	}
	if _, err := c.tcp.Write(request); err != nil {
		return reply{}, err
	}
	return c.read()
}

func (c *conn) read() (r reply, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return r, err
	}
	if len(line) < len("HTTP/1.1 200\r\n") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return r, fmt.Errorf("%q is no answer", line)
	}
	if r.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return r, fmt.Errorf("%q is no answer", line)
	}
	length, last := -1, false
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return r, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) { // as net/http spells them
		case "Content-Length":
			length, err = strconv.Atoi(string(value))
		case "Retry-After":
			r.retryAfter, err = strconv.Atoi(string(value))
		case "Idempotent-Replayed":
			r.replayed = string(value) == "true"
		case "Connection":
			last = string(value) == "close"
		}
		if err != nil {
			return r, fmt.Errorf("header %q: %w", line, err)
		}
	}
	if length < 0 {
		return r, fmt.Errorf("an answer of status %d without Content-Length", r.status)
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	r.body = c.body[:length]
	if _, err = io.ReadFull(c.in, r.body); err == nil && last {
		c.close()
	}
	return r, err
}
