// Package origin decides whether a web page in a browser may talk to us.
//
// A local server is reachable from every page that the user's browser shows.
// Two checks keep foreign pages out: the Origin of a request must be the host
// that it asks for (RFC 6454), and that host must be an IP address, localhost or
// a name that is configured, since an attacker can let their domain
// point to any address that the browser reaches (DNS rebinding).
package origin

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
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
		return fmt.Errorf("origin %q is not allowed; list it among the allowed origins", strings.Join(values, ", "))
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
		return fmt.Errorf("requests of other web sites (Sec-Fetch-Site: %s) are not allowed without an Origin header", site)
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

// Allows reports whether an origin is among the allowed ones.
func (p *Policy) Allows(origin string) bool {
	for _, pattern := range p.Origins {
		if pattern == "*" || match(pattern, origin) {
			return true
		}
	}
	return false
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
