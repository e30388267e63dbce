package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/late"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Client uses one MCP server, of whatever revision. Its methods may be called
// by any number of goroutines at once. A call fails with
// [mcphttp.ErrSessionLost] when the server has ended the session and a new one could not be begun.
//
// It finds out which revisions the server speaks (see [ClientOptions].Era), and
// everything else is the same for all of them: what is given to it and what it
// returns is in the form of the newest revision.
//
// # Errors
//
// An error that the server answered is a *jsonrpc.Error, with the code that the newest revision has
// for it, or spec.URLElicitationRequired. A tool's own failure is no error of CallTool: see
// [ToolError]. A call that took too long fails with context.DeadlineExceeded, and one with a
// connection that ended with farcall.ErrClosed.
type Client struct {
	opts           ClientOptions
	modern, legacy []*era.Revision // what may be spoken, best first
	dial           func(ctx context.Context) (farcall.Transport, error)
	ctx            context.Context //nolint:containedctx // ends when the client is closed
	stop           context.CancelFunc

	cache   *resultCache
	shelf   shelf
	callers callers

	middleware middleware
	watched    watchedTasks
	slow       late.Watch // of calls that have no answer yet

	making   chan struct{} // held by the goroutine that makes a link
	leveling chan struct{} // held by the goroutine that tells the server the level of its log

	trace   *wirelog.Log // nil: none
	address string       // of the server over HTTP, see addressOf

	mu     sync.Mutex
	tasks  sync.WaitGroup // goroutines of the client's own
	closed bool
	cur    *link         // nil: none yet
	known  *era.Revision // what the last link agreed on
	level  string        // of the server's log
	meta   atomic.Pointer[metadata]
}

// ClientOptions adjust a Client. The zero value, and nil, mean the defaults. They
// are copied; later changes have no effect.
type ClientOptions struct {
	// Name, Version and Title say to the server who calls. Default "farcall",
	// "0", none.
	Name, Version, Title string
	// Era is what may be spoken: "auto", "modern" (stateless revisions), "legacy"
	// (those with a handshake) or the name of one revision, such as spec.Revision20251125.
	// Default "auto": the newest that the server speaks.
	Era string
	// Timeout bounds how long a request may be without an answer. Each progress
	// notification for it begins the time again, and it does not run while the
	// server waits for one of the callbacks below. Default 60 s; negative: none.
	Timeout time.Duration
	// MaxTimeout bounds a request whatever its progress. Default 10 min;
	// negative: none.
	MaxTimeout time.Duration
	// ProbeTimeout is how long a server may be silent when it is asked whether it
	// is modern. Then the older handshake is tried, too. Default 3 s.
	ProbeTimeout time.Duration

	// Elicit, Sample and Roots answer what a server asks. What is nil is not
	// offered to servers. Elicit gets forms and URLs (see its params' Mode); what
	// the user has left out of a form is filled in with the form's defaults. When
	// an older server refuses a call until some URLs have been visited, Elicit is
	// asked for each, and the call is made once more if all are accepted. An error
	// becomes the answer, or fails the call during which the server asked.
	Elicit func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error)
	Sample func(context.Context, *spec.CreateMessageRequestParams) (*spec.CreateMessageResult, error)
	Roots  func(context.Context) ([]spec.Root, error)
	// Ask answers all that a server asks, in place of Elicit, Sample and Roots.
	// The params and the result are in the form of the newest revision. The
	// context has the values of the call during which the server asked when that is
	// known (over HTTP, and in modern revisions), otherwise those of the connection.
	// An error becomes the answer, or fails the call. Ask on its own offers nothing:
	// see Capabilities.
	Ask func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error)
	// Capabilities are declared instead of what these callbacks imply: a form and
	// URLs, sampling of text, roots.
	Capabilities *spec.ClientCapabilities
	// Extensions are declared with their settings.
	Extensions map[string]any
	// Tasks lets servers make tasks of calls. CallTool waits for their results.
	Tasks bool

	// OnLog gets the messages of the server's log, from LogLevel on; without a
	// level it is the server's choice, or in modern revisions nothing.
	OnLog    func(*spec.LoggingMessageNotificationParams)
	LogLevel string
	// OnListChanged is called when a list has changed: "tools", "resources" or
	// "prompts". OnResourceUpdated is called when a resource has changed. OnTask is
	// called when the status of a task changes. See [Client.Listen].
	OnListChanged     func(kind string)
	OnResourceUpdated func(uri string)
	OnTask            func(*spec.DetailedTask)
	// OnListening receives what a server has agreed to send, when Listen begins
	// and whenever it has begun again; what happened in between was not told.
	OnListening func(granted spec.SubscriptionFilter)
	// OnNotice gets every notification but progress before the callbacks above, with
	// its params in the form of the newest revision and a context as Ask has. It
	// reports whether it has taken it, so that none of them but OnListening receives.
	// It must not block, nor keep the params.
	OnNotice func(ctx context.Context, method string, params jsonrpc.Raw) (taken bool)
	// OnElicitationComplete is called when the server says that the user has done what was asked for
	// at a URL: id is the ElicitationID of the question (2025-11-25 only).
	OnElicitationComplete func(id string)
	// OnNotification gets all other notifications.
	OnNotification func(method string, params []byte)
	// OnSessionLost is called when the server has ended the session and a new one has begun: once
	// for each session, by the call that finds it out first. Others do not wait until it returns.
	OnSessionLost func()
	// OnWarning receives what is wrong but hurts no call: a tool with a definition that
	// is not valid and is left out, for example.
	OnWarning func(error)

	// NoCache asks the server each time, also for what it said may be kept.
	NoCache bool
	// MaxRounds bounds how often a server may ask for more in one call.
	// Default 10.
	MaxRounds int
	// Redial makes the connection that Connect was given again when it has ended:
	// it starts the server's process again, for example. Nil: the client is of no
	// use then.
	Redial func(context.Context) (farcall.Transport, error)
	// Resume is what [Client.Session] of an earlier client has returned. Dial then goes on with that
	// session, without initialize and server/discover. The address must be that of the earlier client,
	// apart from its query, and Era must allow the session's revision. The other options should be
	// the same: a legacy server knows the capabilities of the earlier client. LogLevel replaces the
	// level of the session. When the server does not know the session any more, the first call begins
	// a new one, and OnSessionLost is called. Connect fails, and so does Dial over other transports
	// than HTTP. Default: none.
	Resume []byte
	// Trace gets a line for each frame that is sent or received, over every transport;
	// nil: none. A line has the time, the number of the connection (over HTTP: of the
	// request), > for sent or < for received, and the frame, cut after 1 MiB:
	//
	//	2026-11-22T21:30:55.123456Z #1 > {"jsonrpc":"2.0","method":"ping","id":1}
	//
	// A line with ! says what became of a connection. Headers, and so credentials and
	// session ids, are not in it; secrets in arguments and results are.
	//
	// Each Write has whole lines, and one goroutine writes at a time. A slow writer
	// delays nothing: lines are left out, and counted, while 4 MiB wait for it. After
	// an error, which OnWarning gets, nothing more is written. Close waits a second
	// for the last lines.
	Trace io.Writer
	// HTTP adjusts Dial: its Header, TLS and MaxMessage count for all addresses, the rest for http and
	// https.
	HTTP *mcphttp.DialOptions
	// RPC adjusts the peer below; its Dialect is MCP's.
	RPC *farcall.Options
}

// ServerInfo is what a server says of itself, and what was agreed with it.
type ServerInfo struct {
	Name, Version, Title string
	Instructions         string
	// Revision is the one that is spoken.
	Revision     string
	Capabilities *spec.ServerCapabilities
	// Supported are the revisions that the server named.
	Supported []string
}

func newClient(ctx context.Context, o *ClientOptions) (*Client, error) {
	c := &Client{making: make(chan struct{}, 1), leveling: make(chan struct{}, 1)}
	if o != nil {
		c.opts = *o
	}
	var err error
	if c.modern, c.legacy, err = era.Select(c.opts.Era); err != nil {
		return nil, fmt.Errorf("mcp: ClientOptions.Era: %w", err)
	}
	c.opts.Name = cmp.Or(c.opts.Name, "farcall")
	c.opts.Version = cmp.Or(c.opts.Version, "0")
	c.opts.Timeout = cmp.Or(c.opts.Timeout, time.Minute)
	c.opts.MaxTimeout = cmp.Or(c.opts.MaxTimeout, 10*time.Minute)
	c.opts.ProbeTimeout = cmp.Or(c.opts.ProbeTimeout, 3*time.Second)
	c.opts.MaxRounds = cmp.Or(c.opts.MaxRounds, 10)
	c.level = c.opts.LogLevel
	c.trace = wirelog.New(c.opts.Trace, func(err error) { c.warn("%w", err) })
	c.cache = newResultCache(c.opts.NoCache)
	c.ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	return c, nil
}

// Connect returns a client of the server at the other end of a transport, which
// it closes in the end: stream.Command for a child process, for example. The
// context bounds the connecting only. With [ClientOptions].Redial a connection
// that has ended is made again, as after [Dial].
func Connect(ctx context.Context, t farcall.Transport, o *ClientOptions) (*Client, error) {
	c, err := newClient(ctx, o)
	if err != nil {
		_ = t.Close() // the other error counts
		return nil, err
	}
	c.dial = c.opts.Redial
	return c.begin(ctx, c.lineOver(t))
}

// begin makes the first link. The client is closed when that fails.
func (c *Client) begin(ctx context.Context, w *line) (*Client, error) {
	agree := c.agree
	if len(c.opts.Resume) > 0 {
		agree = c.resume
	}
	l, err := agree(ctx, w)
	if err != nil && ctx.Err() == nil && errors.Is(err, farcall.ErrClosed) && c.dial != nil &&
		len(c.modern)*len(c.legacy) > 0 {
		_ = w.peer.Close() // it has ended already
		l, err = c.initializeAnew(ctx, err)
	}
	if err != nil {
		_ = w.peer.Close() // the other error counts
		_ = c.Close()
		return nil, fmt.Errorf("mcp: connect: %w", err)
	}
	c.mu.Lock()
	c.cur, c.known = l, l.rev
	c.mu.Unlock()
	c.settled(ctx, l)
	return c, nil
}

// Server returns what the server says of itself.
func (c *Client) Server() *ServerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := *c.cur.info
	return &info
}

// Dropped returns how many answers of the server, on the connection that there is
// now, belonged to no call: because the call was over, or by mistake.
func (c *Client) Dropped() uint64 {
	c.mu.Lock()
	l := c.cur
	c.mu.Unlock()
	return l.peer.Stats().Dropped
}

// Close ends the session, unless [Client.Session] has returned it, the connection
// and what is under way, and waits for the callbacks. No callback may call it.
func (c *Client) Close() error {
	c.mu.Lock()
	was, l := c.closed, c.cur
	c.closed = true
	c.mu.Unlock()
	c.stop()
	var err error
	if l != nil && !was {
		l.stop()
		err = l.peer.Close()
	}
	c.tasks.Wait()
	c.trace.Flush(flushTime)
	return err
}

// flushTime bounds how long the end of a connection waits for the writer of its trace.
const flushTime = time.Second

// spawn runs f in a goroutine that Close waits for, unless that has begun.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.tasks.Go(f)
	}
	return !c.closed
}

// warn tells of something that hurts no call.
func (c *Client) warn(format string, args ...any) {
	if c.opts.OnWarning != nil {
		c.opts.OnWarning(fmt.Errorf("mcp: "+format, args...))
	}
}

// Dial returns a client of the server at an address: http:// and https:// (MCP over HTTP in all its
// forms; host:port is http://host:port/mcp), ws:// and wss://, tcp://host:port, tls://host:port or
// unix:PATH (newline-delimited messages). ClientOptions.HTTP has the TLS, headers and limits of all
// of them. The context bounds the connecting only.
//
// A connection that has ended is made again by the next call. That call and the
// others then go on as if nothing had happened; calls that were under way fail,
// unless they only read.
func Dial(ctx context.Context, address string, o *ClientOptions) (*Client, error) {
	at, err := target.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("mcp: dial: %w", err)
	}
	if !strings.Contains(address, "://") {
		at.DefaultPath("/mcp")
	}
	c, err := newClient(ctx, o)
	if err != nil {
		return nil, err
	}
	if at.Kind == target.HTTP {
		x, err := mcphttp.Dial(at.URL.String(), c.optionsHTTP())
		if err != nil {
			_ = c.Close() // nothing is open yet
			return nil, fmt.Errorf("mcp: dial: %w", err)
		}
		// The address says which server it is. Users, passwords and queries may be credentials.
		u := at.URL
		c.address = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
		return c.begin(ctx, c.lineHTTP(x))
	}
	reach := c.reach()
	c.dial = func(ctx context.Context) (farcall.Transport, error) { return at.Dial(ctx, reach) }
	t, err := c.dial(ctx)
	if err != nil {
		_ = c.Close() // nothing is open yet
		return nil, fmt.Errorf("mcp: dial: %w", err)
	}
	return c.begin(ctx, c.lineOver(t))
}

// optionsHTTP returns ClientOptions.HTTP with the trace.
func (c *Client) optionsHTTP() *mcphttp.DialOptions {
	if c.trace == nil {
		return c.opts.HTTP
	}
	var o mcphttp.DialOptions
	if c.opts.HTTP != nil {
		o = *c.opts.HTTP
	}
	o.Trace = c.trace
	return &o
}

// reach are the options for a connection, of what ClientOptions.HTTP says.
func (c *Client) reach() *target.Options {
	o := &target.Options{Subprotocols: []string{"mcp"}}
	if c.opts.RPC != nil {
		o.Budget = c.opts.RPC.Budget
	}
	h := c.opts.HTTP
	if h == nil {
		return o
	}
	o.Header, o.Client, o.MaxMessage, o.TLS = h.Header, h.HTTP, h.MaxMessage, h.TLS
	return o
}

// dialAttempts is how often one call tries to make a connection again.
const dialAttempts = 5

// redial makes a link over a new connection. One that ends before anything is
// agreed, as that of a process that exits at once, is as good as none.
func (c *Client) redial(ctx context.Context) (*link, error) {
	for attempt := 1; ; attempt++ {
		t, err := c.dial(ctx)
		if err == nil {
			w := c.lineOver(t)
			var l *link
			if l, err = c.agree(ctx, w); err == nil {
				return l, nil
			}
			_ = w.peer.Close() // the other error counts
			if !errors.Is(err, farcall.ErrClosed) {
				return nil, err
			}
		}
		if attempt == dialAttempts ||
			backoff.Sleep(ctx, backoff.Delay(attempt, 100*time.Millisecond, 5*time.Second)) != nil {
			return nil, fmt.Errorf("%w: cannot connect again after %d attempts: %w", farcall.ErrClosed,
				attempt, err)
		}
	}
}

const (
	// maxSaved bounds what Session returns and Resume takes, in bytes.
	maxSaved = 1 << 20
	// savedVersion is the version of these bytes.
	savedVersion = 1
)

var errNotResumable = errors.New(
	"only a session over HTTP can be resumed, and not over HTTP+SSE: " +
		"others end with their connection")

// savedSession is the JSON that Session returns.
type savedSession struct {
	Version   int        `json:"version"`
	Address   string     `json:"address"`
	ID        string     `json:"id"`        // "": the server has no session for the client
	LastEvent string     `json:"lastEvent"` // that this client has handled
	Level     string     `json:"level"`     // of the log
	Server    ServerInfo `json:"server"`
}

// Session returns what [ClientOptions].Resume needs to go on with the session in a later client, in
// another process for example, without a handshake. It works in every revision: where there is no
// session, the later client needs only what the server has said of itself. Session sends nothing.
//
// From then on Close leaves the session on the server, which ends it when no client uses it for
// some time. To end it at once, resume it, and call Close without Session. Subscriptions to
// resources stay, too, where the server keeps them in the session, unless the context of Listen
// ends before Close.
//
// What happens after Session is not in the bytes. Calls that are in flight at Close are lost. The
// server sends events again that come after Session. When a new session has replaced the one in the
// bytes, call Session again.
//
// The bytes have the id of the session, which may be all that an attacker needs to use it: keep
// them as secret as a password. They have none of the client's credentials: neither headers nor the
// user, password and query of the address. They have at most 1 MiB.
//
// Session fails when the session cannot be resumed: over HTTP+SSE and other transports than HTTP;
// with [mcphttp.ErrSessionLost] while a new session replaces a lost one; with farcall.ErrClosed
// after Close; and when the server's description of itself is too long.
func (c *Client) Session() ([]byte, error) {
	c.mu.Lock()
	l, closed, level := c.cur, c.closed, c.level
	c.mu.Unlock()
	switch {
	case closed:
		return nil, fmt.Errorf("mcp: session: %w", farcall.ErrClosed)
	case l.http == nil || l.sse:
		return nil, fmt.Errorf("mcp: session: %w", errNotResumable)
	}
	s := savedSession{
		Version: savedVersion, Address: c.address, ID: l.id, Level: level,
		Server: *l.info,
	}
	if _, err := s.marshal(); err != nil { // before Close leaves the session
		return nil, fmt.Errorf("mcp: session: %w", err)
	}
	if l.id != "" {
		var err error
		if s.LastEvent, err = l.http.Detach(l.id); err != nil {
			return nil, fmt.Errorf("mcp: session: %w", err)
		}
	}
	raw, err := s.marshal()
	if err != nil { // no room for the last event: the later client gets later events only
		s.LastEvent = ""
		raw, err = s.marshal()
	}
	return raw, err
}

// marshal returns the bytes of a session.
func (s *savedSession) marshal() ([]byte, error) {
	raw, err := jsonv2.Append(nil, s)
	if err == nil && len(raw) > maxSaved {
		err = fmt.Errorf(
			"it needs %d bytes, %d of them for the server's instructions; at most %d can be saved",
			len(raw), len(s.Server.Instructions), maxSaved)
	}
	return raw, err
}

// parseSession reads what Session has returned.
func parseSession(raw []byte) (*savedSession, error) {
	if len(raw) > maxSaved {
		return nil, fmt.Errorf("it has %d bytes; a session has at most %d", len(raw), maxSaved)
	}
	var head struct {
		Version int `json:"version"`
	}
	s := new(savedSession)
	switch err := jsonv2.Unmarshal(raw, &head); {
	case err != nil:
		return nil, notSession(err)
	case head.Version != savedVersion:
		return nil,
			fmt.Errorf("it has version %d, and this release of farcall reads version %d; dial without it",
				head.Version, savedVersion)
	}
	switch err := jsonv2.UnmarshalStrict(raw, s); {
	case err != nil:
		return nil, notSession(err)
	case s.Server.Capabilities == nil:
		return nil, errors.New(
			"it is not what Client.Session returns: it does not have the server's capabilities")
	case s.Level != "" && spec.LogSeverity(s.Level) < 0:
		return nil, fmt.Errorf("it is not what Client.Session returns: %.50q is not a log level", s.Level)
	}
	return s, nil
}

// notSession is the error for JSON that is no session, and may have names of any length.
func notSession(err error) error {
	return fmt.Errorf("it is not what Client.Session returns: %.400s", err.Error())
}

// resume makes the first link from ClientOptions.Resume.
func (c *Client) resume(_ context.Context, w *line) (*link, error) {
	s, err := c.resumable(w)
	if err == nil && s.ID != "" {
		err = w.http.Attach(s.ID, s.LastEvent)
	}
	if err != nil {
		return nil, fmt.Errorf("ClientOptions.Resume: %w", err)
	}
	c.mu.Lock()
	c.level = cmp.Or(c.level, s.Level)
	c.mu.Unlock()
	l := c.newLink(w, common(c.revisions(), []string{s.Server.Revision}), &s.Server)
	l.id = s.ID
	return l, nil
}

// resumable returns the session in ClientOptions.Resume if the client can use it over a line.
func (c *Client) resumable(w *line) (*savedSession, error) {
	if w.http == nil {
		return nil, errNotResumable
	}
	s, err := parseSession(c.opts.Resume)
	switch {
	case err != nil:
		return nil, err
	case s.Address != c.address:
		return nil,
			fmt.Errorf("it is a session of %.200q, not of %q; dial that address, or dial without it",
				s.Address, c.address)
	case common(c.revisions(), []string{s.Server.Revision}) == nil:
		return nil,
			fmt.Errorf("it has the revision %.50q and this client may speak %s; see ClientOptions.Era",
				s.Server.Revision, c.allowed())
	}
	return s, nil
}
