// Package hook answers one question: what does another program say about a call?
//
// A [Hook] is asked before a call or after it, over HTTP or by running a command. It gets JSON, and
// answers with a decision and, perhaps, with changed arguments or a changed result. Whatever else
// it does is a failure.
package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// MaxAnswer bounds the answer of a hook in bytes.
const MaxAnswer = 4 << 20

// Options describe a hook.
type Options struct {
	// Name is for the log, and for the hook itself.
	Name string
	// After: it is asked about results.
	After bool
	// Command returns a program and its arguments, and Env is its whole environment; nil: the hook is
	// at URL.
	Command func() []string
	Env     []string
	// URL gets a POST with Header, by Client, which must follow no redirect.
	URL    string
	Header http.Header
	Client *http.Client
	// Timeout bounds the wait for a place and the answer together.
	Timeout time.Duration
	// Open lets calls pass when the hook fails.
	Open bool
	// MaxInFlight bounds how many calls it is asked about at once.
	MaxInFlight int
	Logger      *slog.Logger
}

// A Hook is a program that is asked about calls. Its methods are safe for concurrent use.
type Hook struct {
	opts    Options
	failing atomic.Bool

	mu     sync.Mutex
	places *share.Places
	given  chan struct{} // closed when a place becomes free
}

// New returns a hook. Nothing runs before it is asked.
func New(o *Options) *Hook {
	return &Hook{opts: *o, places: share.NewPlaces(0), given: make(chan struct{})}
}

// Name returns the name of the hook.
func (h *Hook) Name() string { return h.opts.Name }

// After reports whether it is asked about results.
func (h *Hook) After() bool { return h.opts.After }

// Failed is what comes of a verdict that does not go with the call.
func (h *Hook) Failed(v Verdict, why string) Verdict {
	v.Outcome, v.Value, v.Err = h.failed(), nil, errors.New(why)
	h.report(&v)
	return v
}

func (h *Hook) failed() Outcome {
	if h.opts.Open {
		return FailedOpen
	}
	return Failed
}

// A Call is what a hook learns of a call.
type Call struct {
	// the owner of the places that it takes; the hook does not learn it
	Owner                             owner.Key
	Upstream, Tool, Revision, Session string
	Method, Kind, Issuer, ID          string // of the principal; without a Method there is none
	TraceParent, TraceState           string
	// the arguments before the call, the result after it; nil: none
	Value jsonrpc.Raw
	// RPC says that Tool is a method of JSON-RPC, and Value its params, its result, or its error.
	RPC, Error bool
}

// A Verdict is what comes of asking a hook.
type Verdict struct {
	Outcome Outcome
	Reason  string      // of a denial, for the caller
	Value   jsonrpc.Raw // of Changed
	Err     error       // why it failed
	Took    time.Duration
}

// An Outcome is a kind of Verdict. Its text is that of the audit.
type Outcome string

// The outcomes. With Allowed, Changed and FailedOpen the call proceeds.
const (
	Allowed    Outcome = "allowed"
	Changed    Outcome = "changed"
	Denied     Outcome = "denied"
	Failed     Outcome = "failed"
	FailedOpen Outcome = "failed open"
	Busy       Outcome = "busy" // there was no place in time
)

// Passes reports whether the call proceeds.
func (o Outcome) Passes() bool { return o == Allowed || o == Changed || o == FailedOpen }

var errBusy = errors.New("too many calls wait for the hook")

// Ask asks the hook about a call. The error is that of the context, when the caller has gone.
//
// A call for which there is no place in time is refused even if the hook is open: else a flood of
// calls would turn it off.
func (h *Hook) Ask(ctx context.Context, c *Call) (Verdict, error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	a, err := h.ask(limited, c)
	v := Verdict{Took: time.Since(began), Err: err}
	switch {
	case err != nil && ctx.Err() != nil:
		return v, ctx.Err()
	case errors.Is(err, errBusy):
		v.Outcome = Busy
	case err != nil:
		v.Outcome = h.failed()
	case a.deny:
		v.Outcome, v.Reason = Denied, a.reason
	case a.value != nil:
		v.Outcome, v.Value = Changed, a.value
	default:
		v.Outcome = Allowed
	}
	h.report(&v)
	return v, nil
}

// report logs when the hook begins to fail, and when it answers again.
func (h *Hook) report(v *Verdict) {
	failed := v.Err != nil
	switch {
	case failed == h.failing.Swap(failed):
	case failed:
		h.opts.Logger.Warn("a hook fails", "hook", h.opts.Name, "outcome", string(v.Outcome),
			"error", v.Err)
	default:
		h.opts.Logger.Info("a hook answers again", "hook", h.opts.Name)
	}
}

func (h *Hook) ask(ctx context.Context, c *Call) (answer, error) {
	place, err := h.take(ctx, c.Owner)
	if err != nil {
		return answer{}, err
	}
	defer h.give(place)
	run := h.request
	if h.opts.Command != nil {
		run = h.run
	}
	b, err := run(ctx, h.input(c))
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answer{}, fmt.Errorf("there was no answer in %v", h.opts.Timeout)
	case err != nil:
		return answer{}, err
	}
	return parse(b, h.member(c), c.RPC)
}

// take waits for a place. Owners share the places: one that takes many leaves room for others. A
// place that is free when the time is over comes too late: the hook was not asked, and has not
// failed.
func (h *Hook) take(ctx context.Context, o owner.Key) (*share.Holder, error) {
	for {
		if ctx.Err() != nil {
			return nil, errBusy
		}
		h.mu.Lock()
		place, denied := h.places.Take(share.Bounds{Total: h.opts.MaxInFlight}, o, 0)
		given := h.given
		h.mu.Unlock()
		if denied == share.Granted {
			return place, nil
		}
		select {
		case <-given:
		case <-ctx.Done():
			return nil, errBusy
		}
	}
}

// give gives a place back.
func (h *Hook) give(place *share.Holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places.Give(place, 0)
	close(h.given)
	h.given = make(chan struct{})
}

// run runs the command.
func (h *Hook) run(ctx context.Context, input []byte) ([]byte, error) {
	line := h.opts.Command()
	cmd := exec.Command(line[0], line[1:]...) //nolint:noctx // the configuration names it; stream.Run ends it with the context
	cmd.Env = h.opts.Env
	b, err := stream.Run(ctx, cmd, input, MaxAnswer)
	if errors.Is(err, stream.ErrTooMuchOutput) {
		return nil, errTooLarge
	}
	return b, err
}

var errTooLarge = fmt.Errorf("the answer has more than %d bytes", MaxAnswer)

// request makes the request.
func (h *Hook) request(ctx context.Context, input []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.opts.URL, bytes.NewReader(input))
	if err != nil {
		return nil, err
	}
	if h.opts.Header != nil {
		r.Header = h.opts.Header.Clone()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	w, err := h.opts.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer has the status %s; 200 is wanted", w.Status)
	}
	b, err := io.ReadAll(io.LimitReader(w.Body, MaxAnswer+1))
	if len(b) > MaxAnswer {
		return nil, errTooLarge
	}
	return b, err
}

// Close closes connections that are not used.
func (h *Hook) Close() {
	if h.opts.Client != nil {
		h.opts.Client.CloseIdleConnections()
	}
}

// member is the name of what may be changed.
func (h *Hook) member(c *Call) string {
	switch {
	case h.opts.After && c.Error:
		return "error"
	case h.opts.After:
		return "result"
	case c.RPC:
		return "params"
	}
	return "arguments"
}

// input is what the hook gets.
func (h *Hook) input(c *Call) []byte {
	phase := "before"
	if h.opts.After {
		phase = "after"
	}
	b := make([]byte, 0, 512+len(c.Value))
	b = append(b, `{"version":1`...)
	member := func(name, value string) {
		if value != "" {
			b = strconv.AppendQuote(append(b, ','), name)
			b = jsonrpc.AppendString(append(b, ':'), value)
		}
	}
	member("hook", h.opts.Name)
	member("phase", phase)
	member("upstream", c.Upstream)
	if c.RPC {
		member("method", c.Tool)
	} else {
		member("tool", c.Tool)
	}
	member("revision", c.Revision)
	member("session", c.Session)
	member("traceparent", c.TraceParent)
	member("tracestate", c.TraceState)
	b = append(b, `,"principal":`...)
	if c.Method == "" {
		b = append(b, `null`...)
	} else {
		b = jsonrpc.AppendString(append(b, `{"method":`...), c.Method)
		member("kind", c.Kind)
		member("issuer", c.Issuer)
		member("id", c.ID)
		b = append(b, '}')
	}
	if c.RPC && len(c.Value) == 0 {
		return append(b, '}')
	}
	b = strconv.AppendQuote(append(b, ','), h.member(c))
	if b = append(b, ':'); len(c.Value) == 0 {
		return append(b, `{}}`...)
	}
	return append(append(b, c.Value...), '}')
}
