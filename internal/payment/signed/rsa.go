// Package signed is what the adapters to Alipay and WeChat Pay share: both sign every call and answer with RSA and SHA-256.
package signed

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// minBits is the smallest modulus that is taken: both companies ask for 2048 bits.
const minBits = 2048

// PrivateKey reads a PEM file: PKCS #8 (PRIVATE KEY) or PKCS #1 (RSA PRIVATE KEY). Errors never show the key.
func PrivateKey(file []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(file)
	if block == nil {
		return nil, errors.New("a private key in PEM form is expected")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a private key is expected, not a %s", block.Type)
	}
	private, ok := key.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("the private key is no RSA key")
	}
	return private, strong(&private.PublicKey)
}

// PublicKey reads a PEM file: a public key (PUBLIC KEY) or an X.509 certificate, whose serial number is returned too, in
// upper-case hexadecimal. A certificate's own signature and dates are not checked: it is trusted because it is configured.
func PublicKey(file []byte) (key *rsa.PublicKey, serial string, err error) {
	block, _ := pem.Decode(file)
	if block == nil {
		return nil, "", errors.New("a public key or certificate in PEM form is expected")
	}
	var parsed any
	switch block.Type {
	case "PUBLIC KEY":
		parsed, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			parsed, serial = c.PublicKey, fmt.Sprintf("%X", c.SerialNumber.Bytes())
		}
	default:
		return nil, "", fmt.Errorf("a public key or certificate is expected, not a %s", block.Type)
	}
	key, ok := parsed.(*rsa.PublicKey)
	if err != nil || !ok {
		return nil, "", errors.New("the public key is no RSA key")
	}
	return key, serial, strong(key)
}

func strong(key *rsa.PublicKey) error {
	if key.N.BitLen() < minBits {
		return fmt.Errorf("an RSA key of %d bits is too weak: at least %d", key.N.BitLen(), minBits)
	}
	return nil
}

// Sign returns the signature over message in base64 (RSASSA-PKCS1-v1_5 with SHA-256, RFC 8017).
func Sign(key *rsa.PrivateKey, message []byte) (string, error) {
	hash := sha256.Sum256(message)
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:])
	return base64.StdEncoding.EncodeToString(signature), err
}

// Verify checks what Sign made. Another spelling of the same signature in base64 is refused.
func Verify(key *rsa.PublicKey, message []byte, signature string) error {
	raw, err := base64.StdEncoding.Strict().DecodeString(signature)
	if err != nil || base64.StdEncoding.EncodeToString(raw) != signature { // DecodeString skips line breaks
		return errors.New("the signature is no base64")
	}
	hash := sha256.Sum256(message)
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, hash[:], raw)
}

// Token reports whether s is a number or id as a company makes them: 1 to 128 visible ASCII characters.
func Token(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
