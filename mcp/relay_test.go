package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// forwardFunc is what a fakeRelay does with what is forwarded.
type forwardFunc func(
	ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, *era.Revision, error)

// fakeRelay is a Relay that notes what it is given.
type fakeRelay struct {
	describe func(ctx context.Context) *relay.Description // nil: tools and the like
	forward  forwardFunc
	support  string
	watch    func(ctx context.Context, uri string, updated func()) (func(), error)

	mu       sync.Mutex
	got      []string // REVISION METHOD PARAMS
	notified []string // METHOD PARAMS
	clients  []*ClientInfo
	closed   []string
}

func (f *fakeRelay) note(ctx context.Context, at *[]string, words ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients = append(f.clients, ClientFrom(ctx))
	*at = append(*at, strings.Join(words, " "))
}

// take returns what was noted, and forgets it.
func (f *fakeRelay) take(at *[]string) (noted []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	noted, *at = *at, nil
	return noted
}

func (f *fakeRelay) last() *ClientInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clients[len(f.clients)-1]
}

func (f *fakeRelay) Describe(ctx context.Context) (*relay.Description, error) {
	if f.describe != nil {
		return f.describe(ctx), nil
	}
	return &relay.Description{
		Name: "up", Version: "7", Title: "Up", Instructions: "be quick",
		Capabilities: &spec.ServerCapabilities{
			Tools:     &spec.ToolsCapability{ListChanged: true},
			Resources: &spec.ResourcesCapability{Subscribe: true},
			Extensions: map[string]any{
				"com.example/x":     map[string]any{"v": 1},
				spec.ExtensionTasks: map[string]any{},
			},
		},
	}, nil
}

func (f *fakeRelay) Forward(
	ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, *era.Revision, error) {
	f.note(ctx, &f.got, rev.Name, method, string(params))
	return f.forward(ctx, rev, method, params)
}

func (f *fakeRelay) TaskSupport(context.Context, string) string { return f.support }

func (f *fakeRelay) Watch(ctx context.Context, uri string, updated func()) (func(), error) {
	return f.watch(ctx, uri, updated)
}

func (f *fakeRelay) Notified(ctx context.Context, method string, params jsonrpc.Raw) {
	f.note(ctx, &f.notified, method, string(params))
}

func (f *fakeRelay) Closed(session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = append(f.closed, session)
}

// relayServer returns a server of a relay that forwards to f.
func relayServer(tb testing.TB, f *fakeRelay, o *ServerOptions) *Server {
	tb.Helper()
	opts := ServerOptions{}
	if o != nil {
		opts = *o
	}
	opts.Relay = f
	s := NewServer("calc", "1.0", &opts)
	tb.Cleanup(s.Close)
	return s
}

// always returns one result.
func always(result, in string) forwardFunc {
	return func(
		context.Context, *era.Revision, string, jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		return jsonrpc.Raw(result), era.Lookup(in), nil
	}
}

func failing(err error) forwardFunc {
	return func(
		context.Context, *era.Revision, string, jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		return nil, nil, err
	}
}

var relayedMethods = []string{
	"tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read",
	"prompts/list", "prompts/get", "completion/complete", "com.example/anything",
}

// What is forwarded arrives as it was sent, in the revision of the client, and a
// result of that revision goes back as it is, byte by byte.
func TestRelayKeepsBytes(t *testing.T) {
	const odd = `{ "name" : "a\u0062",  "arguments":{"n":1.0e0}, "_meta":{"x":[ ]} }`
	for _, rev := range []string{rev2026, rev2511, rev2506, "2025-03-26", "2024-11-05"} {
		for _, method := range relayedMethods {
			t.Run(rev+"/"+method, func(t *testing.T) {
				answer := `{ "odd" : 1.50, "content":[ ],"x":"\u0041"}`
				params := odd
				if rev == rev2026 {
					answer = `{"odd":1.50, "resultType" : "complete","x":"\u0041"}`
					params = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
						`"io.modelcontextprotocol/clientCapabilities":{} }, "name":"a\u0062"}`
				}
				f := &fakeRelay{forward: always(answer, rev)}
				s := relayServer(t, f, nil)
				frames := []string{
					fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params),
				}
				if rev != rev2026 {
					frames = []string{hello(rev), initialized, frames[0]}
				}
				got := exchange(t, s, frames...)
				if want := `"result":` + answer; len(got) == 0 || !strings.Contains(got[len(got)-1], want) {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				if want := []string{rev + " " + method + " " + params}; !slices.Equal(f.got, want) {
					t.Errorf("forwarded %q, want %q", f.got, want)
				}
			})
		}
	}
}

// A result of another revision is translated, once, and has what a result of the
// client's must have.
func TestRelayTranslates(t *testing.T) {
	const serverInfo = `"io.modelcontextprotocol/serverInfo":{"name":"calc","version":"1.0"}`
	for _, tt := range []struct{ name, client, in, method, result, want string }{
		{
			"legacy to modern", rev2026, rev2511, "tools/call", `{"content":[],"_meta":{"a":1}}`,
			`{"resultType":"complete","content":[],"_meta":{"a":1,` + serverInfo + `}}`,
		},
		{
			"legacy list to modern", rev2026, rev2511, "tools/list", `{"tools":[]}`,
			`{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private","_meta":{` +
				serverInfo + `}}`,
		},
		{
			"modern without a type", rev2026, rev2026, "tools/list", `{"tools":[]}`,
			`{"resultType":"complete","tools":[],"ttlMs":5000,"cacheScope":"private","_meta":{` +
				serverInfo + `}}`,
		},
		{
			"nothing", rev2026, rev2026, "x/y", `{}`,
			`{"resultType":"complete","_meta":{` + serverInfo + `}}`,
		},
		{"no revision", rev2026, "", "x/y", `{"resultType":"complete"}`, `{"resultType":"complete"}`},
		{
			"input required", rev2026, rev2026, "tools/call",
			`{"resultType":"input_required","requestState":"theirs"}`,
			`{"resultType":"input_required","requestState":"theirs"}`,
		},
		{
			"task", rev2026, rev2026, "tools/call", `{"resultType":"task","taskId":"t"}`,
			`{"resultType":"task","taskId":"t"}`,
		},
		{
			"modern to legacy", rev2511, rev2026, "tools/list",
			`{"resultType":"complete","ttlMs":5,"cacheScope":"public","tools":[],"_meta":{` + serverInfo +
				`}}`, `{"tools":[]}`,
		},
		{
			"old to old", "2024-11-05", rev2511, "tools/call",
			`{"content":[{"type":"audio","data":"","mimeType":"audio/wav"}],"structuredContent":{}}`,
			`{"content":[{"type":"text","text":`,
		},
		{
			"input required to legacy", rev2511, rev2026, "tools/call",
			`{"resultType":"input_required","requestState":"theirs"}`, `error -32603`,
		},
		{"no object", rev2026, rev2026, "x/y", `[]`, `error -32603`},
		{"no result", rev2511, rev2511, "x/y", ``, `error -32603`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeRelay{forward: always(tt.result, tt.in)}
			s := relayServer(t, f, &ServerOptions{CacheTTL: 5e9})
			got := relayExchange(t, s, tt.client, tt.method, `{"name":"x"}`)
			switch {
			case strings.HasPrefix(tt.want, "error"):
				if code := strings.TrimPrefix(tt.want, "error "); !strings.Contains(got,
					`"error":{"code":`+code) {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			case strings.HasSuffix(tt.want, ":"):
				if !strings.Contains(got, tt.want) {
					t.Errorf("got %s, want %s…", got, tt.want)
				}
			default:
				wantJSON(t, tt.method, result(t, got), tt.want)
			}
		})
	}
}

// relayExchange sends one request as a client of a revision that can do nothing.
func relayExchange(t *testing.T, s *Server, rev, method, params string) string {
	t.Helper()
	frames := []string{modernFrame("1", method, strings.Trim(params, "{}"))}
	if rev != rev2026 {
		frames = []string{hello(rev), initialized, legacyFrame("1", method, params)}
	}
	got := exchange(t, s, frames...)
	return got[len(got)-1]
}

func TestRelayErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		rev  string
		want string
	}{
		{
			"as it is", &jsonrpc.Error{Code: 7, Message: "no", Data: jsonrpc.Raw(`{ "a":1}`)}, rev2026,
			`{"code":7,"message":"no","data":{ "a":1}}`,
		},
		{
			"wrapped", fmt.Errorf("up: %w", &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "no"}),
			rev2511, `{"code":-32601`,
		},
		{
			"no resource",
			&jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "no", Data: jsonrpc.Raw(`{"uri":"a:b"}`)},
			rev2511, `{"code":-32002`,
		},
		{
			"url",
			&jsonrpc.Error{
				Code: spec.URLElicitationRequired, Message: "go", Data: jsonrpc.Raw(`{"elicitations":[]}`),
			}, rev2511, `{"code":-32042,"message":"go","data":{"elicitations":[]}}`,
		},
		{
			"url in the modern era", &jsonrpc.Error{Code: spec.URLElicitationRequired, Message: "go"},
			rev2026, `{"code":-31042,"message":"go"}`,
		},
		{"not for clients", errors.New("secret"), rev2026, `{"code":-32603`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := relayServer(t, &fakeRelay{forward: failing(tt.err)}, nil)
			got := relayExchange(t, s, tt.rev, "resources/read", `{"uri":"a:b"}`)
			if !strings.Contains(got, `"error":`+tt.want) || strings.Contains(got, "secret") {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// What is MCP's own is not forwarded, whether or not the revision has it.
func TestRelayOwnMethods(t *testing.T) {
	f := &fakeRelay{forward: always(`{}`, rev2511)}
	s := relayServer(t, f, nil)
	s.Handle("com.example/own",
		farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			return map[string]int{"own": 1}, nil
		}))
	for _, tt := range []struct{ rev, method, want string }{
		{rev2511, "ping", `"result":{}`},
		{rev2511, "server/discover", "-32601"},
		{rev2511, "subscriptions/listen", "-32601"},
		{rev2511, "sampling/createMessage", "-32601"},
		{rev2511, "roots/list", "-32601"},
		{rev2511, "elicitation/create", "-32601"},
		{rev2511, "tasks/update", "-32601"},
		{rev2511, "com.example/own", `{"own":1}`},
		{rev2511, "tasks/list", `"tasks":[]`},
		{rev2506, "tasks/list", "-32601"},
		{rev2026, "ping", "-32601"},
		{rev2026, "logging/setLevel", "-32601"},
		{rev2026, "resources/subscribe", "-32601"},
		{rev2026, "tasks/list", "-32601"},
		{rev2026, "tasks/get", "-32021"},
	} {
		if got := relayExchange(t, s, tt.rev, tt.method, `{"x":1}`); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.rev, tt.method, got, tt.want)
		}
	}
	if len(f.got) != 0 {
		t.Error("forwarded:", f.got)
	}
}

func TestRelayHasNothingOfItsOwn(t *testing.T) {
	s := relayServer(t, &fakeRelay{}, nil)
	for name, f := range map[string]func(){
		"tool": func() { AddTool(s, Tool{Name: "add"}, add) },
		"raw tool": func() {
			s.AddTool(Tool{Name: "x"}, func(context.Context, jsonrpc.Raw) (*ToolResult, error) {
				return nil, nil
			})
		},
		"resource": func() {
			s.AddResource(Resource{URI: "a:b", Name: "x"},
				func(context.Context, string) ([]ResourceContents, error) {
					return nil, nil
				})
		},
		"template": func() {
			s.AddTemplate(ResourceTemplate{URITemplate: "a:{b}", Name: "x"},
				func(context.Context, string, Vars) ([]ResourceContents, error) {
					return nil, nil
				})
		},
		"prompt": func() {
			s.AddPrompt(Prompt{Name: "x"}, func(context.Context, map[string]string) (*PromptResult, error) {
				return nil, nil
			})
		},
	} {
		func() {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, "Relay") {
					t.Errorf("%s: %s", name, v)
				}
			}()
			f()
		}()
	}
	s.RemoveTool("x")
}

// A request that has a member twice is refused before the relay sees it.
func TestRelayRefusesTwice(t *testing.T) {
	f := &fakeRelay{forward: always(`{}`, rev2511)}
	s := relayServer(t, f, nil)
	for _, rev := range []string{rev2026, rev2511} {
		if got := relayExchange(t, s, rev, "tools/call",
			`{"name":"x","n\u0061me":"y"}`); !strings.Contains(got, "-32602") {
			t.Errorf("%s: %s", rev, got)
		}
	}
	if len(f.got) != 0 {
		t.Error(f.got)
	}
}

// The same over HTTP, for clients of both eras.
func TestRelayOverHTTP(t *testing.T) {
	f := &fakeRelay{forward: always(`{ "content":[]}`, rev2511)}
	s := relayServer(t, f, nil)
	c := newHTTPClient(s)
	c.begin(rev2511)
	c.send(initialized)
	if got := c.send(legacyFrame("1", "tools/call", `{"name":"x"}`)); !bytes.Contains(got,
		[]byte(`"result":{ "content":[]}`)) {
		t.Errorf("%s", got)
	}
	if got := c.send(legacyFrame("2", "com.example/x", `{"name":"x"}`)); !bytes.Contains(got,
		[]byte(`"result":{ "content":[]}`)) {
		t.Errorf("%s", got)
	}
	session := f.last().Session
	if session == "" || session == c.header.Get("Mcp-Session-Id") {
		t.Error(session)
	}
	m := newHTTPClient(s, "MCP-Protocol-Version", rev2026, "Mcp-Method", "tools/call", "Mcp-Name", "x")
	if got := m.send(modernFrame("1", "tools/call", `"name":"x"`)); !bytes.Contains(got,
		[]byte(`"resultType":"complete"`)) {
		t.Errorf("%s", got)
	}
	if f.last().Session != "" {
		t.Error(f.last())
	}
	m = newHTTPClient(s, "MCP-Protocol-Version", rev2026, "Mcp-Method", "com.example/x")
	if got := m.send(modernFrame("2", "com.example/x", `"y":1`)); !bytes.Contains(got,
		[]byte(`"resultType":"complete"`)) {
		t.Errorf("%s", got)
	}
	c.do("DELETE", "")
	if err := c.handler.(*mcphttp.Handler).Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got := f.take(&f.closed); !slices.Equal(got, []string{session}) {
		t.Error(got)
	}
}

// nullRelay costs nothing.
type nullRelay struct {
	fakeRelay

	result jsonrpc.Raw
	in     *era.Revision
}

func (r *nullRelay) Forward(
	context.Context, *era.Revision, string, jsonrpc.Raw,
) (jsonrpc.Raw, *era.Revision, error) {
	return r.result, r.in, nil
}

func TestRelayAllocations(t *testing.T) {
	s := NewServer("s", "1",
		&ServerOptions{
			Relay: &nullRelay{
				result: jsonrpc.Raw(`{"resultType":"complete","content":[]}`),
				in:     era.Latest(),
			},
		})
	old := NewServer("s", "1",
		&ServerOptions{Relay: &nullRelay{result: jsonrpc.Raw(`{"content":[]}`), in: era.LatestLegacy()}})
	session := old.Accept(t.Context(), nil)
	defer session.Close()
	const hi = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t",` +
		`"version":"1"}}`
	if _, err := session.ServeRPC(t.Context(),
		&farcall.Request{Method: "initialize", ID: jsonrpc.IntID(1), Params: jsonrpc.Raw(hi)}); err !=
		nil {
		t.Fatal(err)
	}
	modern := farcall.NewResponder(s, nil)
	legacy := farcall.NewResponder(session, nil)
	var dst []byte
	for name, f := range map[string]struct {
		r     *farcall.Responder
		frame string
	}{
		"modern": {modern, modernFrame("1", "tools/call", `"name":"add","arguments":{"a":2,"b":3}`)},
		"session": {
			legacy,
			legacyFrame("1", "tools/call",
				`{"name":"add","arguments":{"a":2,"b":3},"_meta":{"progressToken":1}}`),
		},
	} {
		frame := []byte(f.frame)
		n := testing.AllocsPerRun(200, func() {
			if dst = f.r.Respond(t.Context(), dst[:0], frame, nil); !bytes.Contains(dst,
				[]byte(`"content":[]`)) {
				t.Fatalf("%s", dst)
			}
		})
		t.Log(name, n)
		if n > 12 {
			t.Errorf("%s: %v allocations, want 12 at most", name, n)
		}
	}
}
