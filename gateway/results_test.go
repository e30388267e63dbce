package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func keyNamed(text string) (k resultKey) { copy(k[:], text); return k }

func resultOf(text string) upstream.Result {
	return upstream.Result{Raw: jsonrpc.Raw(text), Revision: era.Latest()}
}

// One owner fills the table, and another one's result is kept all the same; what is old, or older
// than a write, is none.
func TestResultsOfOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newResults(&Upstream{Cache: struct {
			TTL    time.Duration
			Public bool
		}{TTL: time.Minute}})
		ann, bob := owner.Named("ann"), owner.Named("bob")
		c.put(bob, keyNamed("bob's"), c.count(), resultOf(`{"content":[]}`))
		large := `{"content":"` + strings.Repeat("x", maxResult-100) + `"}`
		for i := range maxResults * 5 / 4 / maxResult {
			c.put(ann, keyNamed(fmt.Sprint("ann's ", i)), c.count(), resultOf(large))
		}
		if _, ok := c.get(keyNamed("bob's")); !ok {
			t.Error("one owner has pushed out what another one has")
		}
		if n := c.table.Of(ann); n > maxResults {
			t.Errorf("one owner has %d bytes", n)
		}
		writes := c.count()
		c.wrote()
		c.put(ann, keyNamed("late"), writes, resultOf(`{}`))
		for _, name := range []string{"bob's", "late"} {
			if _, ok := c.get(keyNamed(name)); ok {
				t.Errorf("%s: it is older than a write", name)
			}
		}
		c.put(ann, keyNamed("new"), c.count(), resultOf(`{}`))
		<-time.After(time.Minute - time.Nanosecond)
		if _, ok := c.get(keyNamed("new")); !ok {
			t.Error("it was forgotten too early")
		}
		<-time.After(time.Nanosecond)
		if _, ok := c.get(keyNamed("new")); ok {
			t.Error("it was kept too long")
		}
		for _, text := range []string{
			`{"isError":true}`, `{"resultType":"input_required"}`,
			`{"task":{}}`, `{"content":"` + strings.Repeat("x", maxResult) + `"}`,
		} {
			c.put(ann, keyNamed("no"), c.count(), resultOf(text))
			if _, ok := c.get(keyNamed("no")); ok {
				t.Errorf("%.40s was kept", text)
			}
		}
	})
}

// Calls that differ in anything that a server may look at have keys that differ.
func TestResultKeys(t *testing.T) {
	keys := map[resultKey]string{}
	for _, scope := range []string{"", "ann", "bob"} {
		for _, tool := range []string{"a", "ab"} {
			for _, params := range []string{
				`{}`, `{"arguments":{}}`, `{"arguments":{"a":1}}`, `{"arguments":{"a":2}}`,
				`{"arguments":{"a":1},"_meta":{"tenant":"x"}}`, `{"arguments":{"a":1},"_meta":{"tenant":"y"}}`,
			} {
				for _, header := range []http.Header{nil, {"X-User": {"a"}}, {"X-User": {"b"}}} {
					k, what := keyOfCall(scope, tool, jsonrpc.Raw(params), header),
						fmt.Sprint(scope, "|", tool, "|", params, "|", header)
					if keys[k] != "" {
						t.Errorf("%s and %s have one key", keys[k], what)
					}
					keys[k] = what
				}
			}
		}
	}
	plain := keyOfCall("", "a", jsonrpc.Raw(`{"arguments":{}}`), nil)
	if plain !=
		keyOfCall("", "a",
			jsonrpc.Raw(
				`{"_meta":{"progressToken":7,"traceparent":"x","io.modelcontextprotocol/clientInfo":{}},`+
					`"arguments":{}}`), nil) {
		t.Error("what differs in each call makes another key")
	}
}

// counting is a server that counts its calls: of a tool that reads, one that fails, and one that
// writes.
func counting(calls *atomic.Int64) *mcp.Server {
	read := &spec.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}
	s := mcp.NewServer("counting", "1", nil)
	for name, hints := range map[string]*spec.ToolAnnotations{
		"read": read, "fail": read,
		"only": {ReadOnlyHint: true}, "write": nil,
	} {
		s.AddTool(mcp.Tool{Name: name, Annotations: hints},
			func(context.Context, jsonrpc.Raw) (*mcp.ToolResult, error) {
				n := calls.Add(1)
				return &mcp.ToolResult{
					IsError: name == "fail", Content: []mcp.Content{mcp.Text(fmt.Sprint(name, " ", n))},
				}, nil
			})
	}
	return s
}

// A call that only reads is answered by the result of before, in every revision, for its owner
// alone, until something is written.
func TestResults(t *testing.T) {
	for _, public := range []bool{false, true} {
		var calls atomic.Int64
		u := &Upstream{Name: "c", Server: counting(&calls)}
		u.Cache.TTL, u.Cache.Public = time.Hour, public
		web := callers(t, u)
		say := func(who, tool, args, rev string) string {
			c, err := mcp.Dial(t.Context(), web.URL+"/mcp/c",
				&mcp.ClientOptions{Era: rev, HTTP: &mcphttp.DialOptions{Header: http.Header{"X-Who": {who}}}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r, err := c.CallTool(t.Context(), tool, jsonrpc.Raw(args))
			if err != nil {
				t.Fatal(err)
			}
			return r.Content[0].Text
		}
		first := say("ann", "read", `{"a":1}`, "2025-11-25")
		for _, rev := range era.Revisions() {
			if got := say("ann", "read", `{"a":1}`, "2025-11-25"); got != first {
				t.Errorf("public %v, %s: %s, not %s", public, rev.Name, got, first)
			}
			if got := say("bob", "read", `{"a":1}`, "2025-11-25"); (got == first) != public {
				t.Errorf("public %v, %s: another owner got %s", public, rev.Name, got)
			}
			if public && say("eve", "read", `{"a":1}`, rev.Name) != first {
				t.Errorf("%s: a result for all was made again", rev.Name)
			}
		}
		if got := say("ann", "read", `{"a":2}`, "2025-11-25"); got == first {
			t.Error("other arguments got the same result")
		}
		for _, tool := range []string{"fail", "only", "write"} {
			if a, b := say("ann", tool, `{}`, "2025-11-25"), say("ann", tool, `{}`, "2025-11-25"); a == b {
				t.Errorf("%s was kept: %s", tool, a)
			}
		}
		if got := say("ann", "read", `{"a":1}`, "2025-11-25"); got == first {
			t.Error("a result outlived a write")
		}
	}
}

func TestCacheCheck(t *testing.T) {
	for text, want := range map[string]string{
		"{command: x, cache: {public: true}}": "2:27: " +
			"upstreams.a.cache: it has no ttl",
		"{command: x, cache: often}": `"often" is not a duration`,
		"{command: x, profile: " +
			"raw, cache: 1s}": "it is for tools of MCP",
		"{command: x, lifetime: principal, cache: {ttl: 1s, " +
			"public: true}}": "depend on who calls",
		"{url: https://a.test, forward_headers: [x-user], cache: {ttl: 1s, public: true}}": "depend on " +
			"who calls",
		"{url: https://a.test, lifetime: call, auth: {type: principals, principals: {\"*\": {A: b}}}, " +
			"cache: {ttl: 1s, public: true}}": "depend on who calls",
	} {
		_, problems := parse(t, "f.yaml", "upstreams:\n  a: "+text+"\n")
		if !strings.Contains(problems, want) {
			t.Errorf("%s\n%s\nwant %s", text, problems, want)
		}
	}
	if _, problems := parse(t, "f.yaml",
		"upstreams:\n  a: {command: x, cache: 30s}\n"); problems != "" {
		t.Error(problems)
	}
}

// What one client has answered, or lets a server see, is no result for another one, also where
// results are public.
func TestResultsOfAsked(t *testing.T) {
	for _, rev := range []string{"2025-11-25", "2026-07-28"} {
		s := mcp.NewServer("asks", "1", nil)
		s.AddTool(mcp.Tool{
			Name: "who", Annotations: &spec.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
		}, func(ctx context.Context, _ jsonrpc.Raw) (*mcp.ToolResult, error) {
			a, err := mcp.Elicit[struct {
				Name string `json:"name"`
			}](ctx, "Who are you?")
			if err != nil {
				return nil, err
			}
			return &mcp.ToolResult{Content: []mcp.Content{mcp.Text(a.Name)}}, nil
		})
		u := &Upstream{Name: "a", Server: s}
		u.Cache.TTL, u.Cache.Public = time.Hour, true
		web := callers(t, u)
		for _, who := range []string{"ann", "bob"} {
			c, err := mcp.Dial(t.Context(), web.URL+"/mcp/a", &mcp.ClientOptions{
				Era: rev, HTTP: &mcphttp.DialOptions{Header: http.Header{"X-Who": {who}}},
				Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
					return &spec.ElicitResult{Action: "accept", Content: jsonrpc.Raw(`{"name":"` + who + `"}`)},
						nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.CallTool(t.Context(), "who", jsonrpc.Raw(`{}`))
			c.Close()
			if err != nil || r.IsError || r.Content[0].Text != who {
				t.Errorf("%s: %s got %+v, %v", rev, who, r, err)
			}
		}
	}
}

// Public results are shared by callers that look the same to the server: those with roots have
// their own connections.
func TestPublicResultsAndRoots(t *testing.T) {
	var calls atomic.Int64
	u := &Upstream{Name: "c", Server: counting(&calls)}
	u.Cache.TTL, u.Cache.Public = time.Hour, true
	web := callers(t, u)
	say := func(who string, roots func(context.Context) ([]spec.Root, error)) string {
		c, err := mcp.Dial(t.Context(), web.URL+"/mcp/c",
			&mcp.ClientOptions{
				Era: "2025-11-25", Roots: roots,
				HTTP: &mcphttp.DialOptions{Header: http.Header{"X-Who": {who}}},
			})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r, err := c.CallTool(t.Context(), "read", jsonrpc.Raw(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return r.Content[0].Text
	}
	none := say("ann", nil)
	if got := say("bob", nil); got != none {
		t.Errorf("callers without roots: %s and %s", none, got)
	}
	if got := say("eve", func(context.Context) ([]spec.Root, error) {
		return []spec.Root{{URI: "file:///eve"}}, nil
	}); got == none {
		t.Error("a caller with roots got the result of one without")
	}
}
