package inspect

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/lint"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/wsrpc"
)

// A tab is what a page does.
type tab struct {
	t      *testing.T
	peer   *farcall.Peer
	events uint64
	seen   []event
}

// inspector serves one, with its page.
func inspector(t *testing.T, o *Options) (*Inspector, *tab, string) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	i, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(i)
	tr, err := wsrpc.Dial(
		t.Context(),
		"ws"+strings.TrimPrefix(s.URL, "http")+"/api",
		&wsrpc.Options{Subprotocols: []string{subprotocol, tokenPrefix + i.Token()}},
	)
	if err != nil {
		t.Fatal(err)
	}
	page := &tab{t: t, peer: farcall.NewPeer(tr, nil, nil)}
	t.Cleanup(func() {
		_ = page.peer.Close()
		if err := i.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return i, page, s.URL
}

func (p *tab) call(method string, params, result any) {
	p.t.Helper()
	if err := p.peer.Call(p.t.Context(), method, params, result); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

func (p *tab) fails(method string, params any, want string) {
	p.t.Helper()
	if err := p.peer.Call(
		p.t.Context(),
		method,
		params,
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), want) {
		p.t.Errorf("%s: %v, want %q", method, err, want)
	}
}

// until waits for an event.
func (p *tab) until(what string, is func(e event) bool) event {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	for {
		var r pollResult
		if err := p.peer.Call(
			ctx,
			"poll",
			pollParams{Frames: 1 << 60, Events: p.events},
			&r,
		); err != nil {
			p.t.Fatalf("while waiting for %s: %v; seen %+v", what, err, p.seen)
		}
		p.seen = append(p.seen, r.Events...)
		p.events = r.After
		if at := slices.IndexFunc(r.Events, is); at >= 0 {
			return r.Events[at]
		}
	}
}

// saw waits for an event that may have come already.
func (p *tab) saw(what string, is func(e event) bool) {
	p.t.Helper()
	if !slices.ContainsFunc(p.seen, is) {
		p.until(what, is)
	}
}

func (p *tab) state(conn int, state string) serverView {
	p.t.Helper()
	var v serverView
	p.until("the state "+state, func(e event) bool {
		if e.Type != eventServer || e.Conn != conn {
			return false
		}
		if err := jsonv2.Unmarshal(e.Data, &v); err != nil {
			p.t.Fatal(err)
		}
		return v.State == state
	})
	return v
}

func (p *tab) tool(name, args string) outcome {
	p.t.Helper()
	var o outcome
	p.call(
		"call",
		callParams{Conn: 1, Call: "c", Kind: kindTool, Name: name, Params: jsonrpc.Raw(args)},
		&o,
	)
	return o
}

type addIn struct {
	A int `json:"a"`
	B int `json:"b"`
}

type addOut struct {
	Sum int `json:"sum"`
}

type answerTo struct {
	Name string `json:"name"`
}

// playground is a server with something of everything.
func playground() *mcp.Server {
	s := mcp.NewServer("play", "1.0.0", nil)
	mcp.AddTool(
		s,
		mcp.Tool{Name: "add", Description: "Add.\nTwo numbers."},
		func(_ context.Context, in addIn) (addOut, error) { return addOut{in.A + in.B}, nil },
	)
	mcp.AddTool(
		s,
		mcp.Tool{Name: "fail"},
		func(context.Context, struct{}) (string, error) { return "", errors.New("it cannot") },
	)
	mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		a, err := mcp.Elicit[answerTo](ctx, "Who?")
		return "hello " + a.Name, err
	})
	mcp.AddTool(s, mcp.Tool{Name: "steps"}, func(ctx context.Context, _ struct{}) (string, error) {
		for n := range 5 {
			if err := mcp.Progress(ctx, float64(n+1), 5, "working"); err != nil {
				return "", err
			}
		}
		return "done", mcp.Log(ctx, "warning", "steps", "all done")
	})
	mcp.AddTool(s, mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	mcp.AddTool(
		s,
		mcp.Tool{Name: "large"},
		func(context.Context, struct{}) (string, error) { return strings.Repeat("€", 2<<20), nil },
	)
	s.AddResource(
		mcp.Resource{URI: "test://a", Name: "a"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{URI: "test://a", Text: "text of a"}}, nil
		},
	)
	return s
}

func TestMCP(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			_, p, _ := inspector(
				t,
				&Options{Servers: []Server{{InProcess: playground(), Era: era}}, Connect: true},
			)
			v := p.state(1, stateReady)
			if v.Speaks != protocolMCP || v.Info == nil || v.Info.Name != "play" {
				t.Fatalf("the server is %+v", v)
			}
			var l listResult
			p.call("list", listParams{Conn: 1, Kind: kindTool}, &l)
			if l.Total != 6 || l.Items[0].Name != "add" || l.Items[0].Description != "Add." {
				t.Errorf("the tools are %+v", l)
			}
			if o := p.tool(
				"add",
				`{"a":2,"b":40}`,
			); !strings.Contains(o.Result, `"sum":42`) || !o.Judged || len(o.Schema) > 0 ||
				o.From >= o.To {
				t.Errorf("add: %+v", o)
			}
			if o := p.tool("add", `{"a":"x"}`); !o.Failed && o.Error == nil {
				t.Errorf("add of a text: %+v", o)
			}
			if o := p.tool("fail", `{}`); !o.Failed || !strings.Contains(o.Result, "it cannot") {
				t.Errorf("fail: %+v", o)
			}
			if o := p.tool("steps", `{}`); !strings.Contains(o.Result, "done") {
				t.Errorf("steps: %+v", o)
			}
			p.saw("progress", func(e event) bool {
				return e.Type == eventProgress && e.Call == "c" &&
					strings.Contains(string(e.Data), "working")
			})
			if o := p.tool("large", `{}`); !o.Cut || o.Size < 6<<20 || len(o.Result) > 70<<10 {
				t.Errorf("large: cut %v, %d of %d bytes", o.Cut, len(o.Result), o.Size)
			}
			var o outcome
			p.call("call", callParams{Conn: 1, Call: "r", Kind: kindResource, Name: "test://a"}, &o)
			if !strings.Contains(o.Result, "text of a") {
				t.Errorf("the resource: %+v", o)
			}
			p.call("call", callParams{Conn: 1, Call: "m", Kind: kindMethod, Name: "no/such"}, &o)
			if o.Error == nil || o.Error.Code != int(jsonrpc.MethodNotFound) {
				t.Errorf("an unknown method: %+v", o)
			}
			var r lint.Report
			p.call("lint", connParams{1}, &r)
			if len(r.Costs) != 6 ||
				!slices.ContainsFunc(
					r.Findings,
					func(f lint.Finding) bool { return f.Tool == "fail" && f.Rule == "no-description" },
				) {
				t.Errorf("the checks find %+v", r)
			}
			var d described
			p.call("describe", itemParams{Conn: 1, Kind: kindTool, Name: "add"}, &d)
			if !strings.Contains(d.Item, "outputSchema") {
				t.Errorf("add is %s", d.Item)
			}
		})
	}
}

// A question waits for the page, in every revision, and is within its call.
func TestQuestion(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			_, p, _ := inspector(
				t,
				&Options{Servers: []Server{{InProcess: playground(), Era: era}}, Connect: true},
			)
			p.state(1, stateReady)
			done := make(chan outcome)
			go func() {
				var o outcome
				if err := p.peer.Call(
					t.Context(),
					"call",
					callParams{Conn: 1, Call: "c", Kind: kindTool, Name: "ask"},
					&o,
				); err != nil {
					t.Error(err)
				}
				done <- o
			}()
			asked := func() (q questionView) {
				e := p.until("a question", func(e event) bool { return e.Type == eventQuestion })
				if err := jsonv2.Unmarshal(e.Data, &q); err != nil {
					t.Fatal(err)
				}
				return q
			}
			q := asked()
			if q.Method != "elicitation/create" || !strings.Contains(string(q.Params), "Who?") {
				t.Errorf("the question is %+v", q)
			}
			var h helloResult
			p.call("hello", none{}, &h)
			if len(h.Questions) != 1 {
				t.Errorf("a page that opens now sees %d questions", len(h.Questions))
			}
			p.call(
				"answer",
				answerParams{
					ID:     q.ID,
					Result: jsonrpc.Raw(`{"action":"accept","content":{"name":"Ada"}}`),
				},
				nil,
			)
			if o := <-done; !strings.Contains(o.Result, "hello Ada") {
				t.Errorf("%+v", o)
			}
			p.fails(
				"answer",
				answerParams{ID: q.ID, Result: jsonrpc.Raw(`{}`)},
				"not open any more",
			)
		})
	}
}

// The page may stop a call, and what it has stopped is not left behind.
func TestStop(t *testing.T) {
	t.Parallel()
	_, p, _ := inspector(t, &Options{Servers: []Server{{InProcess: playground()}}, Connect: true})
	p.state(1, stateReady)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		c := callParams{Conn: 1, Call: "c", Kind: kindTool, Name: "wait"}
		done <- p.peer.Call(ctx, "call", c, nil)
	}()
	frames := func(filter string) int {
		var f filterResult
		p.call("filter", filterParams{Filter: filter}, &f)
		return len(f.Chosen)
	}
	for frames("kind:request name:wait") == 0 { // it has been sent
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for frames("method:notifications/cancelled") == 0 {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTraffic(t *testing.T) {
	t.Parallel()
	_, p, _ := inspector(
		t,
		&Options{Servers: []Server{{InProcess: playground(), Era: "legacy"}}, Connect: true},
	)
	p.state(1, stateReady)
	o := p.tool("add", `{"a":2,"b":40}`)
	var r pollResult
	p.call("poll", pollParams{Frames: o.From, Events: 1 << 60, Filter: "error"}, &r)
	c := r.Rows
	if c == nil || len(c.Time) != len(c.Dir) || len(c.Texts) == 0 || len(c.Chosen) != 0 ||
		r.Next != o.To {
		t.Fatalf("%+v", r)
	}
	var f filterResult
	p.call("filter", filterParams{Filter: "kind:request name:add"}, &f)
	if len(f.Chosen) != 1 || !f.Done {
		t.Fatalf("%+v", f)
	}
	seq := f.Chosen[0]
	var frame frameResult
	p.call("frame", frameParams{Seq: seq}, &frame)
	if !strings.Contains(frame.Text, `"arguments":{"a":2,"b":40}`) ||
		frame.Size != len(frame.Text) {
		t.Errorf("the frame is %+v", frame)
	}
	p.call("frame", frameParams{Seq: seq, From: 2, Size: 5}, &frame)
	if frame.Text != "jsonr" {
		t.Errorf("a part of the frame is %q", frame.Text)
	}
	var again outcome
	p.call("replay", replayParams{Seq: seq, Call: "x"}, &again)
	if again.Result != o.Result {
		t.Errorf("the replay has %s, not %s", again.Result, o.Result)
	}
	p.fails("replay", replayParams{Seq: seq + 1, Call: "x"}, "not a request that was sent")
	p.fails("frame", frameParams{Seq: 1 << 40}, "not kept")
	p.fails("filter", filterParams{Filter: "what:x"}, "unknown field")
}

// A JSON-RPC server: its methods, values on the way, and what it calls.
func TestJSONRPC(t *testing.T) {
	t.Parallel()
	mux := farcall.NewMux()
	farcall.Handle(
		mux,
		"math/add",
		func(_ context.Context, in addIn) (int, error) { return in.A + in.B, nil },
		"Add two numbers",
	)
	dial := func(context.Context) (farcall.Transport, error) {
		near, far := farcall.Pipe()
		server := farcall.NewPeer(far, mux, &farcall.Options{Logger: slog.New(slog.DiscardHandler)})
		farcall.Handle(
			mux,
			"back"+strconv.Itoa(len(mux.Methods())),
			func(ctx context.Context, _ struct{}) (string, error) {
				var name string
				err := server.Call(ctx, "who", nil, &name)
				return "hello " + name, err
			},
		)
		return near, nil
	}
	_, p, _ := inspector(
		t,
		&Options{Servers: []Server{{Name: "rpc", Dial: dial, Protocol: "jsonrpc"}}, Connect: true},
	)
	if v := p.state(1, stateReady); v.Speaks != protocolRPC {
		t.Fatalf("%+v", v)
	}
	var l listResult
	p.call("list", listParams{Conn: 1, Kind: kindMethod}, &l)
	at := slices.IndexFunc(
		l.Items,
		func(v itemView) bool { return strings.HasPrefix(v.Name, "back") },
	)
	if at < 0 ||
		!slices.ContainsFunc(
			l.Items,
			func(v itemView) bool { return v.Name == "math/add" && v.Description == "Add two numbers" },
		) {
		t.Fatalf("%+v", l)
	}
	var o outcome
	p.call(
		"call",
		callParams{
			Conn:   1,
			Call:   "a",
			Kind:   kindMethod,
			Name:   "math/add",
			Params: jsonrpc.Raw(`[2,40]`),
		},
		&o,
	)
	if o.Result != "42" {
		t.Errorf("%+v", o)
	}
	done := make(chan outcome)
	go func() {
		var o outcome
		if err := p.peer.Call(
			t.Context(),
			"call",
			callParams{Conn: 1, Call: "b", Kind: kindMethod, Name: l.Items[at].Name},
			&o,
		); err != nil {
			t.Error(err)
		}
		done <- o
	}()
	e := p.until("a question", func(e event) bool { return e.Type == eventQuestion })
	var q questionView
	if err := jsonv2.Unmarshal(e.Data, &q); err != nil || q.Method != "who" {
		t.Errorf("the question is %s, %v", e.Data, err)
	}
	p.call("answer", answerParams{ID: q.ID, Result: jsonrpc.Raw(`"Ada"`)}, nil)
	if o := <-done; o.Result != `"hello Ada"` {
		t.Errorf("%+v", o)
	}
}

// The page gets what a child says, and why one does not start. Escape sequences of terminals
// are not passed on.
func TestChild(t *testing.T) {
	t.Parallel()
	child := func(what string) Server {
		return Server{
			Name:    what,
			Command: []string{os.Args[0]},
			Env:     append(os.Environ(), childVar+"="+what),
		}
	}
	_, p, _ := inspector(
		t,
		&Options{
			Servers: []Server{
				child("serve"),
				child("crash"),
				{Command: []string{"/no/such/program"}},
			},
			Connect: true,
		},
	)
	p.state(1, stateReady)
	p.saw(
		"stderr",
		func(e event) bool {
			return e.Type == eventStderr && strings.Contains(string(e.Data),
				"starting up")
		},
	)
	if o := p.tool("pid", `{}`); !strings.Contains(o.Result, "hello") {
		t.Errorf("%+v", o)
	}
	p.saw(
		"the banner",
		func(e event) bool {
			return e.Type == eventNoise && strings.Contains(string(e.Data),
				"a banner")
		},
	)
	p.call("connect", connectParams{Conn: 2}, nil)
	if v := p.state(
		2,
		stateFailed,
	); !strings.Contains(v.Reason, "exit status 3") || !strings.Contains(v.Reason, "no such file") ||
		strings.ContainsAny(v.Reason, "\x1b\x07") {
		t.Errorf("the reason is %q", v.Reason)
	}
	p.call("connect", connectParams{Conn: 3}, nil)
	if v := p.state(
		3,
		stateFailed,
	); !strings.Contains(v.Reason, "no such file") ||
		!strings.Contains(v.Reason, "installed") {
		t.Errorf("the reason is %q", v.Reason)
	}
	p.call("disconnect", connParams{1}, nil)
	p.state(1, stateIdle)
	p.fails("list", listParams{Conn: 1, Kind: kindTool}, "not connected")
	p.call("connect", connectParams{Conn: 1}, nil)
	p.state(1, stateReady)
	p.call("remove", connParams{1}, nil)
	p.fails("connect", connectParams{Conn: 1}, "no server 1")
}

// Over HTTP, with the credentials that only this process knows.
func TestHTTP(t *testing.T) {
	t.Parallel()
	routes := mcphttp.NewHandler(playground(), nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		routes.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	i, p, _ := inspector(
		t,
		&Options{
			Servers: []Server{
				{Target: web.URL + "/mcp", Header: http.Header{"Authorization": {"Bearer secret"}}},
			},
			AnyServer: true,
		},
	)
	p.call("connect", connectParams{Conn: 1}, nil)
	v := p.state(1, stateReady)
	if !slices.Equal(v.Headers, []string{"Authorization"}) {
		t.Errorf("the headers are %q", v.Headers)
	}
	if o := p.tool("add", `{"a":2,"b":40}`); !strings.Contains(o.Result, `"sum":42`) {
		t.Errorf("%+v", o)
	}
	var added serverView
	p.call("add", serverParams{Target: web.URL + "/mcp", Bearer: "wrong"}, &added)
	if v := p.state(added.ID, stateFailed); !strings.Contains(v.Reason, "401") {
		t.Errorf("the reason is %q", v.Reason)
	}
	p.fails("add", serverParams{Target: "gopher://x"}, "no transport")
	p.fails("add", serverParams{}, "0 of Target")
	p.fails("add", serverParams{Target: web.URL, Era: "1999"}, "no revision")
	var all []string
	for _, e := range p.seen {
		all = append(all, string(e.Data))
	}
	i.store.Rows(0, -1, func(_ *traffic.Row, raw []byte) bool {
		all = append(all, string(raw))
		return true
	})
	if strings.Contains(strings.Join(all, "\n"), "secret") {
		t.Error("the page gets the token")
	}
}
