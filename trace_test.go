package farcall_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func traced(ctx context.Context, _ *farcall.Request) (any, error) {
	return farcall.TraceFrom(ctx), nil
}

// All of a trace context arrives over every transport, in calls and batches, and none where there
// is none.
func TestTrace(t *testing.T) {
	t.Parallel()
	eachCaller(t, func() farcall.Handler {
		return farcall.HandlerFunc(traced)
	}, func(t *testing.T, p *farcall.Peer) {
		want := farcall.Trace{Parent: parent, State: "a=1,b@c=2", Baggage: `user=x%20y;p="1",k=\`}
		ctx := farcall.WithTrace(t.Context(), want)
		for _, params := range []any{nil, jsonrpc.Raw("[1]"), jsonrpc.Raw(`{"_meta":{"x":1}}`)} {
			if got, err := farcall.Call[farcall.Trace](ctx, p, "m", params); err != nil || got != want {
				t.Errorf("%v: got %q, %v", params, got, err)
			}
		}
		var got farcall.Trace
		if err := p.Batch(ctx, &farcall.BatchCall{Method: "m", Result: &got}); err != nil || got != want {
			t.Errorf("in a batch: got %q, %v", got, err)
		}
		if got, err := farcall.Call[farcall.Trace](t.Context(), p, "m", nil); err != nil ||
			got != (farcall.Trace{}) {
			t.Errorf("without one: got %q, %v", got, err)
		}
	})
}

func members(n int) string { return strings.TrimSuffix(strings.Repeat("k=v,", n), ",") }

// hostile is what must be dropped or cut, and to what, whichever way it comes.
func hostile() map[[3]string]farcall.Trace {
	long := strings.Repeat("x", 8<<10)
	later := strings.Replace(parent, "00-", "01-", 1)
	cases := map[[3]string]farcall.Trace{
		{parent, members(40), members(70)}: {
			Parent: parent, State: members(32),
			Baggage: members(64),
		},
		{parent, members(32), members(64)}: {
			Parent: parent, State: members(32),
			Baggage: members(64),
		},
		{parent, "a=1," + long, "b=2," + long}:   {Parent: parent, State: "a=1", Baggage: "b=2"},
		{parent, long, long}:                     {Parent: parent, State: long, Baggage: long},
		{parent, long + "x", long + "x"}:         {Parent: parent},
		{parent, long + ",a=1", long + ",b=2"}:   {Parent: parent, State: long, Baggage: long},
		{parent, "", strings.Repeat("x", 1<<20)}: {Parent: parent},
		{parent, "a=\x01", "b=\r\nX-Evil: 1"}:    {Parent: parent},
		{parent, "a=ü", "b=\x7f"}:                {Parent: parent},
		{later + "-more", "", ""}:                {Parent: later + "-more"},
	}
	for _, bad := range []string{
		"", "x", parent + "-more", parent + "0", later + "more", later + "-\n", strings.ToUpper(parent),
		"ff" + parent[2:], parent[:54],
		strings.Replace(parent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1),
		strings.Replace(parent, "b7ad6b7169203331", strings.Repeat("0", 16), 1),
		strings.ReplaceAll(parent, "-", "_"), later + "-" + strings.Repeat("x", 1<<20),
	} {
		cases[[3]string{bad, "a=1", "b=2"}] = farcall.Trace{Baggage: "b=2"}
	}
	return cases
}

// What is hostile is dropped or cut, never an error: as it is set, in headers, and in a message,
// escaped or not.
func TestTraceIsBounded(t *testing.T) {
	t.Parallel()
	r := farcall.NewResponder(
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return fmt.Sprint(farcall.TraceFrom(ctx)), nil
		}), nil)
	for give, want := range hostile() {
		name := fmt.Sprintf("%.70q", give)
		if got := farcall.TraceFrom(farcall.WithTrace(t.Context(),
			farcall.Trace{Parent: give[0], State: give[1], Baggage: give[2]})); got != want {
			t.Errorf("%s: set: got %.100q", name, got)
		}
		header := http.Header{"Traceparent": give[:1], "Tracestate": give[1:2], "Baggage": give[2:]}
		if got := farcall.TraceFrom(farcall.WithTraceHeader(t.Context(), header)); got != want {
			t.Errorf("%s: in headers: got %.100q", name, got)
		}
		meta := fmt.Sprintf(`{"traceparent":%s,"tracestate":%s,"baggage":%s}`, quoted(give[0]),
			quoted(give[1]), quoted(give[2]))
		for _, frame := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"m",` + meta[1:],
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":` + meta + `}}`,
		} {
			got := r.Respond(t.Context(), nil, []byte(frame), nil)
			if wanted := result(string(quoted(fmt.Sprint(want))), "1"); string(got) != wanted {
				t.Errorf("%s: in a message: got %.200s", name, got)
			}
		}
	}
}

func quoted(s string) []byte { return jsonrpc.AppendString(nil, s) }

// What the message has counts before the headers, and a State stays with its Parent.
func TestTraceOfMessageAndHeaders(t *testing.T) {
	t.Parallel()
	other := strings.Replace(parent, "b7ad", "c7ad", 1)
	header := http.Header{"Traceparent": {other}, "Tracestate": {"h=1", "h=2"}, "Baggage": {"h=3"}}
	r := farcall.NewResponder(
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return fmt.Sprint(farcall.TraceFrom(ctx)), nil
		}), nil)
	for members, want := range map[string]farcall.Trace{
		``:                                {Parent: other, State: "h=1,h=2", Baggage: "h=3"},
		`,"traceparent":"` + parent + `"`: {Parent: parent, Baggage: "h=3"},
		`,"traceparent":7,"tracestate":"m=1","baggage":"m=2"`: {
			Parent: other,
			State:  "h=1,h=2", Baggage: "m=2",
		},
		`,"traceparent":"` + parent + `","tracestate":"m=1","baggage":"m=2"`: {
			Parent: parent,
			State:  "m=1", Baggage: "m=2",
		},
	} {
		got := r.Respond(farcall.WithTraceHeader(t.Context(), header), nil,
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"m"`+members+`}`), nil)
		if wanted := result(string(quoted(fmt.Sprint(want))), "1"); string(got) != wanted {
			t.Errorf("%s: got %s, want %s", members, got, wanted)
		}
	}
	header["Traceparent"] = []string{parent, other}
	if got := farcall.TraceFrom(farcall.WithTraceHeader(t.Context(), header)); got !=
		(farcall.Trace{Baggage: "h=3"}) {
		t.Errorf("of two: %q", got)
	}
}

// FuzzTrace holds every trace context to the limits: what is kept is a valid header, and stays as
// it is when it is bounded again.
func FuzzTrace(f *testing.F) {
	for give := range hostile() {
		f.Add(give[0], give[1], give[2])
	}
	f.Fuzz(func(t *testing.T, parent, state, baggage string) {
		got := farcall.TraceFrom(
			farcall.WithTrace(t.Context(), farcall.Trace{Parent: parent, State: state, Baggage: baggage}))
		if again := farcall.TraceFrom(farcall.WithTrace(t.Context(), got)); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
		if got.Parent == "" && got.State != "" || !strings.HasPrefix(state, got.State) ||
			!strings.HasPrefix(baggage, got.Baggage) {
			t.Errorf("%q", got)
		}
		if len(got.State) > 8<<10 || len(got.Baggage) > 8<<10 || strings.Count(got.State, ",") > 31 ||
			strings.Count(got.Baggage, ",") > 63 {
			t.Errorf("%q is too long", got)
		}
		for _, r := range got.Parent + got.State + got.Baggage {
			if (r < ' ' || r > '~') && r != '\t' {
				t.Errorf("%q has %q", got, r)
			}
		}
	})
}

func ExampleWithTrace() {
	server := farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
		t := farcall.TraceFrom(ctx) // calls that are made with ctx pass it on
		return t.Parent + " " + t.Baggage, nil
	})
	a, b := farcall.Pipe()
	defer farcall.NewPeer(a, server, nil).Close()
	client := farcall.NewPeer(b, nil, nil)
	defer client.Close()
	ctx := farcall.WithTrace(context.Background(), farcall.Trace{
		Parent:  "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Baggage: "tenant=blue",
	})
	fmt.Println(farcall.Call[string](ctx, client, "m", nil))
	// Output: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 tenant=blue <nil>
}

// An observer that asks for them gets the spans that a message and its request name, and those in
// which a handler calls. That costs no allocation.
func TestSpans(t *testing.T) {
	const mine, theirs = parent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	var got []observe.Call
	observer := &observe.Observer{
		Traces: true,
		Start: func(ctx context.Context, c *observe.Call) context.Context {
			got = append(got, *c)
			if !c.Outgoing && c.Method == "replaced" {
				c.Span = observe.Span{Trace: [16]byte{1}, ID: [8]byte{2}, Local: true}
			}
			return ctx
		},
	}
	outer := farcall.NewClient(
		answering{farcall.NewResponder(
			farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				return nil, nil
			}), nil)},
		nil, &farcall.Options{Observer: observer})
	r := farcall.NewResponder(
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			return nil, outer.Call(ctx, "inner", nil, nil)
		}), &farcall.Options{Observer: observer})
	header := farcall.WithTraceHeader(t.Context(), map[string][]string{"Traceparent": {theirs}})
	const none = "00000000000000000000000000000000"
	for _, v := range []struct {
		ctx                           context.Context
		message, want, linked, within string
	}{
		{t.Context(), `"method":"x"`, none, none, none},
		{t.Context(), `"method":"x","traceparent":"` + mine + `"`, mine[3:35], none, mine[3:35]},
		{
			t.Context(), `"method":"x","params":{"_meta":{"traceparent":"\u0030` + mine[1:] + `"}}`,
			mine[3:35], none, mine[3:35],
		},
		{header, `"method":"x"`, theirs[3:35], none, theirs[3:35]},
		{header, `"method":"x","traceparent":"` + mine + `"`, mine[3:35], theirs[3:35], mine[3:35]},
		{header, `"method":"x","traceparent":"` + theirs + `"`, theirs[3:35], none, theirs[3:35]},
		{header, `"method":"x","traceparent":"bad"`, theirs[3:35], none, theirs[3:35]},
		{
			t.Context(), `"method":"replaced","traceparent":"` + mine + `"`, mine[3:35], none,
			"01000000000000000000000000000000",
		},
	} {
		got = nil
		r.Respond(v.ctx, nil, []byte(`{"jsonrpc":"2.0","id":1,`+v.message+`}`), nil)
		if len(got) != 2 {
			t.Fatalf("%s: %d calls", v.message, len(got))
		}
		if is := fmt.Sprintf("%x %x %x", got[0].Caller.Trace, got[0].Linked.Trace,
			got[1].Caller.Trace); is != v.want+" "+v.linked+" "+v.within {
			t.Errorf("%s: got %s", v.message, is)
		}
		if got[0].Caller.Sampled != (v.want == mine[3:35]) {
			t.Errorf("%s: sampled is %v", v.message, got[0].Caller.Sampled)
		}
	}
	count := func(o *observe.Observer) float64 {
		r := farcall.NewResponder(
			farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				return nil, nil
			}), &farcall.Options{Observer: o})
		frame, out := []byte(`{"jsonrpc":"2.0","method":"ok","params":{"_meta":{"traceparent":"`+mine+
			`"}},"id":1}`), make([]byte, 0, 1024)
		return testing.AllocsPerRun(200, func() { r.Respond(header, out, frame, nil) })
	}
	if without, with := count(&observe.Observer{}),
		count(&observe.Observer{Traces: true}); with > without && !race.Enabled {
		t.Errorf("%v allocations with the spans, %v without", with, without)
	}
}

// A tracestate belongs to its traceparent: what stands in the _meta of a forwarded request goes
// with it.
func TestStateOfAnother(t *testing.T) {
	t.Parallel()
	var sent string
	c := farcall.NewClient(
		answering{farcall.NewResponder(
			farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
				sent = string(r.Params)
				return nil, nil
			}), nil)}, nil,
		&farcall.Options{
			Dialect: farcall.Dialect{
				CancelMethod: "c", CancelID: "id", ProgressMethod: "p",
				ProgressToken: "progressToken", Meta: "_meta",
			},
		})
	ctx := farcall.WithTrace(t.Context(), farcall.Trace{Parent: parent})
	if err := c.Call(ctx, "x",
		jsonrpc.Raw(`{"_meta":{"traceparent":"old","tracestate":"a=b","baggage":"k=v"}}`),
		nil); err != nil {
		t.Fatal(err)
	}
	if want := `{"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
		`"baggage":"k=v"}}`; sent != want {
		t.Errorf("got %s\nwant %s", sent, want)
	}
}
