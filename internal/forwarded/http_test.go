package forwarded

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func parsed(t *testing.T, list ...string) *Proxies {
	t.Helper()
	p, err := Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	for text, ok := range map[string]bool{
		"10.0.0.0/8": true, "192.0.2.7": true, "fd00::/8": true, "::1": true, "unix": true,
		"::ffff:10.0.0.1": true,
		"0.0.0.0/0":       false, "::/0": false, "10.0.0.1/8": false, "10.0.0": false,
		"proxy.example": false,
		"":              false, "fe80::1%eth0": false, "::ffff:10.0.0.0/104": false,
	} {
		if _, err := Parse([]string{text}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if p, err := Parse(nil); p != nil || err != nil {
		t.Error(p, err)
	}
}

// TestClient: the client is the first address from the right that is not a listed proxy, and only a
// listed proxy is heard.
func TestClient(t *testing.T) {
	p := parsed(t, "10.0.0.0/8", "fd00::/8")
	const peer, unlisted = "10.0.0.1:4444", "198.51.100.9:4444"
	for _, c := range []struct {
		name, remote string
		headers      []string
		client       string // "" for 400
		host         string
		secure       bool
	}{
		{"none", peer, nil, peer, "", false},
		{"one", peer, []string{"X-Forwarded-For: 203.0.113.7"}, "203.0.113.7:4444", "", false},
		{"port", peer, []string{"X-Forwarded-For: 203.0.113.7:99"}, "203.0.113.7:99", "", false},
		{"IPv6", peer, []string{"X-Forwarded-For: 2001:db8::1"}, "[2001:db8::1]:4444", "", false},
		{
			"IPv6 with a port", peer,
			[]string{"X-Forwarded-For: [2001:db8::1]:99"},
			"[2001:db8::1]:99",
			"", false,
		},
		{
			"IPv6 in brackets", peer,
			[]string{"X-Forwarded-For: [2001:db8::1]"},
			"[2001:db8::1]:4444",
			"", false,
		},
		{"mapped", peer, []string{"X-Forwarded-For: ::ffff:203.0.113.7"}, "203.0.113.7:4444", "", false},
		{
			"what the client says itself", peer,
			[]string{"X-Forwarded-For: 1.2.3.4, 203.0.113.7"},
			"203.0.113.7:4444", "", false,
		},
		{
			"it says it is a proxy", peer,
			[]string{"X-Forwarded-For: 1.2.3.4, 10.9.9.9, 203.0.113.7"},
			"203.0.113.7:4444", "", false,
		},
		{
			"two hops", peer,
			[]string{"X-Forwarded-For: 203.0.113.7, 10.0.0.2"},
			"203.0.113.7:4444",
			"", false,
		},
		{
			"two headers", peer,
			[]string{"X-Forwarded-For: 1.2.3.4", "X-Forwarded-For: 203.0.113.7, 10.0.0.2"},
			"203.0.113.7:4444", "", false,
		},
		{
			"all are proxies", peer,
			[]string{"X-Forwarded-For: 10.0.0.3, 10.0.0.2"},
			"10.0.0.3:4444",
			"", false,
		},
		{
			"unknown", peer,
			[]string{"X-Forwarded-For: 1.2.3.4, unknown, 10.0.0.2"},
			"10.0.0.2:4444",
			"", false,
		},
		{"garbage at the end", peer, []string{"X-Forwarded-For: 1.2.3.4, "}, peer, "", false},
		{"an unlisted peer", unlisted, []string{
			"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: https",
			"X-Forwarded-Host: localhost", "Forwarded: for=127.0.0.1",
		}, unlisted, "", false},
		{
			"IPv6 proxy", "[fd00::1]:5",
			[]string{"X-Forwarded-For: 203.0.113.7"},
			"203.0.113.7:5",
			"", false,
		},
		{
			"mapped proxy", "[::ffff:10.0.0.1]:5",
			[]string{"X-Forwarded-For: 203.0.113.7"},
			"203.0.113.7:5",
			"", false,
		},
		{
			"scheme and host", peer,
			[]string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: http, HTTPS", "X-Forwarded-Host: a.example, b.example:8"},
			"203.0.113.7:4444", "b.example:8", true,
		},
		{"http", peer, []string{"X-Forwarded-Proto: https, http"}, peer, "", false},
		{
			"Forwarded", peer,
			[]string{`Forwarded: for="[2001:db8::1]:99";Proto=https;host="a.example"`},
			"[2001:db8::1]:99", "a.example", true,
		},
		{
			"Forwarded, two hops", peer,
			[]string{`Forwarded: for=1.2.3.4;proto=https, for=203.0.113.7;host=x, FOR=10.0.0.2;proto=https;host=y`},
			"203.0.113.7:4444", "x", false,
		},
		{
			"Forwarded, commas in quotes", peer,
			[]string{`Forwarded: for="a, for=1.2.3.4", for=203.0.113.7;host="x\"y,;"`},
			"203.0.113.7:4444", `x"y,;`, false,
		},
		{
			"Forwarded, hidden", peer,
			[]string{`Forwarded: for=1.2.3.4, for=_secret, for=10.0.0.2`},
			"10.0.0.2:4444", "", false,
		},
		{"Forwarded, no for", peer, []string{`Forwarded: for=1.2.3.4, proto=https`}, peer, "", false},
		{"both, the same", peer, []string{
			"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https",
			"Forwarded: for=203.0.113.7",
		}, "203.0.113.7:4444", "", true},
		{
			"both, another", peer,
			[]string{"X-Forwarded-For: 203.0.113.7", "Forwarded: for=127.0.0.1"},
			"",
			"", false,
		},
		{
			"both, one that cannot be read", peer,
			[]string{"X-Forwarded-For: 203.0.113.7", "Forwarded: x"},
			"", "", false,
		},
		{
			"a quote that is left open", peer,
			[]string{`Forwarded: for=1.2.3.4;x="`, "Forwarded: for=203.0.113.7"},
			"", "", false,
		},
		{
			"a quote that swallows another", peer,
			[]string{`Forwarded: for=1.2.3.4;x=", for="[2001:db8::1]"`},
			"", "", false,
		},
		{"empty elements", peer, []string{`Forwarded: , ;for=203.0.113.7; ,`}, peer, "", false},
		{
			"no quotes where they belong", peer,
			[]string{`Forwarded: for=[2001:db8::1]:99`},
			"[2001:db8::1]:99", "", false,
		},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr = c.remote
		for _, h := range c.headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Add(name, value)
		}
		var client, host string
		var secure bool
		w := httptest.NewRecorder()
		p.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			client, secure = r.RemoteAddr, Secure(r)
			if of := Of(r.Context()); of != nil {
				host = of.Host
			}
		})).ServeHTTP(w, r)
		if client != c.client || host != c.host || secure != c.secure ||
			(w.Code == http.StatusBadRequest) != (c.client == "") {
			t.Errorf("%s: client %q, host %q, secure %v, %d %s", c.name, client, host, secure,
				w.Code, w.Body)
		}
	}
}

func TestUnixPeer(t *testing.T) {
	for _, listed := range []bool{true, false} {
		p := parsed(t, map[bool]string{true: "unix", false: "10.0.0.0/8"}[listed])
		for value, want := range map[string]string{
			"203.0.113.7": "203.0.113.7:0", "unknown": "@",
			"": "@",
		} {
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey,
				net.Addr(&net.UnixAddr{Net: "unix"})), http.MethodGet, "/", nil)
			r.RemoteAddr = "@"
			if value != "" {
				r.Header.Set("X-Forwarded-For", value)
			}
			if !listed {
				want = "@"
			}
			p.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.RemoteAddr != want {
					t.Errorf("listed %v, %q: %s, want %s", listed, value, r.RemoteAddr, want)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
		}
	}
}

// FuzzForwarded: whatever a client sends, what a listed proxy adds behind it decides.
func FuzzForwarded(f *testing.F) {
	f.Add("1.2.3.4, unknown", `for="[::1]:1";proto=https, for=`)
	f.Add(`"`, `"`)
	f.Fuzz(func(t *testing.T, classic, modern string) {
		p := parsed(t, "10.0.0.0/8")
		peer := netip.MustParseAddrPort("10.0.0.1:4444")
		want := netip.MustParseAddrPort("203.0.113.7:4444")
		if said, _ := p.read(http.Header{"X-Forwarded-For": {classic + ", 203.0.113.7, 10.0.0.2"}},
			peer); said.client != want {
			t.Errorf("%q: %v", classic, said.client)
		}
		for _, added := range []string{
			"for=203.0.113.7", `for="203.0.113.7:4444"`,
			`by="_x";for=203.0.113.7;proto=https;host="a"`,
		} {
			if said, ok := p.read(http.Header{"Forwarded": {modern + ", " + added + ", for=10.0.0.2"}},
				peer); ok && said.client != want {
				t.Errorf("%q, %q: %v", modern, added, said.client)
			}
		}
		if said, ok := p.read(http.Header{"X-Forwarded-For": {classic}, "Forwarded": {modern}},
			peer); ok && !said.client.IsValid() {
			t.Errorf("%q, %q: %v", classic, modern, said)
		}
	})
}
