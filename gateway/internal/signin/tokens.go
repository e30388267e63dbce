package signin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcpauth"
)

// Tokens returns the store of an mcpauth.Client that gets the tokens of an ID, for a principal of
// that name. Registrations at authorization servers are in the record of the gateway, for all
// owners. A client that signs out keeps those.
func (s *Store) Tokens(id ID, principal string, signsOut bool) mcpauth.Store {
	t := &tokens{store: s, id: id, principal: principal, signsOut: signsOut}
	if s.claims {
		return claiming{t}
	}
	return t
}

// tokens is what one mcpauth.Client sees of a store.
type tokens struct {
	store     *Store
	id        ID
	principal string
	signsOut  bool

	// Of a renewal, which is one at a time:
	loaded  []byte                 // the tokens that the client has
	claim   string                 // "": none
	awaited string                 // the claim of another node
	since   time.Time              // when that was seen first
	unsaved atomic.Pointer[[]byte] // tokens that are to be stored
}

// String keeps tokens out of logs.
func (t *tokens) String() string { return t.id.String() }

// GoString keeps tokens out of logs.
func (t *tokens) GoString() string { return t.String() }

// of returns the record for a key of mcpauth.
func (t *tokens) of(key string) (id ID, principal string) {
	if strings.HasPrefix(key, "tokens ") {
		return t.id, t.principal
	}
	return ID{Upstream: t.id.Upstream}, ""
}

// Load implements [mcpauth.Store].
func (t *tokens) Load(_ context.Context, key string) ([]byte, error) {
	id, _ := t.of(key)
	if v := t.unsaved.Load(); v != nil && id.Owner != "" {
		return *v, nil
	}
	_, rec, err := t.store.find(id)
	if errors.Is(err, errDamaged) {
		return nil, nil // the owner signs in again, or the gateway registers again
	}
	if err != nil || rec == nil || rec.lost() {
		return nil, err
	}
	if id.Owner != "" {
		t.loaded = rec.Entries[key]
	}
	return rec.Entries[key], nil
}

// maxEntry bounds what is kept under one key, in bytes.
const maxEntry = 256 << 10

// Save implements [mcpauth.Store].
func (t *tokens) Save(_ context.Context, key string, value []byte) error {
	if len(value) > maxEntry {
		return fmt.Errorf("signin: the tokens have %d bytes, more than %d", len(value), maxEntry)
	}
	id, principal := t.of(key)
	return t.store.change(id, principal, func(r *record) bool {
		if r.Entries == nil {
			r.Entries = map[string]jsonrpc.Raw{}
		}
		r.Entries[key], r.Claim, r.Keeps = slices.Clone(value), nil, false
		return true
	})
}

// Delete implements [mcpauth.Store]. Tokens that were not loaded are of another sign-in: only a
// sign-out deletes them.
func (t *tokens) Delete(_ context.Context, key string) error {
	id, principal := t.of(key)
	if id.Owner == "" && t.signsOut {
		return nil
	}
	return t.store.change(id, principal, func(r *record) bool {
		text, there := r.Entries[key]
		if there = there && (id.Owner == "" || t.signsOut || bytes.Equal(text, t.loaded)); there {
			delete(r.Entries, key)
		}
		return there
	})
}

// Lock is for mcpauth, which looks for it: the same tokens are renewed once at a time.
func (t *tokens) Lock(ctx context.Context, key string) (unlock func(), err error) {
	id, _ := t.of(key)
	return t.store.Lock(ctx, id)
}
