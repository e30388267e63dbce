package origin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestCheckHost: the host decides, on whatever address the request arrives.
func TestCheckHost(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7331} }
	listeners := map[string]net.Addr{
		"loopback": tcp("127.0.0.1"), "another loopback": tcp("127.0.0.53"), "IPv6 loopback": tcp("::1"),
		"IPv4-mapped": tcp("::ffff:127.0.0.1"),
		"container":   tcp("172.17.0.2"), "LAN": tcp("192.168.1.5"), "IPv6 LAN": tcp("fd00::5"),
		"link-local": tcp("fe80::1"), "public": tcp("192.0.2.1"),
		"unix socket": &net.UnixAddr{Name: "/x", Net: "unix"}, "unknown": nil,
	}
	listed := &Policy{Hosts: []string{"rpc.example.com", "*.example.org", "one.example.net:8443"}}
	policies := map[string]*Policy{"none": {}, "listed": listed, "all": {Hosts: []string{"*"}}}
	hosts := []struct{ host, allowed string }{ // allowed: by which policies
		{"127.0.0.1:7331", "none listed all"},
		{"[::1]:7331", "none listed all"},
		{"[::1]", "none listed all"},
		{"[::ffff:127.0.0.1]:7331", "none listed all"},
		{"[fe80::1%25eth0]:7331", "none listed all"},
		{"172.17.0.2", "none listed all"},
		{"192.0.2.7:80", "none listed all"}, // no name, so not rebound
		{"LOCALHOST:7331", "none listed all"},
		{"localhost.", "none listed all"},
		{"a.localhost:1", "none listed all"},
		{"", "none listed all"}, // HTTP/1.0, which no browser speaks
		{"rpc.example.com", "listed all"},
		{"RPC.example.com:7331", "listed all"},
		{"rpc.example.com.", "listed all"},
		{"a.b.example.org", "listed all"},
		{"example.org", "all"},
		{"evilexample.org", "all"},
		{"one.example.net:8443", "listed all"},
		{"one.example.net:80", "all"},
		{"evil.example:7331", "all"},
		{"127.0.0.1.evil.example", "all"},
		{"evillocalhost", "all"},
		{"localhost.evil.example", "all"},
		{"2130706433", "all"}, // browsers write such addresses with dots
		{"127.1", "all"},
		{"docker", "all"},
	}
	for where, addr := range listeners {
		for name, p := range policies {
			for _, h := range hosts {
				ctx := t.Context()
				if addr != nil {
					ctx = context.WithValue(ctx, http.LocalAddrContextKey, addr)
				}
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
				r.Host = h.host
				want := slices.Contains(strings.Fields(h.allowed), name)
				if err := p.Check(r); (err == nil) != want {
					t.Errorf("%s, policy %s, host %q: %v, want allowed %v", where, name, h.host, err, want)
				} else if err != nil && !strings.Contains(err.Error(), "--host") {
					t.Errorf("%v: it does not say what to do", err)
				}
				vouched := r.WithContext(WithVouch(ctx, vouch(Hostname(h.host))))
				if err := p.Check(vouched); err != nil {
					t.Errorf("%s, policy %s, host %q, vouched for: %v", where, name, h.host, err)
				}
				if err := p.Check(r.WithContext(WithVouch(ctx, vouch("other.example")))); (err == nil) != want {
					t.Errorf("%s, policy %s, host %q, another one vouched for: %v", where, name, h.host, err)
				}
			}
		}
	}
}

type vouch string

func (v vouch) AllowsHost(host string) bool { return host == string(v) }

func TestCheckOrigin(t *testing.T) {
	listed := Policy{Origins: []string{
		"https://app.example.com", "localhost:3000", "*.example.org",
		"https://*.example.net",
	}}
	all := Policy{Origins: []string{"*"}}
	for _, c := range []struct {
		name               string
		policy             Policy
		host, origin, site string
		ok                 bool
	}{
		{"no browser", Policy{}, "127.0.0.1:7331", "", "", true},
		{"same host", Policy{}, "localhost:7331", "http://localhost:7331", "same-origin", true},
		{"rebound name", Policy{}, "evil.example:7331", "http://evil.example:7331", "same-origin", false},
		{"foreign origin", Policy{}, "localhost:7331", "https://evil.example", "cross-site", false},
		{"other port", Policy{}, "localhost:7331", "http://localhost:3000", "", false},
		{"listed port", listed, "localhost:7331", "http://localhost:3000", "", true},
		{"null", Policy{}, "localhost:7331", "null", "", false},
		{"listed null", Policy{Origins: []string{"null"}}, "localhost:7331", "null", "", true},
		{"listed origin", listed, "192.0.2.1", "https://app.example.com", "", true},
		{"listed origin, other scheme", listed, "192.0.2.1", "http://app.example.com", "", false},
		{"wildcard", listed, "192.0.2.1", "http://a.b.example.org", "", true},
		{"wildcard is not the domain itself", listed, "192.0.2.1", "http://example.org", "", false},
		{"wildcard needs the dot", listed, "192.0.2.1", "http://evilexample.org", "", false},
		{"wildcard with a scheme", listed, "192.0.2.1", "https://a.example.net", "", true},
		{"wildcard with another scheme", listed, "192.0.2.1", "http://a.example.net", "", false},
		{"all origins", all, "192.0.2.1", "http://evil.example", "", true},
		{"all origins, rebound name", all, "evil.example", "http://evil.example", "", false},
		{"image of another site", Policy{}, "localhost:7331", "", "cross-site", false},
		{"image of a sibling site", Policy{}, "localhost:7331", "", "same-site", false},
		{"typed by the user", Policy{}, "localhost:7331", "", "none", true},
		{"image of another site, all allowed", all, "localhost:7331", "", "cross-site", true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
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
	for origin, want := range map[string]string{
		"": "", "http://localhost:1": "",
		"http://localhost:2": "http://localhost:2", "null": "null",
	} {
		r.Header.Set("Origin", origin)
		if got := (&Policy{}).Cross(r); got != want {
			t.Errorf("%q: got %q, want %q", origin, got, want)
		}
	}
}
