package main

import (
	"cmp"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"orderd/internal/httpapi"
)

// Settings are all flags of all commands. A flag wins over its environment variable, that over the default.
type Settings struct {
	Addr       string `default:"127.0.0.1:8080" env:"ORDERD_ADDR" help:"Address of the API."`
	OpsAddr    string `default:"127.0.0.1:8081" env:"ORDERD_OPS_ADDR" help:"Address of /metrics and /debug/pprof."`
	PublicURL  string `env:"ORDERD_PUBLIC_URL" help:"Where gateways reach the API, for callbacks. Default: the bound address."`
	DataDir    string `default:"./orderd-data" env:"ORDERD_DATA_DIR" help:"Files of the embedded mode: database, secrets, the sandbox's journal."`
	DBDSN      string `name:"db-dsn" env:"ORDERD_DB_DSN" help:"MySQL or MariaDB: user:password@tcp(host:3306)/orderd. Empty: embedded SQLite."`
	DBMaxOpen  int    `name:"db-max-open" default:"32" env:"ORDERD_DB_MAX_OPEN" help:"Connections to MySQL or MariaDB, at most."`
	RedisAddrs string `env:"ORDERD_REDIS_ADDRS" help:"Redis, host:port. Empty: in this process."`

	AMQPURL string `name:"amqp-url" env:"ORDERD_AMQP_URL" help:"RabbitMQ: amqp://user:password@host:5672/vhost. Empty: a broker in this process."`

	JWTSecret    string `name:"jwt-secret" env:"ORDERD_JWT_SECRET" help:"HS256 secret of bearer tokens, 32 bytes or more."`
	JWTPublicKey string `name:"jwt-public-key" env:"ORDERD_JWT_PUBLIC_KEY" help:"PEM file of the RS256 or ES256 key of bearer tokens, instead of the secret."`
	SealSecret   string `env:"ORDERD_SEAL_SECRET" help:"What order tokens and list cursors are sealed with, 32 bytes or more, the same in every replica. Default: derived from the JWT secret."`
	JWTIssuer    string `name:"jwt-issuer" env:"ORDERD_JWT_ISSUER" help:"Issuer that tokens must have."`

	Gateway              string `default:"sandbox" env:"ORDERD_GATEWAY" help:"Payment gateway of orders that name none: sandbox, or another that is configured."`
	MerchantID           string `default:"m-orderd" env:"ORDERD_MERCHANT_ID" help:"Who we are at the sandbox gateway."`
	SandboxAddr          string `default:"127.0.0.1:8082" env:"ORDERD_SANDBOX_ADDR" help:"Address of the built-in sandbox gateway."`
	SandboxURL           string `env:"ORDERD_SANDBOX_URL" help:"A sandbox gateway elsewhere; the built-in one does not start then."`
	SandboxPublicURL     string `env:"ORDERD_SANDBOX_PUBLIC_URL" help:"Where shoppers reach the sandbox gateway's pay page. Default: as the gateway was called."`
	SandboxAPIKey        string `name:"sandbox-api-key" env:"ORDERD_SANDBOX_API_KEY" help:"What we call the sandbox gateway with."`
	SandboxWebhookSecret string `env:"ORDERD_SANDBOX_WEBHOOK_SECRET" help:"What it signs its callbacks with: whsec_<base64>."`

	Stripe    StripeSettings    `embed:"" prefix:"stripe-" envprefix:"ORDERD_STRIPE_"`
	Alipay    AlipaySettings    `embed:"" prefix:"alipay-" envprefix:"ORDERD_ALIPAY_"`
	WechatPay WechatPaySettings `embed:"" prefix:"wechatpay-" envprefix:"ORDERD_WECHATPAY_"`

	PayTimeout     time.Duration `default:"15m" env:"ORDERD_PAY_TIMEOUT" help:"An order that is not paid for so long expires."`
	CloseGrace     time.Duration `default:"5m" env:"ORDERD_CLOSE_GRACE" help:"How long expiry waits for an unreachable gateway."`
	WorkerInterval time.Duration `default:"1s" env:"ORDERD_WORKER_INTERVAL" help:"Pause between two rounds of a background worker; so long an event may wait to be published."`
	Keep           time.Duration `default:"720h" env:"ORDERD_KEEP" help:"Published and received messages are kept so long; longer than any message may be repeated."`
	StageCommit    string        `default:"together" enum:"together,each" env:"ORDERD_STAGE_COMMIT" help:"Commit the local stages of an order together, or each."`
	BatchSize      int           `default:"128" env:"ORDERD_BATCH_SIZE" help:"Items per group commit or grouped read; 1: no grouping."`
	RateLimit      int           `default:"100" env:"ORDERD_RATE_LIMIT" help:"Requests per user and second, burst twice that; 0: off."`
	MaxOpenOrders  int           `default:"100" env:"ORDERD_MAX_OPEN_ORDERS" help:"Unpaid orders per user; 0: off."`
	LogFormat      string        `default:"json" enum:"json,text" env:"ORDERD_LOG_FORMAT" help:"json or text."`
	LogLevel       slog.Level    `default:"info" env:"ORDERD_LOG_LEVEL" help:"debug, info, warn or error."`
}

// embedded reports whether everything runs in this process.
func (s *Settings) embedded() bool { return s.DBDSN == "" }

// complete fills in the secrets that embedded mode keeps in its data directory, and refuses settings that would be unsafe.
func (s *Settings) complete() error {
	if s.Keep <= 0 {
		return errors.New("--keep must be positive")
	}
	if s.embedded() {
		for name, addr := range map[string]string{"--addr": s.Addr, "--ops-addr": s.OpsAddr, "--sandbox-addr": s.SandboxAddr} {
			if !loopback(addr) {
				return fmt.Errorf("%s %s: embedded mode listens on loopback only; give a database (--db-dsn) to serve others", name, addr)
			}
		}
		return s.keepSecrets()
	}
	if s.JWTSecret == "" && s.JWTPublicKey == "" {
		return errors.New("with a database, tokens need a key: set ORDERD_JWT_SECRET (32 bytes or more) or ORDERD_JWT_PUBLIC_KEY")
	}
	if s.JWTSecret == "" && s.SealSecret == "" {
		return errors.New("with a public key for tokens, set ORDERD_SEAL_SECRET too: order tokens and list cursors are sealed with it")
	}
	if s.SealSecret != "" && len(s.SealSecret) < 32 {
		return errors.New("ORDERD_SEAL_SECRET must have 32 bytes or more")
	}
	if s.playMoney() && (s.SandboxAPIKey == "" || s.SandboxWebhookSecret == "") {
		return errors.New("with a database, the sandbox gateway needs secrets: set ORDERD_SANDBOX_API_KEY and ORDERD_SANDBOX_WEBHOOK_SECRET")
	}
	return nil
}

// playMoney reports whether the sandbox gateway may be paid with. Where real money is taken it must be asked for: whoever
// reaches its pay page gets the goods for nothing.
func (s *Settings) playMoney() bool {
	return s.embedded() || s.Gateway == "sandbox" || s.SandboxURL != ""
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // refused when it is listened on, with a better message
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (s *Settings) auth() (*httpapi.Auth, error) {
	c := httpapi.AuthConfig{Issuer: s.JWTIssuer, Now: time.Now}
	if s.JWTPublicKey != "" {
		pem, err := os.ReadFile(s.JWTPublicKey)
		if err != nil {
			return nil, fmt.Errorf("ORDERD_JWT_PUBLIC_KEY: %w", err)
		}
		c.PublicKey = pem
	}
	c.Secret = []byte(s.JWTSecret)
	return httpapi.NewAuth(c)
}

// secret is what this deployment seals tokens and cursors with: the same in every replica, because it is derived from a
// secret that they share.
func (s *Settings) secret() ([]byte, error) {
	shared := cmp.Or(s.SealSecret, s.JWTSecret)
	if shared == "" { // embedded
		shared = s.SandboxAPIKey
	}
	return hkdf.Key(sha256.New, []byte(shared), nil, "orderd order tokens and cursors", 32)
}

func (s *Settings) logger(c console) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(c.err, o))
	}
	return slog.New(slog.NewJSONHandler(c.err, o))
}
