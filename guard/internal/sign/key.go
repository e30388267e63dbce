package sign

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"strings"
	"sync"
)

// A Key checks signatures: one of Secret and Public is set. Make it with [NewSecret] or
// [NewPublic], and do not change it. It prints as its ID.
type Key struct {
	ID     string
	Secret []byte            `json:"-"` // HMAC-SHA-256
	Public ed25519.PublicKey `json:"-"` // Ed25519

	macs *sync.Pool // of hash.Hash with the secret in; nil: they are made again
}

// NewSecret returns a key for HMAC-SHA-256. The secret must have at least 32 bytes; it is copied.
func NewSecret(id string, secret []byte) (*Key, error) {
	if _, err := newSigner(id, secret); err != nil {
		return nil, err
	}
	return &Key{ID: id, Secret: append([]byte(nil), secret...), macs: new(sync.Pool)}, nil
}

// NewPublic returns a key for Ed25519, from PEM (PKIX, "PUBLIC KEY") or the 32 bytes in base64.
func NewPublic(id, text string) (*Key, error) {
	if id == "" || !isWord(id, ' ') {
		return nil, failed(Malformed, "the key's ID %q must be 1 to %d printable ASCII characters", clip(id), maxWord)
	}
	text = strings.TrimSpace(text)
	if block, _ := pem.Decode([]byte(text)); block != nil {
		if block.Type != "PUBLIC KEY" {
			return nil, failed(Malformed, "the key %q is %s in PEM: want PUBLIC KEY", id, clip(block.Type))
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, failed(Malformed, "the key %q is not a public key: %v", id, err)
		}
		public, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return nil, failed(Algorithm, "the key %q is a %T: want Ed25519", id, parsed)
		}
		return &Key{ID: id, Public: public}, nil
	}
	plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	public, err := base64.RawStdEncoding.Strict().DecodeString(plain)
	if err != nil || len(public) != ed25519.PublicKeySize {
		return nil, failed(Malformed, "the key %q is neither PEM (PUBLIC KEY) nor the base64 of %d bytes", id, ed25519.PublicKeySize)
	}
	return &Key{ID: id, Public: public}, nil
}

// find returns the key of an ID.
func find[S string | []byte](keys map[string]*Key, id S) (*Key, *Error) {
	key := keys[string(id)]
	if key == nil || key.ID != string(id) {
		return nil, failed(Unknown, "no key is called %q", clip(id))
	}
	return key, nil
}

func shortSecret(id string, secret []byte) *Error {
	return failed(Malformed, "the secret of the key %q has %d bytes: want at least %d random ones", clip(id), len(secret), minSecret)
}

// Format prints the ID, whatever the verb: a secret must not get into a log.
func (k Key) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "key "+k.ID) }
