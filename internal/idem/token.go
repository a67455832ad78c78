package idem

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"orderd/internal/fault"
)

// tokenTTL is how long an unused token lives, and how long a used one is remembered.
const tokenTTL = 30 * time.Minute

// The states of a token.
const (
	Unprocessed = "UNPROCESSED" // issued, not used
	Processing  = "PROCESSING"  // taken; its order is being placed, or the process doing so has died
	Processed   = "PROCESSED"   // its order is committed
)

// Tokens issues and takes tokens: an order_no handed out before the order is placed, so that a client which cannot make
// identifiers of its own can still repeat safely.
//
// A token is "<order_no>.<HMAC over user and order_no>". Redis knows its state; but should Redis forget, the order_no in
// the token is still to be trusted, and the database knows the rest.
type Tokens struct {
	redis  *Redis
	secret []byte
}

// NewTokens returns Tokens signed with secret, at least 32 bytes, the same in every replica.
func NewTokens(r *Redis, secret []byte) (*Tokens, error) {
	if len(secret) < 32 {
		return nil, fmt.Errorf("token secret has %d bytes: want at least 32", len(secret))
	}
	return &Tokens{redis: r, secret: secret}, nil
}

// Issue returns a token for orderNo, bound to userID, and how long it lives unused. Issuing again gives the same token
// and leaves its state alone. Error: ErrDown.
func (t *Tokens) Issue(ctx context.Context, userID, orderNo string) (token string, expiresIn time.Duration, err error) {
	token = orderNo + "." + t.sign(userID, orderNo)
	err = t.redis.do(ctx, func(ctx context.Context) error {
		return t.redis.keys.SetNX(ctx, tokenKey(token), Unprocessed, tokenTTL).Err()
	})
	return token, tokenTTL, err
}

// Parse returns the order_no of a token that was issued to userID. A token of another user, or one that was never issued,
// is a 410 token_expired.
func (t *Tokens) Parse(token, userID string) (orderNo string, err error) {
	orderNo, mac, _ := strings.Cut(token, ".")
	if !hmac.Equal([]byte(mac), []byte(t.sign(userID, orderNo))) {
		return "", errTokenExpired()
	}
	return orderNo, nil
}

func (t *Tokens) sign(userID, orderNo string) string {
	mac := hmac.New(sha256.New, t.secret)
	fmt.Fprintf(mac, "orderd token\x00%s\x00%s", userID, orderNo) // neither may contain a NUL
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func tokenKey(token string) string { return "orderd:token:" + token }

func errTokenExpired() error {
	return fault.New(fault.Gone, "token_expired", "the token is unknown or has expired: ask for a new one")
}

// Taken is a token that was presented.
type Taken struct {
	OrderNo string // empty when the token is not this user's
	First   bool   // this call turned it from UNPROCESSED to PROCESSING
	State   string // as found; empty when Redis did not say
}

// takeScript is one compare-and-set. Redis runs it as a whole, so of any number of twins one finds UNPROCESSED.
//
// Two mistakes are common. SET NX on the key: issuing has created it, so nobody ever gets in. GET, then SET: two twins
// both read UNPROCESSED before either writes, and both get in.
var takeScript = redis.NewScript(`
local state = redis.call('GET', KEYS[1])
if state == 'UNPROCESSED' then
	redis.call('SET', KEYS[1], 'PROCESSING', 'PX', ARGV[1])
end
return state`)

// Take presents a token. Every state lets the caller go on with the order_no: PROCESSING is no refusal, because whoever
// took the token may have died; the order is resumed, and the unique index on order_no stops a second one.
//
// Errors: 410 token_expired when the token is not userID's, or Redis does not know it; ErrDown. When OrderNo is set
// beside an error, the token is genuine: if that order exists, replay it; else answer the error.
func (t *Tokens) Take(ctx context.Context, token, userID string) (Taken, error) {
	orderNo, err := t.Parse(token, userID)
	if err != nil {
		return Taken{}, err
	}
	var state string
	err = t.redis.do(ctx, func(ctx context.Context) (err error) {
		state, err = takeScript.Run(ctx, t.redis.keys, []string{tokenKey(token)}, tokenTTL.Milliseconds()).Text()
		return err
	})
	if errors.Is(err, redis.Nil) { // expired unused, or Redis was flushed
		return Taken{OrderNo: orderNo}, errTokenExpired()
	}
	return Taken{OrderNo: orderNo, First: state == Unprocessed, State: state}, err
}

// Processed notes that the token's order is committed (out of stock, too: the order exists). Dying before it leaves
// PROCESSING, which is resumed just so. Error: ErrDown, which may be ignored for the same reason.
func (t *Tokens) Processed(ctx context.Context, token string) error {
	return t.redis.do(ctx, func(ctx context.Context) error {
		// XX: a token that expired meanwhile is not brought back.
		return t.redis.keys.SetXX(ctx, tokenKey(token), Processed, tokenTTL).Err()
	})
}

var backScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == 'PROCESSING' then
	redis.call('SET', KEYS[1], 'UNPROCESSED', 'PX', ARGV[1])
	return 1
end
return 0`)

// Back makes a token unused again. Only when it is known that no order was committed: the creation was refused. After an
// unknown outcome the token stays PROCESSING. Error: ErrDown.
func (t *Tokens) Back(ctx context.Context, token string) error {
	return t.redis.do(ctx, func(ctx context.Context) error {
		return backScript.Run(ctx, t.redis.keys, []string{tokenKey(token)}, tokenTTL.Milliseconds()).Err()
	})
}
