package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bar is for people: a log or a pipe gets none.
func TestBar(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	require.NotNil(t, bar(console{err: terminal}))
	file, err := os.Create(t.TempDir() + "/log")
	require.NoError(t, err)
	defer file.Close()
	require.Nil(t, bar(console{err: file}))
	require.Nil(t, bar(console{err: &bytes.Buffer{}}))

	var drawn bytes.Buffer
	drawBar(&drawn, 1, 4)
	drawBar(&drawn, 4, 4)
	require.Equal(t, "\r[==========                              ] 1/4\r[========================================] 4/4\n", drawn.String())
}
