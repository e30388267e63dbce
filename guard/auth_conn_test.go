package guard_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// over is a peer at the other end of a connection in memory.
func over(t *testing.T, g *guard.Guard, c *guard.Conn) *farcall.Peer {
	t.Helper()
	ours, theirs := farcall.Pipe()
	return connect(t, g, c, ours, theirs)
}

func connect(
	t *testing.T, g *guard.Guard, c *guard.Conn, ours, theirs farcall.Transport,
) *farcall.Peer {
	t.Helper()
	server := farcall.NewPeer(theirs, newMux(),
		&farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(c)}})
	client := farcall.NewPeer(ours, nil, nil)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

// ask calls a method; its answer is a result, or the number of an error.
func ask(t *testing.T, p *farcall.Peer, method string, params any) any {
	t.Helper()
	result, err := farcall.Call[string](t.Context(), p, method, params)
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		return wire.Code
	} else if err != nil {
		t.Fatal(err)
	}
	return result
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A caller without credentials on a connection is unauthenticated, unless anonymous calls are
// allowed.
func TestConnWithoutCredentials(t *testing.T) {
	for _, transport := range []string{"tcp", "unix", "ws"} {
		g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
		expect(t, transport,
			ask(t, over(t, g, &guard.Conn{Transport: transport, Local: true}), "who", nil), unauthenticated)
		g = newGuard(t, &guard.Config{Anonymous: true}, nil)
		expect(t, transport, ask(t, over(t, g, &guard.Conn{Transport: transport}), "who", nil),
			"anonymous anonymous by none")
	}
	g := newGuard(t, &guard.Config{Anonymous: true}, nil)
	expect(t, "no Conn and no HTTP", ask(t, over(t, g, nil), "who", nil), unauthenticated)
}

func TestStdio(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	yes, no := true, false
	const variable = "FARCALL_TEST_TOKEN"
	for name, c := range map[string]struct {
		trust      *bool
		env, value string
		want       any
	}{
		"by default":     {nil, "", "", "process me by process"},
		"trusted":        {&yes, "", "", "process me by process"},
		"not trusted":    {&no, "", "", unauthenticated},
		"key":            {nil, variable, goodKey, "service ci by key"},
		"wrong key":      {nil, variable, otherKey, unauthenticated},
		"no key":         {nil, variable, "", unauthenticated},
		"wrong, trusted": {&yes, variable, otherKey, unauthenticated},
		"token":          {nil, variable, a.token(now.Now(), nil), "user " + issuer + "|alice by jwt"},
		"token for others": {
			nil, variable, a.token(now.Now(), map[string]any{"aud": "x"}),
			unauthenticated,
		},
		"bound token": {
			nil, variable,
			a.token(now.Now(), map[string]any{"cnf": map[string]any{"jkt": b64(make([]byte, 32))}}),
			unauthenticated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := everyWay(a, true) // a credential that is wrong does not become anonymous
			cfg.Stdio.Trust, cfg.Stdio.ID, cfg.Stdio.TokenEnv = c.trust, "me", c.env
			if c.want == unauthenticated && c.env == "" {
				cfg.Anonymous = false
			}
			t.Setenv(variable, c.value)
			g := newGuard(t, cfg, &guard.Options{Now: now.Now})
			expect(t, "who", ask(t, over(t, g, &guard.Conn{Transport: "stdio"}), "who", nil), c.want)
		})
	}
}

// Standard input and output are of this machine.
func TestStdioIsLocal(t *testing.T) {
	g := newGuard(t,
		&guard.Config{Local: []string{"admin/*"}, Allow: []guard.Rule{{Calls: []string{"*"}}}}, nil)
	expect(t, "stdio", ask(t, over(t, g, &guard.Conn{Transport: "stdio"}), "admin/stop", nil),
		"process local by process")
}

// A token on a connection counts as long as it is good, and no longer.
func TestConnOutlivesToken(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	s := newSocketSite(t, everyWay(a, true), &guard.Options{Now: now.Now})
	p := s.dial(t, http.Header{"Authorization": {"Bearer " + a.token(now.Now(), nil)}})
	expect(t, "at first", ask(t, p, "who", nil), "user "+issuer+"|alice by jwt")
	now.add(time.Hour)
	expect(t, "an hour later", ask(t, p, "who", nil), unauthenticated)
}

// A socketSite serves JSON-RPC over WebSocket.
type socketSite struct {
	*site
	peers chan *farcall.Peer
}

func newSocketSite(t *testing.T, c *guard.Config, o *guard.Options) *socketSite {
	t.Helper()
	return newSocketSiteOf(t, c, o, func(*guard.Conn, farcall.Transport) {})
}

// newSocketSiteOf does something with each connection first.
func newSocketSiteOf(
	t *testing.T, c *guard.Config, o *guard.Options, first func(*guard.Conn, farcall.Transport),
) *socketSite {
	t.Helper()
	g := newGuard(t, c, o)
	type madeKey struct{}
	peers := make(chan *farcall.Peer, 100)
	web := g.HTTP(wsrpc.NewHandler(func(tr farcall.Transport, r *http.Request) {
		conn := guard.ConnOf(r, "ws")
		first(conn, tr)
		made, _ := r.Context().Value(madeKey{}).(chan *farcall.Peer)
		made <- farcall.NewPeer(tr, newMux(),
			&farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(conn)}})
	}, nil))
	s := serve(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := make(chan *farcall.Peer, 1)
		web.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, made)))
		select {
		case p := <-made: // only now: a request under way ends when its credentials do
			peers <- p
		default:
		}
	}))
	return &socketSite{s, peers}
}

// dial opens a WebSocket, which must be let in.
func (s *socketSite) dial(t *testing.T, h http.Header) *farcall.Peer {
	t.Helper()
	tr, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(s.url, "http"),
		&wsrpc.Options{Header: h})
	if err != nil {
		t.Fatal(err)
	}
	server, client := <-s.peers, farcall.NewPeer(tr, nil, nil)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

func TestWebSocketHandshake(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	s := newSocketSite(t, everyWay(a, false), &guard.Options{Now: now.Now})
	for name, h := range map[string]http.Header{
		"nothing":   nil,
		"wrong key": {"Authorization": {"Bearer " + otherKey}},
		"two":       {"Authorization": {"Bearer " + goodKey}, "X-Api-Key": {goodKey}},
		"expired":   {"Authorization": {"Bearer " + a.token(now.Now().Add(-time.Hour), nil)}},
	} {
		if tr, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(s.url, "http"),
			&wsrpc.Options{Header: h}); err == nil {
			tr.Close()
			t.Errorf("%s: it was let in", name)
		}
	}
	expect(t, "key", ask(t, s.dial(t, http.Header{"X-Api-Key": {goodKey}}), "who", nil),
		"service ci by key")
	expect(t, "token",
		ask(t, s.dial(t, http.Header{"Authorization": {"Bearer " + a.token(now.Now(), nil)}}), "who",
			nil), "user "+issuer+"|alice by jwt")
}

// signed are the params of a message with a signature.
func signed(t *testing.T, method, params, id, audience string, key any) jsonrpc.Raw {
	t.Helper()
	raw, err := guard.SignParams(method, jsonrpc.Raw(params), id, audience, key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A message that is signed counts on every transport, each once.
func TestSignedMessages(t *testing.T) {
	now := newClock()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cfg := func() *guard.Config {
		c := &guard.Config{Signatures: []guard.Signer{
			{ID: "partner", Secret: secret},
			{ID: "robot", Kind: "agent", Public: base64.StdEncoding.EncodeToString(public)},
		}}
		c.Resource.URL = audience
		return c
	}
	for _, transport := range []string{"memory", "tcp", "ws, anonymous", "http, anonymous"} {
		t.Run(transport, func(t *testing.T) {
			c := cfg()
			c.Anonymous = strings.HasSuffix(transport, "anonymous")
			var call func(method, params string) any
			switch transport {
			case "memory":
				p := over(t, newGuard(t, c, &guard.Options{Now: now.Now}), &guard.Conn{Transport: "unix"})
				call = func(method, params string) any { return ask(t, p, method, jsonrpc.Raw(params)) }
			case "tcp":
				p := overTCP(t, newGuard(t, c, &guard.Options{Now: now.Now}))
				call = func(method, params string) any { return ask(t, p, method, jsonrpc.Raw(params)) }
			case "ws, anonymous":
				p := newSocketSite(t, c, &guard.Options{Now: now.Now}).dial(t, nil)
				call = func(method, params string) any { return ask(t, p, method, jsonrpc.Raw(params)) }
			default:
				s := newSite(t, c, &guard.Options{Now: now.Now})
				call = func(method, params string) any {
					if got := s.call(method, params); got.code != 0 {
						return got.code
					} else {
						return got.result
					}
				}
			}
			good := string(signed(t, "who", `{"a":1}`, "partner", audience, []byte(secret)))
			expect(t, "HMAC", call("who", good), "service partner by signature")
			expect(t, "again", call("who", good), replayed)
			expect(t, "Ed25519", call("who", string(signed(t, "who", `{}`, "robot", audience, private))),
				"agent robot by signature")
			fresh := func() string {
				return string(signed(t, "who", `{"a":1}`, "partner", audience, []byte(secret)))
			}
			expect(t, "other params", call("who", strings.Replace(fresh(), `"a":1`, `"a":2`, 1)),
				badSignature)
			expect(t, "other method", call("math/add", fresh()), badSignature)
			expect(t, "other audience",
				call("who", string(signed(t, "who", `{}`, "partner", "https://x.example", []byte(secret)))),
				badSignature)
			expect(t, "other id",
				call("who", string(signed(t, "who", `{}`, "robot", audience, []byte(secret)))), badSignature)
			expect(t, "unknown id",
				call("who", string(signed(t, "who", `{}`, "unknown", audience, []byte(secret)))), badSignature)
			expect(t, "other key",
				call("who", string(signed(t, "who", `{}`, "partner", audience, []byte(secret+"x")))),
				badSignature)
			expect(t, "no object", call("who", `{"_meta":{"farcall.dev/signature":true}}`), badSignature)
			want := any(unauthenticated)
			if c.Anonymous {
				want = "anonymous anonymous by none"
			}
			expect(t, "not signed", call("who", `{}`), want)
		})
	}
}

// overTCP is a peer over a real connection.
func overTCP(t *testing.T, g *guard.Guard) *farcall.Peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tr, err := stream.Dial(t.Context(), "tcp", l.Addr().String(), stream.NDJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, g, &guard.Conn{Transport: "tcp", Remote: conn.RemoteAddr().String()}, tr,
		stream.New(conn, stream.NDJSON, nil))
}

// Signed on a connection of another, a message is that of who signed it.
func TestSignatureCountsBeforeConnection(t *testing.T) {
	g := newGuard(t, &guard.Config{Signatures: []guard.Signer{{ID: "partner", Secret: secret}}}, nil)
	p := over(t, g, &guard.Conn{Transport: "stdio"})
	expect(t, "plain", ask(t, p, "who", nil), "process local by process")
	expect(t, "signed", ask(t, p, "who", signed(t, "who", `{}`, "partner", "", []byte(secret))),
		"service partner by signature")
	expect(t, "badly", ask(t, p, "who", signed(t, "who", `{}`, "partner", "", []byte(secret+"x"))),
		badSignature)
	expect(t, "plain", ask(t, p, "who", nil), "process local by process")
}

// Old and future messages have their own error.
func TestStaleMessages(t *testing.T) {
	now := newClock()
	g := newGuard(t, &guard.Config{Signatures: []guard.Signer{{ID: "partner", Secret: secret}}},
		&guard.Options{Now: now.Now})
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	message := signed(t, "who", `{}`, "partner", "", []byte(secret))
	now.add(6 * time.Minute)
	expect(t, "old", ask(t, p, "who", message), stale)
	now.add(-7 * time.Minute)
	expect(t, "of the future", ask(t, p, "who", message), stale)
	now.add(time.Minute)
	expect(t, "in time", ask(t, p, "who", message), "service partner by signature")
}

// Where the clock goes back, what may have been forgotten is stale; nothing is logged about room or
// another attempt.
func TestForgottenNonceIsStale(t *testing.T) {
	now := newClock()
	g := newGuard(t, &guard.Config{Signatures: []guard.Signer{{ID: "partner", Secret: secret}}},
		&guard.Options{Now: now.Now})
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	now.add(4 * time.Minute)
	expect(t, "four minutes old",
		ask(t, p, "who", signed(t, "who", `{}`, "partner", "", []byte(secret))),
		"service partner by signature")
	now.add(-4 * time.Minute)
	c := &guard.Config{Signatures: []guard.Signer{{ID: "partner", Secret: secret}}}
	c.Replay.Window = time.Minute
	if err := g.Reload(c); err != nil {
		t.Fatal(err)
	}
	_, err := farcall.Call[string](t.Context(), p, "who",
		signed(t, "who", `{}`, "partner", "", []byte(secret)))
	if wire := (*jsonrpc.Error)(nil); !errors.As(err, &wire) || wire.Code != stale ||
		strings.Contains(string(wire.Data), "retry") {
		t.Errorf("%v", err)
	}
}

func TestMemoryOfNoncesIsFull(t *testing.T) {
	g := newGuard(t, twoSigners(2), nil)
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	for i, want := range []any{
		"service a by signature", limited, "service b by signature",
		unavailable,
	} {
		got := ask(t, p, "who", signed(t, "who", `{}`, "aabb"[i:i+1], "", []byte(secret)))
		expect(t, string(rune('0'+i)), got, want)
	}
	expect(t, "others notice nothing", ask(t, p, "who", nil), "anonymous anonymous by none")
}

// What the handler knows is what the guard found out, also in an interceptor that follows.
func TestFromInInterceptors(t *testing.T) {
	g := newGuard(t, &guard.Config{}, nil)
	seen := make(chan string, 1)
	look := func(next farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
			seen <- guard.From(ctx).Name()
			return next.ServeRPC(ctx, r)
		})
	}
	ours, theirs := farcall.Pipe()
	server := farcall.NewPeer(theirs, newMux(),
		&farcall.Options{
			Interceptors: []farcall.Interceptor{g.Interceptor(&guard.Conn{Transport: "stdio"}), look},
		})
	client := farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()
	expect(t, "who", ask(t, client, "who", nil), "process local by process")
	expect(t, "interceptor", <-seen, "local")
	if guard.From(context.Background()) != nil || guard.From(context.Background()).Name() != "" {
		t.Error("an unauthenticated caller has a principal")
	}
}

// What the context of a connection knows from its handshake does not count when it is another one
// since.
func TestContextOfHandshake(t *testing.T) {
	g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
	calls := make(chan func() error, 1)
	s := serve(t, g, g.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h := g.Interceptor(guard.ConnOf(r, "ws"))(farcall.HandlerFunc(who))
		ctx := context.WithoutCancel(r.Context())
		calls <- func() error {
			_, err := h.ServeRPC(ctx, &farcall.Request{Method: "who"})
			return err
		}
	})))
	s.call("who", "", "X-API-Key: "+goodKey)
	call := <-calls
	if err := call(); err != nil {
		t.Error(err)
	}
	reload(t, g, &guard.Config{Keys: []guard.Key{keyOf("ci", otherKey)}})
	if err := call(); err == nil {
		t.Error("the key counts no more")
	}
}

// A server with calls that need scopes serves WebSockets and streams as others do.
func TestScopesOverConnections(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	header := http.Header{"Authorization": {"Bearer " + a.token(now.Now(), nil)}}
	p := newSocketSite(t, scoped(a), &guard.Options{Now: now.Now}).dial(t, header)
	expect(t, "read", ask(t, p, "math/add", nil), "user "+issuer+"|alice by jwt")
	expect(t, "admin", ask(t, p, "admin/stop", nil), denied)
	s := newSite(t, scoped(a), &guard.Options{Now: now.Now})
	for method, want := range map[string]int{
		"math/add":   http.StatusOK,
		"admin/stop": http.StatusForbidden,
	} {
		r := s.request("x", "", bearer(a.token(now.Now(), nil)))
		r.Method, r.URL.Path, r.URL.RawQuery, r.Body, r.ContentLength = http.MethodGet, "/stream",
			"method="+method, nil, 0
		if got := s.do(r); got.status != want && !strings.Contains(got.body, "-32002") {
			t.Errorf("%s: %d %s", method, got.status, got.body)
		}
	}
}
