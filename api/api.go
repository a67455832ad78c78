// Package api holds the HTTP contract of orderd. The server validates requests against it and builds its routes from it,
// so that the contract and the code cannot drift apart.
package api

import _ "embed"

// Spec is openapi.yaml (OpenAPI 3.0.3).
//
//go:embed openapi.yaml
var Spec []byte
