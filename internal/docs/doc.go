// Package docs keeps README.md and docs/ true to the code. Between the markers
//
//	<!-- code: internal/stock/move.go | func MoveTx | ^} -->
//	<!-- end -->
//
// stands what its test writes there: excerpts, links to tests, diagrams, lists of settings and metrics. The test fails
// when what stands there is no longer what the code says; `make generate` writes it anew.
package docs

//go:generate go test -run ^TestGeneratedPartsAreCurrent$ -count=1 . -update
