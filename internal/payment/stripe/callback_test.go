package stripe_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"orderd/internal/fault"
	"orderd/internal/payment"
)

// What an event is taken for: a kind, or the code of a refusal.
func TestEvents(t *testing.T) {
	t.Parallel()
	paid := `{"id":"evt_1","object":"event","api_version":"2022-11-15","livemode":false,"type":"checkout.session.completed","data":{"object":` +
		`{"id":"cs_1","object":"checkout.session","amount_total":1299,"currency":"eur","payment_status":"paid","status":"complete","metadata":{"payment_no":"P1"}}}}`
	refund := `{"id":"evt_1","object":"event","livemode":false,"type":"refund.updated","data":{"object":` +
		`{"id":"re_1","object":"refund","amount":300,"currency":"eur","status":"succeeded","metadata":{"payment_no":"P1","refund_no":"R1"}}}}`
	change := func(of, old, new string) string {
		require.Contains(t, of, old)
		return strings.Replace(of, old, new, 1)
	}
	const invalid, forbidden = "invalid_request", "forbidden"
	for name, c := range map[string]struct{ body, want string }{
		"paid":                        {paid, "payment.succeeded"},
		"async paid":                  {change(paid, "completed", "async_payment_succeeded"), "payment.succeeded"},
		"async failed":                {change(change(paid, "completed", "async_payment_failed"), `"paid"`, `"unpaid"`), "payment.failed"},
		"expired":                     {change(change(paid, "completed", "expired"), `"paid"`, `"unpaid"`), "payment.closed"},
		"completed, money to come":    {change(paid, `"paid"`, `"unpaid"`), "other"},
		"completed, nothing to pay":   {change(paid, `"paid"`, `"no_payment_required"`), invalid},
		"another api_version":         {change(paid, "2022-11-15", "2099-01-01.zebra"), "payment.succeeded"},
		"unknown members":             {change(paid, `"livemode"`, `"x":[1,{}],"livemode"`), "payment.succeeded"},
		"not made by us":              {change(paid, `{"payment_no":"P1"}`, `{}`), "other"},
		"no metadata":                 {change(paid, `{"payment_no":"P1"}`, `null`), "other"},
		"declined, may try again":     {change(paid, "checkout.session.completed", "payment_intent.payment_failed"), "other"},
		"a type that we do not know":  {change(paid, "checkout.session.completed", "invoice.paid"), "other"},
		"refund":                      {refund, "refund.succeeded"},
		"refund created":              {change(refund, "updated", "created"), "refund.succeeded"},
		"refund failed":               {change(change(refund, "updated", "failed"), "succeeded", "failed"), "refund.failed"},
		"refund cancelled":            {change(refund, "succeeded", "canceled"), "refund.failed"},
		"refund pending":              {change(refund, "succeeded", "pending"), "other"},
		"refund in the dashboard":     {change(refund, `,"refund_no":"R1"`, ""), "other"},
		"refund in a new state":       {change(refund, "succeeded", "thinking"), invalid},
		"refund of no payment":        {change(refund, `"payment_no":"P1",`, ""), invalid},
		"live event, test key":        {change(paid, `"livemode":false`, `"livemode":true`), forbidden},
		"connected account's":         {change(paid, `"livemode"`, `"account":"acct_2","livemode"`), forbidden},
		"connected account's, odd":    {change(change(paid, `"livemode"`, `"account":"acct_2","livemode"`), "1299", "-1"), forbidden},
		"no livemode":                 {change(paid, `"livemode":false,`, ""), invalid},
		"Livemode":                    {change(paid, `"livemode"`, `"Livemode"`), invalid},
		"no id":                       {change(paid, `"id":"evt_1",`, ""), invalid},
		"id too long":                 {change(paid, "evt_1", strings.Repeat("x", 129)), invalid},
		"thin event":                  {change(paid, `"object":"event"`, `"object":"v2.core.event"`), invalid},
		"no type":                     {change(paid, "checkout.session.completed", ""), invalid},
		"no session id":               {change(paid, `"id":"cs_1",`, ""), invalid},
		"another object":              {change(paid, `"object":"checkout.session"`, `"object":"charge"`), invalid},
		"empty payment_no":            {change(paid, `"P1"`, `""`), invalid},
		"payment_no with a space":     {change(paid, `"P1"`, `"P 1"`), invalid},
		"amount a string":             {change(paid, "1299", `"1299"`), invalid},
		"amount 0":                    {change(paid, "1299", "0"), invalid},
		"amount negative":             {change(paid, "1299", "-1299"), invalid},
		"amount 12.99":                {change(paid, "1299", "12.99"), invalid},
		"amount twice":                {change(paid, `"amount_total"`, `"amount_total":1,"amount_total"`), invalid},
		"amount twice, escaped":       {change(paid, `"amount_total"`, `"\u0061mount_total":1,"amount_total"`), invalid},
		"Amount_total too":            {change(paid, `"amount_total"`, `"Amount_total":1,"amount_total"`), "payment.succeeded"},
		"Amount_total alone":          {change(paid, `"amount_total"`, `"Amount_total"`), invalid},
		"amount null":                 {change(paid, "1299", "null"), invalid},
		"amount true":                 {change(paid, "1299", "true"), invalid},
		"amount a list":               {change(paid, "1299", "[1299]"), invalid},
		"amount 1e3":                  {change(paid, "1299", "1e3"), invalid},
		"amount 2^63":                 {change(paid, "1299", "9223372036854775808"), invalid},
		"amount of 400 digits":        {change(paid, "1299", strings.Repeat("9", 400)), invalid},
		"amount 01299":                {change(paid, "1299", "01299"), invalid},
		"id a number":                 {change(paid, `"evt_1"`, "1"), invalid},
		"type a list":                 {change(paid, `"checkout.session.completed"`, "[]"), invalid},
		"type twice":                  {change(paid, `"type"`, `"type":"invoice.paid","type"`), invalid},
		"livemode a string":           {change(paid, "false", `"false"`), invalid},
		"livemode null":               {change(paid, "false", "null"), invalid},
		"payment_status a number":     {change(paid, `"paid"`, "1"), invalid},
		"payment_no a number":         {change(paid, `"P1"`, "1"), invalid},
		"payment_no twice":            {change(paid, `"payment_no"`, `"payment_no":"P2","payment_no"`), invalid},
		"metadata a list":             {change(paid, `{"payment_no":"P1"}`, `["P1"]`), invalid},
		"metadata twice":              {change(paid, `"metadata"`, `"metadata":{},"metadata"`), invalid},
		"data a string":               {change(paid, `"data":{`, `"data":"x","x":{`), invalid},
		"data twice":                  {change(paid, `"data"`, `"data":{},"data"`), invalid},
		"object null":                 {change(paid, `"data":{"object":`, `"data":{"object":null,"x":`), invalid},
		"refund's amount a string":    {change(refund, "300", `"300"`), invalid},
		"refund's status a number":    {change(refund, `"succeeded"`, "1"), invalid},
		"trailing garbage":            {paid + "x", invalid},
		"trailing NUL":                {paid + "\x00", invalid},
		"trailing newline":            {paid + "\n", "payment.succeeded"},
		"bad UTF-8":                   {change(paid, "P1", "P\xff"), invalid},
		"half a surrogate":            {change(paid, "P1", `P\ud800`), invalid},
		"deep":                        {change(paid, `"livemode"`, `"x":`+strings.Repeat("[", 30000)+`,"livemode"`), invalid},
		"array":                       {"[" + paid + "]", invalid},
		"currency in capitals":        {change(paid, `"eur"`, `"EUR"`), invalid},
		"currency that is none":       {change(paid, `"eur"`, `"xxx"`), invalid},
		"currency of unknown decimal": {change(paid, `"eur"`, `"ugx"`), invalid},
		"no data":                     {change(paid, `"data"`, `"date"`), invalid},
		"cut short":                   {paid[:len(paid)-1], invalid},
		"two documents":               {paid + paid, invalid},
		"null":                        {"null", invalid},
		"empty":                       {"", invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := []byte(c.body)
			n, err := connect(t, "http://127.0.0.1:1").VerifyCallback(sign(body, now), body, now)
			if c.want == invalid || c.want == forbidden {
				require.True(t, fault.Is(err, c.want), err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []any{payment.NoticeKind(c.want), "evt_1"}, []any{n.Kind, n.MessageID})
		})
	}
}

// Whatever is signed, the parser neither panics nor lets through a notice that lacks what its kind needs.
func FuzzVerifyCallback(f *testing.F) {
	g := connect(f, "http://127.0.0.1:1")
	f.Add(`{"id":"evt_1","object":"event","livemode":false,"type":"checkout.session.completed","data":{"object":{"id":"cs_1","object":"checkout.session",` +
		`"amount_total":1299,"currency":"eur","payment_status":"paid","metadata":{"payment_no":"P1"}}}}`)
	f.Add(`{"id":"evt_1","object":"event","livemode":false,"type":"refund.failed","data":{"object":{"id":"re_1","object":"refund",` +
		`"amount":1,"currency":"isk","status":"failed","metadata":{"payment_no":"P1","refund_no":"R1"}}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		n, err := g.VerifyCallback(sign([]byte(body), now), []byte(body), now)
		if err != nil {
			if code := fault.As(err).Code; code != "invalid_request" && code != "forbidden" {
				t.Fatal(code)
			}
			return
		}
		if n.Kind != payment.Other && (n.Amount <= 0 || n.PaymentNo == "" || len(n.Currency) != 3) {
			t.Fatalf("%+v", n)
		}
	})
}
