package mcphttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/http1/http1test"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	modernName = "2026-07-28"
	legacyName = "2025-11-25"
	batchName  = "2025-03-26"
)

// fake is a backend with a tool for each thing that a transport must do.
type fake struct {
	mu       sync.Mutex
	sessions []*fakeSession
	ended    atomic.Int32
	began    chan string   // gets a value when a tool that waits has begun
	release  chan struct{} // closed: tools that wait go on
}

func newFake() *fake { return &fake{began: make(chan string, 100), release: make(chan struct{})} }

func (f *fake) last() *fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sessions[len(f.sessions)-1]
}

func (f *fake) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	var p struct {
		Meta map[string]any `json:"_meta"`
	}
	json.Unmarshal(req.Params, &p)
	version, ok := p.Meta[spec.MetaProtocolVersion].(string)
	if !ok || p.Meta[spec.MetaClientCapabilities] == nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "_meta is incomplete")
	}
	if rev := era.Lookup(version); rev == nil || rev.Handshake {
		return nil, &jsonrpc.Error{
			Code:    spec.UnsupportedProtocolVersion,
			Message: "Unsupported protocol version",
		}
	}
	return f.tool(ctx, req, farcall.CallerFrom(ctx))
}

// tool serves both eras.
func (f *fake) tool(ctx context.Context, req *farcall.Request, client farcall.Caller) (any, error) {
	var p struct {
		Name string `json:"name"`
		N    int    `json:"n"`
	}
	json.Unmarshal(req.Params, &p)
	switch req.Method {
	case "tools/list", "server/discover", "ping":
		return jsonrpc.Raw(`{"ok":true}`), nil
	case "notifications/initialized", "notifications/x":
		return nil, nil
	case "subscriptions/listen":
		client.Notify(ctx, "notifications/subscriptions/acknowledged", nil)
		f.began <- "listen"
		<-ctx.Done()
		return jsonrpc.Raw(`{"resultType":"complete"}`), nil
	case "tools/call":
	default:
		return nil, &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found"}
	}
	switch p.Name {
	case "echo":
		return req.Params, nil
	case "progress":
		for i := range p.N {
			if err := client.Notify(ctx, "notifications/progress",
				map[string]int{"progress": i}); err != nil {
				return nil, err
			}
		}
		return jsonrpc.Raw(`{"done":true}`), nil
	case "wait":
		f.began <- p.Name
		select {
		case <-ctx.Done():
			f.ended.Add(1)
			f.began <- "ended"
			return nil, ctx.Err()
		case <-f.release:
			return jsonrpc.Raw(`{"waited":true}`), nil
		}
	case "poll":
		ok := CloseStream(ctx)
		f.began <- fmt.Sprint("closed ", ok)
		<-f.release
		return jsonrpc.Raw(`{"polled":true}`),
			client.Notify(ctx, "notifications/progress", map[string]int{"progress": 1})
	case "ask":
		var answer jsonrpc.Raw
		if err := client.Call(ctx, "elicitation/create", map[string]string{"message": "?"},
			&answer); err != nil {
			if wire := new(jsonrpc.Error); errors.As(err, &wire) {
				return nil, farcall.PassOn(err)
			}
			return nil, &jsonrpc.Error{Code: -32001, Message: err.Error()}
		}
		return answer, nil
	case "goexit":
		runtime.Goexit()
	case "trace":
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		return farcall.TraceFrom(ctx).Parent, nil
	case "panic":
		panic("boom")
	case "capability":
		return nil, &jsonrpc.Error{Code: spec.MissingRequiredClientCapability, Message: "Missing"}
	case "refused":
		var p struct{ Code jsonrpc.Code }
		json.Unmarshal(req.Params, &p)
		return nil, &jsonrpc.Error{Code: p.Code, Message: "Refused", Cause: errors.New("by the guard")}
	case "theirs":
		return nil, &jsonrpc.Error{Code: -31051, Message: "Refused by another server"}
	case "header":
		return RequestFrom(ctx).Header.Get("X-Test"), nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "Unknown tool"}
}

func (f *fake) Accept(_ context.Context, client farcall.Caller) Session {
	s := &fakeSession{f: f, client: client}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions = append(f.sessions, s)
	return s
}

type fakeSession struct {
	f      *fake
	client farcall.Caller
	rev    atomic.Pointer[era.Revision]
	closed atomic.Int32
}

func (s *fakeSession) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if req.Method != "initialize" {
		return s.f.tool(ctx, req, s.client)
	}
	if s.rev.Load() != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: "Initialized already"}
	}
	var p struct{ ProtocolVersion string }
	json.Unmarshal(req.Params, &p)
	if p.ProtocolVersion == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "protocolVersion is missing"}
	}
	rev := era.Lookup(p.ProtocolVersion)
	if rev == nil || !rev.Handshake {
		rev = era.LatestLegacy()
	}
	s.rev.Store(rev)
	return map[string]string{"protocolVersion": rev.Name}, nil
}

func (s *fakeSession) Revision() *era.Revision { return s.rev.Load() }
func (s *fakeSession) Close()                  { s.closed.Add(1) }

// env is a handler behind an HTTP server.
type env struct {
	t   *testing.T
	f   *fake
	h   *Handler
	url string
}

func serve(t *testing.T, o *Options) *env {
	t.Helper()
	f := newFake()
	h := NewHandler(f, o)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/messages", h.ServeMessages)
	s := http1test.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		h.Shutdown(ctx)
		s.CloseClientConnections()
		s.Close()
	})
	return &env{t, f, h, s.URL}
}

// reply is an HTTP answer of a test.
type reply struct {
	*http.Response
	t      *testing.T
	reader *sse.Reader
	lastID string
	cancel context.CancelFunc
}

// do sends a request with "Name: value" headers. Accept and Content-Type are
// there unless they are given.
func (e *env) do(method, path, body string, headers ...string) *reply {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	r, err := http.NewRequestWithContext(ctx, method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Del(name)
		if name == "Host" {
			r.Host = value
		} else if value != "" {
			r.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { cancel(); resp.Body.Close() })
	return &reply{Response: resp, t: e.t, reader: sse.NewReader(resp.Body, 0, nil), cancel: cancel}
}

func (e *env) post(body string, headers ...string) *reply {
	e.t.Helper()
	return e.do("POST", "/mcp", body, headers...)
}

// text reads the whole body.
func (r *reply) text() string {
	r.t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// is checks status and body of an answer that is no event stream.
func (r *reply) is(status int, body string) *reply {
	r.t.Helper()
	got := r.text()
	if r.StatusCode != status || !strings.Contains(got, body) || body == "" && got != "" {
		r.t.Errorf("%d %s, want %d %s", r.StatusCode, got, status, body)
	}
	if got != "" && r.Header.Get("Content-Type") != "application/json" ||
		got != "" && !json.Valid([]byte(got)) {
		r.t.Errorf("%s: %s", r.Header.Get("Content-Type"), got)
	}
	return r
}

// next returns the data of the next event, and "EOF" at the end.
func (r *reply) next() string {
	r.t.Helper()
	if ct := r.Header.Get("Content-Type"); ct != "text/event-stream" {
		r.t.Fatalf("no event stream but %d %s: %s", r.StatusCode, ct, r.text())
	}
	ev, err := r.reader.Next()
	if errors.Is(err, io.EOF) {
		return "EOF"
	}
	if err != nil {
		return err.Error()
	}
	r.lastID = ev.ID
	return string(ev.Data)
}

func (r *reply) wants(data ...string) {
	r.t.Helper()
	for _, want := range data {
		if got := r.next(); !strings.Contains(got, want) || want == "" && got != "" {
			r.t.Fatalf("event %q, want %q", got, want)
		}
	}
}

// modern sends a request without a session.
func (e *env) modern(id, method, params string, headers ...string) *reply {
	e.t.Helper()
	all := []string{"MCP-Protocol-Version: " + modernName, "Mcp-Method: " + method}
	var p struct{ Name string }
	json.Unmarshal([]byte("{"+params+"}"), &p)
	if p.Name != "" {
		all = append(all, "Mcp-Name: "+p.Name)
	}
	return e.post(modernBody(id, method, params), append(all, headers...)...)
}

func modernBody(id, method, params string) string {
	if params != "" {
		params += ","
	}
	if id != "" {
		id = `"id":` + id + `,`
	}
	return `{"jsonrpc":"2.0",` + id + `"method":"` + method + `","params":{` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernName +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// session is a client's view of a session.
type view struct {
	*env
	id, version string
}

func (e *env) session(version string) *view {
	e.t.Helper()
	r := e.post(
		`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"` + version + `"}}`)
	v := &view{e, r.Header.Get("Mcp-Session-Id"), version}
	r.is(200, `"protocolVersion":"`+version+`"`)
	if v.id == "" {
		e.t.Fatal("no session")
	}
	v.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).is(202, "")
	return v
}

func (v *view) headers(more ...string) []string {
	return append([]string{"Mcp-Session-Id: " + v.id, "MCP-Protocol-Version: " + v.version}, more...)
}

func (v *view) send(body string, headers ...string) *reply {
	v.t.Helper()
	return v.post(body, v.headers(headers...)...)
}

func (v *view) call(id, tool, params string, headers ...string) *reply {
	v.t.Helper()
	return v.send(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"`+tool+`"`+
		params+`}}`, headers...)
}

func (v *view) get(headers ...string) *reply {
	v.t.Helper()
	return v.do("GET", "/mcp", "", v.headers(headers...)...)
}

// discard is a ResponseWriter of benchmarks.
type discardWriter struct {
	header http.Header
	status int
}

func (d *discardWriter) Header() http.Header         { return d.header }
func (d *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardWriter) WriteHeader(status int)      { d.status = status }

// Deadlines are what a connection has.
func (d *discardWriter) SetReadDeadline(time.Time) error  { return nil }
func (d *discardWriter) SetWriteDeadline(time.Time) error { return nil }

func (quiet) ServeRPC(_ context.Context, req *farcall.Request) (any, error) {
	return jsonrpc.Raw(`{"content":[]}`), nil
}

func (quiet) Accept(context.Context, farcall.Caller) Session { return &quietSession{} }

type quietSession struct {
	rev atomic.Pointer[era.Revision]
	quiet
}

func (s *quietSession) ServeRPC(_ context.Context, req *farcall.Request) (any, error) {
	if req.Method == "initialize" {
		s.rev.Store(era.Lookup(legacyName))
	}
	return jsonrpc.Raw(`{"content":[]}`), nil
}

func (s *quietSession) Revision() *era.Revision { return s.rev.Load() }
func (s *quietSession) Close()                  {}
