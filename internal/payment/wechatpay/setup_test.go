package wechatpay

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"orderd/internal/payment/signed"
	"orderd/internal/payment/signed/signedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mchID     = "1900000109"
	appID     = "wxd678efh567hg6787"
	serialNo  = "1DDE55AD98ED71D6EDD4A4A16996DE7B47773A8C"
	apiv3Key  = "0123456789abcdef0123456789abcdef"
	publicID  = "PUB_KEY_ID_0000000000000024101100397200000006"
	otherID   = "PUB_KEY_ID_0000000000000000000000000000000000"
	testNonce = "d824f2e086d3"
)

// keys are the merchant's, WeChat Pay's, and a stranger's.
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

func merchantKey() *rsa.PrivateKey { return keys()[0] }
func platformKey() *rsa.PrivateKey { return keys()[1] }
func otherKey() *rsa.PrivateKey    { return keys()[2] }

func privatePEM(t testing.TB, key *rsa.PrivateKey) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

func config(t testing.TB, url string) Config {
	t.Helper()
	client := signed.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	return Config{
		URL: url, MchID: mchID, AppID: appID, SerialNo: serialNo, PrivateKey: privatePEM(t, merchantKey()), APIv3Key: apiv3Key,
		Platform:  []PlatformKey{{Serial: publicID, PEM: signedtest.PublicPEM(t, platformKey())}},
		NotifyURL: "https://shop.example/v1/payments/callbacks/wechatpay", Client: client,
	}
}

func connect(t testing.TB, url string) *Gateway {
	t.Helper()
	g, err := NewGateway(config(t, url))
	require.NoError(t, err)
	return g
}

// signedHeaders are those of an answer or callback, signed at at.
func signedHeaders(t testing.TB, key *rsa.PrivateKey, serial string, at time.Time, body []byte) http.Header {
	t.Helper()
	return signedtest.WechatPay(t, key, serial, strconv.FormatInt(at.Unix(), 10), body)
}

// seal encrypts a resource as WeChat Pay does.
func seal(t testing.TB, plain []byte, nonce, associated string) resource {
	t.Helper()
	return resource{Algorithm: "AEAD_AES_256_GCM", Nonce: nonce, AssociatedData: associated, Ciphertext: signedtest.Seal(t, apiv3Key, plain, nonce, associated)}
}

type object = map[string]any

// paidTransaction is the documents' own, as far as it matters (pay.weixin.qq.com, "支付成功回调通知").
func paidTransaction() object {
	return object{
		"transaction_id": "1217752501201407033233368018", "mchid": mchID, "appid": appID, "out_trade_no": "P1", "trade_state": "SUCCESS",
		"trade_state_desc": "支付成功", "trade_type": "NATIVE", "bank_type": "CMC", "success_time": "2018-06-08T10:34:56+08:00",
		"amount": object{"total": 1299, "payer_total": 1299, "currency": "CNY", "payer_currency": "CNY"},
	}
}

// doneRefund: the callback has no currency and no appid ("退款结果回调通知").
func doneRefund() object {
	return object{
		"mchid": mchID, "transaction_id": "1217752501201407033233368018", "out_trade_no": "P1", "refund_id": "50200207182018070300011301001",
		"out_refund_no": "R1", "refund_status": "SUCCESS", "user_received_account": "招商银行信用卡0403",
		"amount": object{"total": 1299, "refund": 300, "payer_total": 1299, "payer_refund": 300},
	}
}

func with(o object, pairs ...any) object {
	for i := 0; i < len(pairs); i += 2 {
		o[pairs[i].(string)] = pairs[i+1]
	}
	return o
}

func without(o object, names ...string) object {
	for _, name := range names {
		delete(o, name)
	}
	return o
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v, json.Deterministic(true))
	require.NoError(t, err)
	return out
}

// envelope is a callback's body around a plain resource.
func envelope(t testing.TB, id, eventType string, plain any) []byte {
	t.Helper()
	r := seal(t, encode(t, plain), testNonce, "transaction")
	return encode(t, object{
		"id": id, "create_time": "2018-06-08T10:34:56+08:00", "resource_type": "encrypt-resource", "event_type": eventType, "summary": "支付成功",
		"resource": object{"original_type": "transaction", "algorithm": r.Algorithm, "ciphertext": r.Ciphertext, "associated_data": r.AssociatedData, "nonce": r.Nonce},
	})
}

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
