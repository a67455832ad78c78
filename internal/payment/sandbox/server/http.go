package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"time"

	"github.com/go-json-experiment/json"

	"orderd/internal/payment/sandbox/wire"
)

const maxBody = 64 << 10 // bytes

var numberForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// answer is a status and the JSON that goes with it.
type answer struct {
	status int
	body   any
}

func problem(status int, code, detail string) answer {
	return answer{status, wire.Problem{Title: http.StatusText(status), Status: status, Detail: detail, Code: code}}
}

// api serves one call of the merchant's: key, body, then the faults that are due at this point ("": none).
func (s *Server) api(on string, call func(r *http.Request, body []byte, mode string) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hash := sha256.Sum256([]byte(r.Header.Get("Authorization"))) // equal lengths, so that the time tells nothing
		if subtle.ConstantTimeCompare(hash[:], s.keyHash[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.write(w, problem(http.StatusUnauthorized, "unauthenticated", "the API key is missing or wrong"))
			return
		}
		// Read before anything else: net/http notices a caller that hangs up only after the body's end.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			s.write(w, problem(http.StatusRequestEntityTooLarge, "payload_too_large", "a body has at most 64 KiB"))
			return
		} else if err != nil {
			s.write(w, problem(http.StatusBadRequest, "invalid_request", "the body could not be read"))
			return
		}
		mode := s.faults.draw(on)
		switch mode {
		case timeoutBefore:
			s.hang(r)
		case errorBefore:
			s.write(w, problem(http.StatusInternalServerError, "internal", "nothing was done"))
			return
		}
		a := call(r, body, mode)
		switch mode {
		case timeoutAfter:
			s.hang(r)
		case errorAfter:
			a = problem(http.StatusInternalServerError, "internal", "it was done")
		case slow:
			s.pause(r, s.cfg.SlowFor)
		case garbage:
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html><body>502 {\"status\":\"SUCCEEDED\"")
			return
		}
		s.write(w, a)
	})
}

func (s *Server) write(w http.ResponseWriter, a answer) {
	contentType := "application/json"
	if _, ok := a.body.(wire.Problem); ok {
		contentType = "application/problem+json"
	}
	body, err := json.Marshal(a.body)
	if err != nil { // only by a defect of the types
		s.cfg.Logger.Error("sandbox: answer", "error", err)
		a.status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // a caller who is gone asks again
}

// hang never answers: it holds the connection, then cuts it.
func (s *Server) hang(r *http.Request) {
	s.pause(r, s.cfg.HangFor)
	panic(http.ErrAbortHandler)
}

func (s *Server) pause(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-s.ctx.Done():
	}
}

// decode reads one JSON document: no unknown, duplicate or wrongly-cased members, nothing after it.
func decode(r *http.Request, body []byte, into any) (refusal answer, ok bool) {
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		return problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "the body must be application/json"), false
	}
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return problem(http.StatusBadRequest, "invalid_request", err.Error()), false
	}
	return answer{}, true
}

// answered makes durable what the answer says, up to the position end, before it goes out.
func (s *Server) answered(end int64, a answer) answer {
	if err := s.journal.sync(end); err != nil {
		return s.failed(err)
	}
	return a
}

// failed is the answer when the journal refuses. Nothing was done, or it is not known to be durable.
func (s *Server) failed(err error) answer {
	s.cfg.Logger.Error("sandbox: journal", "error", err)
	return problem(http.StatusInternalServerError, "internal", "the journal cannot be written")
}
