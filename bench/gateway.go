package main

import (
	"errors"
	"log/slog"
	"net"
	"net/http"

	sandbox "orderd/internal/payment/sandbox/server"
)

// gateway is the sandbox gateway in this process, in memory. Its own callbacks are never due: the clients send them.
type gateway struct {
	url    string
	books  *sandbox.Server
	http   *http.Server
	served chan error
}

func startGateway() (*gateway, error) {
	books, err := sandbox.New(sandbox.Config{MerchantID: merchantID, APIKey: apiKey, WebhookSecret: webhookSecret, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, books.Close())
	}
	g := &gateway{url: "http://" + l.Addr().String(), books: books, http: &http.Server{Handler: books.Handler()}, served: make(chan error, 1)}
	go func() { g.served <- g.http.Serve(l) }()
	return g, nil
}

func (g *gateway) stop() error {
	err := errors.Join(g.books.Close(), g.http.Close())
	if served := <-g.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
