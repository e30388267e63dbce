// Package origin decides whether a web page in a browser may talk to us.
//
// A local server is reachable from every page that the user's browser shows.
// Two checks keep foreign pages out: the Origin of a request must be the host
// that it asks for (RFC 6454), and that host must be an IP address, localhost or
// a name that is configured, since an attacker can let their domain
// point to any address that the browser reaches (DNS rebinding).
package origin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/forwarded"
)

// A Policy says which origins and hosts are allowed. The zero value allows pages
// of the same host, and requests for an IP address or localhost.
type Policy struct {
	// Origins are patterns of allowed origins: "https://app.example.com", a host
	// with or without a port ("localhost:3000"), "*.example.com" for its
	// subdomains, or "*" for every page in the world.
	Origins []string
	// Hosts are the names of the server: "tools.example.com", with a port where
	// only that is meant, "*.example.com" for subdomains, or "*" for every name.
	Hosts []string
}

// Check returns why a request must be refused, or nil.
func (p *Policy) Check(r *http.Request) error {
	if err := p.CheckHost(r); err != nil {
		return err
	}
	return p.CheckOrigin(r)
}

// CheckOrigin is Check without CheckHost.
func (p *Policy) CheckOrigin(r *http.Request) error {
	values := r.Header["Origin"]
	if len(values) == 0 {
		return p.checkFetchSite(r)
	}
	if len(values) > 1 || !sameHost(values[0], r.Host) && !p.Allows(values[0]) {
		return fmt.Errorf("origin %q is not allowed; list it among the allowed origins",
			strings.Join(values, ", "))
	}
	return nil
}

// checkFetchSite catches what a page can send without an Origin header: the
// GET of a link, an image or a frame (Fetch Metadata, section 2.4).
func (p *Policy) checkFetchSite(r *http.Request) error {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
		return nil
	default:
		if p.Allows("*") {
			return nil
		}
		return fmt.Errorf(
			"requests of other web sites (Sec-Fetch-Site: %s) are not allowed without an Origin header",
			site)
	}
}

// Cross returns the origin of a request that comes from a page of another host,
// which is what CORS is about, or "".
func (p *Policy) Cross(r *http.Request) string {
	if o := r.Header.Get("Origin"); o != "" && !sameHost(o, r.Host) {
		return o
	}
	return ""
}

// AllowOrigin adds the headers of CORS (Fetch, section 3.3) to the answer for an allowed page of
// another host: the methods that it may use, and the headers of answers that it may read.
func (p *Policy) AllowOrigin(w http.ResponseWriter, r *http.Request, methods, exposed string) {
	from := p.Cross(r)
	if from == "" {
		return
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", from)
	header.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		if exposed != "" {
			header.Set("Access-Control-Expose-Headers", exposed)
		}
		return
	}
	header.Set("Access-Control-Allow-Methods", methods)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	header.Set("Access-Control-Max-Age", "600")
}

// Allows reports whether an origin is among the allowed ones.
func (p *Policy) Allows(origin string) bool {
	return slices.ContainsFunc(p.Origins, func(o string) bool { return o == "*" || match(o, origin) })
}

// match compares an origin with a pattern other than "*".
func match(pattern, origin string) bool {
	scheme, host, ok := strings.Cut(origin, "://")
	if !ok {
		return strings.EqualFold(pattern, origin) // "null"
	}
	if s, h, ok := strings.Cut(pattern, "://"); ok {
		if !strings.EqualFold(s, scheme) {
			return false
		}
		pattern = h
	}
	return matchHost(pattern, host)
}

// matchHost compares a host with a pattern: a name, or "*." and the name with subdomains that
// match.
func matchHost(pattern, host string) bool {
	if strings.EqualFold(pattern, host) {
		return true
	}
	suffix, ok := strings.CutPrefix(pattern, "*.")
	at := len(host) - len(suffix)
	return ok && at > 1 && strings.EqualFold(host[at:], suffix) && host[at-1] == '.'
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

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
		"or add the name to the allowed hosts (hosts in the configuration, --host, Hosts in Options)",
		host)
}

func (p *Policy) allowsHost(asked string) bool {
	host := Hostname(asked)
	if host == "" || isLocalhost(host) {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true // a rebound name is a name
	}
	return slices.ContainsFunc(p.Hosts, func(pattern string) bool {
		return pattern == "*" || strings.EqualFold(pattern, asked) || matchHost(pattern, host)
	})
}

// isLocalhost reports whether a name always means loopback (RFC 6761, section 6.3).
func isLocalhost(host string) bool {
	return strings.EqualFold(host, "localhost") ||
		strings.HasSuffix(strings.ToLower(host), ".localhost")
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
