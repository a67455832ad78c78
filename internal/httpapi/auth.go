package httpapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/labstack/echo/v4"

	"orderd/internal/fault"
)

// audience is the `aud` that a token must have.
const audience = "orderd"

// leeway is how far the clocks of the issuer and of this machine may differ.
const leeway = 30 * time.Second

// AuthConfig names the one key that tokens are verified with.
type AuthConfig struct {
	Secret    []byte // HS256, at least 32 bytes
	PublicKey []byte // PEM: RSA means RS256, P-256 means ES256
	Issuer    string // checked when set
	Now       func() time.Time
}

// remembered is how many tokens Auth knows the claims of. A client sends the same one for as long as it lives.
const remembered = 4096

// Auth verifies bearer tokens by exactly one algorithm. What a token's header says of keys (kid, jku, jwk) is ignored.
type Auth struct {
	method    jwt.SigningMethod
	key       any
	issuer    string
	now       func() time.Time
	parser    *jwt.Parser    // of form and signature
	validator *jwt.Validator // of claims: their time can be over whenever the token comes
	known     *lru.Cache[string, claims]
}

type claims struct {
	jwt.RegisteredClaims
	Scope string `json:"scope"`
}

// UnmarshalJSON refuses names given twice and takes no other spelling of a name for it: encoding/json, which the parser
// uses, would let "Scope" override "scope".
func (c *claims) UnmarshalJSON(b []byte) error {
	type plain claims // without this method
	return json.Unmarshal(b, (*plain)(c))
}

var userID = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,64}$`)

// NewAuth returns an error unless exactly one usable key is given.
func NewAuth(cfg AuthConfig) (*Auth, error) {
	a := &Auth{issuer: cfg.Issuer, now: cfg.Now}
	var err error
	switch {
	case (len(cfg.Secret) > 0) == (len(cfg.PublicKey) > 0):
		err = errors.New("auth: give either a secret or a public key")
	case len(cfg.Secret) > 0 && len(cfg.Secret) < 32:
		err = errors.New("auth: the secret must have at least 32 bytes")
	case len(cfg.Secret) > 0:
		a.method, a.key = jwt.SigningMethodHS256, cfg.Secret
	default:
		a.method, a.key, err = publicKey(cfg.PublicKey)
	}
	if err != nil {
		return nil, err
	}
	a.parser = jwt.NewParser(jwt.WithValidMethods([]string{a.method.Alg()}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	options := []jwt.ParserOption{jwt.WithExpirationRequired(), jwt.WithAudience(audience), jwt.WithLeeway(leeway), jwt.WithTimeFunc(cfg.Now)}
	if cfg.Issuer != "" {
		options = append(options, jwt.WithIssuer(cfg.Issuer))
	}
	a.validator = jwt.NewValidator(options...)
	a.known, err = lru.New[string, claims](remembered)
	return a, err
}

func publicKey(data []byte) (jwt.SigningMethod, any, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, nil, errors.New("auth: the public key is not PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, nil, errors.New("auth: the public key is not PKIX")
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() >= 2048 {
			return jwt.SigningMethodRS256, k, nil
		}
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return jwt.SigningMethodES256, k, nil
		}
	}
	return nil, nil, errors.New("auth: the public key must be RSA of 2048 bits or more, or ECDSA on P-256")
}

// Mint issues a token. Only a service that holds the secret can; with a public key it returns an error.
func (a *Auth) Mint(user string, scopes []string, ttl time.Duration) (string, error) {
	if a.method != jwt.SigningMethodHS256 {
		return "", errors.New("auth: tokens are issued by the holder of the private key")
	}
	if !userID.MatchString(user) {
		return "", errors.New("auth: a user id matches " + userID.String())
	}
	now := a.now()
	return jwt.NewWithClaims(a.method, claims{Scope: strings.Join(scopes, " "), RegisteredClaims: jwt.RegisteredClaims{
		Issuer: a.issuer, Subject: user, Audience: jwt.ClaimStrings{audience},
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	}}).SignedString(a.key)
}

// signed returns what a token of ours claims. The signature of a token that is known was good, with the only key there is.
func (a *Auth) signed(token string) (claims, error) {
	c, known := a.known.Get(token)
	if known {
		return c, nil
	}
	_, err := a.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		if _, ok := t.Header["crit"]; ok { // RFC 7515, 4.1.11: what must be understood, and is not
			return nil, errors.New("the token has critical headers")
		}
		return a.key, nil
	})
	if err == nil {
		a.known.Add(token, c)
	}
	return c, err
}

// verify returns who the request's token speaks for and its scopes.
func (a *Auth) verify(h http.Header) (user string, scopes []string, err error) {
	values := h.Values(echo.HeaderAuthorization)
	if len(values) != 1 {
		return "", nil, errors.New("there must be exactly one Authorization header")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", nil, errors.New("the scheme is not Bearer")
	}
	c, err := a.signed(token)
	if err == nil {
		err = a.validator.Validate(c)
	}
	if err != nil {
		return "", nil, err
	}
	if !userID.MatchString(c.Subject) {
		return "", nil, errors.New("sub is not a user id")
	}
	return c.Subject, strings.Fields(c.Scope), nil
}

// admit authenticates, limits and authorises, in this order: strangers are limited by their socket's address, so that
// guessing tokens is slow as well; callbacks are not limited, for a gateway speaks for all users.
func (a *API) admit(r *request) error {
	if r.op.raw {
		return nil
	}
	caller := "ip:" + r.RealIP()
	var scopes []string
	var err error
	if !r.op.public {
		if r.actor.UserID, scopes, err = a.auth.verify(r.Request().Header); err == nil {
			caller = "user:" + r.actor.UserID
			r.Set(userKey, r.actor.UserID)
		}
	}
	switch {
	case !a.limiter.allow(caller):
		return &fault.Error{Kind: fault.Limited, Code: "rate_limited", Message: "too many requests", RetryAfter: time.Second}
	case err != nil:
		r.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
		return &fault.Error{Kind: fault.Unauthenticated, Code: "unauthenticated", Message: "a valid bearer token is needed", Err: err}
	case !r.op.public && !slices.ContainsFunc(r.op.scopes, func(s string) bool { return slices.Contains(scopes, s) }):
		return fault.New(fault.Forbidden, "forbidden", "the token needs the scope "+strings.Join(r.op.scopes, " or "))
	}
	// An admin acts as one only where the operation says so: elsewhere the own orders are meant.
	r.actor.Admin = slices.Contains(scopes, "admin") && slices.Contains(r.op.scopes, "admin")
	return nil
}
