package main

import (
	"context"
	"errors"
	"io"
)

func growth(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return errors.New("later")
}
