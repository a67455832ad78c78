package httpapi

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/api"
)

const threeItems = `{"order_no":"shop-2026-000042","items":[{"sku":"TEA-250","quantity":2},{"sku":"CUP-1","quantity":1},{"sku":"POT-7","quantity":1}],"note":"leave it at the door"}`

// BenchmarkDecode is what the strict reading and the contract cost: parse, validate, decode.
func BenchmarkDecode(b *testing.B) {
	ops, err := readContract(api.Spec)
	require.NoError(b, err)
	var place *operation
	for _, op := range ops {
		if op.id == "placeOrder" {
			place = op
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		var f findings
		r := &request{op: place, body: []byte(threeItems)}
		doc, _ := parseJSON(r.body, &f)
		f.addBody(place.body, doc)
		checkPlaceOrder(doc, &f)
		var in placeOrder
		if f.err() != nil || r.decode(&in) != nil || len(in.Items) != 3 {
			b.Fatal(f.fields)
		}
	}
}

// BenchmarkRefusedRequest is a whole request up to the use case: token, limits, contract, problem, metric, log.
func BenchmarkRefusedRequest(b *testing.B) {
	edge := setup(b)
	as := edge.as("u1", "orders")
	body := strings.Replace(threeItems, `"quantity":2`, `"quantity":0`, 1)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		as(r)
		w := httptest.NewRecorder()
		edge.ServeHTTP(w, r)
		if w.Code != 422 {
			b.Fatal(w.Code)
		}
	}
}
