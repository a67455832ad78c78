package main

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An address that can no longer be served ends the context that the service runs under.
func TestLostListenerEndsTheContext(t *testing.T) {
	t.Parallel()
	endpoints := make([]endpoint, 2)
	for i := range endpoints {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		endpoints[i] = endpoint{[]string{"api", "ops"}[i], &http.Server{}, l} //nolint:gosec // it serves nobody
	}
	serving, stop := open(t.Context(), endpoints)
	require.NoError(t, endpoints[1].listener.Close())
	select {
	case <-stop.Done():
	case <-time.After(time.Minute):
		t.Fatal("it goes on without one of its addresses")
	}
	require.ErrorContains(t, context.Cause(stop), "ops: ")
	require.NoError(t, endpoints[0].server.Close())
	require.ErrorContains(t, serving.Wait(), "ops: ")
}
