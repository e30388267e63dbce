// Package observed tells an observer what all ends of MCP know of their calls and sessions.
package observed

import (
	"time"

	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// Calls returns an observer of the calls of a connection that carries MCP. That of nil is nil.
func Calls(o *observe.Observer) *observe.Observer {
	return o.Tag(func(c *observe.Call) {
		c.MCP = true
		c.Known = spec.IsMethod(c.Method)
	})
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
	s := &Session{o, observe.Lifetime{Kind: observe.Session, Outgoing: outgoing, Transport: transport, Revision: revision}, time.Now()}
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
