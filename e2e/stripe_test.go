package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	stripeKey    = "sk_test_0123456789abcdef01234567"
	stripeSecret = "whsec_0123456789abcdef0123456789abcdef"
)

// stripe is as much of Stripe as an order needs that is paid and refunded, and the lists of it.
type stripe struct {
	url string

	mu       sync.Mutex
	sessions map[string]obj
	intents  map[string]obj
	refunds  []obj
}

func startStripe(t testing.TB) *stripe {
	t.Helper()
	s := &stripe{sessions: map[string]obj{}, intents: map[string]obj{}}
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(r *http.Request) obj{
		"POST /v1/checkout/sessions": s.open, "GET /v1/checkout/sessions/{id}": s.session, "POST /v1/refunds": s.refund,
		"GET /v1/refunds":         func(r *http.Request) obj { return s.list(r, slices.Values(s.refunds)) },
		"GET /v1/payment_intents": func(r *http.Request) obj { return s.list(r, maps.Values(s.intents)) },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			_ = r.ParseForm()
			_ = json.NewEncoder(w).Encode(answer(r))
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// vars are the settings of an orderd that pays there.
func (s *stripe) vars() []string {
	return []string{"ORDERD_STRIPE_URL=" + s.url, "ORDERD_STRIPE_SECRET_KEY=" + stripeKey, "ORDERD_STRIPE_WEBHOOK_SECRET=" + stripeSecret,
		"ORDERD_STRIPE_RETURN_URL=https://shop.example/thanks"}
}

func (s *stripe) open(r *http.Request) obj {
	amount, _ := strconv.ParseInt(r.Form.Get("line_items[0][price_data][unit_amount]"), 10, 64)
	id := fmt.Sprint("cs_test_", len(s.sessions)+1)
	s.sessions[id] = obj{"id": id, "object": "checkout.session", "livemode": false, "status": "open", "payment_status": "unpaid", "amount_total": amount,
		"currency": r.Form.Get("line_items[0][price_data][currency]"), "metadata": obj{"payment_no": r.Form.Get("metadata[payment_no]")}, "url": s.url + "/pay"}
	return s.sessions[id]
}

func (s *stripe) session(r *http.Request) obj {
	shown := maps.Clone(s.sessions[r.PathValue("id")])
	shown["payment_intent"] = s.intents["pi_"+r.PathValue("id")]
	return shown
}

func (s *stripe) refund(r *http.Request) obj {
	amount, _ := strconv.ParseInt(r.Form.Get("amount"), 10, 64)
	intent := s.intents[r.Form.Get("payment_intent")]
	s.refunds = append(s.refunds, obj{"id": fmt.Sprint("re_", len(s.refunds)+1), "object": "refund", "amount": amount, "currency": intent["currency"],
		"status": "succeeded", "created": time.Now().Unix(), "payment_intent": intent,
		"metadata": obj{"refund_no": r.Form.Get("metadata[refund_no]"), "payment_no": r.Form.Get("metadata[payment_no]")}})
	return s.refunds[len(s.refunds)-1]
}

func (*stripe) list(r *http.Request, all func(func(obj) bool)) obj {
	since, _ := strconv.ParseInt(r.Form.Get("created[gte]"), 10, 64)
	page := []obj{}
	for o := range all {
		if o["created"].(int64) >= since {
			page = append(page, o)
		}
	}
	return obj{"object": "list", "url": r.URL.Path, "has_more": false, "data": page}
}

// received books a payment on the gateway's side.
func (s *stripe) received(id, paymentNo string, amount any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intents[id] = obj{"id": id, "object": "payment_intent", "status": "succeeded", "amount_received": amount, "currency": "cny",
		"created": time.Now().Unix(), "metadata": obj{"payment_no": paymentNo}}
}

// pay plays the shopper, and Stripe, which tells the service of it.
func (s *stripe) pay(t testing.TB, c *client, o orderView) answer {
	t.Helper()
	id := o.transaction()
	s.received("pi_"+id, o.Payment.PaymentNo, o.Amount)
	s.mu.Lock()
	session := s.sessions[id]
	session["status"], session["payment_status"] = "complete", "paid"
	body, err := json.Marshal(obj{"id": "evt_" + id, "object": "event", "livemode": false, "type": "checkout.session.completed", "data": obj{"object": session}})
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(stripeSecret))
	mac.Write([]byte(at + "." + string(body)))
	return c.do(http.MethodPost, "/v1/payments/callbacks/stripe", body, "Stripe-Signature: t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
}

// loseRefund takes a refund out of the gateway's books.
func (s *stripe) loseRefund(refundNo string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refunds = slices.DeleteFunc(s.refunds, func(f obj) bool { return strings.HasSuffix(fmt.Sprint(f["metadata"]), "refund_no:"+refundNo+"]") })
}
