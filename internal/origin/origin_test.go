package origin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestCheck(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7331}
	public := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}
	listed := Policy{
		Origins: []string{"https://app.example.com", "localhost:3000", "*.example.org", "https://*.example.net"},
		Hosts:   []string{"rpc.example.com"},
	}
	all := Policy{Origins: []string{"*"}, Hosts: []string{"*"}}
	for _, c := range []struct {
		name               string
		policy             Policy
		addr               net.Addr
		host, origin, site string
		ok                 bool
	}{
		{"no browser", Policy{}, local, "127.0.0.1:7331", "", "", true},
		{"localhost", Policy{}, local, "LOCALHOST:7331", "", "", true},
		{"localhost.", Policy{}, local, "localhost.", "", "", true},
		{"sub.localhost", Policy{}, local, "a.localhost:1", "", "", true},
		{"ipv6", Policy{}, local, "[::1]:7331", "", "", true},
		{"ipv6 without a port", Policy{}, local, "[::1]", "", "", true},
		{"same host", Policy{}, local, "localhost:7331", "http://localhost:7331", "same-origin", true},
		{"rebound name", Policy{}, local, "evil.example:7331", "http://evil.example:7331", "same-origin", false},
		{"rebound name without an origin", Policy{}, local, "evil.example:7331", "", "", false},
		{"rebound prefix", Policy{}, local, "127.0.0.1.evil.example", "", "", false},
		{"rebound suffix", Policy{}, local, "evillocalhost", "", "", false},
		{"foreign address", Policy{}, local, "192.0.2.7", "", "", false},
		{"listed host", listed, local, "rpc.example.com", "", "", true},
		{"all hosts", all, local, "evil.example", "", "", true},
		{"public address, any name", Policy{}, public, "evil.example", "", "", true},
		{"unix socket", Policy{}, &net.UnixAddr{Name: "/x"}, "evil.example", "", "", true},
		{"foreign origin", Policy{}, local, "localhost:7331", "https://evil.example", "cross-site", false},
		{"other port", Policy{}, local, "localhost:7331", "http://localhost:3000", "", false},
		{"listed port", listed, local, "localhost:7331", "http://localhost:3000", "", true},
		{"null", Policy{}, local, "localhost:7331", "null", "", false},
		{"listed null", Policy{Origins: []string{"null"}}, local, "localhost:7331", "null", "", true},
		{"listed origin", listed, public, "x", "https://app.example.com", "", true},
		{"listed origin, other scheme", listed, public, "x", "http://app.example.com", "", false},
		{"wildcard", listed, public, "x", "http://a.b.example.org", "", true},
		{"wildcard is not the domain itself", listed, public, "x", "http://example.org", "", false},
		{"wildcard needs the dot", listed, public, "x", "http://evilexample.org", "", false},
		{"wildcard with a scheme", listed, public, "x", "https://a.example.net", "", true},
		{"wildcard with another scheme", listed, public, "x", "http://a.example.net", "", false},
		{"all origins", all, public, "x", "http://evil.example", "", true},
		{"image of another site", Policy{}, local, "localhost:7331", "", "cross-site", false},
		{"image of a sibling site", Policy{}, local, "localhost:7331", "", "same-site", false},
		{"typed by the user", Policy{}, local, "localhost:7331", "", "none", true},
		{"image of another site, all allowed", all, local, "localhost:7331", "", "cross-site", true},
	} {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, c.addr), "GET", "/", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		if err := c.policy.Check(r); (err == nil) != c.ok {
			t.Errorf("%s: %v, want allowed %v", c.name, err, c.ok)
		}
	}
}

func TestTwoOrigins(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	r.Header["Origin"] = []string{"http://localhost", "http://evil.example"}
	if (&Policy{}).Check(r) == nil {
		t.Error("two Origin headers were accepted")
	}
}

func TestCross(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://localhost:1/", nil)
	for origin, want := range map[string]string{"": "", "http://localhost:1": "", "http://localhost:2": "http://localhost:2", "null": "null"} {
		r.Header.Set("Origin", origin)
		if got := (&Policy{}).Cross(r); got != want {
			t.Errorf("%q: got %q, want %q", origin, got, want)
		}
	}
}
