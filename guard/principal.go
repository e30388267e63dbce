package guard

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"
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
	token  func() string     // as it came, for an exchange; nil: there was none. No way of printing it calls that
	secret [sha256.Size]byte // of its key: another configuration may have another one
}

// Name is the principal and its issuer: the same for nobody else.
func (p *Principal) Name() string {
	if p == nil {
		return ""
	}
	if p.Issuer == "" {
		return p.ID
	}
	return p.Issuer + "|" + p.ID
}

// HasRole reports whether it has a role.
func (p *Principal) HasRole(role string) bool { return p != nil && slices.Contains(p.Roles, role) }

// HasScope reports whether it has a scope.
func (p *Principal) HasScope(scope string) bool { return p != nil && slices.Contains(p.Scopes, scope) }

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
// nobody is known.
func From(ctx context.Context) *Principal {
	if s := sessionFrom(ctx); s != nil {
		return s.principal
	}
	return nil
}
