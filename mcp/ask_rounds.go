package mcp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// asks is what a call has asked its client, in this round and in those before,
// and what it has done once (2026-07-28 basic/patterns/mrtr).
type asks struct {
	mu        sync.Mutex
	keys      keys
	answers   map[string]jsonrpc.Raw       // by key; to be checked when they are used
	responses map[string]jsonrpc.Raw       // of this round, as far as they are unused
	requests  map[string]spec.InputRequest // of this round
	over      bool                         // the handler has returned
	memos     memos
	size      int // of what is kept for the next round
}

// state is what a requestState holds.
type state struct {
	Answers map[string]jsonrpc.Raw `json:"answers,omitzero"`
	Memos   map[string]jsonrpc.Raw `json:"once,omitzero"`
	Asked   []string               `json:"asked,omitzero"` // in the round that this state ends
	Round   string                 `json:"round,omitzero"` // its traceparent, when it is recorded
}

// sealing seals the states of a server.
type sealing struct{ *sealer }

func (x *sealing) init(s *Server) {
	sealer, err := newSealer(s.opts.Keys, s.opts.StateTTL)
	if err != nil {
		misuse("ServerOptions.Keys: %v", err)
	}
	if x.sealer = sealer; s.opts.Replica != "" {
		sealer.mark = s.opts.Replica + "~"
	}
}

// openAsks prepares a call with a handler that may ask, with what its earlier rounds
// and this one have brought. For a relay that may be another's, who will
// tell: it is opened when the handler needs it.
func (s *Server) openAsks(c *call) (err error) {
	c.mayAsk, c.lazy = true, s.opts.Relay != nil
	if !c.lazy && c.continues() {
		c.asks, err = c.srv.openRounds(c, c.owner()) // sealed by the server that clients know
	}
	return err
}

// continues reports whether there were rounds before this one.
func (c *call) continues() bool {
	return c.rev.InputRounds && len(c.in.state)+len(c.in.responses) > 0
}

func (s *Server) openRounds(c *call, o owner.Key) (*asks, error) {
	a, before, responses := &asks{}, state{}, c.in.responses
	if len(c.in.state) > 0 && c.in.state[0] == '"' { // anything else is nothing that can be opened
		plain, err := s.sealed.open(c.binding(o), string(scan.Unquote(c.in.state)))
		if err != nil {
			return nil, err
		}
		if err := jsonv2.Unmarshal(plain, &before); err != nil {
			return nil, errState
		}
	}
	if len(responses) > 0 && string(responses) != "null" {
		if responses[0] != '{' {
			return nil, invalidParams("inputResponses must be an object")
		}
		if err := jsonv2.Unmarshal(responses, &a.responses); err != nil {
			return nil, invalidParams("inputResponses must be an object with each key once")
		}
	}
	a.answers, a.memos.done = before.Answers, before.Memos
	if seen := observe.From(c); seen != nil {
		seen.Before.SetParent(before.Round)
	}
	for _, key := range before.Asked { // kept even when this run does not get to them
		if raw, ok := a.responses[key]; ok {
			setEntry(&a.answers, key, raw)
			delete(a.responses, key)
		}
	}
	for _, entries := range [...]map[string]jsonrpc.Raw{a.answers, a.memos.done} {
		for key, raw := range entries {
			a.size += entrySize(key, raw)
		}
	}
	if a.size > maxState {
		return nil, invalidParams("inputResponses and requestState hold %d bytes together, more than %d",
			a.size, maxState)
	}
	return a, nil
}

// rounds returns what the call has asked, and what it asks.
func (c *call) rounds() (a *asks, err error) {
	var o owner.Key
	open := c.lazy && c.continues()
	if open {
		o = c.owner() // it may look at the call
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return nil, errOver
	case c.asks != nil:
		return c.asks, nil
	case open:
		if a, err = c.srv.openRounds(c, o); err != nil {
			return nil, err
		}
	default:
		a = &asks{}
	}
	c.asks = a
	return a, nil
}

// asking reports whether the client is to be asked when the handler returns.
func (c *call) asking() (bool, error) {
	c.mu.Lock()
	a, over := c.asks, c.over
	c.mu.Unlock()
	if over {
		return false, errOver
	}
	return a != nil && a.asking(), nil
}

func (c *call) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// binding is what the state of a call belongs to.
func (c *call) binding(o owner.Key) binding {
	params := c.params
	if c.sent != nil { // they are the same in each round, whatever middleware makes of them
		params = *c.sent
	}
	return binding{owner: o.Text(), method: c.method, params: digestParams(params)}
}

var errOver = errors.New("mcp: the handler has returned; it is too late to ask the client")

// ask returns the answer, or notes the question and returns ErrAsked.
func (a *asks) ask(q *question) (jsonrpc.Raw, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return nil, errOver
	}
	key := a.keys.next(q)
	raw, known := a.answers[key]
	if !known {
		raw, known = a.responses[key]
		if err := a.grow(key, raw); err != nil {
			return nil, err
		}
		if !known {
			setEntry(&a.requests, key, spec.InputRequest{Method: q.method, Params: q.params})
			return nil, ErrAsked
		}
		delete(a.responses, key)
		setEntry(&a.answers, key, raw)
	}
	if err := q.check(raw); err != nil {
		return nil, badResponse(key, err)
	}
	return bytes.Clone(raw), nil
}

// badResponse is the error of a response that does not fit its request.
func badResponse(key string, err error) error {
	return jsonrpc.Errorf(jsonrpc.InvalidParams,
		"Invalid params: inputResponses: the response %q is not valid: %w", key, err)
}

// grow makes room for one more entry of the next round's state.
func (a *asks) grow(key string, raw jsonrpc.Raw) error {
	if n := entrySize(key, raw); a.size+n <= maxState {
		a.size += n
		return nil
	}
	return fmt.Errorf(
		"mcp: %q does not fit into the state of the call, which may hold %d bytes: let the client be "+
			"asked for less, or Once return less", key, maxState)
}

// entrySize is how much of a state an entry takes up, or a little more.
func entrySize(key string, raw jsonrpc.Raw) int {
	return len(scan.AppendQuoted(nil, key)) + len(raw) + len(":,")
}

// setEntry sets an entry of a map that may be nil.
func setEntry[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// asking reports whether the client is to be asked.
func (a *asks) asking() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.requests) > 0
}

// inputRequired returns the result that asks the client, if anything is to be
// asked. It is called when the handler has returned; with which error does not
// matter, for a handler may wrap it, or have done without the answer.
func (c *call) inputRequired() (result jsonrpc.Raw, asked bool) {
	c.mu.Lock()
	a := c.asks
	c.mu.Unlock()
	if a == nil {
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if len(a.requests) == 0 {
		return nil, false
	}
	after := state{Answers: a.answers, Memos: a.memos.done}
	for key := range a.requests {
		after.Asked = append(after.Asked, key)
	}
	slices.Sort(after.Asked)
	if seen := observe.From(c); seen != nil && seen.Span.Sampled {
		after.Round = seen.Span.Parent()
	}
	plain, err := jsonv2.Append(nil, &after)
	if err == nil {
		result, err = jsonv2.Append(nil, &spec.InputRequiredResult{
			ResultType: spec.ResultInputRequired, InputRequests: a.requests,
			RequestState: c.srv.sealed.seal(c.binding(c.owner()), plain),
		})
	}
	return result, err == nil // all of it is JSON that has been marshalled before
}

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
	box  *seal.Box
	ttl  time.Duration
	mark string // before what it has sealed
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
	return &sealer{box: box, ttl: ttl}, err
}

// seal returns the requestState that holds state.
func (s *sealer) seal(b binding, state []byte) string {
	return s.mark + s.box.Seal(state, b.data(), time.Now().Add(s.ttl))
}

// The refusals say no more than an unauthenticated caller may know.
var (
	errState = &jsonrpc.Error{
		Code: jsonrpc.InvalidParams,
		Message: "requestState was changed, or belongs to another call, caller or server: repeat the " +
			"call without it",
	}
	errStateExpired = &jsonrpc.Error{
		Code:    jsonrpc.InvalidParams,
		Message: "requestState has expired: repeat the call without it",
	}
)

// open returns the state that seal was given. What it is given is an attacker's.
func (s *sealer) open(b binding, sealed string) ([]byte, error) {
	if _, rest, ok := strings.Cut(sealed, "~"); ok { // the replica that has sealed it
		sealed = rest
	}
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
