// Package observe is the seam between what farcall does and what watches it: logs, metrics,
// traces, a capture of frames.
//
// An [Observer] is a struct of functions; each may be nil, so that an observer has only those that
// it needs and new ones break none. A program sets farcall.Options.Observer, and [Join] makes one
// observer of several:
//
//	o := &farcall.Options{Observer: observe.Join(counts, logs)}
//
// A call is one [Call] from its Start to its End. Each layer that handles the call writes into it
// what only that layer has: the peer its size and outcome, package mcp the tool and the revision.
// So one End has all that a log line, a span or a metric needs.
//
// A nil Observer costs one comparison for each call.
package observe

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An Observer is called while something happens, by the goroutine in which it happens. Its
// functions must be safe for concurrent use, must not block and must not panic: the call waits for
// them. A nil function is not called. Do not change an Observer that is in use.
type Observer struct {
	// Start is called when a call begins: before the interceptors and the handler of one that arrived,
	// and before a request of this end is written, for each attempt. The context that it returns,
	// which derives from ctx, is that of the handler, or the one with which the request is sent: a
	// tracer puts its span there, and the trace context to send (see farcall.WithTrace). Return ctx
	// when there is nothing to add.
	Start func(ctx context.Context, c *Call) context.Context
	// Sent is called when the message of a call of this end is about to be written, between Start and
	// End, with the context that Start has returned. BytesOut is set, and Request, which is lent.
	Sent func(ctx context.Context, c *Call)
	// End is called once for each Start, also when the handler panics, with the context that Start has
	// returned, when the answer is known and not written yet. A notification has no answer.
	End func(ctx context.Context, c *Call)
	// Refuse is called in place of Start and End for what reaches no handler: a message that is not
	// valid, and a request beyond a limit. Code says why.
	Refuse func(ctx context.Context, c *Call)
	// Frame is called for each frame, one JSON text, that was read or is about to be written.
	Frame func(f Frame)
	// Bad is called, after Frame if the frame could be read, for a frame or message that is of no
	// use. f.Data is nil if it could not be read. problem is what is wrong: "syntax" (no JSON),
	// "message" (no JSON-RPC), "size", "read" (there was no memory, or it took too long). Of an answer
	// that no call waits for: "late answer" (its call has ended), "duplicate answer" (its call was
	// answered) or "unknown answer" (there was no such call). A connection remembers its last 64 calls
	// without an answer; what answers an older one counts as late.
	Bad func(f Frame, problem string)
	// Open and Close are called when something begins that lasts, and when it ends: see [Kind].
	Open, Close func(l Lifetime)
	// Decide is called when a guard has decided about a call.
	Decide func(d Decision)
	// Messages asks for Call.Request and Call.Response. Without it they may be nil, which saves a copy
	// of each outgoing request and its answer.
	Messages bool
	// Traces asks for Call.Caller and Call.Linked. Without it they may be zero.
	Traces bool
}

// Span is one operation in a trace, as W3C Trace Context has it. The zero value: there is none.
type Span struct {
	Trace [16]byte
	ID    [8]byte
	// Sampled: it is recorded.
	Sampled bool
	// Local: this end has made it. Otherwise it is what a message or a caller has said.
	Local bool
}

// IsSet reports whether there is a span.
func (s *Span) IsSet() bool { return s.Trace != [16]byte{} }

// Parent returns the traceparent that names the span (W3C Trace Context §3.2).
func (s *Span) Parent() string {
	var b [55]byte
	copy(b[:], "00-")
	hex.Encode(b[3:35], s.Trace[:])
	b[35] = '-'
	hex.Encode(b[36:52], s.ID[:])
	copy(b[52:], "-00")
	if s.Sampled {
		b[54] = '1'
	}
	return string(b[:])
}

// SetParent makes the span the one that a traceparent names, which is valid, as those of
// farcall.Trace are. "": the zero Span.
func (s *Span) SetParent(parent string) {
	*s = Span{}
	raw, err := hex.DecodeString(strings.ReplaceAll(parent[:min(len(parent), 55)], "-", ""))
	if err != nil || len(raw) != 26 {
		return
	}
	copy(s.Trace[:], raw[1:17])
	copy(s.ID[:], raw[17:25])
	s.Sampled = raw[25]&1 != 0
}

// Call is one request or notification, in either direction. It is lent: keep nothing of it after
// End but what was copied.
//
// What is set before Start does not change. How it ended is set before End and Refuse. The fields
// between belong to the goroutine of the handler until it returns; each says who sets it. [From]
// finds the Call of a handler.
//
// Only the fields that say so may become labels of metrics. Everything else can be chosen by the
// other end, who could create any number of series.
type Call struct {
	// Outgoing: this end makes the call.
	Outgoing bool
	// Notification: no answer is wanted. Batch: it is an element of a batch.
	Notification, Batch bool
	// Transport and Conn are those of farcall.Options. Transport may be a label.
	Transport, Conn string
	// ID is the id of the request, absent for a notification. Its bytes are lent, too.
	ID jsonrpc.ID
	// Method is the method as the message has it. It may be a label if Known.
	Method string
	// Began is when it began.
	Began time.Time
	// Caller is the span that made the call: of one that arrived, what its message or else the headers
	// of its HTTP request say, which may be false; of an outgoing one, what its context has. Linked is
	// what the headers say, when the message says something else.
	Caller, Linked Span
	// Span is that of the call. A tracer sets it in Start.
	Span Span
	// Number is that of the call in a capture, which sets it in Start.
	Number uint64

	// Known: Method is a method of a Mux, or one that MCP defines.
	Known bool
	// MCP: the call is one of the Model Context Protocol, not of plain JSON-RPC.
	MCP bool
	// Tool and Prompt are the name of what is called, as the server or gateway offers it: "" where it
	// offers none of that name. They may be labels.
	Tool, Prompt string
	// Revision is that of MCP which the other end speaks. It may be a label.
	Revision string
	// ClientName and ClientVersion are what the client says of itself, any text. Session names the
	// session of MCP within this process, and is not the id that lets others into it.
	ClientName, ClientVersion, Session string
	// Upstream is, in a gateway, the name of the server that the call is for. It may be a label.
	Upstream string
	// Principal is the name of who calls, for people, and Decision the outcome of what the guard has
	// decided, as in Decision.Outcome. "": there is no guard.
	Principal, Decision string
	// Queued is how long the call has waited for a connection to the server of a gateway, and Attempts
	// how often it was made there, 0 when that is not known.
	Queued   time.Duration
	Attempts int
	// Before is, of a call of several rounds, the span of the round before.
	Before Span
	// Events gets what happens during the call: see Event. A tracer sets it in Start.
	Events interface{ Event(name string) }
	// UpstreamRevision is, in a gateway, that of MCP which the server speaks, when the call has
	// reached it. It may be a label.
	UpstreamRevision string

	// The rest is how it ended.

	// Code is that of the error which was answered. 0: the call succeeded.
	Code jsonrpc.Code
	// ToolError: the result is that of a tool and says that it failed (isError).
	ToolError bool
	// Err is what was answered, with its private cause, or why there is no answer. It must not go to
	// the other end.
	Err error
	// Took is the time from Began to the answer.
	Took time.Duration
	// BytesIn and BytesOut are the sizes of the messages. That of a request which arrived is known in
	// Start already.
	BytesIn, BytesOut int
	// Request and Response are the messages, if Observer.Messages asks for them. Nil: there was none.
	// A request that arrived is in Request from Start on, whether asked for or not.
	Request, Response jsonrpc.Raw
}

// Event notes a value or notification on the stream of a call, by a name that the other end does
// not choose.
func (c *Call) Event(name string) {
	if c != nil && c.Events != nil {
		c.Events.Event(name)
	}
}

// Frame is one JSON text on a transport: a message or a batch. It has as many words as fit into
// registers.
type Frame struct {
	Transport, Conn string // as in Call
	Out             bool   // it is written
	Data            []byte // the frame, which is lent
}

// Kind says what a [Lifetime] is of.
type Kind string

// What lasts.
const (
	Connection Kind = "connection" // one transport link
	Session    Kind = "session"    // of MCP, from initialize on
	// Queue is how long a call of a gateway waits for a connection to a server. There is no Open.
	Queue Kind = "queue"
	// Restart is a process of a gateway's server that was started again. There is no Close.
	Restart Kind = "restart"
	Stream  Kind = "stream" // an event stream of HTTP
	// Suspension is how long a call in a gateway waits, without a request of its client, for what the
	// client answers to a question.
	Suspension Kind = "suspension"
	// Child is the start of a child process of a gateway, until it has answered. There is no Open.
	Child Kind = "child"
)

// Lifetime is something that lasts, when it begins and when it ends. Each field but Caller may be a
// label.
type Lifetime struct {
	Kind      Kind
	Outgoing  bool   // a session that this end has begun
	Transport string // as in Call
	Revision  string // of a session
	Upstream  string // of a queue, a suspension, a child or a restart
	Caller    Span   // that of the call a child is started for, as in Call; zero: for none
	// Took is, in Close, how long a session, a queue, a suspension, a stream or a start has lasted.
	Took time.Duration
}

// Begin calls Open and returns what calls Close, which is to be called once. A nil Observer, and
// one that has neither, returns nil.
func (o *Observer) Begin(l Lifetime) (end func()) {
	if o == nil || o.Open == nil && o.Close == nil {
		return nil
	}
	if o.Open != nil {
		o.Open(l)
	}
	if o.Close == nil {
		return func() {}
	}
	began := time.Now()
	return func() {
		l.Took = time.Since(began)
		o.Close(l)
	}
}

// Decision is what a guard has decided about a call, before it proceeds or is refused. Each field
// may be a label.
type Decision struct {
	// Outcome is as in the audit: "allowed", "denied", "limited", "would deny" or "would limit".
	Outcome string
	// Policy is the name of the first rule, or the id of the first Cedar policy, that decided. "":
	// none did.
	Policy string
	// Took is how long the decision took.
	Took time.Duration
}

// Reading is the value of something that is measured when it is read. Name is that of its metric,
// as the table of package observe/metrics has it; Upstream is the value of its label upstream, and
// State that of the other one, if it has those.
type Reading struct {
	Name, Upstream, State string
	Value                 float64
}

// From returns the call that the handler with the context serves, or nil when it is not observed.
// Its fields may be set until the handler returns, by the goroutine of the handler.
func From(ctx context.Context) *Call {
	c, _ := ctx.Value(callctx.Observed{}).(*Call)
	return c
}
