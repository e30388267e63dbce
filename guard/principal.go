package guard

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
)

// A Principal is who calls. It must not be changed.
type Principal struct {
	// ID names it. It is unique among those of one Kind and Issuer.
	ID string
	// Kind is "user", "service", "agent", "process" or "anonymous".
	Kind string
	// Method is how it was found out: "key", "jwt", "mtls", "signature", "process", "none".
	Method string
	// Issuer is who vouches for it: that of its token. "" is the configuration.
	Issuer string
	// Roles and Scopes are what policies go by.
	Roles, Scopes []string
	// Claims are those of its token. Nil without one.
	Claims map[string]any
	// Expires is the end of its credentials; zero for none.
	Expires time.Time

	shown *shown // nil: the program made it, and no guard
}

// shown is what it has presented.
type shown struct {
	// as it came, for an exchange; nil: there was none. No way of printing it calls that
	token  func() string
	secret [sha256.Size]byte // of its key: another configuration may have another one
	keys   []string          // names of its keys, for locks
	owner  string            // what Owner returns; "" before the first
}

// Name returns the id and the issuer of the principal, for people. Two principals may have the same
// name: what is kept for a principal is kept under its Owner.
func (p *Principal) Name() string {
	if p == nil {
		return ""
	}
	if p.Issuer == "" {
		return p.ID
	}
	return p.Issuer + "|" + p.ID
}

// Owner returns the key under which what belongs to the principal is kept: equal for two principals
// only when they have the same Method, Kind, Issuer and ID. It is opaque, and not for people or the
// wire. It is "" for nil and for an anonymous principal: anonymous callers own nothing in common,
// so their state is kept for each session, connection or address.
func (p *Principal) Owner() string {
	if p != nil && p.shown != nil && p.shown.owner != "" {
		return p.shown.owner
	}
	return p.owner().Text()
}

// owner returns the same as a key.
func (p *Principal) owner() owner.Key {
	if p == nil || p.ID == "" || p.Kind == anonymousKind || p.Method == noMethod {
		return owner.Key{}
	}
	return owner.Principal(p.Method, p.Kind, p.Issuer, p.ID)
}

// HasRole reports whether it has a role.
func (p *Principal) HasRole(role string) bool { return p != nil && slices.Contains(p.Roles, role) }

// HasScope reports whether it has a scope.
func (p *Principal) HasScope(scope string) bool {
	return p != nil && slices.Contains(p.Scopes, scope)
}

// Token is the token that it presented, "" when there was none. It is for an exchange
// of tokens (RFC 8693), and must not be logged or passed on.
func (p *Principal) Token() string {
	if p == nil || p.shown == nil || p.shown.token == nil {
		return ""
	}
	return p.shown.token()
}

// String is its name. It has no secrets.
func (p *Principal) String() string { return p.Name() }

// From returns who calls, in a handler below [Guard.Interceptor] or [Guard.HTTP]. Nil:
// there is no principal.
func From(ctx context.Context) *Principal {
	if s := sessionFrom(ctx); s != nil {
		return s.principal
	}
	return nil
}

// unauthenticatedMessage bounds the messages on an unauthenticated connection: they are read, and
// held, before it can be seen who has signed them.
const unauthenticatedMessage = 1 << 20

// MaxMessage returns the most bytes that a message on a connection may have: 1 MiB while the
// connection is unauthenticated. 0: the guard sets no bound.
func (g *Guard) MaxMessage(ctx context.Context, c *Conn) int {
	if k, refused := g.state.Load().conn(ctx, c); k != nil && refused == nil {
		return 0
	}
	return unauthenticatedMessage
}

// maxRefusals is how many messages may be refused on a connection on which none was accepted.
const maxRefusals = 100

// dropAbusive closes a connection after maxRefusals refused messages and no accepted one.
func (x *connected) dropAbusive(who *session, err error) {
	switch {
	case x.c == nil || x.accepted.Load():
	case who != nil && who.principal != nil:
		x.accepted.Store(true)
	case err != nil && x.refusals.Add(1) == maxRefusals && x.c.Close != nil:
		_ = x.c.Close() // an error means that it is closed already
	}
}
