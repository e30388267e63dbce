package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// peers are the connections that messages can go both ways over: all but plain
// HTTP. Each speaks JSON-RPC or MCP.
//
// One that is idle costs the goroutine that reads from it, and one of MCP another
// that waits for its end.
type peers struct {
	handler farcall.Handler // of JSON-RPC
	mcp     *mcp.Server
	opts    farcall.Options
	guard   *guard.Guard
	serving context.Context //nolint:containedctx // of all of MCP; it ends when they are to
	drain   context.CancelFunc

	wg     sync.WaitGroup // who waits for a first message, or serves MCP
	mu     sync.Mutex
	last   int
	alive  map[int]func(context.Context) // how to end what is no MCP
	closed bool
}

func newPeers(h farcall.Handler, s *mcp.Server, opts farcall.Options) *peers {
	p := &peers{handler: h, mcp: s, opts: opts, alive: make(map[int]func(context.Context))}
	//nolint:forbidigo // connections end when they are drained, and with nothing else
	p.serving, p.drain = context.WithCancel(context.Background())
	return p
}

// speaksMCP says which protocol a connection is for, by its first message. No
// method of the playground is one of MCP's.
func speaksMCP(frame []byte) bool { return port.SpeaksMCP(frame) }

// start serves a connection and returns at once.
func (p *peers) start(t farcall.Transport, c *guard.Conn) {
	go p.open(t, c, speaksMCP)
}

// startMCP serves a connection that speaks nothing but MCP.
func (p *peers) startMCP(t farcall.Transport, c *guard.Conn) {
	go p.open(t, c, func([]byte) bool { return true })
}

// open waits for the first message of a connection, which tells what it speaks. It
// serves MCP until the connection has ended. For JSON-RPC it starts a peer and
// returns what is closed at the end of that.
func (p *peers) open(t farcall.Transport, c *guard.Conn, isMCP func(frame []byte) bool) (peerDone <-chan struct{}) {
	id, ok := p.enter(t)
	if !ok {
		return nil
	}
	defer p.wg.Done()
	again, frame, err := port.First(t)
	if err != nil && !errors.As(err, new(*jsonrpc.Error)) {
		p.forget(id)
		_ = t.Close() // nothing was asked, nothing is answered
		return nil
	}
	if p.guard != nil {
		c.Close = t.Close
	}
	opts := intercepted(p.guard, c, p.opts)
	opts.Budget = p.budget(c)
	opts.Transport, opts.Conn = c.Transport, c.Transport+"-"+strconv.Itoa(id)
	who := owner.Connection(opts.Conn, c.Remote)
	opts.OnRecord = ofCaller(opts.OnRecord, who)
	if err != nil || !isMCP(frame) {
		return p.openPeer(id, again, &opts)
	}
	p.forget(id)
	opts.V1 = false // no revision has it
	ctx := context.WithValue(p.serving, owner.ContextKey{}, who)
	_ = mcp.Serve(ctx, p.mcp, again, &opts) // its error is the connection's: it broke
	return nil
}

// budget is the memory for the large messages of a connection.
func (p *peers) budget(c *guard.Conn) *farcall.Budget {
	if p.guard == nil {
		return budget.Connection(p.opts.Budget, c, c.Remote)
	}
	return p.guard.Budget(c, p.opts.Budget)
}

// enter books a connection, or closes it when there shall be none any more.
func (p *peers) enter(t farcall.Transport) (id int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = t.Close()
		return 0, false
	}
	p.last++
	p.alive[p.last] = func(context.Context) { _ = t.Close() }
	p.wg.Add(1)
	return p.last, true
}

func (p *peers) openPeer(id int, t farcall.Transport, opts *farcall.Options) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = t.Close()
		return nil
	}
	opts.OnClose = func(error) { p.forget(id) }
	peer := farcall.NewPeer(t, p.handler, opts)
	// Before OnClose can take the lock. The error is the context's: time was up.
	p.alive[id] = func(ctx context.Context) { _ = peer.Shutdown(ctx) }
	return peer.Done()
}

func (p *peers) forget(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, id)
}

// shutdown lets the calls in flight finish and closes every connection, at the
// latest when the context ends.
func (p *peers) shutdown(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	alive := slices.Collect(maps.Values(p.alive))
	p.mu.Unlock()
	p.drain()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		for _, end := range alive {
			wg.Go(func() { end(ctx) })
		}
		wg.Wait()
		p.wg.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done(): // a read that nothing can unblock is left behind
	}
}
