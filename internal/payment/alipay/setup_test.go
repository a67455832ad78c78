package alipay

import (
	"crypto/rand"
	"crypto/rsa"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"orderd/internal/payment/signed"
	"orderd/internal/payment/signed/signedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	appID    = "2021000000000001"
	sellerID = "2088000000000001"
)

// keys are the application's, Alipay's, and a stranger's.
var keys = sync.OnceValue(func() [3]*rsa.PrivateKey {
	var k [3]*rsa.PrivateKey
	for i := range k {
		var err error
		if k[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			panic(err)
		}
	}
	return k
})

func appKey() *rsa.PrivateKey    { return keys()[0] }
func alipayKey() *rsa.PrivateKey { return keys()[1] }
func otherKey() *rsa.PrivateKey  { return keys()[2] }

// config is a good one, for a gateway at url (without path).
func config(t testing.TB, url string) Config {
	t.Helper()
	client := signed.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	return Config{
		URL: url + "/gateway.do", AppID: appID, SellerID: sellerID, PrivateKey: signedtest.PrivatePEM(t, appKey()), PublicKey: signedtest.PublicPEM(t, alipayKey()),
		NotifyURL: "https://shop.example/v1/payments/callbacks/alipay", Client: client,
	}
}

func connect(t testing.TB, url string) *Gateway {
	t.Helper()
	g, err := NewGateway(config(t, url))
	require.NoError(t, err)
	return g
}

// paidFields is a callback as the documents show it (opendocs.alipay.com, "异步通知说明"), with refund_fee 0.00 and an
// amount without decimals among them.
func paidFields() map[string]string {
	return map[string]string{
		"notify_time": "2026-03-04 13:06:07", "notify_type": "trade_status_sync", "notify_id": "ac05099524730693a8b330c5ecf72da978",
		"app_id": appID, "charset": "utf-8", "version": "1.0", "sign_type": "RSA2", "trade_no": "2026030422001004330000121536",
		"out_trade_no": "P1", "buyer_id": "2088102122524333", "seller_id": sellerID, "trade_status": "TRADE_SUCCESS",
		"total_amount": "12.99", "receipt_amount": "12.99", "refund_fee": "0.00", "subject": "大乐透 2.1+", "gmt_create": "2026-03-04 13:05:00",
		"gmt_payment": "2026-03-04 13:06:06", "fund_bill_list": `[{"amount":"12.99","fundChannel":"ALIPAYACCOUNT"}]`,
	}
}

func with(fields map[string]string, pairs ...string) map[string]string {
	for i := 0; i < len(pairs); i += 2 {
		fields[pairs[i]] = pairs[i+1]
	}
	return fields
}

func without(fields map[string]string, names ...string) map[string]string {
	for _, name := range names {
		delete(fields, name)
	}
	return fields
}

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
