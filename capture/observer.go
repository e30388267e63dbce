package capture

import (
	"cmp"
	"context"
	"time"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/observe"
)

// toServer is set in the number of a call on a connection to a server, on which this end is the
// client.
const toServer = 1

// Observer returns an observer that records each message of the calls that it sees: the request
// when it has arrived or is sent, the answer when it is known. So a capture of a gateway has both
// sides of a call, what the client has sent and what the server has got, and the parent of the one
// is the number of the other. A call goes to a server if its [observe.Call].Upstream is set before
// Start; in all others this end is the server. A batch is recorded as its messages.
func (r *Recorder) Observer() *observe.Observer {
	return &observe.Observer{
		Start: r.started, Sent: r.sent, End: r.ended, Refuse: r.refused, Bad: r.badFrame,
		Open: r.opened, Messages: !r.o.Envelopes,
	}
}

// started numbers a call, and records one that arrived.
func (r *Recorder) started(ctx context.Context, c *observe.Call) context.Context {
	r.number(c)
	if !c.Outgoing {
		r.request(ctx, c, c.Began)
	}
	return ctx
}

func (r *Recorder) number(c *observe.Call) {
	c.Number = r.calls.Add(1) << 1
	if c.Upstream != "" {
		c.Number |= toServer
	}
}

// sent records a call of this end.
func (r *Recorder) sent(ctx context.Context, c *observe.Call) { r.request(ctx, c, time.Now()) }

func (r *Recorder) request(ctx context.Context, c *observe.Call, at time.Time) {
	e, size := r.entryOf(c), c.BytesIn
	e.kind, e.parent = calledRequest, callctx.Number(ctx)
	if c.Notification {
		e.kind = calledNotification
	}
	if c.Outgoing {
		size = c.BytesOut
	}
	r.frameAt(&e, c.Request, size, at)
}

// ended records the answer to a call, or that there is none.
func (r *Recorder) ended(_ context.Context, c *observe.Call) {
	if c.Notification || c.Outgoing && c.BytesOut == 0 {
		return // there is no answer, or not even a request: it could not be marshalled
	}
	r.answer(c, c.Decision)
}

func (r *Recorder) answer(c *observe.Call, outcome string) {
	e, size := r.entryOf(c), c.BytesOut
	if c.Outgoing {
		size = c.BytesIn
	}
	e.kind, e.up = calledAnswer, !e.up
	if size == 0 {
		e.kind, e.up = calledNoAnswer, !e.up
	}
	e.duration, e.code, e.toolError = int64(max(c.Took, 1)), int(c.Code), c.ToolError
	e.name, e.server = cmp.Or(c.Tool, c.Prompt), c.Upstream
	e.era, e.principal, e.outcome = c.Revision, c.Principal, outcome
	r.frameAt(&e, c.Response, size, c.Began.Add(c.Took)) // it is that time, and needs no clock
}

// refused records a message that has reached no handler, with its answer.
func (r *Recorder) refused(ctx context.Context, c *observe.Call) {
	r.number(c)
	c.Took = time.Since(c.Began)
	if len(c.Request) > 0 {
		r.request(ctx, c, c.Began)
	}
	if c.BytesOut > 0 {
		r.answer(c, outcomeRefused)
	}
}

// entryOf returns what is known of a call from its start on.
func (r *Recorder) entryOf(c *observe.Call) entry {
	e := entry{seen: &seen{
		call: c.Number, transport: c.Transport, label: c.Conn, method: c.Method, id: c.ID.Raw(),
	}}
	if e.up = !c.Outgoing; c.Number&toServer != 0 {
		e.up, e.upstream = c.Outgoing, c.Upstream
	}
	return e
}

// badFrame records a frame that is of no use. Which side it came from is not known: most often it
// is the client's.
func (r *Recorder) badFrame(f observe.Frame, problem string) {
	e := entry{up: !f.Out, seen: &seen{
		bad: true, problem: problem, transport: f.Transport, label: f.Conn,
	}}
	data := f.Data
	if r.o.Envelopes {
		data = nil
	}
	r.frameAt(&e, data, len(f.Data), time.Now())
}

// opened records that a server of a gateway was started again.
func (r *Recorder) opened(l observe.Lifetime) {
	if l.Kind == observe.Restart {
		r.Put(&Record{Type: typeEvent, Upstream: l.Upstream, Why: dumpRestart})
	}
}

// A called says what an entry is that an observer has made.
type called uint8

const (
	calledRequest called = iota + 1
	calledNotification
	calledAnswer
	calledNoAnswer
)

// A refusal is the outcome of what no handler has seen; denied and limited are those of a guard.
const (
	outcomeRefused = "refused"
	outcomeDenied  = "denied"
	outcomeLimited = "limited"
)

// ofCall sets what an observer has said of a call.
func (d *drain) ofCall(rec *Record, q *queued) {
	c := &q.called
	rec.Call, rec.Parent = c.call, c.parent
	rec.Era, rec.Principal = d.shown(c.era), d.shown(c.principal)
	rec.Outcome, rec.Upstream = d.word(c.outcome), d.word(c.server)
	if len(q.upstream) > 0 {
		rec.Upstream = d.word(q.upstream)
	}
	switch c.kind {
	case calledRequest, calledNotification:
		return
	case calledNoAnswer:
		rec.Type = typeCall
	}
	rec.Duration, rec.Code, rec.ToolError = c.duration, c.code, c.toolError
}

// observed sets what a frame would say of itself, as far as an observer knows it.
func (d *drain) observed(rec *Record, q *queued) {
	c := &q.called
	rec.id = c.id
	if d.redact != nil && len(c.id) > 0 && c.id[0] == '"' {
		rec.id, _ = d.redact.mask(c.id)
	}
	switch c.kind {
	case calledRequest:
		rec.Kind = kindRequest
	case calledNotification:
		rec.Kind = kindNotification
	case calledAnswer:
		rec.Kind = kindResponse
		d.answer(rec)
	case calledNoAnswer:
		d.answer(rec)
	}
	if rec.Method == "" {
		rec.Method = d.shown(c.method)
	}
	if rec.Name == "" {
		rec.Name = d.shown(c.name)
	}
}

// shown returns a text of others without its secrets.
func (d *drain) shown(text []byte) string {
	if d.redact == nil || len(text) == 0 {
		return d.word(text)
	}
	if w, ok := d.masked[string(text)]; ok {
		return w
	}
	if len(d.masked) >= maxWords {
		clear(d.masked)
	}
	masked, _ := d.redact.mask(text)
	w := string(masked)
	d.masked[string(text)] = w
	return w
}

// A calledEntry is what an observer adds to an entry.
type calledEntry struct {
	kind         called
	call, parent uint64
	duration     int64
	code         int
	toolError    bool

	id, method, name, server, era, principal, outcome []byte
}

// complete reports whether a frame says no more of itself than an observer does. The name that a
// request is for is in its params.
func (c *calledEntry) complete() bool {
	switch c.kind {
	case calledRequest, calledNotification:
		return nameIn(c.method) == ""
	}
	return c.kind != 0
}
