package wechatpay

import (
	"crypto/cipher"
	"encoding/base64"
	"errors"
)

// resource is the encrypted part of a callback (pay.weixin.qq.com, "如何解密回调报文").
type resource struct {
	Algorithm      string `json:"algorithm"`
	Ciphertext     string `json:"ciphertext"` // base64; the last 16 bytes are the tag
	AssociatedData string `json:"associated_data"`
	Nonce          string `json:"nonce"` // 12 bytes, as they are
}

// decrypt opens a resource with the APIv3 key. All that Open would panic at, or that it would leave in doubt, is an error
// before.
func decrypt(aead cipher.AEAD, r resource) ([]byte, error) {
	if r.Algorithm != "AEAD_AES_256_GCM" {
		return nil, errors.New("resource.algorithm must be AEAD_AES_256_GCM")
	}
	if len(r.Nonce) != aead.NonceSize() {
		return nil, errors.New("resource.nonce must have 12 bytes")
	}
	sealed, err := base64.StdEncoding.Strict().DecodeString(r.Ciphertext)
	if err != nil {
		return nil, errors.New("resource.ciphertext must be base64")
	}
	if len(sealed) <= aead.Overhead() {
		return nil, errors.New("resource.ciphertext is too short")
	}
	plain, err := aead.Open(nil, []byte(r.Nonce), sealed, []byte(r.AssociatedData))
	if err != nil {
		return nil, errors.New("resource does not decrypt with the APIv3 key")
	}
	return plain, nil
}
