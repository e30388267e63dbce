package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A scanner is a hook over HTTP, which notes what it gets.
type scanner struct {
	gateway.Hook

	mu  sync.Mutex
	got []scanned
}

type scanned struct {
	Phase, Upstream, Tool, Method, Revision, Session, TraceParent string

	Principal                        *struct{ Method, Kind, Issuer, ID string }
	Arguments, Result, Params, Error json.RawMessage
}

// took returns what the scanner got since.
func (s *scanner) took() []scanned {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.got = nil }()
	return s.got
}

func newScanner(t *testing.T, on string, decide func(in *scanned) string) *scanner {
	t.Helper()
	s := &scanner{Hook: gateway.Hook{Name: "the scanner", On: on, Timeout: 20 * time.Second}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in scanned
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("X-Api-Key") != "" ||
			r.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%v %v", err, r.Header)
		}
		s.mu.Lock()
		s.got = append(s.got, in)
		s.mu.Unlock()
		_, _ = io.WriteString(w, decide(&in))
	}))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	s.URL = web.URL
	return s
}

const hookPasses = `{"decision":"allow"}`

// strict refuses "bad" and masks "secret" in arguments.
func strict(in *scanned) string {
	switch args := string(in.Arguments); {
	case strings.Contains(args, "bad"):
		return `{"decision":"deny","reason":"it is bad"}`
	case strings.Contains(args, "secret"):
		return `{"decision":"allow","arguments":` + strings.ReplaceAll(args, "secret", "***") + `}`
	}
	return hookPasses
}

// tidy refuses results with "evil" and masks "private" in the others.
func tidy(in *scanned) string {
	switch result := string(in.Result); {
	case strings.Contains(result, "evil"):
		return `{"decision":"deny"}`
	case strings.Contains(result, "private"):
		return `{"decision":"allow","result":` + strings.ReplaceAll(result, "private", "***") + `}`
	}
	return hookPasses
}

// Hooks see each call of their tools and nothing else, at every address and in every revision, and
// what they decide holds.
func TestHooks(t *testing.T) {
	t.Parallel()
	before, after := newScanner(t, "before", strict), newScanner(t, "after", tidy)
	before.Tools = []string{"one/a*"}
	one, two := newShop("one", ""), newShop("two", "")
	l := newLabOf(t, nil, &gateway.Config{
		Namespace: "always", Hooks: []gateway.Hook{before.Hook},
		Upstreams: []*gateway.Upstream{
			{Name: "one", Server: one.Server, Hooks: []gateway.Hook{after.Hook}},
			{Name: "two", Server: two.Server},
		},
		Endpoints: []*gateway.Endpoint{
			{
				Name: "team", Tools: []string{"one/*", "two/*"},
				Overrides: map[string]mcp.Transform{"one/add": {Name: "plus"}},
			},
		},
	})
	for path, tool := range map[string]string{
		"/mcp": "one__add", "/mcp/one": "add",
		"/mcp/team": "one__plus", "/sse/team": "one__plus",
	} {
		for _, rev := range era.Revisions() {
			if path == "/sse/team" && rev.Name != "2024-11-05" {
				continue
			}
			how := path + " " + rev.Name
			c := l.clientAt(t, path, mcp.ClientOptions{Era: rev.Name})
			for text, want := range map[string]string{
				"plain": "one add plain", "secret": "one add ***", "private": "one add ***", "bad": "it is bad",
				"evil": "Permission denied", "secret private": "one add *** ***",
			} {
				one.took()
				before.took()
				after.took()
				r, err := c.CallTool(t.Context(), tool, map[string]string{"text": text})
				switch wire, _ := errors.AsType[*jsonrpc.Error](err); {
				case text == "bad" || text == "evil":
					if wire == nil || wire.Code != jsonrpc.PermissionDenied.Condition().Modern ||
						!strings.HasPrefix(wire.Message, "Permission denied") ||
						text == "bad" && string(wire.Data) != `{"reason":"it is bad"}` {
						t.Errorf("%s: %s: %+v %v", how, text, r, err)
					}
				case err != nil || saysOf(r) != want:
					t.Errorf("%s: %s: %+v %v", how, text, r, err)
				}
				if used := one.took(); (used == "") != (text == "bad") {
					t.Errorf("%s: %s: the tool: %q", how, text, used)
				}
				in, out := before.took(), after.took()
				if len(in) != 1 || in[0].Upstream != "one" || in[0].Tool != "add" || in[0].Phase != "before" ||
					in[0].Revision != rev.Name || in[0].Principal != nil || in[0].Result != nil {
					t.Errorf("%s: %s: before: %+v", how, text, in)
				}
				if text == "bad" {
					if len(out) != 0 {
						t.Errorf("%s: after a denied call: %+v", how, out)
					}
				} else if len(out) != 1 || out[0].Tool != "add" || out[0].Phase != "after" ||
					out[0].Arguments != nil || !strings.Contains(string(out[0].Result), "one add") {
					t.Errorf("%s: %s: after: %+v", how, text, out)
				}
			}
			name := "two__" + strings.TrimPrefix(tool, "one__")
			if path == "/mcp/one" {
				name = "look"
			} else {
				name = strings.Replace(name, "plus", "add", 1)
			}
			if _, err := c.CallTool(t.Context(), name, map[string]string{"text": "bad"}); err != nil ||
				len(before.took()) != 0 {
				t.Errorf("%s: a tool that the hook is not about: %v", how, err)
			}
			if _, err := c.Prompts(t.Context()); err != nil || len(before.took()) != 0 {
				t.Errorf("%s: %v", how, err)
			}
		}
	}
}

// What a hook changes is decided again by the guard, and the audit has what hooks have said.
func TestHooksAndGuard(t *testing.T) {
	t.Parallel()
	change := newScanner(t, "before", func(in *scanned) string {
		var a struct{ Text string }
		_ = json.Unmarshal(in.Arguments, &a)
		return `{"decision":"allow","arguments":` + a.Text + `}`
	})
	one := newShop("one", "")
	name := filepath.Join(t.TempDir(), "audit.jsonl")
	g := guarded(allow("dev", "*"))
	g.Cedar = `forbid(principal, action, resource) when { context has arguments && ` +
		`context.arguments has text && context.arguments.text == "root" };`
	g.Audit.File = name
	l := newLabOf(t, nil,
		&gateway.Config{
			Guard: g,
			Upstreams: []*gateway.Upstream{
				{Name: "one", Server: one.Server, Hooks: []gateway.Hook{change.Hook}},
			},
		})
	for _, path := range []string{"/mcp", "/mcp/one"} {
		for _, eras := range []string{"legacy", "modern"} {
			c := l.enter(t, path, "dev", eras)
			for text, want := range map[string]jsonrpc.Code{
				`{"text":"fine"}`: 0, `{"text":"root"}`: jsonrpc.PermissionDenied,
				`{"text":5}`: jsonrpc.InvalidParams, `{"text":"a","text":"root"}`: jsonrpc.InvalidParams,
			} {
				one.took()
				_, err := c.CallTool(t.Context(), "add", map[string]string{"text": text})
				wire, _ := errors.AsType[*jsonrpc.Error](err)
				if want == 0 && err != nil ||
					want != 0 &&
						(wire == nil || wire.Code != want.Condition().Legacy &&
							wire.Code != want.Condition().Modern && wire.Code != want) {
					t.Errorf("%s %s: %s: %v", path, eras, text, err)
				}
				if used := one.took(); (used == "") != (want != 0) {
					t.Errorf("%s %s: %s: the tool: %q", path, eras, text, used)
				}
			}
		}
	}
	for _, in := range change.took() {
		if p := in.Principal; p == nil || p.Method != "key" || p.ID != "dev" {
			t.Errorf("%+v", in.Principal)
		}
	}
	if c := l.enter(t, "/mcp", "eve", "modern"); c != nil {
		if _, err := c.CallTool(t.Context(), "add", map[string]string{"text": "{}"}); err == nil ||
			len(change.took()) != 0 {
			t.Errorf("a hook is asked about a call that the guard has denied: %v", err)
		}
	}
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	raw, err := os.ReadFile(name)
	if err != nil ||
		strings.Count(string(raw),
			`"hooks":[{"hook":"the scanner","outcome":"changed","durationMicros":`) != 16 {
		t.Errorf("%v\n%s", err, raw)
	}
}

// Results that are kept do not go past hooks, and those of changed arguments are kept for the
// changed ones.
func TestHooksAndCache(t *testing.T) {
	t.Parallel()
	calls := 0
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, mcp.Tool{
		Name: "read", Annotations: &spec.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
	}, func(_ context.Context, in textIn) (string, error) {
		calls++
		return fmt.Sprint(in.Text, " private ", calls), nil
	})
	before, after := newScanner(t, "before", strict), newScanner(t, "after", tidy)
	u := &gateway.Upstream{Name: "s", Server: s, Hooks: []gateway.Hook{before.Hook, after.Hook}}
	u.Cache.TTL = time.Hour
	c := newLabOf(t, nil, &gateway.Config{Upstreams: []*gateway.Upstream{u}}).client(t,
		mcp.ClientOptions{})
	for _, text := range []string{"secret", "***", "secret"} {
		r, err := c.CallTool(t.Context(), "read", map[string]string{"text": text})
		if err != nil || saysOf(r) != "*** *** 1" || len(before.took()) != 1 || len(after.took()) != 1 {
			t.Errorf("%s: %+v %v", text, r, err)
		}
	}
	if _, err := c.CallTool(t.Context(), "read", map[string]string{"text": "bad"}); err == nil {
		t.Error("a denied call was answered")
	}
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// A failure of a hook refuses the call with an error that says whether the server has seen it. A
// hook cannot make a task or a question of a result.
func TestHooksThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ on, text, sent string }{
		{"before", `{}`, `"sent":"no"`},
		{"after", `{}`, `"sent":"yes"`},
		{"after", `{"decision":"allow","result":{"content":[],"task":{"taskId":"x"}}}`, `"sent":"yes"`},
		{
			"after",
			`{"decision":"allow","result":{"content":[],"resultType":"input_required","requestState":"x"}}`,
			`"sent":"yes"`,
		},
	} {
		for _, failure := range []string{"", "deny", "allow"} {
			one := newShop("one", "")
			k := newScanner(t, c.on, func(*scanned) string { return c.text })
			k.OnFailure = failure
			l := newLabOf(t, nil,
				&gateway.Config{
					Upstreams: []*gateway.Upstream{
						{Name: "one", Server: one.Server, Hooks: []gateway.Hook{k.Hook}},
					},
				})
			for _, eras := range []string{"legacy", "modern"} {
				r, err := l.client(t, mcp.ClientOptions{Era: eras}).CallTool(t.Context(), "add",
					map[string]string{"text": "x"})
				wire, _ := errors.AsType[*jsonrpc.Error](err)
				if failure == "allow" {
					if err != nil || saysOf(r) != "one add x" {
						t.Errorf("%+v, %s: %+v %v", c, eras, r, err)
					}
				} else if wire == nil || !strings.Contains(string(wire.Data), c.sent) ||
					!strings.HasSuffix(wire.Message, "the call cannot be examined") {
					t.Errorf("%+v, %s: %+v %v", c, eras, r, err)
				}
			}
		}
	}
}

// Elements of a batch are examined one by one, and no address goes past the hooks.
func TestHooksOfBatches(t *testing.T) {
	t.Parallel()
	k := newScanner(t, "before", strict)
	one := newShop("one", "")
	l := newLabOf(t, nil,
		&gateway.Config{
			Hooks: []gateway.Hook{k.Hook},
			Upstreams: []*gateway.Upstream{
				{Name: "one", Server: one.Server},
				newMock("legacy").tcp(t, "other"),
			},
		})
	hello, err := l.post(t.Context(), "/mcp", strings.Replace(initialize, legacy, "2025-03-26", 1))
	if err != nil || hello.result == nil {
		t.Fatal(hello, err)
	}
	call := func(id int, text string) string {
		return fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"add",`+
				`"arguments":{"text":%q}}}`, id, text)
	}
	r, err := l.post(t.Context(), "/mcp",
		"["+call(1, "secret")+","+call(2, "bad")+","+call(3, "x")+"]",
		"Mcp-Session-Id: "+hello.header.Get("Mcp-Session-Id"))
	if err != nil || strings.Count(r.body, "it is bad") != 1 ||
		!strings.Contains(r.body, `"code":-32056`) || !strings.Contains(r.body, "one add ***") ||
		!strings.Contains(r.body, "one add x") {
		t.Errorf("%v %v", r, err)
	}
	if got := k.took(); len(got) != 3 || got[0].Session == "" ||
		strings.Contains(hello.header.Get("Mcp-Session-Id"), got[0].Session) {
		t.Errorf("%+v", got)
	}
	for _, path := range []string{"/rpc/one", "/rpc/other"} {
		if r, err := l.post(t.Context(), path, call(1, "bad")); err != nil ||
			r.status != http.StatusNotFound {
			t.Errorf("%s: %v %v", path, r, err)
		}
	}
}

// Other hooks are taken over without a restart of the server.
func TestHooksReload(t *testing.T) {
	t.Parallel()
	one, k := newShop("one", ""), newScanner(t, "before", strict)
	config := func(hooks ...gateway.Hook) *gateway.Config {
		return &gateway.Config{
			Namespace: "auto",
			Upstreams: []*gateway.Upstream{{Name: "one", Server: one.Server, Hooks: hooks}},
		}
	}
	l := newLabOf(t, nil, config())
	c := l.client(t, mcp.ClientOptions{Era: "legacy"})
	for i, hooks := range [][]gateway.Hook{nil, {k.Hook}, nil} {
		if err := l.Reload(config(hooks...)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "add", map[string]string{"text": "bad"}); (err == nil) !=
			(hooks == nil) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// Hooks after a call see the error that it is answered with, and what they make of it the client
// gets, in every revision.
func TestHooksOfErrors(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("one", "1", nil)
	s.AddTool(mcp.Tool{Name: "fail"},
		func(_ context.Context, args jsonrpc.Raw) (*mcp.ToolResult, error) {
			return nil, &jsonrpc.Error{Code: 17, Message: "private words", Data: args}
		})
	after := newScanner(t, "after", masks)
	l := newLabOf(t, nil,
		&gateway.Config{
			Namespace: "always",
			Upstreams: []*gateway.Upstream{{Name: "one", Server: s, Hooks: []gateway.Hook{after.Hook}}},
		})
	for _, rev := range era.Revisions() {
		c := l.clientAt(t, "/mcp", mcp.ClientOptions{Era: rev.Name})
		for word, want := range map[string]string{
			"plain": `17 *** words {"a":"plain"}`,
			"odd":   "the call cannot be examined",
		} {
			after.took()
			_, err := c.CallTool(t.Context(), "one__fail", map[string]string{"a": word})
			got := fmt.Sprint(err)
			if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
				got = fmt.Sprintf("%d %s %s", wire.Code, wire.Message, wire.Data)
			}
			if in := after.took(); !strings.Contains(got, want) || len(in) != 1 || in[0].Tool != "fail" ||
				in[0].Result != nil || !strings.Contains(string(in[0].Error), "private words") {
				t.Errorf("%s: %s: %s; the hook got %+v", rev.Name, word, got, in)
			}
		}
	}
}
