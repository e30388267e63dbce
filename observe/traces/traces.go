// Package traces makes spans of OpenTelemetry of what an [observe.Observer] sees.
//
//	t, err := traces.FromEnvironment(ctx, nil)
//	rpc.ListenAndServe(ctx, handler, &rpc.ServeOptions{RPC: &farcall.Options{Observer: t.Observer()}})
//	defer t.Shutdown(ctx)
//
// Each call that arrives has a span of the kind server, each that is sent one of the kind client; a
// call that a gateway makes again has one for each attempt. The caller's span is the parent: what
// the message says, or else the headers of its HTTP request; when both say something, the headers
// are a link. What is sent carries the span of the call in place of what the caller has sent, so
// that a gateway's span is the parent of that of its server.
//
// Spans have the names and attributes of OpenTelemetry's conventions for MCP and RPC. No name of a
// span is chosen by the other end: methods, tools and prompts that this end does not know are
// _OTHER, or left out. Arguments and results are in no span, unless [Tracer.Payloads] says so.
package traces

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// Options adjust a Tracer. The zero value of each but Spans means its default.
type Options struct {
	// Spans gets each span that is recorded, when it has ended: sdk.NewBatchSpanProcessor, or one for
	// a test. It must not block.
	Spans sdk.SpanProcessor
	// Resource says who makes the spans.
	Resource *resource.Resource
	// Ratio is the part of the traces that is recorded, of those which begin here, from 0 to 1.
	// Default 1; a value below 0: none.
	Ratio float64
	// Apart decides by Ratio alone. Otherwise what the caller has decided counts for its calls.
	Apart bool
	// Slow keeps calls that are not sampled and take longer. Default: none.
	Slow time.Duration
	// Keep is how many calls are kept in a second of those that are not sampled, and that fail, are
	// refused or are slow. Their spans have the attribute farcall.unsampled. Default 10; a value below
	// 0: none.
	Keep int
}

// A Tracer makes spans. Its methods may be called concurrently. A nil *Tracer makes none.
type Tracer struct {
	opts  Options
	bound uint64                                     // of the trace ids that are recorded
	link  atomic.Pointer[func(context.Context) bool] // nil: see Set
	slow  atomic.Int64                               // Options.Slow
	kept  budget

	payloads atomic.Pointer[func(jsonrpc.Raw) []byte]
}

// New returns a tracer.
func New(o *Options) *Tracer {
	t := &Tracer{opts: *o}
	if t.opts.Ratio == 0 {
		t.opts.Ratio = 1
	}
	if t.opts.Keep == 0 {
		t.opts.Keep = 10
	}
	if t.opts.Resource == nil {
		t.opts.Resource = resource.Default()
	}
	t.bound = uint64(math.Min(math.Max(t.opts.Ratio, 0), 1) * (1 << 63))
	t.kept.most = max(t.opts.Keep, 0)
	t.slow.Store(int64(t.opts.Slow))
	return t
}

// Set changes what may change while the tracer is in use. Where link is true for the context of a
// call that arrives, the tracer begins a trace with a link to the caller's span, and decides by
// Ratio whether to record it: for untrusted callers. Nil: it is true for none. slow is
// Options.Slow.
func (t *Tracer) Set(link func(context.Context) bool, slow time.Duration) {
	switch {
	case t == nil:
		return
	case link == nil:
		t.link.Store(nil)
	default:
		t.link.Store(&link)
	}
	t.slow.Store(int64(slow))
}

// links reports whether the span of who makes a call is a link, and not the parent.
func (t *Tracer) links(ctx context.Context, c *observe.Call) bool {
	link := t.link.Load()
	return link != nil && !c.Outgoing && (*link)(ctx)
}

// Payloads adds the arguments and results of calls that arrive to their spans, as redact returns
// them, which is called concurrently. Nil, as at first: they are in no span.
func (t *Tracer) Payloads(redact func(jsonrpc.Raw) []byte) {
	switch {
	case t == nil:
	case redact == nil:
		t.payloads.Store(nil)
	default:
		t.payloads.Store(&redact)
	}
}

// Observer returns the observer that makes spans, nil for a nil Tracer. It sets
// [observe.Call.Span].
func (t *Tracer) Observer() *observe.Observer {
	if t == nil {
		return nil
	}
	return &observe.Observer{
		Start: t.start, End: t.end, Sent: t.sent, Refuse: t.refuse,
		Close: t.close, Traces: true,
	}
}

// Shutdown hands over the spans that have ended. The context bounds how long that takes.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.opts.Spans.Shutdown(ctx)
}

func (t *Tracer) start(ctx context.Context, c *observe.Call) context.Context {
	theirs := t.callerOf(ctx, c) // what the calls of a handler carry when nothing is done
	caller := theirs
	if t.links(ctx, c) {
		caller = new(observe.Span)
	}
	if caller == theirs && caller.IsSet() && !caller.Sampled && (!c.Outgoing || !caller.Local) &&
		!t.samples(caller, caller) {
		c.Span = *caller // it is passed on as it is
		return ctx
	}
	switch t.newSpan(&c.Span, caller); {
	case c.Span.Sampled:
		return t.begin(ctx, c, caller, theirs)
	case !c.Outgoing && !theirs.IsSet():
		return ctx // the calls of its handler say so: there, it is the caller
	}
	return farcall.WithTrace(ctx,
		farcall.Trace{Parent: c.Span.Parent(), Baggage: farcall.TraceFrom(ctx).Baggage})
}

// callerOf returns the span that makes the call; zero: it begins a trace. That of OpenTelemetry in
// the context counts where a handler or a program may have made one.
func (t *Tracer) callerOf(ctx context.Context, c *observe.Call) *observe.Span {
	if c.Outgoing || !c.Caller.IsSet() {
		if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
			return &observe.Span{
				Trace: sc.TraceID(), ID: sc.SpanID(), Sampled: sc.IsSampled(),
				Local: !sc.IsRemote(),
			}
		}
	}
	return &c.Caller
}

// newSpan makes s a new span of a caller. It is sampled when it is recorded.
func (t *Tracer) newSpan(s, caller *observe.Span) {
	within(s, caller)
	if s.Sampled = t.samples(caller, s); s.Sampled && !caller.IsSet() {
		unique(s)
	}
}

// samples reports whether a span is recorded that a caller has, or that begins a trace.
func (t *Tracer) samples(caller, span *observe.Span) bool {
	if caller.IsSet() && (caller.Local || !t.opts.Apart) {
		return caller.Sampled
	}
	return low(span.Trace)>>1 < t.bound // as other tracers with that ratio do
}

// begin begins a span that is recorded, and returns the context that carries it.
func (t *Tracer) begin(
	ctx context.Context, c *observe.Call, caller, theirs *observe.Span,
) context.Context {
	sent := farcall.TraceFrom(ctx)
	x := t.under(ctx, c, theirs)
	x.Context, x.tracer, x.call = callctx.Over(ctx, x), t, c
	c.Events = x
	if sent.Parent = c.Span.Parent(); !caller.IsSet() {
		sent.State = ""
	}
	if sent.State != "" {
		x.state, _ = trace.ParseTraceState(sent.State)
	}
	ctx = farcall.WithTrace(ctx, sent)
	x.with = trace.ContextWithSpanContext(ctx, x.of(&c.Span, false))
	return x
}

// under returns what is above the span of a call: its caller, and what else has sent it as a link.
// See Set.
func (t *Tracer) under(ctx context.Context, c *observe.Call, caller *observe.Span) *spanContext {
	if t.links(ctx, c) {
		return &spanContext{link: *caller}
	}
	return &spanContext{caller: *caller, link: c.Linked}
}

// spanContext is the context of a call with a recorded span, and what the span has that the call
// has not.
type spanContext struct {
	callctx.Context // over the one of Start

	with   context.Context //nolint:containedctx // the same, with what calls in it carry
	caller observe.Span
	link   observe.Span // zero: none
	state  trace.TraceState

	stream
}

type spanKey struct{}

// ContextValue implements callctx.Values.
func (x *spanContext) ContextValue(key any) (any, bool) {
	if _, ok := key.(spanKey); ok {
		return x, true
	}
	return x.with.Value(key), true
}

// of returns a span of the trace in the words of OpenTelemetry.
func (x *spanContext) of(s *observe.Span, remote bool) trace.SpanContext {
	if !s.IsSet() {
		return trace.SpanContext{}
	}
	var flags trace.TraceFlags
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: s.Trace, SpanID: s.ID, TraceFlags: flags.WithSampled(s.Sampled), TraceState: x.state,
		Remote: remote,
	})
}

func (t *Tracer) end(ctx context.Context, c *observe.Call) {
	if c.Span.Sampled {
		if x, _ := ctx.Value(spanKey{}).(*spanContext); x != nil {
			x.end()
		}
		return
	}
	if (c.Code != 0 || c.ToolError || t.late(c.Took)) && t.keeps() {
		t.keep(ctx, c, false)
	}
}

// close records the start of a child, with the call it was started for above it.
func (t *Tracer) close(l observe.Lifetime) {
	if l.Kind != observe.Child {
		return
	}
	id, x, now := new(observe.Span), new(spanContext), time.Now()
	if t.newSpan(id, &l.Caller); !id.Sampled {
		return
	}
	t.opts.Spans.OnEnd(&span{
		name: "child start", id: x.of(id, false), parent: x.of(&l.Caller, false),
		kind: trace.SpanKindInternal, start: now.Add(-l.Took), end: now, resource: t.opts.Resource,
		attributes: []attribute.KeyValue{attrUpstream.String(l.Upstream)},
	})
}

// late reports whether a call that took so long is slow.
func (t *Tracer) late(took time.Duration) bool {
	slow := time.Duration(t.slow.Load())
	return slow > 0 && took > slow
}

func (t *Tracer) refuse(ctx context.Context, c *observe.Call) {
	caller := t.callerOf(ctx, c)
	x := t.under(ctx, c, caller)
	if t.newSpan(&c.Span, &x.caller); c.Span.Sampled {
		s := t.record(c, x)
		s.attributes = append(s.attributes, attrRefused.Bool(true))
		t.opts.Spans.OnEnd(s)
	} else if t.keeps() {
		t.keep(ctx, c, true)
	}
}

// keeps reports whether a call may be kept that is not sampled. With a ratio of 0 nothing is
// recorded.
func (t *Tracer) keeps() bool {
	return (t.bound > 0 || !t.opts.Apart) && t.kept.take(time.Now())
}

// keep records a call that is not sampled: its id is the one that it has sent, if it has sent any.
func (t *Tracer) keep(ctx context.Context, c *observe.Call, refused bool) {
	x := t.under(ctx, c, &c.Caller)
	before := c.Span
	if !before.Local {
		within(&c.Span, &before)
	}
	c.Span.Sampled = true // or no exporter takes it
	s := t.record(c, x)
	c.Span = before
	if s.attributes = append(s.attributes, attrUnsampled.Bool(true)); refused {
		s.attributes = append(s.attributes, attrRefused.Bool(true))
	}
	t.opts.Spans.OnEnd(s)
}
