package traces

import (
	"context"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

const (
	// longest is how long a span of a stream lasts at most, from one event to another.
	longest = time.Minute
	// maxEvents is the default of OpenTelemetry's SDKs.
	maxEvents = 128
)

// stream is what a recorded call has sent on its stream. A call that streams for long has several
// spans, so that what it does is seen before it ends: that of the call, up to its last event within
// a minute, and one below that for the events of each further minute which has any. The span of a
// subscriptions/listen ends when the subscription stands: with its first event, or, at the client,
// with its message.
type stream struct {
	tracer *Tracer
	call   *observe.Call // lent: until End

	parts  int         // spans that were recorded
	events []sdk.Event // of the next one
	left   int         // events that it does not have
}

// Event implements observe.Call.Events.
func (x *spanContext) Event(name string) {
	now := time.Now()
	if now.Sub(x.from(now)) > longest {
		x.cut(now)
	}
	if len(x.events) == maxEvents {
		x.left++
	} else {
		x.events = append(x.events, sdk.Event{Name: name, Time: now})
	}
	if x.parts == 0 && x.call.Method == spec.MethodSubscriptionsListen {
		x.cut(now)
	}
}

// from returns when the next span begins: with the call, or else with its first event. end is when
// the span ends, which has none.
func (x *spanContext) from(end time.Time) time.Time {
	switch {
	case x.parts == 0:
		return x.call.Began
	case len(x.events) > 0:
		return x.events[0].Time
	}
	return end
}

// cut records what the call has done so far, up to its last event. Without one it ends at end.
func (x *spanContext) cut(end time.Time) {
	c, from := *x.call, x
	if n := len(x.events); n > 0 {
		end = x.events[n-1].Time
	}
	c.Began = x.from(end)
	c.Took = end.Sub(c.Began)
	if x.parts > 0 {
		within(&c.Span, &x.call.Span)
		c.Before = observe.Span{}
		from = &spanContext{caller: x.call.Span, state: x.state, stream: x.stream}
	}
	x.tracer.opts.Spans.OnEnd(x.tracer.record(&c, from))
	x.parts, x.events, x.left = x.parts+1, nil, 0
}

// end records what is left of a call that has ended.
func (x *spanContext) end() {
	c := x.call
	switch failed := c.ToolError || c.Code != 0 && c.Code != jsonrpc.Cancelled; {
	case x.parts == 0:
		x.tracer.opts.Spans.OnEnd(x.tracer.record(c, x))
	case failed || len(x.events) > 0:
		x.cut(c.Began.Add(c.Took))
	}
}

// sent records the subscription of a client.
func (t *Tracer) sent(ctx context.Context, c *observe.Call) {
	if c.Span.Sampled && c.Method == spec.MethodSubscriptionsListen {
		if x, _ := ctx.Value(spanKey{}).(*spanContext); x != nil && x.call == c {
			x.cut(time.Now())
		}
	}
}
