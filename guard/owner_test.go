package guard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// Two principals have one owner only when they were authenticated in the same way as the same one,
// however their names read, and anonymous ones have none.
func TestPrincipalOwner(t *testing.T) {
	taken := map[string]string{}
	for name, p := range map[string]*guard.Principal{
		"key ada, a user":   {ID: "ada", Kind: "user", Method: "key"},
		"key ada, an agent": {ID: "ada", Kind: "agent", Method: "key"},
		"certificate ada":   {ID: "ada", Kind: "user", Method: "mtls"},
		"token ada": {
			ID: "ada", Kind: "user", Method: "jwt",
			Issuer: "https://id.example.com",
		},
		"key with the token's name": {ID: "https://id.example.com|ada", Kind: "user", Method: "key"},
		"key named anonymous":       {ID: "anonymous", Kind: "user", Method: "key"},
		"of the program":            {ID: "ada"},
	} {
		o := p.Owner()
		if other, ok := taken[o]; ok || o == "" {
			t.Errorf("%s and %s have the owner %q", name, other, o)
		}
		taken[o] = name
		again := *p
		again.Roles = []string{"changed"}
		if again.Owner() != o {
			t.Errorf("%s has another owner with other roles", name)
		}
	}
	for name, p := range map[string]*guard.Principal{
		"nil":               nil,
		"anonymous":         {ID: "anonymous", Kind: "anonymous", Method: "none"},
		"of kind anonymous": {ID: "ada", Kind: "anonymous", Method: "key"},
		"without an id":     {Kind: "user", Method: "key"},
	} {
		if o := p.Owner(); o != "" {
			t.Errorf("%s has the owner %q", name, o)
		}
	}
}

// from makes a call over HTTP from an address.
func from(t *testing.T, g *guard.Guard, address string, headers ...string) *reply {
	t.Helper()
	rpc := &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/rpc",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"who"}`))
	r.RemoteAddr = address
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	g.HTTP(httprpc.NewHandler(newMux(), &httprpc.Options{RPC: rpc})).ServeHTTP(w, r)
	return readReply(w.Result(), w.Body.Bytes())
}

// Anonymous callers are many: each address has its own quota over HTTP, and each connection
// elsewhere. Their role still decides which limits are for them.
func TestAnonymousLimits(t *testing.T) {
	const ok = "anonymous anonymous by none"
	c := &guard.Config{Anonymous: true, Keys: []guard.Key{keyOf("ci", goodKey)}}
	c.Limits.Rates = []guard.Rate{{Limit: 5, Every: 24 * time.Hour, Roles: []string{"anonymous"}}}
	g := newGuard(t, c, &guard.Options{Now: midday().Now})
	for range 5 {
		from(t, g, "198.51.100.1:4711").wants(t, ok)
	}
	from(t, g, "198.51.100.1:4712").wants(t, limited)
	from(t, g, "203.0.113.7:1").wants(t, ok)
	from(t, g, "[2001:db8::1]:1").wants(t, ok)
	from(t, g, "").wants(t, ok) // a unix socket
	from(t, g, "198.51.100.1:4711", asCI).wants(t, "service ci by key")
	for _, remote := range []string{"198.51.100.1:1", "198.51.100.1:2", "203.0.113.7:3", "", ""} {
		p := over(t, g, &guard.Conn{Transport: "tcp", Remote: remote})
		for range 5 {
			expect(t, remote, ask(t, p, "who", nil), ok)
		}
		expect(t, remote, ask(t, p, "who", nil), limited)
	}
}

// Check reports principals that collide.
func TestCheckPrincipals(t *testing.T) {
	key := func(id, kind, secret string, roles ...string) guard.Key {
		return guard.Key{ID: id, Kind: kind, Hash: hashOf(secret), Roles: roles}
	}
	signer := guard.Signer{ID: "ada", Secret: secret}
	for name, test := range map[string]struct {
		c    guard.Config
		want string
	}{
		"two keys of one": {
			guard.Config{
				Keys: []guard.Key{key("ada", "user", "1", "a", "b"), key("ada", "user", "2", "b", "a")},
			}, "",
		},
		"with other roles": {
			guard.Config{Keys: []guard.Key{key("ada", "user", "1", "a"), key("ada", "user", "2")}},
			"error keys[1]",
		},
		"of another kind": {
			guard.Config{Keys: []guard.Key{key("ada", "user", "1"), key("ada", "agent", "2")}},
			"warning keys[1].id",
		},
		"a key and a signature": {guard.Config{
			Keys:       []guard.Key{key("ada", "service", "1")},
			Signatures: []guard.Signer{signer},
		}, "warning signatures[0].id"},
		"id anonymous": {
			guard.Config{Keys: []guard.Key{key("anonymous", "", "1")}},
			"error keys[0].id",
		},
		"kind anonymous": {
			guard.Config{Keys: []guard.Key{key("ada", "anonymous", "1")}},
			"error keys[0].id",
		},
		"certificate anonymous": {
			guard.Config{MTLS: []guard.Certificate{{SAN: "*.example", ID: "anonymous"}}}, "error mtls[0].id",
		},
		"certificates of one": {
			guard.Config{
				MTLS: []guard.Certificate{{SAN: "a.example", ID: "x"}, {SAN: "b.example", ID: "x"}},
			}, "",
		},
		"the name of a principal": {
			guard.Config{
				Keys: []guard.Key{key(issuer+"|ada", "", "1")},
				JWT: []guard.Issuer{
					{Issuer: issuer, JWKS: jwks(newAuthority(t, "1")), Audience: []string{audience}},
				},
			}, "warning keys[0].id",
		},
	} {
		var got []string
		for _, p := range test.c.Check() {
			if p.Path == "resource.url" {
				continue
			}
			kind := "error "
			if p.Warning {
				kind = "warning "
			}
			got = append(got, kind+p.Path)
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A sessions is a server of MCP over HTTP, with a guard that lets anonymous callers in.
type sessions struct {
	t *testing.T
	h http.Handler
}

func newSessions(t *testing.T, rate guard.Rate) *sessions {
	t.Helper()
	c := &guard.Config{Anonymous: true}
	c.Limits.Rates = []guard.Rate{rate}
	g := newGuard(t, c, &guard.Options{Now: midday().Now})
	server := mcp.NewServer("test", "1", nil)
	t.Cleanup(server.Close)
	h := mcphttp.NewHandler(server,
		&mcphttp.Options{RPC: &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}})
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Shutdown(ctx)
	})
	return &sessions{t, g.HTTP(h)}
}

func (s *sessions) send(address, session, body string) *reply {
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://127.0.0.1/mcp",
		strings.NewReader(body))
	r.RemoteAddr = address
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	return readReply(w.Result(), w.Body.Bytes())
}

// open opens up to n sessions.
func (s *sessions) open(address string, n int) (all []string) {
	for range n {
		got := s.send(address, "",
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+
				era.LatestLegacy().Name+
				`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		if id := got.header.Get("Mcp-Session-Id"); id != "" {
			all = append(all, id)
		}
	}
	return all
}

const (
	pinging   = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	stateless = `{"jsonrpc":"2.0","id":1,"method":"server/discover",` +
		`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// passed returns how many of n calls pass.
func (s *sessions) passed(n int, address, session, body string) (passed int) {
	for range n {
		if got := s.send(address, session, body); got.status == http.StatusOK &&
			!strings.Contains(got.body, `"error"`) {
			passed++
		}
	}
	return passed
}

// Over HTTP an anonymous caller has the limits of its session, where the server has issued one.
// What it makes up counts for its address, and so does what opens a session.
func TestAnonymousSessionLimits(t *testing.T) {
	const limit, more = 5, 9
	const here, there = "192.0.2.1:1", "192.0.2.2:1"
	s := newSessions(t, guard.Rate{Limit: limit, Every: 24 * time.Hour})
	ids := s.open(here, more)
	if len(ids) != limit {
		t.Fatalf("an address opens %d sessions, want %d", len(ids), limit)
	}
	// The address has used up its own limit. An id that was never issued does not give it another one.
	for _, made := range []string{"", "made-up", ids[0] + "x"} {
		if n := s.passed(more, here, made, pinging) + s.passed(more, here, made, stateless); n != 0 {
			t.Errorf("%d calls with the session %q", n, made)
		}
	}
	for i, id := range ids {
		if n := s.passed(more, here, id, pinging); n != limit {
			t.Errorf("session %d: %d calls, want %d", i, n, limit)
		}
	}
	// Another address has its own limits, and none in the session of the first.
	if n := s.passed(more, there, ids[0], pinging); n != limit {
		t.Errorf("%d calls of another address in a session, want its own %d", n, limit)
	}
	if n := s.passed(more, there, "", stateless); n != 0 {
		t.Errorf("%d calls beyond the limit of the address", n)
	}
}

// An address with callers that open many sessions has eight times the limit of one.
func TestAnonymousSessionsOfAnAddress(t *testing.T) {
	const limit, together, more = 5, 8 * 5, 20
	s := newSessions(t, guard.Rate{Limit: limit, Every: 24 * time.Hour, Calls: []string{"ping"}})
	sum := 0
	for _, id := range s.open("192.0.2.1:1", more) {
		sum += s.passed(2*limit, "192.0.2.1:1", id, pinging)
	}
	if sum != together {
		t.Errorf("%d calls in %d sessions of an address, want %d", sum, more, together)
	}
	if n := s.passed(2*limit, "192.0.2.2:1", s.open("192.0.2.2:1", 1)[0], pinging); n != limit {
		t.Errorf("%d calls of another address, want %d", n, limit)
	}
}
