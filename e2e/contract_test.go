package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"orderd/api"
)

var contract = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.Spec)
	if err != nil {
		return nil, err
	}
	doc.Servers = nil // routing by host would know no test's port
	return gorillamux.NewRouter(doc)
})

// keepsContract checks an answer against api/openapi.yaml: status, headers, media type and schema.
func keepsContract(req *http.Request, a answer) error {
	router, err := contract()
	if err != nil {
		return err
	}
	if a.Header.Get("X-Request-ID") == "" {
		if a.Status == http.StatusBadRequest || a.Status == http.StatusRequestHeaderFieldsTooLarge {
			return nil // given by the HTTP server before there was a request
		}
		return errors.New("no X-Request-ID")
	}
	if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
		if a.Header.Get("Retry-After") == "" {
			return fmt.Errorf("status %d without Retry-After", a.Status)
		}
	}
	asked := req.Clone(context.Background())
	head := req.Method == http.MethodHead
	if head {
		asked.Method = http.MethodGet // the contract describes GET; HEAD is the same without a body
	}
	route, params, err := router.FindRoute(asked)
	if err != nil { // no such path, or not this method
		return outsideContract(req, a)
	}
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: route},
		Status:                 a.Status,
		Header:                 a.Header,
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true,
			MultiError:            true,
			ExcludeResponseBody:   head || (media != "" && !strings.HasSuffix(media, "json")),
		},
	}
	input.SetBodyBytes(a.Body)
	return openapi3filter.ValidateResponse(context.Background(), input)
}

func outsideContract(req *http.Request, a answer) error {
	if req.Method == http.MethodOptions && a.Status == http.StatusNoContent {
		if a.Header.Get("Allow") == "" {
			return errors.New("OPTIONS without Allow")
		}
		return nil
	}
	if a.Status == http.StatusMethodNotAllowed && a.Header.Get("Allow") == "" {
		return errors.New("405 without Allow")
	}
	if a.Status < 400 {
		return fmt.Errorf("%s %s is not in the contract, and works", req.Method, req.URL.Path)
	}
	if req.Method != http.MethodHead && !strings.HasPrefix(a.Header.Get("Content-Type"), "application/problem+json") {
		return fmt.Errorf("an error as %q", a.Header.Get("Content-Type"))
	}
	return nil
}
