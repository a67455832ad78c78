// Passes walks by a failpoint three times and prints a line after each.
package main

import (
	"fmt"

	"orderd/internal/failpoint"
)

func main() {
	for i := range 3 {
		failpoint.Here("loop.pass")
		failpoint.Here("loop", ".other")
		fmt.Println(i + 1)
	}
}

// Marked and Bare must compile to the same code when there are no failpoints.
//
//go:noinline
func Marked(i int) int {
	failpoint.Here("loop.marked")
	return i + 1
}

//go:noinline
func Bare(i int) int {
	return i + 1
}
