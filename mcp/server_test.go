package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

const (
	modernName = "2026-07-28"
	legacyName = "2025-11-25"
)

// wire is a client of frames: what a server gets and gives, byte by byte.
type wire struct {
	t    *testing.T
	end  farcall.Transport
	stop context.CancelFunc
	done chan error
	in   chan string
}

// serve connects to the server. It must be called in a synctest bubble.
func serve(t *testing.T, s *Server) *wire {
	t.Helper()
	ours, theirs := farcall.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	w := &wire{t: t, end: ours, stop: cancel, done: make(chan error, 1), in: make(chan string, 10_000)}
	go func() { w.done <- s.Serve(ctx, theirs) }()
	go func() {
		defer close(w.in)
		for {
			frame, err := ours.Read()
			if err != nil {
				return
			}
			w.in <- string(frame)
		}
	}()
	return w
}

func (w *wire) send(frames ...string) {
	w.t.Helper()
	for _, f := range frames {
		if err := w.end.Write([]byte(f)); err != nil {
			w.t.Fatalf("write %s: %v", f, err)
		}
	}
}

// rest returns what has arrived once nothing moves any more. It lets a little
// time pass, for a connection with a handler that takes longer reads on only then.
func (w *wire) rest() (frames []string) {
	<-time.After(linger / 2) // virtual
	synctest.Wait()
	for {
		select {
		case f, ok := <-w.in:
			if !ok {
				return frames
			}
			frames = append(frames, f)
		default:
			return frames
		}
	}
}

// ask sends a request and returns the only frame that comes back.
func (w *wire) ask(frame string) string {
	w.t.Helper()
	w.send(frame)
	got := w.rest()
	if len(got) != 1 {
		w.t.Fatalf("%s\n\tgot %d frames, want 1: %s", frame, len(got), strings.Join(got, "\n\t"))
	}
	return got[0]
}

func (w *wire) close() {
	w.t.Helper()
	w.end.Close()
	if err := <-w.done; err != nil {
		w.t.Errorf("Serve: %v", err)
	}
}

// exchange sends the frames on its own connection and returns what comes
// back.
func exchange(t *testing.T, s *Server, frames ...string) (answers []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := serve(t, s)
		w.send(frames...)
		<-time.After(time.Second) // virtual
		answers = w.rest()
		w.close()
	})
	return answers
}

// modernFrame writes a request of the modern era. members are those of params, such
// as `"name":"add"`.
func modernFrame(id, method, members string) string {
	return modernFrameWith(id, method, members, "{}", "")
}

func modernFrameWith(id, method, members, caps, meta string) string {
	if members != "" {
		members = "," + members
	}
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%s,"method":%q,`+
			`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
			`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":%s%s}%s}}`,
		id, method, modernName, caps, meta, members)
}

// legacyFrame writes a request without _meta.
func legacyFrame(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

func hello(revision string) string {
	return legacyFrame("0", "initialize",
		fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}}`,
			revision))
}

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// open opens a legacy session.
func (w *wire) open(revision string) {
	w.t.Helper()
	if got := w.ask(hello(revision)); !strings.Contains(got, `"result"`) {
		w.t.Fatalf("initialize: %s", got)
	}
	w.send(initialized)
	synctest.Wait()
}

// result returns the result in an answer, failing at an error.
func result(t *testing.T, frame string) string {
	t.Helper()
	var m struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(frame), &m); err != nil || m.Result == nil {
		t.Fatalf("no result: %s", frame)
	}
	return string(m.Result)
}

// wantJSON compares JSON without regard to order and space.
func wantJSON(t *testing.T, what, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%s: the test is wrong: %v: %s", what, err, want)
	}
	if err := json.Unmarshal([]byte(got), &a); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%s:\n\tgot  %s\n\twant %s", what, got, want)
	}
}

type addIn struct {
	A int `json:"a" doc:"the first addend"`
	B int `json:"b"`
}

type addOut struct {
	Sum int `json:"sum"`
}

func add(_ context.Context, in addIn) (addOut, error) { return addOut{in.A + in.B}, nil }

func calculator(o *ServerOptions) *Server {
	s := NewServer("calc", "1.0", o)
	AddTool(s, Tool{Name: "add", Description: "Add two numbers"}, add)
	return s
}

const serverMeta = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"calc","version":"1.0"}}`

// TestModern has the exchanges of the modern era. An answer of want that ends
// with "…" is the beginning of the wanted one.
func TestModern(t *testing.T) {
	meta := func(m string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + m + `}}`
	}
	const version = `"io.modelcontextprotocol/protocolVersion"`
	for _, tt := range []struct{ name, frame, want string }{
		{
			"call", modernFrame("1", "tools/call", `"name":"add","arguments":{"a":2,"b":3}`),
			`{"jsonrpc":"2.0","result":{"resultType":"complete",` + serverMeta +
				`,"structuredContent":{"sum":5},"content":[{"type":"text","text":"{\"sum\":5}"}]},"id":1}`,
		},
		{
			"id large", modernFrame("9007199254740993", "tools/call", `"name":"nil"`),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Unknown tool: nil"},"id":9007199254740993}`,
		},
		{
			"id fraction", modernFrame("1.5", "tools/call", `"name":"nil"`),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Unknown tool: nil"},"id":1.5}`,
		},
		{
			"id escaped", modernFrame(`"a\u0041"`, "tools/call", `"name":"nil"`),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Unknown tool: nil"},"id":"a\u0041"}`,
		},
		{
			"name escaped", modernFrame("1", "tools/call", `"name":"\u0061dd","arguments":{"a":1,"b":1}`),
			`{"jsonrpc":"2.0","result":…`,
		},
		{
			"no name", modernFrame("1", "tools/call", `"arguments":{}`),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params: params must have a member ` +
				`\"name\", a string"},"id":1}`,
		},
		{
			"two names", modernFrame("1", "tools/call", `"name":"add","n\u0061me":"rm"`),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params: params has more than one ` +
				`member \"name\""},"id":1}`,
		},
		{
			"no meta", meta(``),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params: params._meta lacks ` +
				`\"io.modelcontextprotocol/protocolVersion\"; send it with every request, or open a session ` +
				`with initialize first"},"id":1}`,
		},
		{
			"no capabilities", meta(`"_meta":{` + version + `:"2026-07-28"}`),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params: params._meta lacks ` +
				`\"io.modelcontextprotocol/clientCapabilities\"; send {} when there are none"},"id":1}`,
		},
		{
			"bad capabilities",
			meta(`"_meta":{` + version + `:"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}`),
			`{"jsonrpc":"2.0","error":{"code":-32602,…`,
		},
		{
			"bad info",
			meta(
				`"_meta":{` + version +
					`:"2026-07-28","io.modelcontextprotocol/clientInfo":"x",` +
					`"io.modelcontextprotocol/clientCapabilities":{}}`),
			`{"jsonrpc":"2.0","error":{"code":-32602,…`,
		},
		{
			"no info",
			meta(`"_meta":{` + version + `:"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`),
			`{"jsonrpc":"2.0","result":…`,
		},
		{
			"version of no type", meta(`"_meta":{` + version + `:1}`),
			`{"jsonrpc":"2.0","error":{"code":-32602,…`,
		},
		{
			"version unknown", meta(`"_meta":{` + version + `:"1900-01-01"}`),
			`{"jsonrpc":"2.0","error":{"code":-32022,"message":"Unsupported protocol version: this server ` +
				`speaks 2026-07-28","data":{"requested":"1900-01-01","supported":["2026-07-28"]}},"id":1}`,
		},
		{
			"version legacy", meta(`"_meta":{` + version + `:"2025-11-25"}`),
			`{"jsonrpc":"2.0","error":{"code":-32022,"message":"Unsupported protocol version: this server ` +
				`speaks 2026-07-28","data":{"requested":"2025-11-25","supported":["2026-07-28"]}},"id":1}`,
		},
		{
			"log level",
			modernFrameWith("1", "tools/list", "", "{}", `,"io.modelcontextprotocol/logLevel":"loud"`),
			`{"jsonrpc":"2.0","error":{"code":-32602,…`,
		},
		{
			"initialize", modernFrame("1", "initialize", ``),
			`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found: \"initialize\" is no ` +
				`method of this server in revision 2026-07-28"},"id":1}`,
		},
		{"ping", modernFrame("1", "ping", ``), `{"jsonrpc":"2.0","error":{"code":-32601,…`},
		{
			"setLevel", modernFrame("1", "logging/setLevel", `"level":"info"`),
			`{"jsonrpc":"2.0","error":{"code":-32601,…`,
		},
		{
			"subscribe", modernFrame("1", "resources/subscribe", `"uri":"x"`),
			`{"jsonrpc":"2.0","error":{"code":-32601,…`,
		},
		{
			"tasks/result", modernFrame("1", "tasks/result", `"taskId":"x"`),
			`{"jsonrpc":"2.0","error":{"code":-32601,…`,
		},
		{"no prompts", modernFrame("1", "prompts/list", ``), `{"jsonrpc":"2.0","error":{"code":-32601,…`},
		{
			"no resources", modernFrame("1", "resources/read", `"uri":"x"`),
			`{"jsonrpc":"2.0","error":{"code":-32601,…`,
		},
		{
			"no completion", modernFrame("1", "completion/complete", ``),
			`{"jsonrpc":"2.0","error":{"code":-32601,…`,
		},
		{
			"batch", `[` + modernFrame("1", "tools/list", ``) + `]`,
			`[{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: revision 2026-07-28 has ` +
				`no batches; send one message at a time"},"id":1}]`,
		},
		{
			"discover", modernFrame(`"d"`, "server/discover", ``),
			`{"jsonrpc":"2.0","result":{"resultType":"complete",` + serverMeta +
				`,"ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],` +
				`"capabilities":{"tools":{"listChanged":true},"logging":{}}},"id":"d"}`,
		},
		{
			"list", modernFrame("1", "tools/list", ``),
			`{"jsonrpc":"2.0","result":{"resultType":"complete",` + serverMeta +
				`,"ttlMs":0,"cacheScope":"private","tools":[{"name":"add","description":"Add two numbers",…`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := exchange(t, calculator(nil), tt.frame)
			if len(got) != 1 {
				t.Fatalf("%d frames: %v", len(got), got)
			}
			if start, open := strings.CutSuffix(tt.want, "…"); got[0] != tt.want &&
				(!open || !strings.HasPrefix(got[0], start)) {
				t.Errorf("got  %s\nwant %s", got[0], tt.want)
			}
		})
	}
}

func TestModernCacheHints(t *testing.T) {
	s := calculator(&ServerOptions{CacheTTL: 90 * time.Second, CacheScope: "public"})
	got := result(t, exchange(t, s, modernFrame("1", "tools/list", ""))[0])
	if !strings.Contains(got, `"ttlMs":90000,"cacheScope":"public"`) {
		t.Error(got)
	}
	got = result(t,
		exchange(t, s, modernFrame("1", "tools/call", `"name":"add","arguments":{"a":1,"b":2}`))[0])
	if strings.Contains(got, "ttlMs") {
		t.Error("a tool's result has cache hints:", got)
	}
}

func TestBothErasOnOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serve(t, calculator(nil))
		defer w.close()
		if got := w.ask(legacyFrame("1", "tools/list", "{}")); !strings.Contains(got,
			"open a session with initialize") {
			t.Error(got)
		}
		if got := w.ask(legacyFrame("1", "ping", "{}")); got != `{"jsonrpc":"2.0","result":{},"id":1}` {
			t.Error(got)
		}
		if got := w.ask(modernFrame("2", "tools/call",
			`"name":"add","arguments":{"a":1,"b":2}`)); !strings.Contains(got, `"resultType":"complete"`) {
			t.Error(got)
		}
		w.open(legacyName)
		want := `{"jsonrpc":"2.0","result":{"structuredContent":{"sum":3},"content":[{"type":"text",` +
			`"text":"{\"sum\":3}"}]},"id":3}`
		if got := w.ask(
			legacyFrame("3", "tools/call", `{"name":"add","arguments":{"a":1,"b":2}}`)); got != want {
			t.Error(got)
		}
		if got := w.ask(modernFrame("4", "server/discover", "")); !strings.Contains(got,
			`"supportedVersions":["2026-07-28"]`) {
			t.Error(got)
		}
	})
}

func TestErasPinned(t *testing.T) {
	only := calculator(&ServerOptions{Eras: "modern"})
	if got := exchange(t, only, hello(legacyName))[0]; !strings.Contains(got, `-32022`) ||
		!strings.Contains(got, `["2026-07-28"]`) {
		t.Error("a modern server at initialize:", got)
	}
	only = calculator(&ServerOptions{Eras: "legacy"})
	if got := exchange(t, only, modernFrame("1", "tools/list", ""))[0]; !strings.Contains(got,
		`-32600`) || !strings.Contains(got, "initialize") {
		t.Error("a legacy server at a modern request:", got)
	}
	only = calculator(&ServerOptions{Eras: "2025-06-18"})
	if got := exchange(t, only, hello(legacyName))[0]; !strings.Contains(got,
		`"protocolVersion":"2025-06-18"`) {
		t.Error("a server of one revision:", got)
	}
}

func TestPanicIsOfOneCall(t *testing.T) {
	s := calculator(nil)
	AddTool(s, Tool{Name: "panic"}, func(context.Context, struct{}) (string, error) {
		panic("private")
	})
	got := exchange(t, s,
		modernFrame("1", "tools/call", `"name":"panic"`),
		modernFrame("2", "tools/call", `"name":"add","arguments":{"a":1,"b":2}`))
	if len(got) != 2 ||
		got[0] != `{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error"},"id":1}` ||
		!strings.Contains(got[1], `{"sum":3}`) {
		t.Error(got)
	}
}

func TestServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := calculator(nil)
		AddTool(s, Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
			select {
			case <-time.After(time.Second):
				return "finished", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
		w := serve(t, s)
		w.send(modernFrame("1", "tools/call", `"name":"slow"`))
		synctest.Wait()
		w.stop()
		if err := <-w.done; err != nil {
			t.Error(err)
		}
		if got := w.rest(); len(got) != 1 || !strings.Contains(got[0], "finished") {
			t.Error("a call in flight:", got)
		}
	})
}

func TestServeBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		if err := calculator(nil).Serve(t.Context(), brokenTransport{broken}); !errors.Is(err, broken) {
			t.Error(err)
		}
		if err := calculator(nil).Serve(t.Context(), brokenTransport{io.EOF}); err != nil {
			t.Error(err)
		}
	})
}

type brokenTransport struct{ err error }

func (b brokenTransport) Read() ([]byte, error) { return nil, b.err }
func (b brokenTransport) Write(...[]byte) error { return nil }
func (b brokenTransport) Close() error          { return nil }

func TestClientFrom(t *testing.T) {
	s := NewServer("s", "1", nil)
	var got *ClientInfo
	AddTool(s, Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (struct{}, error) {
		got = ClientFrom(ctx)
		return struct{}{}, nil
	})
	exchange(t, s, modernFrameWith("1", "tools/call", `"name":"who"`, `{"roots":{}}`, ""))
	if got == nil || got.Name != "t" || got.Revision != modernName || got.Capabilities.Roots == nil {
		t.Errorf("modern: %+v", got)
	}
	exchange(t, s, hello("2024-11-05"), legacyFrame("1", "tools/call", `{"name":"who"}`))
	if got == nil || got.Name != "t" || got.Revision != "2024-11-05" || got.Capabilities == nil {
		t.Errorf("legacy: %+v", got)
	}
	if ClientFrom(t.Context()) != nil {
		t.Error("outside of a handler")
	}
}

func TestHandle(t *testing.T) {
	s := NewServer("calc", "1.0", nil)
	s.AddExtension("com.example/skills", map[string]any{"directoryRead": true})
	s.Handle("skills/list",
		farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			if ClientFrom(ctx) == nil {
				t.Error("no client")
			}
			return map[string]any{"skills": []string{}, "got": string(req.Params[:1])}, nil
		}))
	s.Handle("skills/nothing",
		farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) { return nil, nil }))
	s.Handle("skills/get", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "no such skill")
	}))
	got := exchange(t, s, modernFrame("1", "skills/list", ""), modernFrame("2", "skills/nothing", ""),
		modernFrame("3", "skills/get", ""), modernFrame("4", "server/discover", ""))
	wantJSON(t, "list", result(t, got[0]),
		`{"resultType":"complete",`+serverMeta+`,"skills":[],"got":"{"}`)
	wantJSON(t, "nothing", result(t, got[1]), `{"resultType":"complete",`+serverMeta+`}`)
	if !strings.Contains(got[2], "-32602") ||
		!strings.Contains(got[3], `"extensions":{"com.example/skills":{"directoryRead":true}}`) {
		t.Error(got[2:])
	}
	got = exchange(t, s, hello(legacyName), legacyFrame("1", "skills/list", `{}`))
	wantJSON(t, "legacy", result(t, got[1]), `{"skills":[],"got":"{"}`)
}

func TestMisuse(t *testing.T) {
	read := func(context.Context, string) ([]ResourceContents, error) { return nil, nil }
	for name, f := range map[string]func(s *Server){
		"tool name":    func(s *Server) { AddTool(s, Tool{Name: "a b"}, add) },
		"no tool name": func(s *Server) { AddTool(s, Tool{Name: ""}, add) },
		"input": func(s *Server) {
			AddTool(s, Tool{Name: "x"}, func(context.Context, int) (string, error) { return "", nil })
		},
		"output": func(s *Server) {
			AddTool(s, Tool{Name: "x"}, func(context.Context, addIn) (chan int, error) { return nil, nil })
		},
		"no handler": func(s *Server) { s.AddTool(Tool{Name: "x"}, nil) },
		"schema": func(s *Server) {
			s.AddTool(Tool{Name: "x", InputSchema: jsonrpc.Raw(`{"type":3}`)},
				func(context.Context, jsonrpc.Raw) (*ToolResult, error) {
					return nil, nil
				})
		},
		"resource": func(s *Server) { s.AddResource(Resource{Name: "x"}, read) },
		"template": func(s *Server) {
			s.AddTemplate(ResourceTemplate{Name: "x", URITemplate: "a{"},
				func(context.Context, string, Vars) ([]ResourceContents, error) {
					return nil, nil
				})
		},
		"prompt":          func(s *Server) { s.AddPrompt(Prompt{Name: "x"}, nil) },
		"protocol method": func(s *Server) { s.Handle("tools/call", farcall.HandlerFunc(nil)) },
		"task method": func(s *Server) {
			s.Handle("tasks/get", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				return nil, nil
			}))
		},
		"initialized": func(s *Server) {
			s.Handle("notifications/initialized",
				farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
					return nil, nil
				}))
		},
		"later, no tool": func(s *Server) { s.TaskLater("nil") },
		"later, no task": func(s *Server) {
			AddTool(s, Tool{Name: "x"}, add)
			s.TaskLater("x")
		},
		"singular list": func(s *Server) { s.ListChanged("tool") },
		"zero server":   func(*Server) { AddTool(&Server{}, Tool{Name: "x"}, add) },
		"zero server served": func(*Server) {
			_, _ = new(Server).ServeRPC(context.Background(), newRequest("tools/list", "{}"))
		},
		"zero server accepts": func(*Server) { new(Server).Accept(context.Background(), nil) },
		"zero server listens": func(*Server) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // one that did not panic would serve
			_ = new(Server).ListenAndServe(ctx, "127.0.0.1:0")
		},
		"zero server on a stream": func(*Server) {
			mine, theirs := farcall.Pipe()
			mine.Close()
			_ = new(Server).Serve(context.Background(), theirs)
		},
		"zero server over HTTP": func(*Server) { mcphttp.NewHandler(new(Server), nil) },
		"zero server's method":  func(*Server) { new(Server).Handle("a/x", farcall.NewMux()) },
		"extension id":          func(s *Server) { s.AddExtension("x", nil) },
		"settings":              func(s *Server) { s.AddExtension("a/x", 1) },
		"era":                   func(*Server) { NewServer("", "", &ServerOptions{Eras: "stone age"}) },
		"scope":                 func(*Server) { NewServer("", "", &ServerOptions{CacheScope: "x"}) },
	} {
		func() {
			defer func() {
				if r, ok := recover().(string); !ok || !strings.HasPrefix(r, "mcp: ") {
					t.Errorf("%s: %v", name, r)
				}
			}()
			f(NewServer("s", "1", nil))
		}()
	}
}

func newRequest(method, params string) *farcall.Request {
	return &farcall.Request{Method: method, ID: jsonrpc.IntID(1), Params: jsonrpc.Raw(params)}
}
