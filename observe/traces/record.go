package traces

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/internal/words"
)

// span is one that has ended. All that it has is known then, from one call: so there is no span of
// the SDK, which is made for what becomes known bit by bit, and costs several times as much.
type span struct {
	sdk.ReadOnlySpan // nil: for methods that only the SDK may implement

	name       string
	id, parent trace.SpanContext
	kind       trace.SpanKind
	start, end time.Time
	attributes []attribute.KeyValue
	links      []sdk.Link
	events     []sdk.Event
	left       int // events that it does not have
	status     sdk.Status
	resource   *resource.Resource
}

// scope is that of all spans.
func scope() instrumentation.Scope {
	return instrumentation.Scope{Name: "github.com/farcall-dev/farcall/observe/traces"}
}

// The methods of sdk.ReadOnlySpan.

func (s *span) Name() string                                  { return s.name }
func (s *span) SpanContext() trace.SpanContext                { return s.id }
func (s *span) Parent() trace.SpanContext                     { return s.parent }
func (s *span) SpanKind() trace.SpanKind                      { return s.kind }
func (s *span) StartTime() time.Time                          { return s.start }
func (s *span) EndTime() time.Time                            { return s.end }
func (s *span) Attributes() []attribute.KeyValue              { return s.attributes }
func (s *span) Links() []sdk.Link                             { return s.links }
func (s *span) Events() []sdk.Event                           { return s.events }
func (s *span) Status() sdk.Status                            { return s.status }
func (s *span) InstrumentationScope() instrumentation.Scope   { return scope() }
func (s *span) InstrumentationLibrary() instrumentation.Scope { return scope() }
func (s *span) Resource() *resource.Resource                  { return s.resource }
func (s *span) DroppedAttributes() int                        { return 0 }
func (s *span) DroppedLinks() int                             { return 0 }
func (s *span) DroppedEvents() int                            { return s.left }
func (s *span) ChildSpanCount() int                           { return 0 }

// record makes the span of a call that has ended.
func (t *Tracer) record(c *observe.Call, x *spanContext) *span {
	s := &span{
		name: nameOf(c), id: x.of(&c.Span, false), parent: x.of(&x.caller, !x.caller.Local),
		kind:  trace.SpanKindServer,
		start: c.Began, end: c.Began.Add(c.Took), resource: t.opts.Resource,
		attributes: attributes(c, make([]attribute.KeyValue, 0, maxAttributes)),
	}
	if c.Outgoing {
		s.kind = trace.SpanKindClient
	}
	for _, other := range [...]*observe.Span{&x.link, &c.Before} {
		if other.IsSet() {
			s.links = append(s.links, sdk.Link{SpanContext: new(spanContext).of(other, true)})
		}
	}
	s.events, s.left = x.events, x.left
	if redact := t.payloads.Load(); redact != nil && !c.Outgoing {
		s.addPayloads(c, *redact)
	}
	switch {
	case c.Code != 0:
		s.status = sdk.Status{Code: codes.Error, Description: described(c)}
	case c.ToolError:
		s.status = sdk.Status{Code: codes.Error, Description: "the tool failed"}
	}
	return s
}

// addPayloads adds the arguments and the result of a call, up to 8 KiB of each. redact gets all
// params: patterns of secrets begin there.
func (s *span) addPayloads(c *observe.Call, redact func(jsonrpc.Raw) []byte) {
	add := func(key attribute.Key, of jsonrpc.Raw, name, inner string) {
		raw := scan.Member(of, name)
		if raw == nil {
			return
		}
		if raw = redact(raw); inner != "" {
			raw = scan.Member(raw, inner)
		}
		if raw != nil {
			s.attributes = append(s.attributes, key.String(text(string(raw), maxPayload)))
		}
	}
	inner := ""
	if c.MCP && c.Method == spec.MethodToolsCall {
		inner = "arguments"
	}
	add(attrArguments, c.Request, "params", inner)
	add(attrResult, c.Response, "result", "")
}

// nameOf is the method, and the tool or prompt, of those that are known.
func nameOf(c *observe.Call) string {
	method := words.Other
	if c.Known {
		method = c.Method
	}
	if subject := cmp.Or(c.Tool, c.Prompt); subject != "" {
		return method + " " + subject
	}
	return method
}

// attributes appends those of a call. The id, which the call lends, is copied.
func attributes(c *observe.Call, all []attribute.KeyValue) []attribute.KeyValue {
	add := func(key attribute.Key, value string) {
		if value != "" {
			all = append(all, key.String(value))
		}
	}
	method := words.Other
	if c.Known {
		method = c.Method
	}
	if c.MCP {
		add(attrMethod, method)
		add(attrRevision, c.Revision)
		if c.Tool != "" && c.Method == spec.MethodToolsCall {
			add(attrOperation, executeTool)
		}
		add(attrTool, c.Tool)
		add(attrPrompt, c.Prompt)
	} else {
		add(attrSystem, "jsonrpc")
		add(attrRPC, method)
	}
	add(attrNetwork, words.Network(c.Transport))
	add(attrTransport, c.Transport)
	add(attrUpstream, c.Upstream)
	add(attrEra, c.UpstreamRevision)
	add(attrDecision, c.Decision)
	if c.Queued > 0 {
		all = append(all, attrQueued.Int64(c.Queued.Milliseconds()))
	}
	if c.Attempts > 1 {
		all = append(all, attrAttempts.Int(c.Attempts))
	}
	if !c.ID.IsAbsent() && !c.ID.IsNull() {
		add(attrRequest, text(strings.Trim(string(c.ID.Raw()), `"`), maxRequestText))
	}
	if c.Batch {
		all = append(all, attrBatch.Bool(true))
	}
	switch {
	case c.Code != 0:
		code := strconv.Itoa(int(c.Code))
		add(attrError, code)
		add(attrStatus, code)
	case c.ToolError:
		add(attrError, words.ToolError)
	}
	return append(all, attrBytesIn.Int(c.BytesIn), attrBytesOut.Int(c.BytesOut))
}

// described is the message of the error that a call has failed with, as its caller has it. What is
// private of an error of this end is in the log alone.
func described(c *observe.Call) string {
	if wire, ok := c.Err.(*jsonrpc.Error); ok { //nolint:errorlint // what stands around it may be private
		return text(audit.MaskText(wire.Message), maxStatusText)
	}
	return ""
}

// text is valid UTF-8, as the protocol of OpenTelemetry demands, of at most that many bytes.
func text(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
