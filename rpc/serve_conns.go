package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// conns are the connections that carry messages both ways: all but plain HTTP. Each speaks JSON-RPC
// or MCP, as its first message says.
//
// An idle connection costs the goroutine that reads from it, and one of MCP another that waits for
// its end.
type conns struct {
	handler farcall.Handler // of JSON-RPC
	mcp     MCP             // nil: everything is JSON-RPC
	opts    farcall.Options
	guard   Guard           // nil: none
	serving context.Context //nolint:containedctx // of all of MCP; it ends when the connections are drained
	drain   context.CancelFunc

	wg     sync.WaitGroup // connections that wait for their first message, or serve MCP
	mu     sync.Mutex
	last   int
	alive  map[int]func(context.Context) // how to end a connection, unless it is one of MCP
	closed bool
}

func newConns(h farcall.Handler, o *ServeOptions) *conns {
	c := &conns{
		handler: h, mcp: o.MCP, opts: o.rpc(), guard: o.Guard,
		alive: make(map[int]func(context.Context)),
	}
	//nolint:forbidigo // connections end when they are drained, and with nothing else
	c.serving, c.drain = context.WithCancel(context.Background())
	return c
}

// A link is one connection, from before its first byte on.
type link struct {
	o      farcall.Options
	remote string
	at     net.Addr                // of this end; nil: there is none
	isMCP  func(frame []byte) bool // by its first message

	mu sync.Mutex
	t  farcall.Transport // nil: there is none yet
}

// end closes the transport, once there is one.
func (l *link) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t == nil {
		return nil
	}
	return l.t.Close()
}

// accept implements [Service.Accept].
func (c *conns) accept(conn net.Conn) Accepted {
	l := &link{isMCP: port.SpeaksMCP}
	name := "stdio"
	if conn != nil {
		name, l.remote, l.at = conn.LocalAddr().Network(), conn.RemoteAddr().String(), conn.LocalAddr()
		if _, ok := conn.(*tls.Conn); ok {
			name += "+tls"
		}
	}
	most := c.link(l, name, conn, nil)
	return Accepted{
		MaxMessage: most, Budget: l.o.Budget,
		Serve: func(t farcall.Transport) <-chan struct{} {
			return c.open(t, l)
		},
	}
}

// upgrade serves a WebSocket, which a request has begun.
func (c *conns) upgrade(t farcall.Transport, r *http.Request, isMCP func([]byte) bool) {
	l := &link{isMCP: isMCP, remote: r.RemoteAddr, at: owner.ConnFrom(r.Context()).At}
	c.link(l, secured("ws", r), nil, r)
	go c.open(t, l)
}

// link makes the options of a connection.
func (c *conns) link(l *link, name string, conn net.Conn, r *http.Request) (maxMessage int) {
	l.o = c.opts
	l.o.Transport = name
	if c.guard != nil {
		return c.guard.Connection(&l.o, conn, r, l.end)
	}
	l.o.Budget = budget.Connection(c.opts.Budget, l, l.remote)
	return 0
}

// open waits for the first message of a connection, which says what it speaks. It serves MCP until
// the connection has ended. For JSON-RPC it starts a peer and returns what is closed at the end of
// that.
func (c *conns) open(t farcall.Transport, l *link) (peerDone <-chan struct{}) {
	id, ok := c.enter(t)
	if !ok {
		return nil
	}
	defer c.wg.Done()
	l.mu.Lock()
	l.t = t
	l.mu.Unlock()
	again, frame, err := port.First(t)
	if err != nil && !errors.As(err, new(*jsonrpc.Error)) {
		c.forget(id)
		_ = t.Close() // nothing was asked, nothing is answered
		return nil
	}
	o := l.o
	o.Conn = o.Transport + "-" + strconv.Itoa(id)
	who := &owner.Conn{
		Name: o.Conn, Remote: l.remote, Owner: owner.Connection(o.Conn, l.remote),
		At: l.at,
	}
	o.ConnContext = within(who, o.ConnContext)
	if c.mcp == nil || err != nil || !l.isMCP(frame) {
		return c.openPeer(id, again, &o)
	}
	c.forget(id)
	o.V1 = false // no revision has it
	ctx := context.WithValue(c.serving, owner.ContextKey{}, who.Owner)
	_ = c.mcp.ServeTransport(ctx, again, &o) // its error is the connection's: it broke
	return nil
}

// within puts the connection into the context of its handlers, before what next does with that.
func within(
	who *owner.Conn, next func(context.Context) context.Context,
) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context {
		ctx = context.WithValue(ctx, owner.ConnKey{}, who)
		if next != nil {
			ctx = next(ctx)
		}
		return ctx
	}
}

// enter registers a connection, or closes it when the server is being shut down.
func (c *conns) enter(t farcall.Transport) (id int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = t.Close()
		return 0, false
	}
	c.last++
	c.alive[c.last] = func(context.Context) { _ = t.Close() }
	c.wg.Add(1)
	return c.last, true
}

func (c *conns) openPeer(id int, t farcall.Transport, o *farcall.Options) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = t.Close()
		return nil
	}
	onClose := o.OnClose
	o.OnClose = func(err error) {
		c.forget(id)
		if onClose != nil {
			onClose(err)
		}
	}
	peer := farcall.NewPeer(t, c.handler, o)
	// Before OnClose can take the lock. The error is the context's: time was up.
	c.alive[id] = func(ctx context.Context) { _ = peer.Shutdown(ctx) }
	return peer.Done()
}

func (c *conns) forget(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.alive, id)
}

// shutdown lets the calls in flight finish and closes every connection, at the latest when the
// context ends, and returns its error then.
func (c *conns) shutdown(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	alive := slices.Collect(maps.Values(c.alive))
	c.mu.Unlock()
	c.drain()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		for _, end := range alive {
			wg.Go(func() { end(ctx) })
		}
		wg.Wait()
		c.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done(): // a read that nothing can unblock is left behind
		return ctx.Err()
	}
}
