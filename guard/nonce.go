package guard

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/replay"
	"github.com/farcall-dev/farcall/guard/internal/sign"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A NonceStore remembers the nonces of signatures and of DPoP proofs. Guards that share one refuse
// each other's replays. It must be safe for concurrent use.
type NonceStore interface {
	// Use remembers a nonce until a time and reports whether it is new. The nonce has its key in it:
	// it is one whichever owner uses it. The owner, as of [Principal.Owner], is for shares: one that
	// uses many must not keep out others. An error refuses the request.
	Use(ctx context.Context, owner, nonce string, until time.Time) (fresh bool, err error)
	// Forget forgets a nonce that Use has just reported as new, because a limit refused all that it
	// was for: the same request may come again. It is called once at most, and may do nothing.
	Forget(ctx context.Context, nonce string)
}

// window refuses what was made too long ago, or will be made. A memory of nonces that began with
// this process cannot tell whether what is older was used.
func (s *state) window(made, now time.Time) *refusal {
	switch {
	case s.g.opts.Nonces == nil && s.g.opts.Shared == nil && made.Before(s.g.began):
		return refuse(jsonrpc.Stale,
			"it was made before this server began, which does not know what was used before: make "+
				"another one")
	case made.After(now.Add(s.future)):
		return refuse(jsonrpc.Stale,
			fmt.Sprintf("it was made %v in the future: look at the clocks",
				made.Sub(now).Round(time.Second)))
	case now.Sub(made) > s.past:
		return refuse(jsonrpc.Stale,
			fmt.Sprintf("it was made %v ago, and %v are allowed", now.Sub(made).Round(time.Second), s.past))
	}
	return nil
}

// once refuses what was used before. The owner is that of the key.
func (s *state) once(
	ctx context.Context, o owner.Key, nonce string, until time.Time,
) (*ticket, *refusal) {
	fresh, err := s.g.nonces.Use(ctx, o.Text(), nonce, until)
	switch {
	case errors.Is(err, replay.ErrPast): // the clock of the memory does not go back
		return nil, refuse(jsonrpc.Stale, "it is too old to say whether it was used before")
	case errors.Is(err, replay.ErrShare):
		return nil, refuse(jsonrpc.RateLimited, err.Error()).later(time.Second)
	case err != nil: // what cannot be remembered could be used again
		return nil, unavailable(err)
	case !fresh:
		return nil, refuse(jsonrpc.Replayed, "the nonce was used before")
	}
	return &ticket{nonces: s.g.nonces, nonce: nonce}, nil
}

// A ticket is a signature or a proof that was accepted, and what it is good for: one message, or
// those of a request over HTTP. Its nonce is remembered before any of them is executed, so that
// none is executed twice. When limits have refused all of them before they began, nothing was
// executed, and the nonce is forgotten: otherwise a signer that calls too often would fill the
// memory of nonces with calls that were refused, and could not send one of them again.
//
//	remembered ──enter──> in use ──leave──> settled: forgotten, when a limit refused the message
//	                                                 kept, when it began, was in a batch, or there was none
type ticket struct {
	nonces NonceStore
	nonce  string

	mu        sync.Mutex
	entered   int // messages
	refused   int // of these, by a limit, before they began
	forgotten bool
}

// enter notes a message. It reports false when the nonce was forgotten already.
func (t *ticket) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entered++
	return !t.forgotten
}

// leave notes the end of a message: whether a limit refused it before it began.
func (t *ticket) leave(refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if refused {
		t.refused++
	}
}

// settle forgets the nonce when nothing was executed.
func (t *ticket) settle(ctx context.Context) {
	t.mu.Lock()
	forget := !t.forgotten && t.entered > 0 && t.refused == t.entered
	t.forgotten = t.forgotten || forget
	t.mu.Unlock()
	if forget {
		t.nonces.Forget(context.WithoutCancel(ctx), t.nonce)
	}
}

// An attempt is what became of one message with a ticket: [Guard.Begin] notes it. A nil attempt
// notes nothing.
type attempt struct{ began, limited atomic.Bool }

func (a *attempt) begin() {
	if a != nil {
		a.began.Store(true)
	}
}

func (a *attempt) limit() {
	if a != nil {
		a.limited.Store(true)
	}
}

// refused reports whether a limit refused the message before any of it began.
func (a *attempt) refused() bool { return a.limited.Load() && !a.began.Load() }

// SignRequest signs a request over HTTP (RFC 9421, with the digest of its body), as the Signer id.
// The key is a []byte for HMAC-SHA-256 or an ed25519.PrivateKey. The body is read, and may be read
// again.
func SignRequest(r *http.Request, id string, key any) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return fmt.Errorf("guard: cannot read the body to be signed: %w", err)
		}
		_ = r.Body.Close() // it was read
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.ContentLength = int64(len(body))
	}
	if err := sign.HTTP(r, body, id, key, time.Now(), rand.Text()); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// SignParams returns the params of a message with its signature in _meta (see docs/security.md for
// the bytes that are signed). audience is the Resource.URL of the server, "" where it has none. The
// key is as for SignRequest. Params that are a list cannot be signed.
func SignParams(
	method string, params jsonrpc.Raw, id, audience string, key any,
) (jsonrpc.Raw, error) {
	signed, err := sign.Message(method, params, id, key, time.Now(), rand.Text(), audience)
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return signed, nil
}
