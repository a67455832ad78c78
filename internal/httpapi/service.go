package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/swaggest/swgui/v5emb"

	"orderd/api"
)

func (a *API) getHealth(r *request) error {
	return r.answer(http.StatusOK, map[string]string{"status": "alive"})
}

type readiness struct {
	Status string  `json:"status"`
	Checks []check `json:"checks"`
}

type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// getReadiness names each dependency; why one is down is for the log.
func (a *API) getReadiness(r *request) error {
	out := readiness{Status: "ready"}
	for _, c := range a.Ready(r.Request().Context()) {
		state := "up"
		if c.Err != nil {
			state = "down"
			if !c.Optional {
				out.Status = "unavailable"
			}
			a.Log.Warn("not ready", "dependency", c.Name, "error", c.Err)
		}
		out.Checks = append(out.Checks, check{Name: c.Name, Status: state})
	}
	if a.stopping.Load() {
		out.Status = "stopping"
	}
	if out.Status != "ready" {
		setRetryAfter(r.Response().Header(), time.Second)
		return r.answer(http.StatusServiceUnavailable, out)
	}
	return r.answer(http.StatusOK, out)
}

func (a *API) getSpec(r *request) error { return answerTagged(r, "application/yaml", api.Spec) }

var (
	inline = regexp.MustCompile(`(?s)<(script|style)>(.*?)</`)
	asset  = regexp.MustCompile(`/docs/[a-z0-9.-]+`)
)

// docs is the contract as a page for people. All of it is in the binary, so that it works without the internet.
type docs struct {
	html, policy string
	assets       []string // paths of what the page loads
	ui           http.Handler
}

// newDocs makes the page, which is always the same, and a policy that names its inline scripts and styles by their hashes.
func newDocs() *docs {
	ui := v5emb.New("orderd", "/openapi.yaml", "/docs")
	var made page
	ui.ServeHTTP(&made, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/docs"}})
	html := made.String()

	sources := map[string]string{}
	for _, m := range inline.FindAllStringSubmatch(html, -1) {
		sum := sha256.Sum256([]byte(m[2]))
		sources[m[1]] += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	policy := strings.Join([]string{
		"default-src 'none'", "script-src 'self'" + sources["script"], "style-src 'self'" + sources["style"],
		"img-src 'self' data:", "font-src 'self' data:", "connect-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
	return &docs{html: html, policy: policy, assets: asset.FindAllString(html, -1), ui: quoteTags(ui)}
}

func (d *docs) serve(r *request) error {
	r.Response().Header().Set(echo.HeaderContentSecurityPolicy, d.policy)
	return answerTagged(r, echo.MIMETextHTMLCharsetUTF8, []byte(d.html))
}

// quoteTags puts the ETags of assets in quotes, as RFC 9110, section 8.8.3, wants them, and takes the quotes off what clients
// send back: the library knows of none.
func quoteTags(assets http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Set("If-None-Match", strings.Trim(strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/"), `"`))
		assets.ServeHTTP(quoting{w}, r)
	})
}

type quoting struct{ http.ResponseWriter }

func (q quoting) WriteHeader(status int) {
	q.quote()
	q.ResponseWriter.WriteHeader(status)
}

func (q quoting) Write(b []byte) (int, error) {
	q.quote()
	return q.ResponseWriter.Write(b)
}

func (q quoting) quote() {
	if tag := q.Header().Get("ETag"); tag != "" && !strings.HasPrefix(tag, `"`) {
		q.Header().Set("ETag", `"`+tag+`"`)
	}
}

// page is a http.ResponseWriter that keeps what is written.
type page struct {
	strings.Builder
	header http.Header
}

func (p *page) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}

func (p *page) WriteHeader(int) {}
