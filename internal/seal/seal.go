// Package seal answers one question: what did a process with our keys say?
//
// A sealed text is carried by a client that can neither read nor change it: the state of a call,
// the id of a session. Processes that share keys open what the others have sealed.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// KeySize is the size of a key in bytes: AES-256.
	KeySize = 32

	version = 2 // of the layout of what is sealed
	header  = 2 // the version, the key's id
	expiry  = 8 // milliseconds since 1970, before the text
)

// What Open returns.
var (
	ErrForged = errors.New(
		"seal: it was changed, is bound to something else, or its key is not among ours")
	ErrExpired = errors.New("seal: it has expired")
)

// A Box seals and opens texts of one purpose. It is safe for concurrent use.
type Box struct {
	keys []boxKey // the first one seals, all of them open
}

type boxKey struct {
	id   byte
	aead cipher.AEAD
}

// New returns a box with keys of [KeySize] bytes: the first one seals, each one opens, so that keys
// can be changed. Without any it makes one, which ends with the process. What was sealed for one
// purpose cannot be opened for another: each has keys that are derived from these (HKDF, RFC 5869).
func New(keys [][]byte, purpose string) (*Box, error) {
	if len(keys) == 0 {
		key := make([]byte, KeySize)
		rand.Read(key)
		keys = [][]byte{key}
	}
	b := &Box{}
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("the key %d has %d bytes; make it %d random ones", i, len(key), KeySize)
		}
		derived, err := Derive(key, purpose)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(derived)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		b.keys = append(b.keys, boxKey{id: sha256.Sum256(derived)[0], aead: aead})
	}
	return b, nil
}

// Derive returns a key of the same size for a purpose.
func Derive(key []byte, purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, key, nil, "farcall "+purpose, KeySize)
}

// Seal returns text as letters, digits, "-" and "_". It opens until that time, to those who know
// what it is bound to. Sealing the same text again gives another one.
func (b *Box) Seal(text []byte, bound string, until time.Time) string {
	key := b.keys[0]
	start := [header]byte{version, key.id}
	plain := binary.BigEndian.AppendUint64(make([]byte, 0, expiry+len(text)),
		uint64(until.UnixMilli()))
	plain = append(plain, text...)
	sealed := key.aead.Seal(slices.Clone(start[:]), nil, plain, bind(start[:], bound)) //nolint:gosec // the nonce is random: the AEAD makes it
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// overhead is what surrounds a text: the header, the nonce, the expiry and the tag.
const overhead = header + 12 + expiry + 16

// strict refuses all but one spelling, but for the line breaks that it skips.
var strict = base64.RawURLEncoding.Strict()

// Open returns the text of at most so many bytes that Seal was given. What it is given may be
// anything.
func (b *Box) Open(sealed, bound string, most int) ([]byte, error) {
	if len(sealed) > base64.RawURLEncoding.EncodedLen(most+overhead) ||
		strings.ContainsAny(sealed, "\r\n") {
		return nil, ErrForged
	}
	raw, err := strict.DecodeString(sealed)
	if err != nil || len(raw) < overhead || raw[0] != version {
		return nil, ErrForged
	}
	start, box := raw[:header], raw[header:]
	for _, key := range b.keys {
		if key.id != start[1] {
			continue
		}
		plain, err := key.aead.Open(nil, nil, box, bind(start, bound))
		if err != nil || len(plain) < expiry {
			continue // another key may have the same id
		}
		if time.Now().UnixMilli() >= int64(binary.BigEndian.Uint64(plain)) {
			return nil, ErrExpired
		}
		return plain[expiry:], nil
	}
	return nil, ErrForged
}

func bind(start []byte, bound string) []byte {
	return append(append(make([]byte, 0, len(start)+len(bound)), start...), bound...)
}
