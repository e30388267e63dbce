package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Caller is who calls.
type Caller struct {
	// Owner is the owner of the call. Zero: the session, or none when there is no session.
	Owner owner.Key
	// Session names the session of a legacy client within this process. "": the
	// request stands alone.
	Session string
	// Info and Capabilities are JSON in the form of the newest revision, or nil.
	Info, Capabilities jsonrpc.Raw
	// Roots are the client's answer to roots/list, in that form, of a request that
	// stands alone and with capabilities that declare roots, when the server is known to
	// ask for them outside of calls (see [Upstream.RootsFirst]). A legacy server gets no other ones on
	// the connection of the call, which is kept for calls of the same owner with the
	// same roots. Nil: they are not known.
	Roots jsonrpc.Raw
}

// A Call is to be made. The caller of [Upstream.Call] may use it again when that
// has returned.
type Call struct {
	Method string
	// Params are in the form of Revision; nil: of the newest.
	Params   jsonrpc.Raw
	Revision *era.Revision
	Caller   Caller
	// Ask answers what the server asks during the call, which waits for it. It is
	// called by several goroutines when there are several questions, and must return
	// soon after its context has ended, which is no later than the call. Nil: the
	// client cannot be asked.
	Ask func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error)
	// Notice gets what the server tells about the call, the messages of its log above all, and
	// Progress the params of its progress, all in the form of the newest revision. They are called
	// with the context of the call, one at a time, in order, and for the last time before the call
	// returns. They may block, which holds up this call only; what comes in the meantime is kept up to
	// a bound. One that blocks for 30 s after the server's answer is not waited for, and the rest is
	// dropped. Nil: not wanted.
	Notice   func(ctx context.Context, method string, params jsonrpc.Raw)
	Progress func(ctx context.Context, params jsonrpc.Raw)
	// Header is added to the request of the call over HTTP. It must not change.
	Header http.Header
	// LogLevel is what is to be logged of the call. "": no matter.
	LogLevel string
	// Rounds, Task, Tasks, TaskID and TaskCreated are as in relay.Forward.
	Rounds, Task        bool
	Tasks               relay.TaskObserver
	TaskID, TaskCreated string
	// Idempotent calls may be made again when it is not known whether they had an
	// effect.
	Idempotent bool

	// Attempts is how often the call was made, and Queued how long it has waited for connections.
	// Upstream.Call adds to them.
	Attempts int
	Queued   time.Duration
	// Spoken is the revision of the connection that has carried the call last. Upstream.Call sets it.
	Spoken string
}

// A Result is in the form of Revision.
type Result struct {
	Raw      jsonrpc.Raw
	Revision *era.Revision
}

// Options adjust an Upstream. They are copied.
type Options struct {
	// Name is that of the server in errors.
	Name string
	// Held is why the server takes no calls, such as "is disabled". "": it takes them.
	Held string
	// Dial makes a connection. The options are the connection's own; Dial may add to
	// them. It obeys its context.
	Dial func(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error)
	// Identity returns what requests to the server must know of the caller. It is called with a lock
	// held, and must only look at the context. Requests of a call have its context, other requests of
	// the connection one without a caller: see [Identity]. Nil: nothing.
	Identity func(context.Context) any
	// Exclusive: a connection ends for all of its calls at once, and what a legacy
	// server asks does not say which call it is about. So it is with everything but
	// HTTP.
	Exclusive bool
	// Lifetime says who shares a connection. "auto", the default: all callers that can be asked the
	// same, until the server asks a question that does not say which call it is about; from then on
	// each session has its own, and so has each owner of requests without a session. "shared": all
	// callers, for good, so that the server keeps one state; no roots are declared to it. "principal"
	// and "session": the calls of one principal or session ("principal" with the rule of auto for the
	// sessions of one principal). "call": each call has its own. Where there is no session, "session"
	// means the principal.
	Lifetime string
	// Asks: it is known that the server asks questions which do not say which call they are about,
	// and OnAsks is called when that is found out. It must not block.
	Asks   bool
	OnAsks func()
	// OnQueued is called with the time that a call has waited for a connection, if it had to, once it
	// has one. A lock is held: it must not block. Nil: it is not called.
	OnQueued func(time.Duration)
	// OnStarted is called with the time that a connection took from its start to the first answer of
	// the server, and the traceparent of the call that it was started for. Nil: it is not called.
	OnStarted func(took time.Duration, parent string)
	// Pool bounds the connections of one owner with requests that have no session and must not be
	// mixed. With the lifetime "call" it bounds all connections, where Exclusive is set. Default 8.
	Pool int
	// MaxConnections bounds all connections. One that is not used makes room for another, but for
	// that of a session which goes on: the call then waits in the queue. Sessions of one principal or
	// address alone keep seven eighths of them. Default 256.
	MaxConnections int
	// IdleStop is when connections that are unused are closed. Default 0: never.
	IdleStop time.Duration
	// Timeout bounds how long a call may be without a sign of life, and StartTimeout how long a
	// connection may take to start, handshake and all. Default 60 s. A call waits for a start for 25 s
	// at most; the start goes on.
	Timeout, StartTimeout time.Duration
	// Starting tells what starts, and what may keep it from it, for those who wait. Nil: nothing.
	Starting func() string
	// MaxInFlight bounds the calls under way, MaxQueue those that wait, and
	// QueueTimeout how long they do; the time in which a connection starts does not count.
	// One owner never gets all of either while others call: see queue.go. Default 1024,
	// 1024, 30 s.
	MaxInFlight, MaxQueue int
	QueueTimeout          time.Duration
	// BreakAfter failures of connections in a row no call is tried for BreakFor, and
	// then one. Default 5, 10 s. Negative: never.
	BreakAfter int
	BreakFor   time.Duration
	// OnListChanged is called when a list may have changed: "tools", "resources" or
	// "prompts". It must not block.
	OnListChanged func(kind string)
	// OnWarning receives what hurts no call. It must not block.
	OnWarning func(error)
	// Explain tells more about the failure of a connection: when the next attempt may
	// succeed (0: at once) and what the server's process said last. Nil: only what is
	// in the error.
	Explain func(error) (after time.Duration, stderr []string)
	// CallersFault reports whether a connection could not be started because of the caller that it is
	// for, which says nothing of the server: then only the calls of that owner fail. Nil: it never is.
	CallersFault func(error) bool
	// Plain reports, for each error, whether callers get nothing of the reason
	// and of what Explain knows: only that the way to the server has failed. Nil:
	// they are.
	Plain func() bool
	// Logger learns when the server is there for the first time, or again, and of
	// starts and ends of connections at the level debug. Default: none.
	Logger *slog.Logger
}

func (o *Options) setDefaults() {
	o.Pool = cmp.Or(o.Pool, 8)
	o.MaxConnections = cmp.Or(o.MaxConnections, 256)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.StartTimeout = cmp.Or(o.StartTimeout, time.Minute)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 1024)
	o.MaxQueue = cmp.Or(o.MaxQueue, 1024)
	o.QueueTimeout = cmp.Or(o.QueueTimeout, 30*time.Second)
	o.BreakAfter = cmp.Or(o.BreakAfter, 5)
	o.BreakFor = cmp.Or(o.BreakFor, 10*time.Second)
	if o.Plain == nil {
		o.Plain = func() bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// An Upstream is one MCP server. Its methods may be called by any number of
// goroutines at once.
//
// # Errors
//
// What the server answered is a *jsonrpc.Error in the form of the newest
// revision. So is the failure of the way to it, with data like
//
//	{"upstream":"NAME","sent":"no","retryable":true,"retryAfterMs":900,"stderr":["..."]}
//
// where sent is "no" when the server has surely seen nothing of the call, and
// otherwise "unknown". The end of the context is the context's own error.
type Upstream struct {
	opts   Options
	ctx    context.Context //nolint:containedctx // ends when the upstream is closed
	stop   context.CancelFunc
	tasks  sync.WaitGroup
	scopes [allAbilities + 1]string

	mu       sync.Mutex // guards all that follows
	pool     pool
	queue    queue
	watching map[watchKey]*watch
	sweeping bool
	closing  bool          // no new calls
	over     bool          // nothing is started any more
	idle     chan struct{} // closed when closing and nothing is under way
	stats
}

// New returns the upstream. Nothing is connected yet.
func New(o *Options) *Upstream {
	u := &Upstream{opts: *o}
	u.opts.setDefaults()
	u.ctx, u.stop = context.WithCancel(context.Background()) //nolint:forbidigo // connections outlive the calls that start them, and end with Close
	for a := range u.scopes {
		u.scopes[a] = fmt.Sprintf("%02x", a)
	}
	u.pool, u.queue = newPool(&u.opts), newQueue(&u.opts)
	return u
}

// Describe returns what the server says of itself to such a caller, which must
// not be changed. It starts a connection if there is none.
func (u *Upstream) Describe(ctx context.Context, who Caller) (*mcp.ServerInfo, error) {
	abilities := u.opts.abilitiesOf(&who)
	u.mu.Lock()
	info := u.pool.described(&who, abilities)
	u.mu.Unlock()
	if info != nil {
		return info, nil
	}
	pc := u.newPendingCall(ctx, &Call{Method: describing, Caller: who})
	if err := u.enter(pc); err != nil {
		return nil, err
	}
	info = pc.conn.info
	u.leave(pc, nil, nil, false)
	return info, nil
}

// Check pings the server over the connection that callers share who cannot be asked anything. It
// starts one if there is none. Its error is about the way to the server.
func (u *Upstream) Check(ctx context.Context) error {
	_, err := u.Call(ctx, &Call{Method: spec.MethodPing, Idempotent: true})
	if errors.As(err, new(*jsonrpc.Error)) && !errors.As(err, new(*wayError)) {
		return nil // it has answered
	}
	return err
}

// Notify passes a notification of a caller on to the connections that it uses, such as
// notifications/roots/list_changed. The params are in the form of the newest
// revision.
func (u *Upstream) Notify(ctx context.Context, who Caller, method string, params jsonrpc.Raw) {
	conns := u.connsOf(&who, method)
	for _, l := range conns {
		if err := l.client.Notify(ctx, method, params); err != nil && ctx.Err() == nil {
			u.warn("%s was not delivered: %w", method, err)
		}
	}
}

// Scope names the callers that may share what is listed and read: it is the same
// for all of them.
func (u *Upstream) Scope(who Caller) string {
	// A server may show different things to clients that can be asked different
	// things.
	a := u.opts.abilitiesOf(&who)
	s := u.scopes[a]
	u.mu.Lock()
	key, lasting := u.pool.keyOf(&who, a, useLight)
	u.mu.Unlock()
	if !lasting {
		return s // nothing lasts that could be distinguished
	}
	return s + key.group.Text() + key.client.Text()
}

// RootsFirst reports whether the server is of a legacy revision and asks for roots outside of
// calls: requests that stand alone must say theirs. One that only asks during calls gets the answer
// then.
func (u *Upstream) RootsFirst() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pool.rootsFirst && !u.pool.stateless()
}

// Lasts reports whether the connection that a caller's next call uses is there for later ones.
func (u *Upstream) Lasts(who Caller) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, lasting := u.pool.keyOf(&who, u.opts.abilitiesOf(&who), useAsking)
	return lasting
}

// Name is that of the server, as in Options.
func (u *Upstream) Name() string { return u.opts.Name }

// Close refuses new calls, waits for those under way as long as the context lasts,
// and then ends all connections. It returns the context's error when calls were
// cut off.
func (u *Upstream) Close(ctx context.Context) error {
	u.mu.Lock()
	idle := u.drainLocked()
	u.mu.Unlock()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("upstream %s: calls under way were cut off: %w", u.opts.Name, ctx.Err())
	}
	u.stop()
	u.mu.Lock()
	u.endLocked()
	u.mu.Unlock()
	u.tasks.Wait()
	return err
}

var errClosing = errors.New("the gateway closes the connection")

func (u *Upstream) warn(format string, args ...any) {
	if u.opts.OnWarning != nil {
		u.opts.OnWarning(&wayError{fmt.Errorf("upstream "+u.opts.Name+": "+format, args...)})
	}
}

// died removes a connection that has ended without being closed.
func (u *Upstream) died(l *connection, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.ctx.Err() != nil || !l.state.live() {
		return // we have done it, or know
	}
	u.lostLocked(l, l.age, err, time.Now())
	u.dispatchLocked()
	u.drainedLocked()
}

// sweepLocked closes unused connections.
func (u *Upstream) sweepLocked() {
	if u.opts.IdleStop > 0 && !u.sweeping && !u.over {
		u.sweeping = true
		u.tasks.Go(func() {
			for wait := u.opts.IdleStop; wait > 0 && backoff.Sleep(u.ctx, wait) == nil; {
				wait = u.swept()
			}
		})
	}
}

// swept closes the connections with a time that has come, and returns when the next one's may.
// 0: there is none left.
func (u *Upstream) swept() (next time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pool.places() == 0 {
		u.sweeping = false
		return 0
	}
	next = u.opts.IdleStop
	now := time.Now()
	for _, h := range u.pool.holders {
		for _, l := range slices.Clone(h.conns) {
			if !l.idle() {
				continue
			}
			if left := u.opts.IdleStop - now.Sub(l.used); left > 0 {
				next = min(next, left)
			} else {
				u.pool.retire(l)
			}
		}
	}
	return next
}

// drainLocked refuses new calls. The channel is closed when none is under way.
func (u *Upstream) drainLocked() <-chan struct{} {
	u.closing = true
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	u.drainedLocked()
	return u.idle
}

func (u *Upstream) drainedLocked() {
	if u.idle == nil || !u.queue.idle() {
		return
	}
	select {
	case <-u.idle:
	default:
		close(u.idle)
	}
}

// endLocked ends what has not ended yet.
func (u *Upstream) endLocked() {
	u.over = true
	for item := range u.queue.all() {
		u.refuseLocked(item.Value, u.shuttingDown())
	}
	for _, h := range u.pool.holders {
		u.pool.release(h)
	}
}

// spawnLocked runs do in a goroutine that Close waits for, unless that has begun.
func (u *Upstream) spawnLocked(do func()) bool {
	if !u.over {
		u.tasks.Go(do)
	}
	return !u.over
}
