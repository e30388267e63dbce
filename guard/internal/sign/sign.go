package sign

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"hash"
	"io"
	"math"
	"strings"
	"sync"
	"time"
)

// The algorithms, as RFC 9421 §6.2.2 registers their names.
const (
	algHMAC    = "hmac-sha256"
	algEd25519 = "ed25519"
)

const (
	minSecret = 32  // bytes of a secret
	minNonce  = 16  // characters of a nonce
	maxWord   = 256 // characters of a nonce, a key's ID
)

// A Reason says what is wrong with a signature.
type Reason string

// The reasons.
const (
	Missing   Reason = "missing"   // there is none
	Malformed Reason = "malformed" // it, or what it signs, is not as it must be
	Unknown   Reason = "key"       // no key of that ID
	Algorithm Reason = "algorithm" // it is not the one of the key
	Mismatch  Reason = "signature" // it is of other bytes, or by another key
	Digest    Reason = "digest"    // the body is another one
	Uncovered Reason = "uncovered" // it leaves out what must be signed
)

// An Error is why a signature does not count. Its text is for the operator and has no secrets.
type Error struct {
	Reason Reason
	text   string
}

func (e *Error) Error() string { return "signature: " + e.text }

func failed(r Reason, format string, args ...any) *Error {
	return &Error{r, fmt.Sprintf(format, args...)}
}

// A Signature is one that is genuine.
type Signature struct {
	KeyID   string
	Created time.Time
	Expires time.Time // zero: it does not say
	Nonce   string
}

// signer makes signatures: of a []byte or an ed25519.PrivateKey.
type signer struct {
	id, alg string
	secret  []byte
	private ed25519.PrivateKey
}

func newSigner(id string, key any) (*signer, error) {
	if !isWord(id, ' ') || id == "" {
		return nil, failed(Malformed, "the key's ID %q must be 1 to %d printable ASCII characters",
			clip(id), maxWord)
	}
	switch key := key.(type) {
	case []byte:
		if len(key) < minSecret {
			return nil, shortSecret(id, key)
		}
		return &signer{id: id, alg: algHMAC, secret: key}, nil
	case ed25519.PrivateKey:
		if len(key) == ed25519.PrivateKeySize {
			return &signer{id: id, alg: algEd25519, private: key}, nil
		}
	}
	return nil, failed(Algorithm,
		"the key %q is a %T: want the []byte of a secret, or an ed25519.PrivateKey", id, key)
}

func (s *signer) sign(base []byte) []byte {
	if s.secret == nil {
		return ed25519.Sign(s.private, base)
	}
	h := hmac.New(sha256.New, s.secret)
	h.Write(base)
	return h.Sum(nil)
}

// check refuses a time and a nonce that the other end would refuse.
func (s *signer) check(now time.Time, nonce string) error {
	if t := now.Unix(); t <= 0 || t > maxCreated {
		return failed(Malformed, "%v is no time to sign at", now)
	}
	if !isNonce(nonce) {
		return failed(Malformed, "a nonce must be %d to %d visible ASCII characters", minNonce, maxWord)
	}
	return nil
}

const maxCreated = 999_999_999_999_999 // RFC 9651 §3.3.1

// isNonce reports whether s may be a nonce.
func isNonce[S string | []byte](s S) bool { return len(s) >= minNonce && isWord(s, '!') }

// isWord reports whether s is short and all of ASCII from the character least on.
func isWord[S string | []byte](s S, least byte) bool {
	if len(s) > maxWord {
		return false
	}
	for i := range len(s) {
		if s[i] < least || s[i] > '~' {
			return false
		}
	}
	return true
}

// clip keeps untrusted text short, for an error.
func clip[S string | []byte](s S) string { return string(s[:min(len(s), 64)]) }

// verify checks a signature of base. alg names its algorithm, "" for that of the key.
func (k *Key) verify(alg string, base, signature []byte, w *work) *Error {
	own, size := algHMAC, sha256.Size
	switch {
	case len(k.Secret) > 0 && len(k.Public) > 0:
		return failed(Algorithm, "the key %q is both a secret and public", k.ID)
	case len(k.Public) == ed25519.PublicKeySize:
		own, size = algEd25519, ed25519.SignatureSize
	case len(k.Secret) < minSecret:
		return shortSecret(k.ID, k.Secret)
	}
	if alg != "" && alg != own {
		return failed(Algorithm, "%q, but the key %q is for %s", clip(alg), k.ID, own)
	}
	if len(signature) != size {
		return failed(Malformed, "%d bytes, %s has %d", len(signature), own, size)
	}
	var genuine bool
	if own == algEd25519 {
		genuine = ed25519.Verify(k.Public, base, signature)
	} else {
		genuine = hmac.Equal(k.mac(base, w.sum[:0]), signature)
	}
	if !genuine {
		return failed(Mismatch, "it is not that of the key %q over these bytes", k.ID)
	}
	return nil
}

func (k *Key) mac(base, dst []byte) []byte {
	if k.macs == nil {
		h := hmac.New(sha256.New, k.Secret)
		h.Write(base)
		return h.Sum(dst)
	}
	h, ok := k.macs.Get().(hash.Hash)
	if !ok {
		h = hmac.New(sha256.New, k.Secret)
	}
	h.Reset()
	h.Write(base)
	dst = h.Sum(dst)
	k.macs.Put(h)
	return dst
}

// work is what one verification needs; it is used again.
type work struct {
	canon
	base      []byte
	signature []byte
	sum       [sha256.Size]byte
}

var pool = sync.Pool{New: func() any { return new(work) }}

func getWork() *work {
	w, ok := pool.Get().(*work)
	if !ok {
		w = new(work)
	}
	return w
}

func (w *work) put() {
	w.release()
	if cap(w.base) > 1<<16 {
		w.base = nil
	}
	pool.Put(w)
}

// base64 without padding, in one form only.
var url64 = base64.RawURLEncoding.Strict()

// seconds reads the digits of a time in Unix seconds, written in one way.
func seconds[S string | []byte](s S) (int64, bool) {
	if len(s) == 0 || len(s) > 15 || s[0] == '0' {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i]-'0' > 9 {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, n <= min(maxCreated, math.MaxInt64)
}

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
		return nil, failed(Malformed, "the key's ID %q must be 1 to %d printable ASCII characters",
			clip(id), maxWord)
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
		return nil, failed(Malformed, "the key %q is neither PEM (PUBLIC KEY) nor the base64 of %d bytes",
			id, ed25519.PublicKeySize)
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
	return failed(Malformed, "the secret of the key %q has %d bytes: want at least %d random ones",
		clip(id), len(secret), minSecret)
}

// Format prints the ID, whatever the verb: a secret must not get into a log.
func (k Key) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "key "+k.ID) }
