package stripe_test

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"
)

func (f *fake) listRefunds(r *http.Request) (object, *problem) {
	var all []object
	for _, old := range f.refunds {
		if intent := r.Form.Get("payment_intent"); intent != "" && old["payment_intent"] != intent {
			continue
		}
		shown := maps.Clone(old)
		if r.Form.Get("expand[0]") == "data.payment_intent" {
			shown["payment_intent"] = f.intents()[old["payment_intent"].(string)]
		}
		all = append(all, shown)
	}
	return list(r, all), nil
}

func (f *fake) listIntents(r *http.Request) (object, *problem) {
	all := slices.Collect(maps.Values(f.intents()))
	slices.SortFunc(all, func(a, b object) int { return cmp.Compare(a["created"].(int64), b["created"].(int64)) })
	return list(r, all), nil
}

func (f *fake) intents() map[string]object {
	all := map[string]object{}
	for _, s := range f.sessions {
		if s.intent != nil {
			all[s.intent["id"].(string)] = s.intent
		}
	}
	return all
}

// now is Stripe's clock: a second later each time that something is made.
func (f *fake) now() int64 {
	f.clock++
	return began.Unix() + f.clock
}

var began = time.Unix(1_800_000_000, 0)

// list lists the newest first, in pages, those made since created[gte].
func list(r *http.Request, all []object) object {
	after, since := r.Form.Get("starting_after"), int64(0)
	if text := r.Form.Get("created[gte]"); text != "" {
		since = number(text)
	}
	limit, page, more := int(number(r.Form.Get("limit"))), []object{}, false
	for _, o := range slices.Backward(all) {
		switch {
		case o["created"].(int64) < since:
		case after != "":
			if o["id"] == after {
				after = ""
			}
		case len(page) == limit:
			more = true
		default:
			page = append(page, o)
		}
	}
	return object{"object": "list", "url": r.URL.Path, "has_more": more, "data": page}
}
