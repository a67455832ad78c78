package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listen serves b on a real socket, with the limits of production.
func listen(t *testing.T, b *bundle) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewHTTPServer(b, slog.New(slog.DiscardHandler))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

func dial(t *testing.T, addr, send string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, send)
	require.NoError(t, err)
	return c
}

// closedAfter returns what the server sent and how long it kept the connection.
func closedAfter(t *testing.T, c net.Conn) (string, time.Duration) {
	t.Helper()
	start := time.Now()
	require.NoError(t, c.SetReadDeadline(start.Add(10*time.Second)))
	answer, err := io.ReadAll(c)
	require.NoError(t, err, "the server did not close the connection")
	return string(answer), time.Since(start)
}

func TestSlowHeadIsCut(t *testing.T) {
	t.Parallel()
	addr := listen(t, setup(t))
	_, took := closedAfter(t, dial(t, addr, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "))
	assert.InDelta(t, 2, took.Seconds(), 0.8)
}

func TestStalledBodyIsCut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	addr := listen(t, b)
	token, err := b.auth.Mint("u1", []string{"orders"}, time.Hour)
	require.NoError(t, err)
	for name, head := range map[string]string{
		"read":    "POST /v1/orders HTTP/1.1\r\nAuthorization: Bearer " + token + "\r\n",
		"unread":  "POST /v1/orders HTTP/1.1\r\n", // refused before the body is read
		"unknown": "GET /nowhere HTTP/1.1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, took := closedAfter(t, dial(t, addr, head+"Host: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"))
			assert.LessOrEqual(t, took.Seconds(), 5.8)
			if name == "read" {
				assert.Contains(t, answer, "HTTP/1.1 400")
				assert.Contains(t, answer, "invalid_request")
			}
		})
	}
}

// TestSlowWorkIsNotCut: the time limit of the body must not end a handler that has read it.
func TestSlowWorkIsNotCut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.echo.POST("/slow", func(c echo.Context) error {
		if _, err := readBody(c); err != nil {
			return err
		}
		select {
		case <-c.Request().Context().Done():
			return c.Request().Context().Err()
		case <-time.After(bodyTimeout + time.Second):
			return c.NoContent(http.StatusNoContent)
		}
	})
	resp, err := http.Post("http://"+listen(t, b)+"/slow", "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, 204, resp.StatusCode)
}

func TestLargeHeadIs431(t *testing.T) {
	t.Parallel()
	addr := listen(t, setup(t))
	get := func(size int) string {
		c := dial(t, addr, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Large: "+strings.Repeat("x", size)+"\r\n\r\n")
		line, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(line)
	}
	assert.Equal(t, "HTTP/1.1 200 OK", get(15<<10))
	assert.Equal(t, "HTTP/1.1 431 Request Header Fields Too Large", get(17<<10))
	assert.Equal(t, "HTTP/1.1 431 Request Header Fields Too Large", get(20<<10))
}

func TestStreamedBodyIs413(t *testing.T) {
	t.Parallel()
	b := setup(t)
	addr := listen(t, b)
	token, err := b.auth.Mint("u1", []string{"orders"}, time.Hour)
	require.NoError(t, err)
	// Chunked: the length is not announced, and the stream has no end.
	c := dial(t, addr, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+token+
		"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	go func() {
		for {
			if _, err := fmt.Fprintf(c, "1000\r\n%s\r\n", strings.Repeat(" ", 4096)); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	assert.Equal(t, 413, resp.StatusCode)
	assert.True(t, resp.Close)
}

func TestMalformedHeadersOnTheWire(t *testing.T) {
	t.Parallel()
	addr := listen(t, setup(t))
	for name, line := range map[string]string{"NUL": "Idempotency-Key: a\x00b", "no colon": "Idempotency-Key", "space": "Idempotency-Key : a"} {
		c := dial(t, addr, "POST /v1/orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+line+"\r\n\r\n")
		answer, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		assert.Contains(t, answer, "400", name)
	}
}
