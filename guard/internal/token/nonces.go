package token

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

const minNonceKey = 32

// Nonces are those that a server gives out for DPoP proofs (RFC 9449 §8, §9), so that a proof
// cannot be made long before it is used. Nothing is remembered: a nonce is a span of time with a
// MAC, the same for everybody. Servers with one key accept each other's. It may be used by any
// number of goroutines at once.
type Nonces struct {
	key  []byte
	life time.Duration
}

// NewNonces returns nonces that are valid for life at least and twice that at most; 0 is 5 min. A
// key has 32 bytes at least; nil makes one up.
func NewNonces(key []byte, life time.Duration) (*Nonces, error) {
	if key == nil {
		key = make([]byte, minNonceKey)
		rand.Read(key)
	}
	if len(key) < minNonceKey {
		return nil, errors.New("token: a key for nonces must have 32 bytes at least")
	}
	if life <= 0 {
		life = 5 * time.Minute
	}
	return &Nonces{key: key, life: life}, nil
}

// Issue returns the nonce to give out now.
func (n *Nonces) Issue(now time.Time) string {
	return base64.RawURLEncoding.EncodeToString(n.seal(n.slot(now)))
}

// Valid reports whether a nonce was given out in the current span of time or in that before.
func (n *Nonces) Valid(nonce string, now time.Time) bool {
	if len(nonce) > 64 {
		return false
	}
	b, err := decode(nonce)
	if err != nil {
		return false
	}
	slot := n.slot(now)
	// Both are compared, so that the time does not tell which.
	current, before := hmac.Equal(b, n.seal(slot)), hmac.Equal(b, n.seal(slot-1))
	return current || before
}

func (n *Nonces) slot(now time.Time) uint64 { return uint64(now.UnixNano() / int64(n.life)) }

func (n *Nonces) seal(slot uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, slot)
	mac := hmac.New(sha256.New, n.key)
	mac.Write([]byte("farcall DPoP nonce\x00"))
	mac.Write(b)
	return append(b, mac.Sum(nil)[:16]...)
}
