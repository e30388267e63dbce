package mcp

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
)

const (
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
	box *seal.Box
	ttl time.Duration
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
	box, err := seal.New(keys, "requestState")
	return &sealer{box, ttl}, err
}

// seal returns the requestState that holds state.
func (s *sealer) seal(b binding, state []byte) string {
	return s.box.Seal(state, b.data(), time.Now().Add(s.ttl))
}

// The refusals say no more than an unauthenticated caller may know.
var (
	errState        = &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "requestState was changed, or belongs to another call, caller or server: repeat the call without it"}
	errStateExpired = &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "requestState has expired: repeat the call without it"}
)

// open returns the state that seal was given. What it is given is an attacker's.
func (s *sealer) open(b binding, sealed string) ([]byte, error) {
	state, err := s.box.Open(sealed, b.data(), maxSealed)
	switch {
	case errors.Is(err, seal.ErrExpired):
		return nil, errStateExpired
	case err != nil:
		return nil, errState
	}
	return state, nil
}

// data is what is authenticated with a state, unambiguously: every part but the
// last has a length.
func (b *binding) data() string {
	out := make([]byte, 0, 2*binary.MaxVarintLen32+len(b.owner)+len(b.method)+len(b.params))
	for _, s := range [...]string{b.owner, b.method} {
		out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
	}
	return string(append(out, b.params[:]...))
}

// paramsDigest says what a call asks for. It is the same in each round, also
// when something on the way writes the JSON in another way.
type paramsDigest [sha256.Size]byte

// digestParams digests params without the members that differ from round to
// round.
func digestParams(params jsonrpc.Raw) paramsDigest {
	same := object.New(params, "_meta", "inputResponses", "requestState").End()
	return sha256.Sum256(validate.AppendCanonical(nil, same))
}
