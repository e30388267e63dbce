package traces_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/traces"
)

// keeper is a processor that keeps what it gets.
type keeper struct {
	sdk.SpanProcessor

	mu    sync.Mutex
	spans []sdk.ReadOnlySpan
}

func (k *keeper) OnEnd(s sdk.ReadOnlySpan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spans = append(k.spans, s)
}

// taken returns what has come since the last time, as lines.
func (k *keeper) taken() (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spans {
		line := fmt.Sprintf("%s %s %s<%s", s.SpanKind(), s.Name(), short(s.SpanContext()),
			short(s.Parent()))
		if links := s.Links(); len(links) > 0 {
			line += " link " + short(links[0].SpanContext)
		}
		all = append(all, line)
	}
	k.spans = nil
	return all
}

// short is a trace id, and the sign of a span.
func short(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return "-"
	}
	if sc.SpanID().String() == "b7ad6b7169203331" {
		return "caller"
	}
	return sc.TraceID().String()[:4]
}

const (
	sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	dropped = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	another = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// within is what a responder answers.
type within struct{ *farcall.Responder }

func (w within) Exchange(ctx context.Context, frame []byte, reply func([]byte) error) error {
	if out := w.Respond(ctx, nil, frame, nil); out != nil {
		return reply(out)
	}
	return nil
}

func (within) Close() error { return nil }

// chain is a gateway and a server in one process: the server says which trace context it gets.
func chain(
	o *traces.Options,
) (call func(ctx context.Context, members string) string, k *keeper, t *traces.Tracer) {
	k = &keeper{}
	o.Spans = k
	t = traces.New(o)
	var got farcall.Trace
	server := farcall.NewMux()
	server.Handle("ok",
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			got = farcall.TraceFrom(ctx)
			return nil, nil
		}))
	client := farcall.NewClient(within{farcall.NewResponder(server, nil)}, nil,
		&farcall.Options{Observer: t.Observer()})
	front := farcall.NewMux()
	front.Handle("ok", farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		return nil, client.Call(ctx, "ok", nil, nil)
	}))
	front.Handle("bad", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, fmt.Errorf("secret: %w", &jsonrpc.Error{Code: 7, Message: "not today"})
	}))
	r := farcall.NewResponder(front, &farcall.Options{Observer: t.Observer()})
	return func(ctx context.Context, members string) string {
		got = farcall.Trace{}
		r.Respond(ctx, nil, []byte(`{"jsonrpc":"2.0","id":1,`+members+`}`), nil)
		return strings.TrimSuffix(got.Parent+" "+got.State+" "+got.Baggage, "  ")
	}, k, t
}

// What is recorded is a child of what the caller has sent, and what is sent is a child of what is
// recorded; a call that is not recorded passes on what the caller has sent, or says that it is not
// recorded.
func TestSampling(t *testing.T) {
	t.Parallel()
	header := func(parent string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			return farcall.WithTraceHeader(ctx, map[string][]string{"Traceparent": {parent}})
		}
	}
	for name, v := range map[string]struct {
		options traces.Options
		link    bool
		ctx     func(context.Context) context.Context
		message string
		sent    string // the end of what the server gets: the flags; "caller": what the caller has sent
		want    []string
	}{
		"alone":      {sent: "-01", want: []string{"client", "server ok -"}},
		"alone, off": {options: traces.Options{Ratio: -1}, sent: "-00"},
		"sampled": {
			message: sampled, sent: "-01",
			want: []string{"client", "server ok caller"},
		},
		"sampled, ratio off": {
			options: traces.Options{Ratio: -1}, message: sampled, sent: "-01",
			want: []string{"client", "server ok caller"},
		},
		"sampled, always off": {
			options: traces.Options{Ratio: -1, Apart: true}, message: sampled,
			sent: "-00",
		},
		"dropped": {message: dropped, sent: "caller"},
		"dropped, always on": {
			options: traces.Options{Apart: true}, message: dropped, sent: "-01",
			want: []string{"client", "server ok caller"},
		},
		"header": {
			ctx: header(sampled), sent: "-01",
			want: []string{"client", "server ok caller"},
		},
		"header that is another": {
			ctx: header(another), message: sampled, sent: "-01",
			want: []string{"client", "server ok caller link 4bf9"},
		},
		"header that is dropped": {ctx: header(dropped), sent: "caller"},
		"link": {
			link: true, message: sampled, sent: "-01",
			want: []string{"client", "server ok - link caller"},
		},
		"link, off": {
			options: traces.Options{Ratio: -1}, link: true, message: sampled,
			sent: "-00",
		},
	} {
		call, k, tracer := chain(&v.options)
		if v.link {
			tracer.Set(func(ctx context.Context) bool { return ctx != nil }, 0)
		}
		ctx := t.Context()
		if v.ctx != nil {
			ctx = v.ctx(ctx)
		}
		members := `"method":"ok"`
		if v.message != "" {
			members += `,"traceparent":"` + v.message + `","tracestate":"a=b","baggage":"k=v"`
		}
		got := call(ctx, members)
		spans := k.spans
		lines := k.taken()
		if len(lines) != len(v.want) {
			t.Errorf("%s: recorded %q, want %q", name, lines, v.want)
			continue
		}
		parent, rest, _ := strings.Cut(got, " ")
		switch state := !v.link && v.sent != "-00"; {
		case v.sent == "caller" && parent != dropped,
			v.sent != "caller" && !strings.HasSuffix(parent, v.sent), parent == sampled:
			t.Errorf("%s: the server gets %s, want %s", name, parent, v.sent)
		case v.message != "" && state && rest != "a=b k=v", v.message != "" && !state && rest != " k=v":
			t.Errorf("%s: beside it the server gets %q", name, rest)
		}
		if len(spans) == 0 {
			continue
		}
		if s := spans[0]; s.SpanKind() != trace.SpanKindClient ||
			s.Parent().SpanID() != spans[1].SpanContext().SpanID() ||
			parent[36:52] != s.SpanContext().SpanID().String() {
			t.Errorf("%s: %q and %s: the client's span is not between the server's and what is sent", name,
				lines, parent)
		}
		if want := strings.Split(v.want[1], " "); !strings.HasPrefix(lines[1], want[0]+" "+want[1]) ||
			!strings.HasSuffix(lines[1], "<"+strings.Join(want[2:], " ")) {
			t.Errorf("%s: recorded %q, want %q", name, lines[1], v.want[1])
		}
	}
}

// Calls that fail or are refused are kept when they are not sampled, some in each second, and say
// no more than their callers.
func TestKept(t *testing.T) {
	t.Parallel()
	call, k, _ := chain(&traces.Options{Ratio: -1, Keep: 3})
	for range 10 {
		call(t.Context(), `"method":"bad","traceparent":"`+dropped+`"`)
		call(t.Context(), `"method":"hostile name"`)
		call(t.Context(), `"method":"ok"`)
	}
	call(t.Context(), `"method":7`)
	spans := k.spans
	if len(spans) < 3 || len(spans) > 6 { // a second may have ended meanwhile
		t.Fatalf("%d spans are kept: %q", len(spans), k.taken())
	}
	s := spans[0]
	if s.Name() != "bad" || s.Status().Description != "" && s.Status().Description != "not today" ||
		!s.SpanContext().IsSampled() || short(s.Parent()) != "caller" {
		t.Errorf("kept %s, %+v, parent %s", s.Name(), s.Status(), short(s.Parent()))
	}
	if !has(s, attribute.String("error.type", "7")) ||
		!has(s, attribute.Bool("farcall.unsampled", true)) {
		t.Errorf("attributes %v", s.Attributes())
	}
	k.taken()
	ctx := farcall.WithTraceHeader(t.Context(), map[string][]string{"Traceparent": {another}})
	late, k, _ := chain(&traces.Options{Ratio: -1})
	late(ctx, `"method":"bad","traceparent":"`+dropped+`"`)
	if got := k.taken(); len(got) != 1 || !strings.HasSuffix(got[0], "<caller link 4bf9") {
		t.Errorf("kept %q, without a link to what the headers say", got)
	}
	if spans[1].Name() != "_OTHER" {
		t.Errorf("the name of a span is what the other end has chosen: %q", spans[1].Name())
	}
	call, k, _ = chain(&traces.Options{Ratio: -1, Apart: true})
	call(t.Context(), `"method":"bad"`)
	if len(k.spans) != 0 {
		t.Errorf("the sampler is always_off, and there is %q", k.taken())
	}
}

func has(s sdk.ReadOnlySpan, want attribute.KeyValue) bool {
	return slices.Contains(s.Attributes(), want)
}

// The attributes are those of the conventions, pinned here.
func TestAttributes(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	o := traces.New(&traces.Options{Spans: k}).Observer()
	for _, v := range []struct {
		call observe.Call
		name string
		want string
	}{
		{
			observe.Call{
				MCP: true, Known: true, Method: "tools/call", Tool: "echo", Revision: "2025-11-25",
				Transport: "stdio", ID: jsonrpc.StringID("a"), ToolError: true, BytesIn: 1, BytesOut: 2,
			},
			"tools/call echo",
			"mcp.method.name=tools/call mcp.protocol.version=2025-11-25 " +
				"gen_ai.operation.name=execute_tool gen_ai.tool.name=echo network.transport=pipe " +
				"farcall.transport=stdio jsonrpc.request.id=a error.type=tool_error farcall.bytes.in=1 " +
				"farcall.bytes.out=2",
		},
		{
			observe.Call{
				MCP: true, Known: true, Method: "prompts/get", Prompt: "review", Transport: "https",
				Outgoing: true, Upstream: "docs", ID: jsonrpc.IntID(3), Code: -32602,
				Err: errors.New("private"),
			},
			"prompts/get review",
			"mcp.method.name=prompts/get gen_ai.prompt.name=review network.transport=tcp " +
				"farcall.transport=https farcall.upstream=docs jsonrpc.request.id=3 error.type=-32602 " +
				"rpc.response.status_code=-32602 farcall.bytes.in=0 farcall.bytes.out=0",
		},
		{
			observe.Call{MCP: true, Method: "evil/1", Transport: "tcp", Notification: true, Batch: true},
			"_OTHER",
			"mcp.method.name=_OTHER network.transport=tcp farcall.transport=tcp farcall.batch=true " +
				"farcall.bytes.in=0 farcall.bytes.out=0",
		},
		{
			observe.Call{Known: true, Method: "add", Transport: "unix"},
			"add",
			"rpc.system.name=jsonrpc rpc.method=add network.transport=unix farcall.transport=unix " +
				"farcall.bytes.in=0 farcall.bytes.out=0",
		},
	} {
		o.End(o.Start(t.Context(), &v.call), &v.call)
		s := k.spans[len(k.spans)-1]
		var got []string
		for _, a := range s.Attributes() {
			got = append(got, string(a.Key)+"="+a.Value.String())
		}
		if is := strings.Join(got, " "); is != v.want || s.Name() != v.name {
			t.Errorf("%s:\ngot  %s\nwant %s", s.Name(), is, v.want)
		}
		if strings.Contains(s.Status().Description, "private") {
			t.Error("the cause of an error is in its span")
		}
	}
}

// Arguments and results are in the spans of calls that arrive, as the function has returned them,
// and only while there is one.
func TestPayloads(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	tracer := traces.New(&traces.Options{Spans: k})
	o := tracer.Observer()
	got := func(c observe.Call) string {
		o.End(o.Start(t.Context(), &c), &c)
		var all []string
		for _, a := range k.spans[len(k.spans)-1].Attributes() {
			if strings.HasPrefix(string(a.Key), "gen_ai.tool.call.") {
				all = append(all, string(a.Key)+"="+a.Value.String())
			}
		}
		return strings.Join(all, " ")
	}
	tool := observe.Call{
		MCP: true, Known: true, Method: "tools/call",
		Request:  jsonrpc.Raw(`{"params":{"name":"t","arguments":{"text":"secret"}}}`),
		Response: jsonrpc.Raw(`{"result":{"content":["secret"]}}`),
	}
	add := observe.Call{Known: true, Method: "add", Request: jsonrpc.Raw(`{"params":[1,2]}`)}
	sent := tool
	sent.Outgoing = true
	redact := func(raw jsonrpc.Raw) []byte {
		return []byte(strings.ReplaceAll(string(raw), "secret", "…"))
	}
	for _, v := range []struct {
		redact func(jsonrpc.Raw) []byte
		call   observe.Call
		want   string
	}{
		{nil, tool, ""},
		{
			redact, tool,
			`gen_ai.tool.call.arguments={"text":"…"} gen_ai.tool.call.result={"content":["…"]}`,
		},
		{redact, add, `gen_ai.tool.call.arguments=[1,2]`},
		{redact, sent, ""},
		{nil, tool, ""},
	} {
		tracer.Payloads(v.redact)
		if is := got(v.call); is != v.want {
			t.Errorf("%s: got %s, want %s", v.call.Method, is, v.want)
		}
	}
}

// A recorded call has the first 128 of its events, and others have none.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, ratio := range []float64{1, -1} {
		k := &keeper{}
		o := traces.New(&traces.Options{Spans: k, Ratio: ratio}).Observer()
		c := &observe.Call{Began: time.Now()}
		ctx := o.Start(t.Context(), c)
		for range 130 {
			c.Event("value")
		}
		c.Code = 1
		o.End(ctx, c)
		s, want := k.spans[0], 0
		if ratio > 0 {
			want = 128
		}
		if len(s.Events()) != want || want > 0 &&
			(s.DroppedEvents() != 2 || s.Events()[0].Name != "value" || s.Events()[0].Time.IsZero()) {
			t.Errorf("ratio %v: %d events, %d dropped", ratio, len(s.Events()), s.DroppedEvents())
		}
	}
}

// Each method of a span that an exporter may call is there: those of the interface that a later
// version adds would panic.
func TestSpanHasAllMethods(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	o := traces.New(&traces.Options{Spans: k}).Observer()
	c := &observe.Call{}
	o.End(o.Start(t.Context(), c), c)
	v := reflect.ValueOf(k.spans[0])
	for m := range reflect.TypeFor[sdk.ReadOnlySpan]().Methods() {
		if m.IsExported() {
			v.MethodByName(m.Name).Call(nil)
		}
	}
}

// A call that is not sampled costs no allocation, and one that is at most ten.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	mux := farcall.NewMux()
	mux.Handle("ok", farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, nil
	}))
	count := func(o *observe.Observer, parent string) float64 {
		r := farcall.NewResponder(mux, &farcall.Options{Observer: o})
		frame, out := []byte(`{"jsonrpc":"2.0","method":"ok","id":1,"params":{"_meta":{"traceparent":"`+
			parent+`"}}}`), make([]byte, 0, 1024)
		return testing.AllocsPerRun(200, func() { r.Respond(t.Context(), out, frame, nil) })
	}
	none := traces.New(&traces.Options{Ratio: -1, Spans: &nothing{}}).Observer()
	off := count(nil, dropped)
	for _, parent := range []string{"", dropped} {
		if on := count(none, parent); on > off {
			t.Errorf("%v allocations with traces that are not sampled, %v without, parent %q", on,
				off, parent)
		}
	}
	all := traces.New(&traces.Options{Spans: &nothing{}}).Observer()
	for _, parent := range []string{"", sampled} {
		if on := count(all, parent); on > off+10 {
			t.Errorf("%v allocations more with spans, parent %q", on-off, parent)
		} else {
			t.Logf("%v allocations more with spans, parent %q", on-off, parent)
		}
	}
}

type nothing struct{ sdk.SpanProcessor }

func (*nothing) OnEnd(sdk.ReadOnlySpan) {}

// Each span has its own ids, and a trace that begins here is recorded by the ratio of its id, so
// that other tracers with that ratio decide the same.
func TestIDs(t *testing.T) {
	t.Parallel()
	const n = 10_000
	o := traces.New(&traces.Options{Ratio: 0.25, Spans: &nothing{}}).Observer()
	seen, recorded := map[[8]byte]bool{}, 0
	for range n {
		var c observe.Call
		o.Start(t.Context(), &c)
		seen[c.Span.ID], seen[[8]byte(c.Span.Trace[:8])], seen[[8]byte(c.Span.Trace[8:])] = true,
			true, true
		if c.Span.Sampled != (c.Span.Trace[8] < 0x40) {
			t.Fatalf("a trace with the id %x is recorded: %v", c.Span.Trace, c.Span.Sampled)
		}
		if c.Span.Sampled {
			recorded++
		}
	}
	if len(seen) != 3*n {
		t.Errorf("%d different parts of ids, want %d", len(seen), 3*n)
	}
	if recorded < n/5 || recorded > n*3/10 {
		t.Errorf("%d of %d traces are recorded, want a quarter", recorded, n)
	}
}
