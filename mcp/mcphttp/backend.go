package mcphttp

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/observed"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Backend answers MCP messages. It must be safe for concurrent use.
//
// ServeRPC gets what belongs to no session: a request or notification of a
// revision without them. The headers agree with the body then; whether the
// revision is served, and whether _meta has what it must have, the backend
// decides.
type Backend interface {
	farcall.Handler
	// Accept begins a session; the next thing is its initialize. The context has the values of the
	// HTTP request that brings it, and no end. client reaches the other end for as long as the session
	// lasts: with the context of a handler on the answer to that call, and with any other on a stream
	// of the client's own, or when it has one.
	Accept(ctx context.Context, client farcall.Caller) Session
}

// Configured is a Backend that brings its own options, as mcp.Server does, so
// that who mounts it cannot leave them out.
type Configured interface {
	Backend
	// HTTPOptions are what a handler without options uses. A handler with options has
	// their RPC, Trace and Keys when its own are nil, and their RPC.Logger when its own RPC has none.
	HTTPOptions() *Options
	// Owner returns the default of Options.Owner, or nil. Its context is derived from
	// that of the request, which RequestFrom returns.
	Owner() func(context.Context) string
}

// A Session is one client of a revision that has sessions.
//
// ServeRPC gets what the client sends, initialize first, but not its answers,
// and not notifications/cancelled: the handler's context ends instead. It ends
// with the session, too, and not when a connection breaks.
type Session interface {
	farcall.Handler
	// Revision is the revision that was agreed upon, nil before.
	Revision() *era.Revision
	// Close is called once, when the session has ended.
	Close()
}

// A Resumer is a Backend with sessions that need no memory between requests: see Options.Sessions.
type Resumer interface {
	Backend
	// Resume goes on with a session that began with Accept, here or at another replica, or has been
	// Resumed before. It has agreed on the revision, and State of its Session has returned state; nil
	// state is that of a session with a known revision and nothing else. state is valid until Resume
	// returns. ctx and client are as in Accept. The Session is Resumable.
	Resume(
		ctx context.Context, client farcall.Caller, rev *era.Revision, state []byte,
	) (Session, error)
}

// Resumable is the Session of a Resumer. One with a method Discard(context.Context) gets a call of
// it when its client has ended the session by DELETE, whichever replica handles that: what is
// stored of it elsewhere can go. One with a method Again() (requests [][]byte, err error) gets a
// call of it when it goes on here: these requests of its client are made again, as if the client
// had sent them, and then its method MadeAgain() is called. After an error Again is called again,
// for a while, and then MadeAgain. The client that Accept and Resume get has a method Sealed() (id
// string, until time.Time): a text that names the session at all replicas, "" where it is of this
// process alone, and when it ends.
type Resumable interface {
	Session
	// State returns what Resume needs to go on, after initialize. It is sealed in the id of the
	// session, which clients send with each request: at most 2 KB. An error is the answer to
	// initialize.
	State() ([]byte, error)
	// Local reports whether the session has something that State does not have, and that is worth
	// being kept while its client is away. It is called while nothing of the session is being handled.
	Local() bool
}

// Options adjust a Handler. The zero value means the defaults, and so does nil,
// unless the backend is Configured. They are
// copied; later changes have no effect.
type Options struct {
	// MaxMessage bounds a request in bytes. Default 50 MB.
	MaxMessage int
	// BodyTimeout is how long the body of a request may take, and a second more for
	// each 100 KB of it; then it is answered with 408. Default 30 s; negative: for ever.
	BodyTimeout time.Duration
	// Budget has the memory for requests of more than 64 KiB. One for which there is
	// none is answered with 503. Default: that of RPC, or of the process, see
	// [farcall.Budget].
	Budget *farcall.Budget
	// RPC adjusts how messages are handled. Its Dialect is MCP's. Default: what the
	// backend has, see Configured, else its defaults.
	RPC *farcall.Options

	// Sessions says where sessions are kept. "memory": in this process. "sealed": the id of a session
	// says all of it, sealed with Keys, so that every process with these keys can serve each request
	// of it, also after a restart; the Backend is a [Resumer] then. What a session has beside that
	// stays in the process, for IdleTimeout: its event streams, subscriptions to resources, a level
	// that logging/setLevel has set, tasks, questions. "none": initialize gives no session, and each
	// request stands alone: nothing can be asked and nothing is sent beside answers. HTTP+SSE always
	// has its sessions in memory. Default "sealed" with Keys, else "memory".
	Sessions string
	// Keys are random keys of 32 bytes that seal sessions: the first one seals, each one opens. All
	// replicas have the same ones. Default: those of the backend, see Configured.
	Keys [][]byte
	// SessionAge is how long a sealed session lasts, from its initialize, however it is used. Then,
	// and when its key is dropped, the answer is 404 and the client begins another one. Default 7
	// days; negative: for ever.
	SessionAge time.Duration
	// Advertise is where other replicas reach this one: "http://10.0.0.3:7331". They forward there
	// what a client answers to a question that this one has asked, with the headers of the client.
	// Without it such answers are refused with 421 at the other replicas. Default none.
	Advertise string

	// Forward has another replica answer a request with a body that has been read, and writes its
	// answer to w as it comes, unless begun is false. sent is false when that replica has executed
	// nothing. Route returns the replica that is to answer, "" for this one: of what has begun at
	// home, or, where key is not "", at another one when that is not there; without home, of a new
	// session or a request without a session of the caller with that key, "" for none. Replica is the
	// name of this one: letters and digits, of one length for all. It begins the ids of sessions.
	// Either all three are set, or none: then each request is answered here, but for answers to
	// questions, see Advertise.
	Forward func(
		w http.ResponseWriter, r *http.Request, replica string, body []byte,
	) (begun, sent bool, err error)
	Route   func(ctx context.Context, home, key string) (replica string)
	Replica string

	// MaxSessions bounds the sessions in memory, and the streams of subscriptions/listen. When
	// there is no room for a session, one ends of the owner that has most (of an
	// unauthenticated one: of its address), the longest idle first: no other's.
	// Default 10,000.
	MaxSessions int
	// IdleTimeout is how long a session lasts in which nothing happens. Default
	// 30 min; negative: for ever. A sealed one only loses what it has in memory.
	IdleTimeout time.Duration
	// Owner returns a text that is unique for the authenticated caller that sends a
	// request, and "" for any other. What a caller leaves here is its alone: to
	// others a session does not exist. Without it a session belongs to the one that knows
	// its id. Default: what the backend says, see Configured, else no caller is
	// authenticated.
	Owner func(*http.Request) string

	// Heartbeat is how long an event stream may be silent before a comment is
	// sent. Default 15 s; negative: for ever.
	Heartbeat time.Duration
	// Events keeps what was sent on event streams of sessions, for clients that
	// come back. Default: in memory, EventBytes for each session (default 1 MiB)
	// and 64 times that in all; the session that has most there loses its oldest.
	Events     EventStore
	EventBytes int
	// SharedEvents gets the same of sealed sessions, for the other replicas: one that goes on with the
	// session of a replica that is gone has there what that one has sent. It must not block. Default:
	// none; then a stream of a replica that is gone ends with an error for its call.
	SharedEvents EventStore

	// Trace gets a line for each frame that is received or sent; nil: none. See
	// mcp.ClientOptions.Trace. Default: what the backend has, see Configured.
	Trace io.Writer

	// KeepConnections: CloseStream does nothing, which makes a call cheaper when it
	// could have closed the connection.
	KeepConnections bool

	// Origins are the web pages of other hosts that may call:
	// "https://app.example.com", "localhost:3000", "*.example.com", or "*" for
	// all. Default none.
	Origins []string
	// Hosts are the DNS names of the server, which a request may have in its Host
	// header: "tools.example.com", "*.example.com", or "*" for all. IP addresses and
	// localhost are always allowed. Other names are answered with 403, since a web
	// page can have its own name point here (DNS rebinding), unless a guard.Guard
	// stands in front that asks every caller for credentials. Default none.
	Hosts []string
	// MessagesPath is the path of ServeMessages. Default "/messages".
	MessagesPath string
}

const (
	maxMessage  = 50 << 20
	maxSessions = 10_000
	bodyTimeout = 30 * time.Second
	idleTimeout = 30 * time.Minute
	sessionAge  = 7 * 24 * time.Hour
	heartbeat   = 15 * time.Second
	eventBytes  = 1 << 20
)

// of returns the options of a handler of a backend.
func (o *Options) of(b Backend) Options {
	own, named := &Options{}, (func(context.Context) string)(nil)
	if from, ok := b.(Configured); ok {
		own, named = from.HTTPOptions(), from.Owner()
	}
	if o == nil {
		o = own
	}
	c := *o
	if c.Trace == nil {
		c.Trace = own.Trace
	}
	if c.Owner == nil && named != nil {
		c.Owner = func(r *http.Request) string {
			return named(context.WithValue(r.Context(), requestKey{}, r))
		}
	}
	if len(c.Keys) == 0 {
		c.Keys = own.Keys
	}
	if _, resumes := b.(Resumer); resumes && c.Sessions == "" && len(c.Keys) > 0 {
		c.Sessions = sessionsSealed
	}
	switch {
	case own.RPC == nil:
	case c.RPC == nil:
		c.RPC = own.RPC
	case c.RPC.Logger == nil:
		rpc := *c.RPC
		rpc.Logger = own.RPC.Logger
		c.RPC = &rpc
	}
	return c.withDefaults()
}

// A requestKey has the request that RequestFrom finds.
type requestKey struct{}

func (o *Options) withDefaults() Options {
	c := *o
	c.MaxMessage = cmp.Or(c.MaxMessage, maxMessage)
	c.MaxSessions = cmp.Or(c.MaxSessions, maxSessions)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, bodyTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, idleTimeout)
	c.SessionAge = cmp.Or(c.SessionAge, sessionAge)
	c.Sessions = cmp.Or(c.Sessions, sessionsMemory)
	c.Heartbeat = cmp.Or(c.Heartbeat, heartbeat)
	c.MessagesPath = cmp.Or(c.MessagesPath, "/messages")
	if c.Events == nil {
		c.Events = newMemoryStore(cmp.Or(c.EventBytes, eventBytes))
	}
	var rpc farcall.Options
	if c.RPC != nil {
		rpc = *c.RPC
	}
	rpc.Dialect = Dialect()
	rpc.Observer = observed.Calls(rpc.Observer)
	rpc.Transport = cmp.Or(rpc.Transport, "mcp-http")
	c.RPC = &rpc
	c.Budget = cmp.Or(c.Budget, rpc.Budget)
	return c
}

// Dialect is how MCP writes cancellation and progress, in every revision and on
// every transport.
func Dialect() farcall.Dialect {
	return farcall.Dialect{
		CancelMethod: spec.NotificationCancelled, CancelID: "requestId", CancelReason: "reason",
		CancelSilent:   true,
		ProgressMethod: spec.NotificationProgress, ProgressToken: spec.MetaProgressToken, Meta: "_meta",
	}
}

// NewHandler returns the handler of a backend.
func NewHandler(b Backend, o *Options) *Handler {
	opts := o.of(b)
	h := &Handler{
		backend: b, opts: opts,
		gate:    gate{policy: origin.Policy{Origins: opts.Origins, Hosts: opts.Hosts}},
		drained: make(chan struct{}, 1),
		trace:   wirelog.New(opts.Trace, nil),
	}
	opts.RPC.Interceptors = append([]farcall.Interceptor{h.settle}, opts.RPC.Interceptors...)
	h.calls = farcall.NewResponder(farcall.HandlerFunc(h.dispatch), opts.RPC)
	listen := *opts.RPC
	listen.MaxInFlight = opts.MaxSessions
	h.listens = farcall.NewResponder(farcall.HandlerFunc(h.dispatch), &listen)
	h.table.init(opts.MaxSessions, opts.IdleTimeout, h.seal())
	return h
}

// seal prepares for sessions that are not kept in memory. It returns how long they stay there,
// negative for those that are, and panics when the options are not valid.
func (h *Handler) seal() (linger time.Duration) {
	linger = map[string]time.Duration{
		sessionsMemory: -1,
		sessionsSealed: sealedLinger,
	}[h.opts.Sessions]
	switch _, resumes := h.backend.(Resumer); {
	case linger < 0:
		return linger
	case linger == 0 && h.opts.Sessions != sessionsNone:
		misuse("Options.Sessions is %q; it must be %q, %q or %q", h.opts.Sessions, sessionsMemory,
			sessionsSealed, sessionsNone)
	case !resumes:
		misuse("Options.Sessions is %q, and the backend is no Resumer", h.opts.Sessions)
	}
	var err error
	if h.sealed, err = newSealing(&h.opts); err != nil {
		misuse("%v", err)
	}
	return linger
}

// misuse ends a program that was put together wrongly.
func misuse(format string, args ...any) {
	panic("mcphttp: " + fmt.Sprintf(format, args...)) //nolint:forbidigo // the mistake is in the calling code, as with http.ServeMux
}

// RequestFrom returns the HTTP request that carries the call which is being
// handled, or nil when it did not come over HTTP. Its body is read already.
func RequestFrom(ctx context.Context) *http.Request {
	if x := exchangeFrom(ctx); x != nil {
		return x.req
	}
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

// CloseStream closes the connection on which the client waits for the call that
// is being handled; the client comes back for the answer (SEP-1699). It reports
// false, and does nothing, where the client would not.
func CloseStream(ctx context.Context) bool {
	x := exchangeFrom(ctx)
	return x != nil && x.stream != nil && x.stream.letGo()
}
