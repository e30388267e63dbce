package guard

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/port"
)

// This file is what a server asks of a guard: rpc.Guard is the interface.

// ConnOver returns what is known of a network connection. Nil is standard input and output.
func ConnOver(conn net.Conn) *Conn {
	if conn == nil {
		return &Conn{Transport: "stdio", Local: true}
	}
	c := &Conn{Transport: conn.LocalAddr().Network(), Remote: conn.RemoteAddr().String()}
	// A client behind a proxy is not on this machine.
	c.Local = !forwarded.Via(conn) && port.Schemes().Local(conn.RemoteAddr())
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		c.Transport, c.TLS = c.Transport+"+tls", &state
	}
	return c
}

// Connection makes o the options of a connection that carries messages: it puts the interceptor of
// the guard before the others, and sets the budget. conn is the connection, nil for standard input
// and output; r is the request that began it, and conn is not looked at then, for a WebSocket
// behind [Guard.HTTP]. The guard calls end when the principal may not stay. It returns the most
// bytes that a message may have, 0 for no bound; see [Guard.MaxMessage].
func (g *Guard) Connection(o *farcall.Options, conn net.Conn, r *http.Request, end func() error) (maxMessage int) {
	var c *Conn
	if r != nil {
		c = ConnOf(r, o.Transport)
	} else {
		c = ConnOver(conn)
	}
	c.Close = end
	o.Budget = g.Budget(c, o.Budget)
	o.Interceptors = append([]farcall.Interceptor{g.Interceptor(c)}, o.Interceptors...)
	return g.MaxMessage(context.Background(), c) //nolint:forbidigo // it looks at the certificate only
}

// Restricts reports whether the guard keeps anything from a caller without credentials: it lets
// none in, or it has a rule that is enforced. Limits say how much may be called, not what.
func (c *Config) Restricts() bool {
	enforced := func(r Rule) bool { return r.Mode != modeShadow }
	switch {
	case !c.Anonymous:
		return true
	case c.Mode == modeShadow:
		return false
	}
	return slices.ContainsFunc(c.Allow, enforced) || slices.ContainsFunc(c.Deny, enforced) ||
		len(c.Local)+len(c.Cedar)+len(c.CedarFiles)+len(c.Resource.Scopes) > 0
}

// BearerSecrets names the credentials that everyone who reads them can use again, "" for none. A
// signature counts once, and a DPoP-bound token is useless without its key.
func (c *Config) BearerSecrets() string {
	var list []string
	if len(c.Keys) > 0 {
		list = append(list, "API keys")
	}
	if slices.ContainsFunc(c.JWT, func(i Issuer) bool { return i.DPoP != "required" }) {
		list = append(list, "tokens")
	}
	return strings.Join(list, " and ")
}

// Authorities returns the authorities of client certificates that entries of MTLS name, in PEM.
func (c *Config) Authorities() (list [][]byte) {
	for _, m := range c.MTLS {
		if m.CA != "" {
			list = append(list, []byte(m.CA))
		}
	}
	return list
}

// Connections returns the bounds of connections in Limits, 0 for the default: how many of one
// address and of all, how many are accepted in a second, and how long one may be unused.
func (c *Config) Connections() (perAddress, total, rate int, idle time.Duration) {
	l := &c.Limits
	return l.Connections, l.Accepted, l.AcceptRate, l.Idle
}

// Restricts is [Config.Restricts] of the configuration as it is now.
func (g *Guard) Restricts() bool { return g.state.Load().c.Restricts() }

// BearerSecrets is [Config.BearerSecrets] of the configuration as it is now.
func (g *Guard) BearerSecrets() string { return g.state.Load().c.BearerSecrets() }

// Authorities is [Config.Authorities] of the configuration as it is now.
func (g *Guard) Authorities() [][]byte { return g.state.Load().c.Authorities() }

// Connections is [Config.Connections] of the configuration as it is now.
func (g *Guard) Connections() (perAddress, total, rate int, idle time.Duration) {
	return g.state.Load().c.Connections()
}

// Requests makes o the options of a handler of messages behind [Guard.HTTP]: it puts the
// interceptor of the guard before the others.
func (g *Guard) Requests(o *farcall.Options) {
	o.Interceptors = append([]farcall.Interceptor{g.Interceptor(nil)}, o.Interceptors...)
}
