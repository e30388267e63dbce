package conform

import (
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"fmt"
	"io"
	"strconv"
	"time"
)

// Transports, as a Report names them.
const (
	Lines     = "lines"     // a byte stream, a message a line
	Headers   = "headers"   // a byte stream with Content-Length headers
	WebSocket = "websocket" // a text message each
	Messages  = "messages"  // a frame each over a transport of the caller's
	HTTP      = "http"      // a POST each
)

// A Dialer reaches the server under test, as often as it closes the connection.
type Dialer struct {
	kind string
	wire func() wire
	mcp  func() mcpLink // nil: MCP is not spoken so
}

// NewLines probes newline-delimited JSON over what dial opens.
func NewLines(dial func(context.Context) (io.ReadWriteCloser, error)) Dialer {
	lines := func(ctx context.Context) (link, error) { return dialLines(ctx, dial) }
	return Dialer{
		kind: Lines, wire: func() wire { return &streamWire{dial: lines} },
		mcp: func() mcpLink { return &mcpStream{dial: lines} },
	}
}

// NewHeaders probes Content-Length framing over what dial opens.
func NewHeaders(dial func(context.Context) (io.ReadWriteCloser, error)) Dialer {
	return Dialer{kind: Headers, wire: func() wire {
		return &streamWire{dial: func(ctx context.Context) (link, error) {
			return dialHeaders(ctx, dial)
		}}
	}}
}

// wire sends raw frames and gathers what they cause.
type wire interface {
	// open reaches the server for the first time.
	open(ctx context.Context, timeout time.Duration) error
	// useSentinel tries the request that is to show that the server is alive.
	useSentinel(ctx context.Context, method string, quoted bool, timeout time.Duration) error
	// probe sends the frames of a case and returns when all that they can
	// cause has come.
	probe(ctx context.Context, c *Case, timeout time.Duration) evidence
	close()
}

// evidence is what came back.
type evidence struct {
	frames      []string
	status      int    // HTTP
	contentType string // HTTP, with a body
	closed      bool   // the server closed the connection
	err         string // what else went wrong
}

// lines is the evidence as it is printed.
func (ev *evidence) lines() []string {
	var out []string
	if ev.status != 0 {
		out = append(out, fmt.Sprintf("HTTP %d %s", ev.status, ev.contentType))
	}
	for _, f := range ev.frames {
		out = append(out, printable(f))
	}
	if ev.closed {
		out = append(out, "(connection closed)")
	}
	return out
}

// sentinel is the ordinary request with an answer that shows that the server has read
// everything before it.
func sentinel(method, id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"id":%s}`, method, id)
}

// sentinels makes sentinel requests, each with its own id.
type sentinels struct {
	method string
	quoted bool
	n      int
}

func (s *sentinels) next() (request, id string) {
	s.n++
	id = strconv.Itoa(1_000_000 + s.n)
	if s.quoted {
		id = `"farcall-` + id + `"`
	}
	return sentinel(s.method, id), id
}

// answersID reports whether frame answers the request with this id.
func answersID(frame, id string) bool {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
	}
	return json.Unmarshal([]byte(frame), &m) == nil && m.Method == nil && sameValue(string(m.ID), id)
}

// count tells how many answers a frame has. What cannot be read counts as one.
func count(frame string) int {
	answers, _, err := parseAnswers(frame)
	if err != nil {
		return 1
	}
	return len(answers)
}

// link is one connection that carries frames both ways.
type link interface {
	// send writes frames as the case wants them written.
	send(ctx context.Context, how writing, frames ...string) error
	// frames closes when the connection has ended.
	frames() <-chan string
	close()
}

// streamWire probes over a connection that stays open.
type streamWire struct {
	dial func(context.Context) (link, error)
	link link // nil: to be opened
	sentinels
}

func (w *streamWire) open(ctx context.Context, timeout time.Duration) error {
	if w.link != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l, err := w.dial(ctx)
	if err != nil {
		return err
	}
	w.link = l
	return nil
}

func (w *streamWire) close() {
	if w.link != nil {
		w.link.close()
		w.link = nil
	}
}

func (w *streamWire) useSentinel(
	ctx context.Context, method string, quoted bool, timeout time.Duration,
) error {
	w.method, w.quoted = method, quoted
	ev := w.probe(ctx, &Case{}, timeout)
	switch {
	case ev.err != "":
		return fmt.Errorf("%s (received: %v)", ev.err, ev.lines())
	case ev.closed:
		return fmt.Errorf("the server closed the connection (received: %v)", ev.lines())
	}
	return nil
}

// How long a server that answers in order is given before the sentinel is sent,
// how long one that does not is given after it has answered two of them, and how
// long to listen for what must not be answered, after two were.
const (
	quiet = 100 * time.Millisecond
	grace = time.Second
	late  = 30 * time.Millisecond
)

func (w *streamWire) probe(ctx context.Context, c *Case, timeout time.Duration) (ev evidence) {
	if err := w.open(ctx, timeout); err != nil {
		ev.err = "cannot connect again: " + err.Error()
		return ev
	}
	defer func() {
		if ev.closed || ev.err != "" {
			w.close()
		}
	}()
	wanted := len(c.want)
	if !w.sendCase(ctx, c, &ev, timeout) {
		ev.closed = true // what it said before closing may still be there
		w.collect(ctx, &ev, wanted, "", grace)
		return ev
	}
	if wanted > 0 {
		w.collect(ctx, &ev, wanted, "", quiet)
	}
	if ev.closed {
		return ev
	}
	rounds := 1
	if wanted == 0 || ev.count() < wanted {
		rounds = 2 // what is handled concurrently may be overtaken once
	}
	for range rounds {
		request, id := w.next()
		if err := w.send(ctx, timeout, apart, request); err != nil {
			ev.closed = true
			w.collect(ctx, &ev, wanted, "", grace)
			return ev
		}
		if !w.collect(ctx, &ev, 0, id, timeout) {
			if !ev.closed {
				ev.err = fmt.Sprintf("an ordinary request sent afterwards is not answered within %v", timeout)
			}
			return ev
		}
	}
	switch {
	case ev.count() < wanted:
		w.collect(ctx, &ev, wanted, "", min(grace, timeout))
	case wanted == 0:
		w.collect(ctx, &ev, 1, "", late)
	}
	return ev
}

// sendCase sends the frames of a case. It reports false when the connection is
// broken.
func (w *streamWire) sendCase(
	ctx context.Context, c *Case, ev *evidence, timeout time.Duration,
) bool {
	if c.write != inTurn {
		return len(c.sends) == 0 || w.send(ctx, timeout, c.write, c.sends...) == nil
	}
	for i, s := range c.sends {
		if w.send(ctx, timeout, apart, s) != nil {
			return false
		}
		w.collect(ctx, ev, i+1, "", quiet)
	}
	return true
}

func (w *streamWire) send(
	ctx context.Context, timeout time.Duration, how writing, frames ...string,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, w.link.close) // a server that does not read must not hang the run
	defer stop()
	return w.link.send(ctx, how, frames...)
}

func (ev *evidence) count() int {
	n := 0
	for _, f := range ev.frames {
		n += count(f)
	}
	return n
}

// collect gathers frames until there are enough answers, or the one with this
// id has come, which is left out. It reports whether that happened in time.
func (w *streamWire) collect(
	ctx context.Context, ev *evidence, enough int, id string, limit time.Duration,
) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for enough == 0 || ev.count() < enough {
		select {
		case f, ok := <-w.link.frames():
			switch {
			case !ok:
				ev.closed = true
				return false
			case id != "" && answersID(f, id):
				return true
			}
			if n := count(f); n > 0 { // otherwise a request or notification of the server's own
				ev.frames = append(ev.frames, f)
			}
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}
