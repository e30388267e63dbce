// Package raw answers one question: how does JSON-RPC of any kind get to a
// server that is somewhere else?
//
// It knows no methods. An [Upstream] is one such server. Connections are carried
// frame by frame ([Upstream.Pipe]): order, ids and bytes stay as they are, for the
// connection to the upstream is that client's own. Calls that come alone, over
// HTTP, share a connection ([Upstream.ServeRPC]): ids are rewritten, results and
// errors are passed on as they came.
//
// # Limits
//
// A pipe holds one frame in each direction, and of small ones up to 32 KB
// together. It reads no further before that is written: a slow reader slows
// only itself.
//
// # Failures
//
// A call that cannot be answered because of the upstream gets an error of the
// code -32008 (unavailable), -32009 (timeout) or -32010 (overloaded); the data
// is
//
//	{"upstream":"eth","sent":"no","retryable":true,"retryAfterMs":250,"stderr":["…"]}
//
// sent is "no" when the upstream has certainly not seen the call, or "unknown".
package raw

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/latency"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	defaultTimeout     = 60 * time.Second
	defaultMaxInFlight = 1024
	dialTimeout        = 30 * time.Second
)

// Options describe an Upstream. They are copied.
type Options struct {
	// Name is what the upstream is called in errors.
	Name string
	// Dial makes a connection. The context ends when the connection has ended or
	// is to end, or when it is not there within 30 s. Either Dial or Exchanger is
	// needed.
	Dial func(ctx context.Context) (farcall.Transport, error)
	// Exchanger is an upstream without connections, such as one over HTTP. The
	// Upstream closes it.
	Exchanger farcall.Exchanger
	// Lifetime says who has its own connection: "session", each that is
	// piped; "shared", none; "call", each call of ServeRPC as well. Default
	// "session". It means nothing with an Exchanger.
	Lifetime string
	// MaxMessage bounds a piped message in either direction, in bytes. Default:
	// what the transports allow.
	MaxMessage int
	// Budget has the memory for large messages: see farcall.Options.
	Budget *farcall.Budget
	// MaxInFlight bounds the calls of ServeRPC under way, and of each pipe to an
	// Exchanger. Default 1,024.
	MaxInFlight int
	// MaxConnections bounds the connections to the upstream that belong to piped ones; one owner
	// alone gets seven eighths of them. Calls of further ones are refused until one ends. Default: no
	// bound.
	MaxConnections int
	// Timeout bounds a call of ServeRPC and an exchange, and how long a piped
	// frame may take to be read by the upstream. Calls over piped connections have
	// none. Default 60 s.
	Timeout time.Duration
	// Plain reports, for each error, whether callers get nothing of what Explain
	// knows of a child. Nil: they are.
	Plain func() bool
	// Explain tells more about why a connection could not be made or has ended: when
	// the next attempt may be made (0: that is not known) and what the server said
	// last. Default: the standard error of a *stream.ExitError.
	Explain func(err error) (after time.Duration, stderr []string)
	// Admit is called once for each pipe, with its context, and returns what is asked
	// about everything that the client sends, before it goes on. A message that is not
	// valid is refused then, and nothing is connected before something may go on. Calls
	// of ServeRPC are asked about by the one that serves them. Nil: all may pass.
	Admit func(context.Context) Admission
	// Own reports whether a method is one that Answer answers in place of the upstream, for what is
	// piped. It is called for each message. Nil: none is.
	Own func(method []byte) bool
	// Answer answers a call of such a method. It must not block.
	Answer func(method string, params jsonrpc.Raw) (result jsonrpc.Raw, err error)
	// Calls returns what handles the calls of a pipe one by one, in place of carrying its frames, and
	// the options of the peer that reads them; a nil Handler: its frames are carried. It is called
	// with the context of a pipe when it begins, and must not block. The Handler is to call ServeRPC
	// with the contexts that it gets. Nil: all are carried.
	Calls func(context.Context) (farcall.Handler, *farcall.Options)
	// Logger takes what concerns no call. Default: nothing is logged.
	Logger *slog.Logger
	// OnRecord is called for each piped call that was answered, with the context of its pipe and the
	// trace of its message, by the one that has read the answer. Request is nil. It must not keep the
	// slices. Calls of ServeRPC are recorded by the one that serves them. Default none.
	OnRecord func(context.Context, farcall.Record)
}

// Upstream is a JSON-RPC server that is somewhere else. It may be used by any
// number of goroutines.
type Upstream struct {
	opts      Options
	meter     meter
	reconnect reconnect
	client    *farcall.Peer   // over the Exchanger; nil over connections
	ctx       context.Context //nolint:containedctx // the Upstream's own, which ends when it is closed
	stop      context.CancelFunc
	work      sync.WaitGroup // pipes, calls, and goroutines
	serving   places         // calls of ServeRPC
	own       ownConnections // of pipes

	mu      sync.Mutex
	closed  bool
	pipes   map[*pipe]struct{}
	line    *line         // the shared connection; nil when there is none
	dialing chan struct{} // closed when the attempt to make one has ended; nil when there is none
	dialErr error         // of the last attempt

	health health
}

// New returns an Upstream. Nothing is connected before it is needed.
func New(o *Options) *Upstream {
	u := &Upstream{opts: *o, pipes: map[*pipe]struct{}{}}
	u.opts.MaxInFlight = cmp.Or(u.opts.MaxInFlight, defaultMaxInFlight)
	u.serving.init(u.opts.MaxInFlight)
	u.own.held.SetBounds(share.Bounds{Total: u.opts.MaxConnections, Ratio: 7})
	u.opts.Timeout = cmp.Or(u.opts.Timeout, defaultTimeout)
	u.opts.Logger = cmp.Or(u.opts.Logger, slog.New(slog.DiscardHandler))
	if u.opts.Explain == nil {
		u.opts.Explain = explain
	}
	u.health.set("idle", nil)
	//nolint:forbidigo // an upstream lives until it is closed, not as long as the call that made it
	u.ctx, u.stop = context.WithCancel(context.Background())
	if o.Exchanger != nil {
		u.client = farcall.NewClient(o.Exchanger, farcall.HandlerFunc(u.asked),
			&farcall.Options{Logger: u.opts.Logger, Budget: u.opts.Budget})
	}
	return u
}

var errShuttingDown = errors.New("raw: the upstream is closed")

// begin books a piece of work, unless there shall be no more.
func (u *Upstream) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.work.Add(1)
	return true
}

// enter books a pipe.
func (u *Upstream) enter(ctx context.Context, p *pipe) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	if u.opts.Calls != nil {
		p.handler, p.peerOpts = u.opts.Calls(ctx)
	}
	u.work.Add(1)
	u.pipes[p] = struct{}{}
	return true
}

func (u *Upstream) leave(p *pipe) {
	u.mu.Lock()
	delete(u.pipes, p)
	u.mu.Unlock()
	u.work.Done()
}

// EndCarried ends the pipes that carry frames, once their calls are answered: they take no further
// ones. It is for when Options.Calls returns a Handler from now on.
func (u *Upstream) EndCarried() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for p := range u.pipes {
		if p.handler == nil {
			p.drain()
		}
	}
}

// Close refuses new calls, waits until those under way are answered, and closes
// every connection. When the context ends first it closes them anyway and
// returns the context's error. It waits until everything has ended.
func (u *Upstream) Close(ctx context.Context) error {
	u.mu.Lock()
	u.closed = true
	for p := range u.pipes {
		p.drain()
	}
	u.mu.Unlock()
	done := make(chan struct{})
	go func() { u.work.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	u.stop()
	if u.client != nil {
		_ = u.client.Close()
	}
	<-done
	u.mu.Lock()
	l := u.line
	u.line = nil
	u.mu.Unlock()
	if l != nil {
		l.close()
	}
	return err
}

// Status tells how an Upstream is.
type Status struct {
	// State is "idle" when nothing has been connected yet, "up" or "down".
	State string
	Since time.Time // of the state
	// Connections are those that are piped, and the shared one.
	Connections int
	InFlight    int
	Calls       uint64
	Errors      uint64 // calls answered with an error, by the upstream or for it
	// Dropped counts notifications that had nowhere to go.
	Dropped uint64
	// Garbage counts frames of the upstream that were no messages, or too large.
	Garbage uint64
	Dials   uint64 // attempts to connect
	// LatencyP50 and LatencyP99 are of all calls, to some 20 %.
	LatencyP50, LatencyP99 time.Duration
	LastError              string
}

// Status returns what happened so far.
func (u *Upstream) Status() Status {
	s := u.meter.status()
	s.State, s.Since, s.LastError = u.health.get()
	u.mu.Lock()
	defer u.mu.Unlock()
	s.Connections = len(u.pipes)
	if u.line != nil {
		s.Connections++
	}
	return s
}

// health is the state of an Upstream, as people see it.
type health struct {
	mu    sync.Mutex
	state string
	since time.Time
	err   string
}

func (h *health) set(state string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.err = textOf(err)
	}
	if h.state != state {
		h.state, h.since = state, time.Now()
	}
}

// note keeps an error that is no state.
func (h *health) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = textOf(err)
}

func (h *health) get() (state string, since time.Time, err string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.since, h.err
}

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
	// steadyTime is how long a shared connection must have lived for its end not
	// to count as a failure to connect.
	steadyTime = 10 * time.Second
	// retryWait is how long a call waits for the next attempt. When that is further
	// away, the call fails at once.
	retryWait = time.Second
)

// reconnect says when the next attempt to connect may be made.
type reconnect struct {
	mu       sync.Mutex
	failures int
	until    time.Time
	err      error
}

// failed notes that an attempt has failed, or that what came of it did not last.
// The next one is made after that time, when it is not 0.
func (r *reconnect) failed(err error, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
	d := backoff.Delay(r.failures, minBackoff, maxBackoff)
	if after > 0 {
		d = after
	}
	r.until, r.err = time.Now().Add(d), err
}

// reset forgets the failures.
func (r *reconnect) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures, r.until, r.err = 0, time.Time{}, nil
}

// wait waits until an attempt may be made. It fails when that is too far away.
func (r *reconnect) wait(ctx context.Context) error {
	r.mu.Lock()
	d, err := time.Until(r.until), r.err
	r.mu.Unlock()
	switch {
	case d <= 0:
		return nil
	case d > retryWait:
		return &tooEarlyError{after: d, err: err}
	}
	return backoff.Sleep(ctx, d)
}

// meter counts what happens.
type meter struct {
	calls, errors, dropped, garbage, dials atomic.Uint64
	inFlight                               atomic.Int64
	latency                                latency.Histogram
}

func (m *meter) begin() {
	m.calls.Add(1)
	m.inFlight.Add(1)
}

func (m *meter) end(failed bool, took time.Duration) {
	m.inFlight.Add(-1)
	if failed {
		m.errors.Add(1)
	}
	m.latency.Add(took)
}

func (m *meter) status() Status {
	return Status{
		InFlight: int(m.inFlight.Load()),
		Calls:    m.calls.Load(), Errors: m.errors.Load(), Dropped: m.dropped.Load(),
		Garbage: m.garbage.Load(), Dials: m.dials.Load(),
		LatencyP50: m.latency.Quantile(50), LatencyP99: m.latency.Quantile(99),
	}
}
