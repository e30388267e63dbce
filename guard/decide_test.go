package guard_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

const asCI = "X-API-Key: " + goodKey

func TestDenyByDefault(t *testing.T) {
	keys := []guard.Key{keyOf("ci", goodKey, "builder"), keyOf("eve", otherKey)}
	const asEve = "X-API-Key: " + otherKey
	open := newSite(t, &guard.Config{Keys: keys}, nil)
	open.call("admin/stop", "", asEve).wants(t, "service eve by key") // there are no rules
	for name, c := range map[string]*guard.Config{
		"a rule": {
			Allow: []guard.Rule{
				{Roles: []string{"builder"}, Calls: []string{"math/*", "tools/call build_*"}},
			},
		},
		"Cedar": {
			Cedar: `permit(principal in Role::"builder", action, resource) when { resource.call like ` +
				`"math/*" || resource.call like "tools/call build_*" };`,
		},
		"a rule denies": {
			Deny: []guard.Rule{{Calls: []string{"nothing"}}},
			Allow: []guard.Rule{
				{Principals: []string{"ci"}, Calls: []string{"math/*", "tools/call build_*"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.Keys = keys
			s := newSite(t, c, nil)
			s.call("math/add", "", asCI).wants(t, "service ci by key")
			s.call("tools/call", `{"name":"build_all"}`, asCI).wants(t, "service ci by key")
			s.call("tools/call", `{"name":"destroy_all"}`, asCI).wants(t, jsonrpc.Code(-32056))
			s.call("tools/call", `{"name":"x/build_all"}`, asCI).wants(t, jsonrpc.Code(-32056))
			s.call("tools/call", `{}`, asCI).wants(t, jsonrpc.Code(-32056))
			s.call("tools/call", `{"name":["build_all"]}`, asCI).wants(t, jsonrpc.Code(-32056))
			s.call("admin/stop", "", asCI).wants(t, denied)
			s.call("Math/add", "", asCI).wants(t, denied)
			s.call("nowhere", "", asCI).wants(t, denied) // not: not found
			s.call("math/add", "", asEve).wants(t, denied)
			for _, open := range []string{"ping", "initialize", "tools/list"} {
				s.call(open, "", asEve).wants(t, "service eve by key")
				s.call(open, "").wants(t, unauthenticated)
			}
			got := s.call("admin/stop", "", asEve)
			if strings.Contains(got.body, "rule") || strings.Contains(got.body, "eve") || got.data != nil {
				t.Errorf("the answer says too much: %s", got.body)
			}
		})
	}
}

// What is open may be denied all the same.
func TestOpenMayBeDenied(t *testing.T) {
	c := &guard.Config{
		Keys: []guard.Key{keyOf("ci", goodKey)},
		Deny: []guard.Rule{{Calls: []string{"tools/list"}}},
	}
	s := newSite(t, c, nil)
	s.call("tools/list", "", asCI).wants(t, jsonrpc.Code(-32056))
	s.call("ping", "", asCI).wants(t, "service ci by key")
}

func TestDetailsForATrustedRole(t *testing.T) {
	c := &guard.Config{
		Keys:  []guard.Key{keyOf("ci", goodKey, "operator"), keyOf("eve", otherKey)},
		Allow: []guard.Rule{{Calls: []string{"math/*"}}},
	}
	s := newSite(t, c, &guard.Options{Details: "operator"})
	if got := s.call("admin/stop", "", asCI); got.data["reason"] == nil {
		t.Errorf("%s", got.body)
	}
	if got := s.call("admin/stop", "", "X-API-Key: "+otherKey); got.data != nil {
		t.Errorf("%s", got.body)
	}
}

// A call that is for this machine only is not for the callers that a proxy on it serves.
func TestLocalOnly(t *testing.T) {
	c := &guard.Config{
		Anonymous: true, Local: []string{"admin/*"},
		Allow: []guard.Rule{{Calls: []string{"*"}}},
	}
	s := newSite(t, c, nil)
	s.call("admin/stop", "").wants(t, "anonymous anonymous by none")
	for _, header := range []string{
		"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: localhost", "X-Forwarded-Proto: https",
		"Forwarded: for=127.0.0.1", "Via: 1.1 proxy",
		"X-Real-IP: 127.0.0.1", "X-Client-IP: ::1", "True-Client-IP: 127.0.0.1",
		"CF-Connecting-IP: 127.0.0.1", "x-forwarded-for: ",
	} {
		s.call("admin/stop", "", header).wants(t, denied)
		s.call("math/add", "", header).wants(t, "anonymous anonymous by none")
	}
	g := newGuard(t, c, nil)
	expect(t, "TCP of elsewhere",
		ask(t, over(t, g, &guard.Conn{Transport: "tcp", Remote: "192.0.2.1:5"}), "admin/stop", nil),
		denied)
	expect(t, "unix", ask(t, over(t, g, &guard.Conn{Transport: "unix", Local: true}), "admin/stop",
		nil), "anonymous anonymous by none")
}

// Over a unix socket HTTP is local; a request without an address is not for that reason alone.
func TestLocalOverUnixSocket(t *testing.T) {
	c := &guard.Config{Anonymous: true, Local: []string{"admin/*"}}
	g := newGuard(t, c, nil)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var local []bool
	h := g.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		done, err := g.Begin(r.Context(), &guard.Call{Method: "admin/stop"})
		if local = append(local, err == nil); err == nil {
			done(nil, nil)
		}
	}))
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	web := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	r, err := (&http.Client{Transport: web}).Get("http://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	web.CloseIdleConnections()
	server.Close()
	<-served
	bare, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/",
		http.NoBody)
	h.ServeHTTP(&deadEnd{header: http.Header{}}, bare)
	if len(local) != 2 || !local[0] || local[1] {
		t.Errorf("%v", local)
	}
}

// deadEnd is where unread answers go.
type deadEnd struct {
	header http.Header
	status int
}

func (d *deadEnd) Header() http.Header         { return d.header }
func (d *deadEnd) Write(b []byte) (int, error) { return len(b), nil }
func (d *deadEnd) WriteHeader(status int)      { d.status = status }

// scoped is a resource server with calls that need scopes.
func scoped(a *authority) *guard.Config {
	c := &guard.Config{JWT: []guard.Issuer{{Issuer: issuer, JWKS: jwks(a)}}}
	c.Resource.URL = audience
	c.Resource.Scopes = map[string][]string{
		"math/*": {"read"}, "admin/*": {"admin", "write"},
		"tools/call stop": {"admin"},
	}
	return c
}

func wantsStepUp(t *testing.T, got *reply, want string) {
	t.Helper()
	h := got.header.Get("Www-Authenticate")
	if got.status != http.StatusForbidden || !strings.HasPrefix(h, "Bearer ") ||
		!strings.Contains(h, `error="insufficient_scope"`) ||
		!strings.Contains(h, `scope="`+want+`"`) ||
		!strings.Contains(h, `resource_metadata="https://rpc.example/.well-known/`+
			`oauth-protected-resource/rpc"`) {
		t.Errorf("%d %q %s", got.status, h, got.body)
	}
}

func TestScopesAndStepUp(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	s := newSite(t, scoped(a), &guard.Options{Now: now.Now})
	reader := bearer(a.token(now.Now(), nil))
	admin := bearer(a.token(now.Now(), map[string]any{"scope": "admin write"}))
	s.call("math/add", "", reader).wants(t, "user "+issuer+"|alice by jwt")
	s.call("admin/stop", "", admin).wants(t, "user "+issuer+"|alice by jwt")
	got := s.call("admin/stop", "", reader)
	got.wants(t, denied)
	wantsStepUp(t, got, "admin read write")
	if got.data["scope"] != "admin read write" {
		t.Errorf("%s", got.body)
	}
	wantsStepUp(t, s.call("math/add", "", admin), "admin read write")
	// A batch of calls that run at the same time.
	r := s.request("x", "", reader)
	body := `[{"jsonrpc":"2.0","id":1,"method":"admin/stop"},{"jsonrpc":"2.0","id":2,` +
		`"method":"admin/stop"},{"jsonrpc":"2.0","id":3,"method":"math/add"}]`
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	wantsStepUp(t, s.do(r), "admin read write")
	// Without a token there is no scope that could be missing.
	got = s.call("admin/stop", "")
	if h := got.header.Get("Www-Authenticate"); got.status != http.StatusUnauthorized ||
		strings.Contains(h, "error=") || !strings.Contains(h, "resource_metadata=") {
		t.Errorf("%d %q", got.status, h)
	}
}

// The same for MCP over HTTP, with a handshake and without.
func TestStepUpOverMCP(t *testing.T) {
	now := newClock()
	a := newAuthority(t, "1")
	g := newGuard(t, scoped(a), &guard.Options{Now: now.Now})
	server := mcp.NewServer("test", "1", nil)
	t.Cleanup(server.Close)
	for _, name := range []string{"stop", "look"} {
		mcp.AddTool(server, mcp.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
			return guard.From(ctx).ID, nil
		})
	}
	rpc := &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}
	h := mcphttp.NewHandler(server, &mcphttp.Options{RPC: rpc})
	mux := http.NewServeMux()
	mux.Handle("/rpc", g.HTTP(h))
	s := serve(t, g, mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Shutdown(ctx)
	})
	headers := func(tool string, more ...string) []string {
		return append([]string{
			"Accept: application/json, text/event-stream",
			bearer(a.token(now.Now(), nil)),
		}, more...)
	}
	hello := s.call("initialize",
		`{"protocolVersion":"`+era.LatestLegacy().Name+
			`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`, headers("")...)
	session := hello.header.Get("Mcp-Session-Id")
	if session == "" {
		t.Fatalf("%d %s", hello.status, hello.body)
	}
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + era.Latest().Name +
		`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	for _, tool := range []string{"stop", "look"} {
		old := s.call("tools/call", `{"name":"`+tool+`","arguments":{}}`,
			headers(tool, "Mcp-Session-Id: "+session, "MCP-Protocol-Version: "+era.LatestLegacy().Name)...)
		young := s.call("tools/call", `{"name":"`+tool+`","arguments":{},`+meta+`}`,
			headers(tool, "MCP-Protocol-Version: "+era.Latest().Name, "Mcp-Method: tools/call",
				"Mcp-Name: "+tool)...)
		if tool == "look" {
			for _, got := range []*reply{old, young} {
				if got.status != http.StatusOK || !strings.Contains(got.body, "alice") {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
			continue
		}
		wantsStepUp(t, old, "admin read")
		wantsStepUp(t, young, "admin read")
		if !strings.Contains(old.body, "-32056") || !strings.Contains(young.body, "-31056") {
			t.Errorf("%s %s", old.body, young.body)
		}
	}
}

func TestMetadataOfTheResource(t *testing.T) {
	c := scoped(newAuthority(t, "1"))
	s := newSite(t, c, nil)
	get := func(method, path string) *reply {
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return s.do(r)
	}
	const path = "/.well-known/oauth-protected-resource"
	for _, p := range []string{path, path + "/rpc"} {
		got := get(http.MethodGet, p)
		var doc struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
		}
		if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != http.StatusOK ||
			doc.Resource != audience ||
			len(doc.Servers) != 1 || doc.Servers[0] != issuer || len(doc.Scopes) != 3 ||
			got.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%d %v %s", got.status, err, got.body)
		}
		if got := get(http.MethodHead, p); got.status != http.StatusOK || got.body != "" {
			t.Errorf("HEAD: %d %s", got.status, got.body)
		}
		if got := get(http.MethodOptions, p); got.status != http.StatusNoContent ||
			got.header.Get("Access-Control-Allow-Headers") == "" {
			t.Errorf("OPTIONS: %d %v", got.status, got.header)
		}
		if got := get(http.MethodPost, p); got.status != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", got.status)
		}
	}
	if got := get(http.MethodGet, path+"x"); got.status != http.StatusUnauthorized {
		t.Errorf("another path that begins the same: %d", got.status)
	}
	none := newSite(t, &guard.Config{Keys: c.Keys}, nil)
	if r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, none.url+path,
		http.NoBody); none.do(r).status != http.StatusUnauthorized {
		t.Error("what is no resource has metadata")
	}
}

// A caller of Begin without a guard in front is unauthenticated.
func TestBeginWithoutSession(t *testing.T) {
	g := newGuard(t, &guard.Config{Anonymous: true}, nil)
	if _, err := g.Begin(t.Context(), &guard.Call{Method: "ping"}); err == nil {
		t.Error("it may proceed")
	}
	if g.Visible(t.Context(), &guard.Call{Method: "ping"}) {
		t.Error("it is visible")
	}
}

// Subscriptions and completions are of what may be read and used.
func TestIndirectUse(t *testing.T) {
	c := &guard.Config{
		Anonymous: true,
		Allow:     []guard.Rule{{Calls: []string{"resources/read file:///public/*", "prompts/get good"}}},
	}
	g := newGuard(t, c, nil)
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	no, notFound := any(jsonrpc.Code(-32056)), any(jsonrpc.MethodNotFound)
	for _, c := range []struct {
		method, params string
		want           any
	}{
		{"resources/read", `{"uri":"file:///public/a"}`, notFound},
		{"resources/read", `{"uri":"file:///secret/a"}`, no},
		{"resources/read", `{"uri":"file:///public/../secret/a"}`, no},
		{"resources/read", `{"uri":"file:///public/%2e%2e/secret/a"}`, no},
		{"resources/read", `{"uri":"file:///public/%2E%2E%2Fsecret/a"}`, no},
		{"resources/read", `{"uri":"file:///public/..\\secret"}`, no},
		{"resources/subscribe", `{"uri":"file:///public/a"}`, notFound},
		{"resources/subscribe", `{"uri":"file:///secret/a"}`, no},
		{"resources/unsubscribe", `{"uri":"file:///secret/a"}`, no},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"good"}}`, notFound},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"bad"}}`, no},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///public/{x}"}}`, notFound},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///secret/{x}"}}`, no},
		{
			"completion/complete", `{"ref":{"type":"ref/prompt","name":"good","Name":"bad"}}`,
			jsonrpc.InvalidParams,
		},
		{
			"subscriptions/listen", `{"notifications":{"resourceSubscriptions":["file:///public/a"]}}`,
			notFound,
		},
		{
			"subscriptions/listen",
			`{"notifications":{"resourceSubscriptions":["file:///public/a","file:///secret/a"]}}`, no,
		},
	} {
		expect(t, c.method+" "+c.params, ask(t, p, c.method, jsonrpc.Raw(c.params)), c.want)
	}
}

// Lists have no arguments: what a policy allows for some of them is not seen, rather than what may
// not be called.
func TestVisibleByArguments(t *testing.T) {
	c := &guard.Config{
		Cedar: `permit(principal, action, resource == Tool::"get") when { context.arguments has repo ` +
			`&& context.arguments.repo like "acme/*" };`,
	}
	g := newGuard(t, c, nil)
	seen := map[string]bool{}
	h := g.Identify(
		&guard.Conn{Transport: "stdio"})(
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			for _, name := range []string{"get", "drop"} {
				seen[name] = g.Visible(ctx, &guard.Call{Method: "tools/call", Name: name})
			}
			return nil, nil //nolint:nilnil // nothing is asked
		}))
	if _, err := h.ServeRPC(t.Context(), &farcall.Request{Method: "x"}); err != nil {
		t.Fatal(err)
	}
	if seen["drop"] || seen["get"] {
		t.Errorf("%v", seen)
	}
}
