package main

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// An address that can no longer be served ends the service, instead of leaving the rest of it to look alive.
func TestLostListenerStopsTheService(t *testing.T) {
	t.Parallel()
	endpoints := make([]endpoint, 2)
	for i := range endpoints {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		endpoints[i] = endpoint{[]string{"api", "ops"}[i], &http.Server{}, l} //nolint:gosec // it serves nobody
	}
	serving, stop := open(t.Context(), endpoints)
	require.NoError(t, stop.Err())
	require.NoError(t, endpoints[1].listener.Close())
	<-stop.Done()
	require.NoError(t, endpoints[0].server.Close())
	require.ErrorContains(t, serving.Wait(), "ops: ")
}
