package signed

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"orderd/internal/fault"
)

// MaxAnswer is the most that an answer may have, in bytes.
const MaxAnswer = 1 << 20

// NewClient returns a client that keeps connections alive and follows no redirects: a redirect would take a signed request
// elsewhere. Deadlines come from the context alone.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           64,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        90 * time.Second,
			TLSHandshakeTimeout:    2 * time.Second,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Do sends a request and reads the whole answer. Whether to believe it is for the caller to find out.
func Do(c *http.Client, req *http.Request) (status int, header http.Header, body []byte, err error) {
	res, err := c.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	if err != nil {
		return 0, nil, nil, err
	}
	if len(body) > MaxAnswer {
		return 0, nil, nil, fmt.Errorf("the answer is longer than %d bytes", MaxAnswer)
	}
	return res.StatusCode, res.Header, body, nil
}

// HTTPURL reports whether s is an absolute http or https URL without query and fragment, of at most 256 bytes: both companies'
// limit for notify_url.
func HTTPURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && len(s) <= 256 && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == ""
}

// Status is the HTTP status by which a refused callback is answered: neither company takes any of them for a receipt, and
// both send the callback again.
func Status(err error) int {
	f := fault.As(err)
	if f == nil {
		return http.StatusInternalServerError
	}
	switch f.Kind {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.Forbidden:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
