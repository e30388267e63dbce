package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/replay"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/store"
)

// sharedNonces is the default bound of the nonces that one process remembers of those that several
// share: an owner that fills its share of it leaves room for others in the store, too.
const sharedNonces = 200_000

// claims remembers nonces in the store that several processes share. What this process has seen is
// refused without asking the store, and an owner has a share of what this process claims.
type claims struct {
	local *replay.Memory
	once  store.Once
}

// Use implements [NonceStore]. A nonce is new when the store says so, and at no other time: an
// error or an unknown outcome refuses the request.
func (c *claims) Use(
	ctx context.Context, by, nonce string, until time.Time,
) (fresh bool, err error) {
	if fresh, err = c.local.Use(ctx, by, nonce, until); err != nil || !fresh {
		return false, err
	}
	first, err := c.once.Claim(ctx, claimKey(nonce), until)
	switch {
	case errors.Is(err, store.ErrPast):
		return false, replay.ErrPast
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull):
		c.local.Forget(ctx, nonce) // nothing was claimed: the same request may come again
	}
	if err != nil {
		return false, fmt.Errorf("guard: the nonce cannot be claimed in the shared store: %w", err)
	}
	return first, nil
}

// Forget implements [NonceStore].
func (c *claims) Forget(ctx context.Context, nonce string) {
	if c.once.Release(ctx, claimKey(nonce)) == nil {
		c.local.Forget(ctx, nonce)
	}
}

func claimKey(nonce string) string { return "nonce " + nonce }

// remembered refuses what was made before the shared store began to remember: it may have been
// used, and forgotten. The store is asked after the claim was made: had it lost its claims before
// that, it would have begun later.
func (s *state) remembered(ctx context.Context, made time.Time) *refusal {
	if s.g.opts.Shared == nil || s.g.opts.Nonces != nil {
		return nil
	}
	since, err := s.g.opts.Shared.Since(ctx)
	if err != nil {
		return unavailable(err)
	}
	if made.Before(since) {
		r := refuse(jsonrpc.Stale, fmt.Sprintf("the shared store began to remember nonces at %s, "+
			"and this was made before: make another one then", since.UTC().Format(time.RFC3339)))
		r.after = max(since.Sub(s.g.now()), time.Second)
		return r
	}
	return nil
}

// unavailable is the refusal of what cannot be remembered, and so could be used again.
func unavailable(err error) *refusal {
	r := refuse(jsonrpc.Unavailable, err.Error())
	r.after = time.Second
	return r
}

// claim is once for what was made at a time.
func (s *state) claim(
	ctx context.Context, o owner.Key, nonce string, made time.Time,
) (*ticket, *refusal) {
	// It is refused for its age a moment before it is forgotten.
	t, refused := s.once(ctx, o, nonce, made.Add(s.past+time.Second))
	if refused == nil {
		refused = s.remembered(ctx, made)
	}
	if refused != nil {
		return nil, refused
	}
	return t, nil
}

// sharedLimits lets processes count rates and quotas together. Nil: this one counts for itself.
func (g *Guard) sharedLimits() *limit.Shared {
	if g.opts.Shared == nil {
		return nil
	}
	return &limit.Shared{Counter: g.opts.Shared, Nodes: g.opts.Nodes}
}
