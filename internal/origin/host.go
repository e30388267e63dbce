package origin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/forwarded"
)

// A Vouch says which hosts a request may ask for in addition to those of a Policy. A guard puts one
// into the context of requests: where every caller shows credentials, no web page can act as one.
type Vouch interface {
	// AllowsHost reports whether a request may ask for a host, which has no port.
	AllowsHost(host string) bool
}

// VouchKey is the key under which the context of a request has its [Vouch].
type VouchKey struct{}

// WithVouch returns a context that has v.
func WithVouch(ctx context.Context, v Vouch) context.Context {
	return callctx.WithValue(ctx, VouchKey{}, v)
}

// CheckHost returns why a request must be refused for the host that it asks for, or nil. It does
// not look at the address on which the request arrived: a port that is published to loopback, a
// container, a machine of the local network and a proxy in front of a unix socket are reached by a
// rebound name as well.
//
// A proxy may ask for an address whatever the client has asked it for: where a listed one says
// what that was, it must be allowed as well.
func (p *Policy) CheckHost(r *http.Request) error {
	if of := forwarded.Of(r.Context()); of != nil && of.Host != "" {
		if err := p.checkHost(r.Context(), of.Host); err != nil {
			return err
		}
	}
	return p.checkHost(r.Context(), r.Host)
}

func (p *Policy) checkHost(ctx context.Context, host string) error {
	if p.allowsHost(host) {
		return nil
	}
	if v, ok := ctx.Value(VouchKey{}).(Vouch); ok && v.AllowsHost(Hostname(host)) {
		return nil
	}
	return fmt.Errorf("host %q is not a name of this server; use its IP address or localhost, "+
		"or add the name to the allowed hosts (hosts in the configuration, --host, Hosts in Options)", host)
}

func (p *Policy) allowsHost(asked string) bool {
	host := Hostname(asked)
	if host == "" || isLocalhost(host) {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true // a rebound name is a name
	}
	for _, pattern := range p.Hosts {
		if pattern == "*" || strings.EqualFold(pattern, asked) || matchHost(pattern, host) {
			return true
		}
	}
	return false
}

// isLocalhost reports whether a name always means loopback (RFC 6761, section 6.3).
func isLocalhost(host string) bool {
	return strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost")
}

// Hostname returns the host of "host:port", without the brackets of IPv6 and the last dot of a
// fully qualified name.
func Hostname(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}
