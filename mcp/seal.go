package mcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	sealVersion = 1  // of the layout of what is sealed
	sealHeader  = 2  // the version, the key's id
	sealKeySize = 32 // AES-256
	sealExpiry  = 8  // milliseconds since 1970, before the state

	// maxState bounds what the rounds of one call may gather: the client sends
	// all of it back each time.
	maxState  = 64 << 10
	maxSealed = maxState + 1<<10 // with all that is around it
)

// sealer seals the requestState of a call: what its earlier rounds have brought
// is kept by the client, who can neither read nor change it, nor use it for
// another call (2026-07-28 basic/patterns/mrtr, "Server Requirements"). That a
// state is used once only is not enforced; it would need memory of the server.
type sealer struct {
	keys []sealKey // the first one seals, all of them open
	ttl  time.Duration
}

type sealKey struct {
	id   byte
	aead cipher.AEAD
}

// binding is what a state belongs to.
type binding struct {
	owner  string // owner.Key.Text
	method string
	params paramsDigest
}

// newSealer takes keys of 32 bytes. Without any it makes one, which ends with
// the process.
func newSealer(keys [][]byte, ttl time.Duration) (*sealer, error) {
	if len(keys) == 0 {
		key := make([]byte, sealKeySize)
		rand.Read(key)
		keys = [][]byte{key}
	}
	s := &sealer{ttl: ttl}
	for i, key := range keys {
		if len(key) != sealKeySize {
			return nil, fmt.Errorf("the state key %d has %d bytes; make it %d random ones", i, len(key), sealKeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, sealKey{id: sha256.Sum256(key)[0], aead: aead})
	}
	return s, nil
}

// seal returns the requestState that holds state.
func (s *sealer) seal(b binding, state []byte) string {
	key := s.keys[0]
	header := []byte{sealVersion, key.id}
	expiry := time.Now().Add(s.ttl).UnixMilli()
	plain := append(binary.BigEndian.AppendUint64(nil, uint64(expiry)), state...)
	sealed := key.aead.Seal(header[:sealHeader:sealHeader], nil, plain, b.data(header)) //nolint:gosec // the nonce is random: the AEAD makes it
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// The refusals say no more than a stranger may know.
var (
	errState        = &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "requestState was changed, or belongs to another call, caller or server: repeat the call without it"}
	errStateExpired = &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "requestState has expired: repeat the call without it"}
)

// strictBase64 refuses all but one spelling, but for the line breaks that it
// skips.
var strictBase64 = base64.RawURLEncoding.Strict()

// open returns the state that seal was given. What it is given is an attacker's.
func (s *sealer) open(b binding, sealed string) ([]byte, error) {
	if len(sealed) > base64.RawURLEncoding.EncodedLen(maxSealed) || strings.ContainsAny(sealed, "\r\n") {
		return nil, errState
	}
	raw, err := strictBase64.DecodeString(sealed)
	if err != nil || len(raw) < sealHeader || raw[0] != sealVersion {
		return nil, errState
	}
	header, box := raw[:sealHeader], raw[sealHeader:]
	for _, key := range s.keys {
		if key.id != header[1] {
			continue
		}
		plain, err := key.aead.Open(nil, nil, box, b.data(header))
		if err != nil || len(plain) < sealExpiry {
			continue // another key may have the same id
		}
		if time.Now().UnixMilli() >= int64(binary.BigEndian.Uint64(plain)) {
			return nil, errStateExpired
		}
		return plain[sealExpiry:], nil
	}
	return nil, errState
}

// data is what is authenticated with a state, unambiguously: every part but the
// last has a length.
func (b *binding) data(header []byte) []byte {
	out := make([]byte, 0, len(header)+2*binary.MaxVarintLen32+len(b.owner)+len(b.method)+len(b.params))
	out = append(out, header...)
	for _, s := range [...]string{b.owner, b.method} {
		out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
	}
	return append(out, b.params[:]...)
}

// paramsDigest says what a call asks for. It is the same in each round, also
// when something on the way writes the JSON in another way.
type paramsDigest [sha256.Size]byte

// digestParams digests params without the members that differ from round to
// round.
func digestParams(params jsonrpc.Raw) paramsDigest {
	same := newObject(params, "_meta", "inputResponses", "requestState").end()
	return sha256.Sum256(validate.AppendCanonical(nil, same))
}
