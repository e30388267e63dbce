// Package observed tells an observer what all ends of MCP know of their calls and sessions.
package observed

import (
	"context"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// Calls returns an observer of the calls of a connection that carries MCP. That of nil is nil.
func Calls(o *observe.Observer) *observe.Observer {
	t := o.Tag(func(c *observe.Call) {
		c.MCP = true
		c.Known = spec.IsMethod(c.Method)
	})
	if o != nil && o.Traces {
		start := t.Start
		t.Start = func(ctx context.Context, c *observe.Call) context.Context {
			var r *Rounds
			if c.Outgoing {
				r, _ = ctx.Value(roundKey{}).(*Rounds)
			}
			if r == nil || r.last != (observe.Span{}) { // a call of what answers a question
				return start(ctx, c)
			}
			c.Before = r.before
			ctx = start(ctx, c)
			r.last = c.Span
			return ctx
		}
	}
	return t
}

// Rounds are those of one call of a client, so that the span of each has a link to that of the one
// before. A nil *Rounds does nothing.
type Rounds struct{ before, last observe.Span }

type roundKey struct{}

// NewRounds returns nil where no spans are made.
func NewRounds(o *farcall.Options) *Rounds {
	if o == nil || o.Observer == nil || !o.Observer.Traces {
		return nil
	}
	return new(Rounds)
}

// Within returns the context of an attempt at a round. The first call with it is that.
func (r *Rounds) Within(ctx context.Context) context.Context {
	if r == nil {
		return ctx
	}
	r.last = observe.Span{}
	return context.WithValue(ctx, roundKey{}, r)
}

// Next begins the next round.
func (r *Rounds) Next() {
	if r != nil {
		r.before = r.last
	}
}

// A Session is one that an observer watches.
type Session struct {
	observer *observe.Observer
	life     observe.Lifetime
	began    time.Time
}

// Begin tells an observer of a session that has begun, outgoing where this end is the client. Nil:
// it is not observed.
func Begin(o *observe.Observer, transport, revision string, outgoing bool) *Session {
	if o == nil || o.Open == nil && o.Close == nil {
		return nil
	}
	s := &Session{o, observe.Lifetime{
		Kind: observe.Session, Outgoing: outgoing, Transport: transport,
		Revision: revision,
	}, time.Now()}
	if o.Open != nil {
		o.Open(s.life)
	}
	return s
}

// End tells the observer that the session has ended. It is to be called once.
func (s *Session) End() {
	if s != nil && s.observer.Close != nil {
		s.life.Took = time.Since(s.began)
		s.observer.Close(s.life)
	}
}
