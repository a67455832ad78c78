package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

type obj = map[string]any

// orderd is a running replica.
type orderd struct{ *process }

// client calls one replica as one user and checks every answer against the contract. It may be used concurrently.
type client struct {
	t      testing.TB
	base   string
	token  string
	http   *http.Client
	faulty bool
}

// as returns a client for a user with scope orders.
func (o *orderd) as(t testing.TB, user string) *client {
	t.Helper()
	return o.with(t, mint(t, jwt.MapClaims{"sub": user, "scope": "orders"}))
}

// admin returns a client with the scopes orders and admin.
func (o *orderd) admin(t testing.TB) *client {
	t.Helper()
	return o.with(t, mint(t, jwt.MapClaims{"sub": "admin", "scope": "orders admin"}))
}

// with returns a client with any token; empty: no Authorization header.
func (o *orderd) with(t testing.TB, token string) *client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, base: o.url("api"), token: token, http: &http.Client{
		Transport: transport, Timeout: callLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// metric reads one series from the ops address, as /metrics writes it: `name{label="value"}`. A series that does not
// exist yet is 0.
func (o *orderd) metric(t testing.TB, series string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url("ops")+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Timeout: callLimit}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s, %v", resp.Status, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("%s: %v", series, err)
			}
			return n
		}
	}
	return 0
}

// mint signs claims with the service's secret. Unless given, aud is orderd and exp is in an hour.
func mint(t testing.TB, claims jwt.MapClaims) string {
	t.Helper()
	all := jwt.MapClaims{"aud": "orderd", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range claims {
		all[k] = v
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, all).SignedString([]byte(jwtSecret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// during returns the client for use while a fault lasts: 503 is an answer then. 500 never is.
func (c *client) during() *client {
	d := *c
	d.faulty = true
	return &d
}

// do calls the API and fails the test if there is no answer. body: nil, a string or []byte as it is, or anything to be
// written as JSON. header: "Name: value".
func (c *client) do(method, path string, body any, header ...string) answer {
	c.t.Helper()
	h := headers(header)
	return c.send(method, path, c.content(body, h), h)
}

// try is do for calls that may get no answer, because the server dies or the network is cut.
func (c *client) try(method, path string, body any, header ...string) (answer, error) {
	c.t.Helper()
	h := headers(header)
	return c.exchange(c.t.Context(), method, path, c.content(body, h), h)
}

func headers(lines []string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Set(name, strings.TrimSpace(value))
	}
	return h
}

func (c *client) content(body any, h http.Header) []byte {
	c.t.Helper()
	if body != nil && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	switch b := body.(type) {
	case nil:
		return nil
	case string:
		return []byte(b)
	case []byte:
		return b
	}
	data, err := json.Marshal(body)
	if err != nil {
		c.t.Errorf("marshal the body: %v", err)
	}
	return data
}

func (c *client) send(method, path string, body []byte, h http.Header) answer {
	c.t.Helper()
	a, err := c.exchange(c.t.Context(), method, path, body, h)
	if err != nil {
		c.t.Errorf("no answer: %v", err) // not Fatal: other goroutines than the test's call this too
	}
	return a
}

func (c *client) exchange(ctx context.Context, method, path string, body []byte, h http.Header) (answer, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header = h
	// Not sent: it lets the transport send again what a server closed an idle connection on, before it had read anything.
	req.Header["X-Idempotency-Key"] = nil
	if c.token != "" && h.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{Status: resp.StatusCode, Header: resp.Header, Body: data}
	if err := keepsContract(req, a); err != nil {
		c.t.Errorf("%s %s breaks the contract: %v\n%s", method, path, err, a)
	}
	if a.Status >= 500 && (!c.faulty || a.Status != http.StatusServiceUnavailable) {
		c.t.Errorf("%s %s: %s", method, path, a)
	}
	return a, nil
}

// answer is a response that was read to its end. Status is 0 if there was none.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a answer) String() string {
	return fmt.Sprintf("status %d %s", a.Status, lastLines(string(a.Body), 20))
}

// decode reads the body into v.
func (a answer) decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Errorf("read the answer: %v\n%s", err, a)
	}
}

// code is the error code of a problem, empty if it is none.
func (a answer) code() string {
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(a.Body, &problem)
	return problem.Code
}

// guard names the scheme that recognised a repeat.
func (a answer) guard() string { return a.Header.Get("Idempotency-Guard") }

// order reads the answer as an Order.
func (a answer) order(t testing.TB) orderView {
	t.Helper()
	var o orderView
	a.decode(t, &o)
	return o
}
