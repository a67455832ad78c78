package stripe_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	sdk "github.com/stripe/stripe-go/v85"

	"orderd/internal/payment"
	"orderd/internal/payment/gatewaytest"
)

type object = map[string]any

// fake remembers what Stripe remembers: sessions, refunds, and answers by Idempotency-Key. stripe-mock checks that each
// request is one that Stripe takes.
type fake struct {
	t    testing.TB
	url  string
	mock string

	mu       sync.Mutex
	sessions map[string]*checkout
	refunds  []object
	answers  map[string]stored
	requests []string
	clock    int64
	refuses  *problem // what refunds are refused with
}

type checkout struct {
	object object
	intent object // nil until somebody pays
	marks  object // the metadata that the intent will have
}

type stored struct {
	request string
	status  int
	body    []byte
}

// problem is an error of Stripe's.
type problem struct {
	status  int
	kind    sdk.ErrorType
	code    sdk.ErrorCode
	message string
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{t: t, mock: stripeMock(t), sessions: map[string]*checkout{}, answers: map[string]stored{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/checkout/sessions", f.handle(f.create))
	mux.HandleFunc("GET /v1/checkout/sessions/{id}", f.handle(f.retrieve))
	mux.HandleFunc("POST /v1/checkout/sessions/{id}/expire", f.handle(f.expire))
	mux.HandleFunc("POST /v1/refunds", f.handle(f.refund))
	mux.HandleFunc("GET /v1/refunds/{id}", f.handle(f.retrieveRefund))
	mux.HandleFunc("GET /v1/refunds", f.handle(f.listRefunds))
	mux.HandleFunc("GET /v1/payment_intents", f.handle(f.listIntents))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *fake) handle(answer func(r *http.Request) (object, *problem)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.check(r, body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		_ = r.ParseForm()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = append(f.requests, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req_1")
		key, request := r.Header.Get("Idempotency-Key"), r.URL.Path+"?"+string(body)
		if before, ok := f.answers[key]; ok && r.Method == http.MethodPost && key != "" {
			if before.request == request {
				w.Header().Set("Idempotent-Replayed", "true")
				w.WriteHeader(before.status)
				_, _ = w.Write(before.body)
				return
			}
			answer = func(*http.Request) (object, *problem) {
				return nil, &problem{400, sdk.ErrorTypeIdempotency, "", "Keys for idempotent requests can only be used with the same parameters."}
			}
			key = ""
		}
		out, p := answer(r)
		status := http.StatusOK
		if p != nil {
			status = p.status
			out = object{"error": object{"type": p.kind, "code": p.code, "message": p.message}}
		}
		encoded, err := json.Marshal(out)
		if err != nil {
			panic(err)
		}
		if key != "" {
			f.answers[key] = stored{request, status, encoded}
		}
		w.WriteHeader(status)
		_, _ = w.Write(encoded)
	}
}

// check has stripe-mock judge a request.
func (f *fake) check(r *http.Request, body []byte) {
	if r.Header.Get("Authorization") != "Bearer "+secretKey || r.Header.Get("Stripe-Version") != sdk.APIVersion {
		f.t.Errorf("%s %s: key or version is wrong", r.Method, r.URL)
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, f.mock+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return
	}
	req.Header = r.Header.Clone()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		if r.Context().Err() == nil {
			f.t.Error(err)
		}
		return
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		f.t.Errorf("stripe-mock refuses %s %s %s: %s", r.Method, r.URL, body, text)
	}
}

// metadata collects prefix[...] of a form.
func metadata(form url.Values, prefix string) object {
	m := object{}
	for k := range form {
		if name, ok := strings.CutPrefix(k, prefix+"["); ok {
			m[strings.TrimSuffix(name, "]")] = form.Get(k)
		}
	}
	return m
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (f *fake) create(r *http.Request) (object, *problem) {
	id := fmt.Sprintf("cs_test_%d", len(f.sessions)+1)
	f.sessions[id] = &checkout{object: object{
		"id": id, "object": "checkout.session", "livemode": false, "mode": r.Form.Get("mode"), "status": "open", "payment_status": "unpaid",
		"amount_total": number(r.Form.Get("line_items[0][price_data][unit_amount]")), "currency": r.Form.Get("line_items[0][price_data][currency]"),
		"metadata": metadata(r.Form, "metadata"), "client_reference_id": r.Form.Get("client_reference_id"), "payment_intent": nil,
		"url": "https://checkout.stripe.com/c/pay/" + id + "#fragment", "expires_at": number(r.Form.Get("expires_at")),
	}, marks: metadata(r.Form, "payment_intent_data[metadata]")}
	return f.show(id, r)
}

// show answers a session, with its intent expanded if that is asked for.
func (f *fake) show(id string, r *http.Request) (object, *problem) {
	s, ok := f.sessions[id]
	if !ok {
		return nil, &problem{404, sdk.ErrorTypeInvalidRequest, sdk.ErrorCodeResourceMissing, "No such checkout.session: " + id}
	}
	out := object{}
	for k, v := range s.object {
		out[k] = v
	}
	if s.intent != nil {
		out["payment_intent"] = s.intent["id"]
		if r.Form.Get("expand[0]") == "payment_intent" {
			out["payment_intent"] = s.intent
		}
	}
	return out, nil
}

func (f *fake) retrieve(r *http.Request) (object, *problem) { return f.show(r.PathValue("id"), r) }

func (f *fake) expire(r *http.Request) (object, *problem) {
	id := r.PathValue("id")
	if s := f.sessions[id]; s != nil {
		if s.object["status"] != "open" {
			return nil, &problem{400, sdk.ErrorTypeInvalidRequest, "", `Only Checkout Sessions with a status in ["open"] can be expired.`}
		}
		s.object["status"], s.object["url"] = "expired", nil
	}
	return f.show(id, r)
}

func (f *fake) refund(r *http.Request) (object, *problem) {
	intent := r.Form.Get("payment_intent")
	if f.refuses != nil {
		return nil, f.refuses
	}
	for _, s := range f.sessions {
		if s.intent == nil || s.intent["id"] != intent {
			continue
		}
		left, amount := s.intent["amount_received"].(int64), number(r.Form.Get("amount"))
		for _, old := range f.refunds {
			if old["payment_intent"] == intent && old["status"] != "failed" {
				left -= old["amount"].(int64)
			}
		}
		if amount > left {
			return nil, &problem{400, sdk.ErrorTypeInvalidRequest, "", "Refund amount is greater than unrefunded amount on charge"}
		}
		f.refunds = append(f.refunds, object{"id": fmt.Sprintf("re_%d", len(f.refunds)+1), "object": "refund", "amount": amount,
			"currency": s.intent["currency"], "metadata": metadata(r.Form, "metadata"), "payment_intent": intent, "status": "succeeded", "created": f.now()})
		return f.refunds[len(f.refunds)-1], nil
	}
	return nil, &problem{404, sdk.ErrorTypeInvalidRequest, sdk.ErrorCodeResourceMissing, "No such payment_intent: " + intent}
}

func (f *fake) retrieveRefund(r *http.Request) (object, *problem) {
	for _, old := range f.refunds {
		if old["id"] == r.PathValue("id") {
			return old, nil
		}
	}
	return nil, &problem{404, sdk.ErrorTypeInvalidRequest, sdk.ErrorCodeResourceMissing, "No such refund"}
}

// change alters a session, and gives it an intent, as a shopper or a bank does.
func (f *fake) change(id string, status, paid, intent string, received int64) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[id]
	require.NotNil(f.t, s)
	s.object["status"], s.object["payment_status"], s.object["url"] = status, paid, nil
	s.intent = object{"id": "pi_" + id, "object": "payment_intent", "status": intent, "amount": s.object["amount_total"],
		"amount_received": received, "currency": s.object["currency"], "metadata": s.marks, "created": f.now()}
}

func (f *fake) company() gatewaytest.Company {
	return gatewaytest.Company{URL: f.url, Pay: func(_ testing.TB, c payment.Charge, amount int64) {
		f.change(c.TransactionID, "complete", "paid", "succeeded", amount)
	}, Decline: func(_ testing.TB, c payment.Charge) {
		f.change(c.TransactionID, "complete", "unpaid", "requires_payment_method", 0)
	}}
}
