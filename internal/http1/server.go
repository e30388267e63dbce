package http1

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/late"
)

const (
	everyTurn  = time.Second            // between two looks at the connections
	leanAfter  = 2                      // turns, until an idle connection gives back its buffers
	lingerTime = 500 * time.Millisecond // as in net/http
	watchAfter = time.Millisecond       // what a request takes before its client is watched
)

// A Server serves what is ours of the connections of an http.Server.
type Server struct {
	hs       *http.Server
	fast     func(path string) bool
	handler  http.Handler
	idleTime time.Duration
	headTime time.Duration

	late  [8]paddedWatch // several, so that connections seldom meet at one lock
	pool  sync.Pool      // of *scratch
	date  atomic.Pointer[date]
	count atomic.Uint64 // of connections
	turn  atomic.Int64  // of the timer

	draining atomic.Bool
	done     chan struct{} // closed by Close

	mu    sync.Mutex
	ended bool // by Close
	conns map[*conn]struct{}
	timer *time.Timer   // runs while there are connections
	empty chan struct{} // closed when there are none and the server drains; nil: it does not
}

// A paddedWatch does not share a line of a cache with the next one.
type paddedWatch struct {
	late.Watch

	_ [64]byte
}

// Std reports whether the environment leaves every request to net/http:
// FARCALL_HTTP=std.
func Std() bool { return os.Getenv("FARCALL_HTTP") == "std" }

// New returns a Server in front of hs. Both have the same Handler, IdleTimeout,
// ReadHeaderTimeout, ConnContext, ConnState and ErrorLog. hs sets no ReadTimeout and no
// WriteTimeout, which handlers set, and does not set its BaseContext. fast says which
// paths are ours. New changes hs.ConnContext, so that a connection that net/http takes over keeps
// the values of its context.
func New(hs *http.Server, fast func(path string) bool) *Server {
	s := &Server{
		hs: hs, fast: fast, handler: hs.Handler, idleTime: hs.IdleTimeout, headTime: hs.ReadHeaderTimeout,
		done: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	for i := range s.late {
		s.late[i].After = watchAfter
	}
	before := hs.ConnContext
	hs.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if k, ok := c.(interface{ HTTP1Context() context.Context }); ok && k.HTTP1Context() != nil {
			return k.HTTP1Context()
		}
		if before != nil {
			return before(ctx, c)
		}
		return ctx
	}
	return s
}

// Serve serves the requests of a connection that are ours; prefix was read from it
// already. At the first that is not, it returns what net/http has to read before the
// connection, and a context for [TakeOver]. Otherwise it has closed the connection,
// and the context is nil.
func (s *Server) Serve(rwc net.Conn, prefix []byte) (rest []byte, ctx context.Context) {
	c := &conn{s: s, rwc: rwc, phase: reading, since: s.turn.Load(), number: s.count.Add(1)}
	if !s.add(c) {
		_ = rwc.Close() // as Close does
		return nil, nil
	}
	over := false
	s.hook(rwc, http.StateNew)
	defer func() {
		state := http.StateHijacked
		if !over {
			state = http.StateClosed
			_ = rwc.Close() // it may be closed
		}
		s.hook(rwc, state)
		s.remove(c)
	}()
	if a := rwc.RemoteAddr(); a != nil {
		c.remote = a.String()
	}
	if t, ok := rwc.(interface{ ConnectionState() tls.ConnectionState }); ok {
		state := t.ConnectionState()
		c.tls = &state
	}
	base := context.Background() //nolint:forbidigo // as net/http does
	base = context.WithValue(base, http.ServerContextKey, s.hs)
	if s.hs.ConnContext != nil {
		base = s.hs.ConnContext(base, rwc)
	}
	c.ctx = context.WithValue(base, http.LocalAddrContextKey, rwc.LocalAddr())
	c.borrow()
	c.w = copy(c.in, prefix)
	if rest, over = c.serve(); over {
		return rest, base
	}
	return nil, nil
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.draining.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	if s.timer == nil {
		s.timer = time.AfterFunc(everyTurn, s.look)
	} else if len(s.conns) == 1 {
		s.timer.Reset(everyTurn)
	}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) > 0 {
		return
	}
	s.timer.Stop()
	if s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// look is what the timer does: it looks at each connection.
func (s *Server) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := s.turn.Add(1)
	for c := range s.conns {
		c.look(turn)
	}
	if len(s.conns) > 0 {
		s.timer.Reset(everyTurn)
	}
}

// Shutdown closes connections that are idle, lets the requests of others finish,
// and closes these when the context ends. Serve accepts none any more.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	for c := range s.conns {
		c.closeIfIdle()
	}
	var empty chan struct{}
	if len(s.conns) > 0 {
		if s.empty == nil {
			s.empty = make(chan struct{})
		}
		empty = s.empty
	}
	s.mu.Unlock()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		s.Close()
		return ctx.Err()
	}
}

// Close closes all connections. It does not wait for handlers.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	close(s.done)
	for c := range s.conns {
		_ = c.rwc.Close() // it may be closed
	}
}

func (s *Server) hook(c net.Conn, state http.ConnState) {
	if s.hs.ConnState != nil {
		s.hs.ConnState(c, state)
	}
}

func (s *Server) logf(format string, args ...any) {
	if s.hs.ErrorLog != nil {
		s.hs.ErrorLog.Printf(format, args...)
		return
	}
	slog.Error(fmt.Sprintf(format, args...))
}

// A date is the text of a second.
type date struct {
	second int64
	text   string
}

// dateText returns the value of a Date header.
func (s *Server) dateText() string {
	now := time.Now()
	if d := s.date.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &date{now.Unix(), now.UTC().Format(http.TimeFormat)}
	s.date.Store(d)
	return d.text
}

// A Rest is a connection that net/http takes over: what was read of it and not used
// comes first.
type Rest struct {
	net.Conn
	rest []byte
	ctx  context.Context //nolint:containedctx // for HTTP1Context
}

// TakeOver returns the connection that hs gets, with what [Server.Serve] has returned.
// That of TLS has a method ConnectionState.
//
//nolint:revive // it belongs to the connection
func TakeOver(conn net.Conn, rest []byte, ctx context.Context) net.Conn {
	r := Rest{conn, rest, ctx}
	if t, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return &secureRest{r, t}
	}
	return &r
}

// Read implements net.Conn.
func (r *Rest) Read(p []byte) (int, error) {
	if len(r.rest) > 0 && len(p) > 0 {
		n := copy(p, r.rest)
		if r.rest = r.rest[n:]; len(r.rest) == 0 {
			r.rest = nil
		}
		return n, nil
	}
	return r.Conn.Read(p)
}

// HTTP1Context is for the ConnContext of New.
func (r *Rest) HTTP1Context() context.Context { return r.ctx }

// NetConn returns the connection below.
func (r *Rest) NetConn() net.Conn { return r.Conn }

// CloseWrite ends what we send. net/http asks for it.
func (r *Rest) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// A secureRest is a Rest of TLS. net/http asks for its state.
type secureRest struct {
	Rest
	state interface{ ConnectionState() tls.ConnectionState }
}

func (s *secureRest) ConnectionState() tls.ConnectionState { return s.state.ConnectionState() }

// A Front is the listener of an http.Server that has a Server in front: it serves
// what is ours, and Accept returns the connections for net/http. Connections with
// TLS are for net/http from the beginning.
type Front struct {
	net.Listener
	s     *Server
	next  chan accepted
	done  chan struct{}
	start sync.Once // of accept
	end   sync.Once // of done
}

type accepted struct {
	conn net.Conn
	err  error
}

// NewFront returns a Front of a listener. As in net/http nothing is served before
// the first Accept, so that the http.Server may be changed until then.
func NewFront(l net.Listener, s *Server) *Front {
	return &Front{Listener: l, s: s, next: make(chan accepted), done: make(chan struct{})}
}

func (f *Front) accept() {
	for !f.closed() {
		conn, err := f.Listener.Accept()
		if err != nil {
			f.give(nil, err) // it waits until net/http accepts again
			continue
		}
		go f.serve(conn)
	}
}

func (f *Front) serve(conn net.Conn) {
	if _, secure := conn.(*tls.Conn); secure {
		f.give(conn, nil)
	} else if rest, ctx := f.s.Serve(conn, nil); ctx != nil {
		f.give(TakeOver(conn, rest, ctx), nil)
	}
}

func (f *Front) give(conn net.Conn, err error) {
	select {
	case f.next <- accepted{conn, err}:
	case <-f.done:
		if conn != nil {
			_ = conn.Close() // as net/http does
		}
	}
}

func (f *Front) closed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener. An error is that of the listener; after one that
// is temporary Accept can be called again.
func (f *Front) Accept() (net.Conn, error) {
	f.start.Do(func() { go f.accept() })
	select {
	case a := <-f.next:
		return a.conn, a.err
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener. What the Server serves goes on.
func (f *Front) Close() error {
	f.end.Do(func() { close(f.done) })
	return f.Listener.Close()
}

// A requestContext is the context of a request: the values of its connection, and
// its own end.
type requestContext struct {
	callctx.Context

	end callctx.End
}

// begin makes the values of a connection those of the context.
func (c *requestContext) begin(conn context.Context) {
	c.Context = callctx.Until(conn, nil, &c.end)
}

// cancel ends the context. Further calls do nothing.
func (c *requestContext) cancel() { c.end.Cancel(context.Canceled) }
