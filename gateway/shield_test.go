package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/wsrpc"
)

// keyed is the key of a principal of the tests.
func keyed(id string) string { return "fc_key-of-" + id + "-0123456789abcdef0123456789" }

func as(id string) string { return "X-API-Key: " + keyed(id) }

// guarded is a guard that knows dev (of the role dev), ops (of ops), and eve, who has no role.
func guarded(allow ...guard.Rule) *guard.Config {
	c := &guard.Config{Allow: allow}
	for _, id := range []string{"dev", "ops", "eve"} {
		sum := sha256.Sum256([]byte(keyed(id)))
		k := guard.Key{ID: id, Hash: "sha256:" + hex.EncodeToString(sum[:])}
		if id != "eve" {
			k.Roles = []string{id}
		}
		c.Keys = append(c.Keys, k)
	}
	return c
}

func allow(role string, calls ...string) guard.Rule {
	return guard.Rule{Roles: []string{role}, Calls: calls}
}

// A shop is a server with something of everything. It notes what is used.
type shop struct {
	*mcp.Server
	mu   sync.Mutex
	used []string
}

func (s *shop) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = append(s.used, what)
}

// took returns what was used since.
func (s *shop) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.used = nil }()
	return strings.Join(s.used, " ")
}

func newShop(name, eras string) *shop {
	s := &shop{}
	s.Server = mcp.NewServer(name, "1", &mcp.ServerOptions{
		Eras: eras, CacheScope: spec.CachePublic, CacheTTL: 1 << 40,
		Complete: func(_ context.Context, p *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
			s.note("complete " + p.Ref.Name + p.Ref.URI)
			return &spec.CompleteResult{Completion: spec.Completion{Values: []string{"x"}}}, nil
		},
	})
	no := false
	for tool, a := range map[string]*spec.ToolAnnotations{
		"look": {ReadOnlyHint: true}, "drop": {}, "add": {DestructiveHint: &no}, "bare": nil,
	} {
		mcp.AddTool(s.Server, mcp.Tool{Name: tool, Annotations: a},
			func(_ context.Context, in textIn) (string, error) {
				s.note("call " + tool)
				return name + " " + tool + " " + in.Text, nil
			})
	}
	for _, path := range []string{"open", "secret"} {
		s.AddResource(mcp.Resource{URI: "test://" + name + "/" + path, Name: path},
			func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
				s.note("read " + uri)
				return []mcp.ResourceContents{{URI: uri, Text: path}}, nil
			})
		s.AddPrompt(mcp.Prompt{Name: path, Arguments: []spec.PromptArgument{{Name: "a"}}},
			func(context.Context, map[string]string) (*mcp.PromptResult, error) {
				s.note("get " + path)
				return &mcp.PromptResult{}, nil
			})
		s.AddTemplate(mcp.ResourceTemplate{
			URITemplate: "test://" + name + "/" + path + "/{x}",
			Name:        path,
		}, func(_ context.Context, uri string, _ mcp.Vars) ([]mcp.ResourceContents, error) {
			s.note("read " + uri)
			return []mcp.ResourceContents{{URI: uri, Text: path}}, nil
		})
	}
	return s
}

// enter is a client with a key.
func (l *lab) enter(t *testing.T, path, id, eras string) *mcp.Client {
	t.Helper()
	return l.clientAt(t, path, mcp.ClientOptions{Era: eras, HTTP: withKeyOf(id)})
}

func withKeyOf(id string) *mcphttp.DialOptions {
	return &mcphttp.DialOptions{Header: http.Header{"X-Api-Key": {keyed(id)}}}
}

// seen are the names of everything that a client sees.
func seen(t *testing.T, c *mcp.Client) string {
	t.Helper()
	var all []string
	for method, member := range map[string]string{
		spec.MethodToolsList: "name", spec.MethodResourcesList: "uri",
		spec.MethodResourcesTemplatesList: "uriTemplate", spec.MethodPromptsList: "name",
	} {
		cursor := ""
		for range 100 {
			var params any
			if cursor != "" {
				params = map[string]any{"cursor": cursor}
			}
			var r map[string]any
			if err := c.Request(t.Context(), method, params, &r); err != nil {
				t.Fatal(err)
			}
			for _, list := range []string{"tools", "resources", "resourceTemplates", "prompts"} {
				items, _ := r[list].([]any)
				for _, item := range items {
					o, _ := item.(map[string]any)
					word, _ := o[member].(string)
					all = append(all, strings.TrimSuffix(list, "s")+":"+word)
				}
			}
			if r["cacheScope"] == "public" {
				t.Errorf("%s: others may get the same list", method)
			}
			if cursor, _ = r["nextCursor"].(string); cursor == "" {
				break
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Lists show what the caller may use, by the names that it has at its server, whatever they are
// called here.
func TestShieldLists(t *testing.T) {
	a, b := newShop("a", ""), newShop("b", "legacy")
	ua, ub := over(t, "a", a.Server), over(t, "b", b.Server)
	// drop is called look2, look is called drop
	ua.Tools.Rename = map[string]string{"drop": "look2", "look": "drop"}
	c := &gateway.Config{
		Upstreams: []*gateway.Upstream{ua, ub}, Namespace: "always", PageSize: 1,
		Guard: guarded(
			allow("dev", "tools/call a/look", "tools/call b/add", "resources/read a/test://a/open*",
				"prompts/get b/open"),
			allow("ops", "*")),
	}
	l := newLabOf(t, nil, c)
	for _, eras := range []string{"modern", "legacy"} {
		for id, want := range map[string]map[string]string{
			"dev": {
				"/mcp": "prompt:b__open resource:a+test://a/open resourceTemplate:a+test://a/open/{x} " +
					"tool:a__drop tool:b__add",
				"/mcp/a": "resource:test://a/open resourceTemplate:test://a/open/{x} tool:drop",
				"/mcp/b": "prompt:open tool:add",
			},
			"eve": {"/mcp": "", "/mcp/a": "", "/mcp/b": ""},
			"ops": {"/mcp/b": "prompt:open prompt:secret resource:test://b/open resource:test://b/secret " +
				"resourceTemplate:test://b/open/{x} " +
				"resourceTemplate:test://b/secret/{x} tool:add tool:bare tool:drop tool:look"},
		} {
			for path, all := range want {
				if got := seen(t, l.enter(t, path, id, eras)); got != all {
					t.Errorf("%s at %s, %s: %q, want %q", id, path, eras, got, all)
				}
			}
		}
	}
}

// What is hidden cannot be used, by any name or method, and what does not exist looks the same.
func TestShieldCalls(t *testing.T) {
	a, b := newShop("a", ""), newShop("b", "")
	ua, ub := over(t, "a", a.Server), over(t, "b", b.Server)
	ua.Tools.Rename = map[string]string{"drop": "look2", "look": "drop"}
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{ua, ub}, Namespace: "always",
		Guard: guarded(allow("dev", "tools/call a/look", "tools/call a/look2",
			"resources/read a/test://a/open*", "prompts/get b/open")),
	})
	for _, x := range []struct{ path, method, name, params, used string }{
		{"/mcp", "tools/call", "a__drop", `"name":"a__drop","arguments":{}`, "call look"}, // it is look
		{"/mcp/a", "tools/call", "drop", `"name":"drop","arguments":{}`, "call look"},
		{"/mcp", "tools/call", "a__look2", `"name":"a__look2","arguments":{}`, ""}, // it is drop
		{"/mcp/a", "tools/call", "look2", `"name":"look2","arguments":{}`, ""},
		{"/mcp/a", "tools/call", "look", `"name":"look","arguments":{}`, ""},
		{"/mcp", "tools/call", "a__add", `"name":"a__add","arguments":{}`, ""},
		{"/mcp", "tools/call", "b__look", `"name":"b__look","arguments":{}`, ""}, // of the other server
		{"/mcp/b", "tools/call", "look", `"name":"look","arguments":{}`, ""},
		{"/mcp", "tools/call", "nothing", `"name":"nothing","arguments":{}`, ""},
		{"/mcp", "tools/call", "a__drop", `"name":"a__drop","name":"b__drop","arguments":{}`, ""},
		{"/mcp", "tools/call", "a__drop", `"name":"a__drop","Name":"b__drop","arguments":{}`, ""},
		{"/mcp", "resources/read", "a+test://a/open", `"uri":"a+test://a/open"`, "read test://a/open"},
		{
			"/mcp", "resources/read", "a+test://a/open/1", `"uri":"a+test://a/open/1"`,
			"read test://a/open/1",
		},
		{"/mcp", "resources/read", "a+test://a/secret", `"uri":"a+test://a/secret"`, ""},
		{"/mcp", "resources/read", "a+test://a/secret/1", `"uri":"a+test://a/secret/1"`, ""},
		{"/mcp", "resources/read", "a+test://a/open/../secret", `"uri":"a+test://a/open/../secret"`, ""},
		{
			"/mcp", "resources/read", "a+test://a/open/%2e%2e/secret",
			`"uri":"a+test://a/open/%2e%2e/secret"`, "",
		},
		{"/mcp", "resources/read", "b+test://b/open", `"uri":"b+test://b/open"`, ""},
		{"/mcp", "prompts/get", "b__open", `"name":"b__open"`, "get open"},
		{"/mcp", "prompts/get", "b__secret", `"name":"b__secret"`, ""},
		{"/mcp", "prompts/get", "a__open", `"name":"a__open"`, ""},
		{
			"/mcp", "completion/complete", "",
			`"ref":{"type":"ref/prompt","name":"b__open"},"argument":{"name":"a","value":""}`,
			"complete open",
		},
		{
			"/mcp", "completion/complete", "",
			`"ref":{"type":"ref/prompt","name":"b__secret"},"argument":{"name":"a","value":""}`, "",
		},
		{
			"/mcp", "completion/complete", "",
			`"ref":{"type":"ref/prompt","name":"b__open","Name":"b__secret"},"argument":{"name":"a",` +
				`"value":""}`, "",
		},
		{
			"/mcp", "completion/complete", "",
			`"ref":{"type":"ref/resource","uri":"a+test://a/open/{x}"},"argument":{"name":"x","value":""}`,
			"complete test://a/open/{x}",
		},
		{
			"/mcp", "completion/complete", "",
			`"ref":{"type":"ref/resource","uri":"a+test://a/secret/{x}"},"argument":{"name":"x","value":""}`,
			"",
		},
	} {
		if x.name != "" { // none of them has a principal
			if got, err := l.modernAt(t.Context(), x.path, x.method, x.name, x.params); err != nil ||
				got.status != http.StatusUnauthorized {
				t.Errorf("unauthenticated %+v: %v, %v", x, got, err)
			}
		}
		got, err := l.modernAt(t.Context(), x.path, x.method, x.name, x.params, as("dev"))
		if err != nil {
			t.Fatal(err)
		}
		if used := strings.TrimSpace(a.took() + " " + b.took()); used != x.used ||
			(used == "") == (got.err == nil) {
			t.Errorf("%+v: %q, %v", x, used, got)
		} else if used == "" && got.err.Code != -31056 && got.err.Code != -32602 &&
			got.err.Code != -32020 {
			t.Errorf("%+v: %v", x, got)
		}
		if got, err := l.modernAt(t.Context(), x.path, x.method, x.name, x.params,
			as("eve")); err != nil || got.err == nil || a.took()+b.took() != "" {
			t.Errorf("eve %+v: %v, %v", x, got, err)
		}
	}
}

// Anyone who may not call anything learns nothing of what there is.
func TestShieldTellsNothing(t *testing.T) {
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: []*gateway.Upstream{over(t, "a", newShop("a", "").Server)},
			Guard:     guarded(allow("dev", "*")),
		})
	one, err := l.modern(t.Context(), "tools/call", "look", `"name":"look","arguments":{}`, as("eve"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.modern(t.Context(), "tools/call", "nothing", `"name":"nothing","arguments":{}`,
		as("eve"))
	if err != nil || one.body != other.body {
		t.Errorf("%v, %v, %v", one, other, err)
	}
}

// Arguments that do not fit do not get to the server: a real one, in a process.
func TestShieldArguments(t *testing.T) {
	l := newLabOf(t, nil,
		&gateway.Config{
			Upstreams: []*gateway.Upstream{child("a", "ok")},
			Guard:     guarded(allow("dev", "tools/call a/*"), allow("ops", "gateway/status")),
		})
	ok, err := l.modern(t.Context(), "tools/call", "echo",
		`"name":"echo","arguments":{"text":"hello"}`, as("dev"))
	if err != nil || !strings.Contains(ok.body, "hello") {
		t.Fatal(ok, err)
	}
	calls := func() int { return l.statusAs(t, "ops").Upstreams[0].Calls }
	before := calls()
	for _, arguments := range []string{
		`{"text":1}`, `{"text":{"__proto__":1}}`,
		`{"text":"a","text":"b"}`, `"text"`,
	} {
		got, err := l.modern(t.Context(), "tools/call", "echo", `"name":"echo","arguments":`+arguments,
			as("dev"))
		if err != nil || got.err == nil || got.err.Code != -32602 {
			t.Errorf("%s: %v, %v", arguments, got, err)
		}
	}
	if after := calls(); after != before {
		t.Errorf("%d calls came to the server", after-before)
	}
}

// Annotations count in rules, as the server gives them.
func TestShieldAnnotations(t *testing.T) {
	no := false
	a := newShop("a", "")
	rule := allow("dev", "tools/call a/*")
	rule.Destructive = &no
	l := newLabOf(t, nil,
		&gateway.Config{Upstreams: []*gateway.Upstream{over(t, "a", a.Server)}, Guard: guarded(rule)})
	if got := seen(t, l.enter(t, "/mcp", "dev", "")); got != "tool:add tool:look" {
		t.Errorf("%q", got)
	}
	for tool, want := range map[string]string{
		"look": "call look", "add": "call add", "drop": "",
		"bare": "",
	} {
		got, err := l.modern(t.Context(), "tools/call", tool, `"name":"`+tool+`","arguments":{}`,
			as("dev"))
		if err != nil || a.took() != want {
			t.Errorf("%s: %v, %v", tool, got, err)
		}
	}
}

// What no rule is about on its own: methods of the server's own, and notifications.
func TestShieldCustomMethods(t *testing.T) {
	a, b := newShop("a", ""), newShop("b", "")
	for name, s := range map[string]*shop{"a": a, "b": b} {
		s.AddExtension("com.example/pay", map[string]any{}) // b is the only one that the caller may use
		for _, method := range []string{"pay/now", "pay/back"} {
			s.Handle(method, farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				s.note(method)
				return map[string]string{"by": name}, nil
			}))
		}
		s.Handle("notifications/evil",
			farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				s.note("evil")
				return nil, nil //nolint:nilnil // a notification has no answer
			}))
	}
	l := newLabOf(t, nil, &gateway.Config{
		Upstreams: []*gateway.Upstream{over(t, "a", a.Server), over(t, "b", b.Server)},
		Guard:     guarded(allow("dev", "rpc b/pay/now")),
	})
	got, err := l.modern(t.Context(), "pay/now", "", "", as("dev"))
	if err != nil || got.err != nil || b.took() != "pay/now" || a.took() != "" {
		t.Errorf("%v, %v", got, err)
	}
	for _, x := range [][2]string{{"dev", "pay/back"}, {"eve", "pay/now"}, {"dev", "rpc/pay/now"}} {
		if got, err := l.modern(t.Context(), x[1], "", "", as(x[0])); err != nil || got.err == nil ||
			a.took()+b.took() != "" {
			t.Errorf("%v: %v, %v", x, got, err)
		}
	}
	for _, id := range []string{"dev", "eve"} {
		c := l.enter(t, "/mcp", id, "legacy")
		if err := c.Notify(t.Context(), "notifications/evil", nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Request(t.Context(), "ping", nil, nil); err != nil { // it follows
			t.Error(err)
		}
	}
	if got := a.took() + b.took(); got != "" {
		t.Errorf("%q", got)
	}
}

// The page and its status are for operators.
func TestShieldPage(t *testing.T) {
	l := newLabOf(t, &gateway.Options{Metrics: metrics.New(nil)}, &gateway.Config{
		Upstreams: []*gateway.Upstream{over(t, "a", newShop("a", "").Server)},
		Guard:     guarded(allow("ops", "gateway/status"), allow("dev", "tools/call *")),
	})
	for _, path := range []string{"/", "/api/status", "/metrics"} {
		for id, want := range map[string]int{
			"ops": http.StatusOK, "dev": http.StatusForbidden,
			"eve": http.StatusForbidden, "": http.StatusUnauthorized, "mallory": http.StatusUnauthorized,
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if id != "" {
				r.Header.Set("X-Api-Key", keyed(id))
			}
			got, err := l.web.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got.Body.Close()
			if got.StatusCode != want {
				t.Errorf("%s as %q: %d", path, id, got.StatusCode)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		// anyone who looks after the process has no key
		if got := l.get(t, path); got != "ok\n" && got != "ready\n" {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, path := range []string{"/nowhere", "/sse", "/messages?sessionId=x", "/rpc/a", "/mcp/b"} {
		if got := l.get(t, path); !strings.Contains(got, "-32051") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// statusAs is the status as a principal may see it.
func (l *lab) statusAs(t *testing.T, id string) (s status) {
	t.Helper()
	web := l.web
	defer func() { l.web = web }()
	l.web = &http.Client{Transport: &withKey{web.Transport, keyed(id)}}
	return l.status(t)
}

type withKey struct {
	http.RoundTripper
	key string
}

func (w *withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Api-Key", w.key)
	return w.RoundTripper.RoundTrip(r)
}

// socket is a client over WebSocket with a key.
func (l *lab) socket(t *testing.T, id string) (*mcp.Client, error) {
	t.Helper()
	tr, err := wsrpc.Dial(t.Context(), strings.Replace(l.url, "http", "ws", 1)+"/mcp",
		&wsrpc.Options{Header: http.Header{"X-Api-Key": {keyed(id)}}, Subprotocols: []string{"mcp"}})
	if err != nil {
		return nil, err
	}
	c, err := mcp.Connect(t.Context(), tr, nil)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}
