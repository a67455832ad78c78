package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// maxHead is the most that a request's head may have, in bytes.
const maxHead = 16 << 10

// slop is what net/http adds to MaxHeaderBytes.
const slop = 4096

// NewHTTPServer returns a server with the limits that keep slow and greedy clients from holding it up: a head within 2 s
// and 16 KiB (else closed, 431), an answer within 15 s, 60 s of idling. The 5 s for a body start with the request; see
// limitBody.
func NewHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 2 * time.Second,
		MaxHeaderBytes:    maxHead - slop,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       60 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
