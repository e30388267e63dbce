package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/target"
)

// ErrUnknown is wrapped by the failure of a call that was sent, or may have been, before the
// connection broke: whether it had an effect is not known. It is not sent again; do so if that does
// no harm.
var ErrUnknown = errors.New("rpc: sent: unknown")

var errClosed = errors.New("the client was closed")

// A Client calls one server and stays connected to it. Its methods may be called by any number of
// goroutines at once.
//
// While there is no connection a call waits for one, as long as its context lasts. One that was not
// sent when the connection broke (its error wraps [farcall.ErrNotSent]) is sent over the next;
// another one fails with [ErrUnknown].
type Client struct {
	o Options
	// nil: HTTP, which has no connection to lose
	dial   func(context.Context) (farcall.Transport, error)
	ctx    context.Context //nolint:containedctx // ends when the client is closed
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	peer    *farcall.Peer // nil: there is no connection
	changed chan struct{} // closed at the next change of peer
	closed  bool          // no peer is set any more
}

var _ farcall.Caller = (*Client)(nil)

// Call implements [farcall.Caller].
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.over(ctx, method, func(p *farcall.Peer) error {
		return p.Call(ctx, method, params, result)
	})
}

// Notify implements [farcall.Caller]. It waits for a connection, as Call does.
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	return c.over(ctx, method, func(p *farcall.Peer) error { return p.Notify(ctx, method, params) })
}

// Done implements [farcall.Caller]: it is closed when the client is, by Close or after
// Options.MaxAttempts.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// over sends something over the connection, and again over the next one when it was not sent.
func (c *Client) over(ctx context.Context, method string, send func(*farcall.Peer) error) error {
	for {
		p, err := c.Peer(ctx)
		if err != nil {
			return fmt.Errorf("rpc: %q: %w", method, err)
		}
		err = send(p)
		switch {
		case err == nil || c.dial == nil || !errors.Is(err, farcall.ErrClosed):
			return err
		case !errors.Is(err, farcall.ErrNotSent):
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		c.lost(p)
	}
}

// Peer returns the connection as it is now, for batches and what else a Client has no method for.
// It waits for one, as long as the context lasts.
func (c *Client) Peer(ctx context.Context) (*farcall.Peer, error) {
	for {
		c.mu.Lock()
		p, changed := c.peer, c.changed
		c.mu.Unlock()
		if c.ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w: %w", farcall.ErrNotSent, farcall.ErrClosed, context.Cause(c.ctx))
		}
		if p != nil && (c.dial == nil || p.Err() == nil) {
			return p, nil
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: there is no connection: %w", farcall.ErrNotSent, ctx.Err())
		}
	}
}

// Close ends the connection and all calls, and waits until nothing of the client runs.
func (c *Client) Close() error { return c.end((*farcall.Peer).Close) }

// Shutdown lets the calls that the server has made finish, as long as the context lasts, and closes
// the client.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.end(func(p *farcall.Peer) error { return p.Shutdown(ctx) })
}

// end ends the client, and its connection by the given function.
func (c *Client) end(connection func(*farcall.Peer) error) error {
	c.cancel(errClosed)
	c.mu.Lock()
	p := c.peer
	c.closed = true
	c.mu.Unlock()
	var err error
	if p != nil {
		err = connection(p)
	}
	c.work.Wait()
	return err
}

// begin makes the first connection, and starts what makes the next ones.
func (c *Client) begin(ctx context.Context) error {
	p, err := c.connect(ctx)
	if err != nil {
		c.cancel(errClosed)
		return err
	}
	c.set(p)
	c.tell(State{Connected: true})
	c.work.Go(func() { c.keep(p) })
	return nil
}

// connect makes a connection that may carry calls.
func (c *Client) connect(ctx context.Context) (*farcall.Peer, error) {
	t, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	p := farcall.NewPeer(t, c.o.Handler, c.o.RPC) //nolint:contextcheck // a peer lives until it is closed
	if c.o.OnConnect == nil {
		return p, nil
	}
	if err := c.o.OnConnect(ctx, p); err != nil {
		_ = p.Close() // the other error counts
		return nil, err
	}
	return p, nil
}

// keep connects again whenever the connection has broken, until the client is closed.
func (c *Client) keep(p *farcall.Peer) {
	r := retries{delay: c.o.MinDelay}
	for {
		connected := time.Now()
		select {
		case <-p.Done():
		case <-c.ctx.Done():
			<-p.Done() // end has it, and may let its calls finish
		}
		if c.ctx.Err() != nil { // end has closed it: it did not break
			c.tell(State{Closed: true, Err: context.Cause(c.ctx)})
			return
		}
		c.lost(p)
		if time.Since(connected) >= r.delay {
			r = retries{delay: c.o.MinDelay}
		}
		var err error
		if p, err = c.again(&r, p.Err()); err != nil {
			c.cancel(err)
			c.tell(State{Closed: true, Err: err})
			return
		}
		if !c.set(p) {
			_ = p.Close() // it carries nothing
			c.tell(State{Closed: true, Err: context.Cause(c.ctx)})
			return
		}
		c.tell(State{Connected: true})
	}
}

// retries are the attempts to connect since the last connection that lasted. One that breaks sooner
// than the next delay did not: a server, or a child process, that ends at once is not tried all the
// time.
type retries struct {
	attempts int
	delay    time.Duration // before the next one, without jitter
}

// again makes a connection, as often as it takes. Why is the end of the one before.
func (c *Client) again(r *retries, why error) (*farcall.Peer, error) {
	for {
		if c.o.MaxAttempts > 0 && r.attempts >= c.o.MaxAttempts {
			return nil, fmt.Errorf("no connection after %d attempts: %w", r.attempts, why)
		}
		r.attempts++
		// Some jitter, so that the clients of a server that has restarted do not come all at once.
		wait := r.delay/2 + rand.N(r.delay+1) //nolint:gosec // no secret
		r.delay = min(2*r.delay, c.o.MaxDelay)
		c.tell(State{Attempt: r.attempts, Wait: wait, Err: why})
		if backoff.Sleep(c.ctx, wait) != nil {
			return nil, context.Cause(c.ctx)
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.o.ConnectTimeout)
		p, err := c.connect(ctx)
		cancel()
		switch {
		case err == nil:
			return p, nil
		case c.ctx.Err() != nil:
			return nil, context.Cause(c.ctx)
		}
		why = err
	}
}

// set notes a new connection. It reports false when the client was closed meanwhile.
func (c *Client) set(p *farcall.Peer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.peer = p
	close(c.changed)
	c.changed = make(chan struct{})
	return true
}

// lost forgets a connection that has ended.
func (c *Client) lost(p *farcall.Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer == p {
		c.peer = nil
	}
}

func (c *Client) tell(s State) {
	if c.o.OnState != nil {
		c.o.OnState(s)
	}
}

// Options adjust a Client. They are copied; zero values are the defaults.
type Options struct {
	// Handler answers what the server calls, over connections that carry calls both ways: all but
	// HTTP. Nil refuses everything.
	Handler farcall.Handler
	// RPC adjusts the peer of each connection. Its OnClose is called for each.
	RPC *farcall.Options
	// TLS is how the certificates of tls, https and wss are checked. Default: by the roots of the
	// system.
	TLS *tls.Config
	// HTTP sends the requests of http, https, ws and wss. Default: its own client, with the proxy of
	// the environment and TLS.
	HTTP *http.Client
	// Header is sent with each request of http, https, ws and wss: "Authorization: Bearer KEY" for a
	// guard with API keys, for example. The other transports have no headers, and Dial fails for them:
	// there a client certificate in TLS says who calls.
	Header http.Header
	// MaxMessage bounds a message that arrives, in bytes. Default: that of the transport.
	MaxMessage int
	// Gzip accepts and sends bodies of http and https in gzip, where the server has it, too. Default:
	// no, for sizes may reveal secrets (BREACH): see [github.com/farcall-dev/farcall/httprpc].
	Gzip bool

	// MinDelay is how long to wait before the first attempt to connect again, give or take a half; it
	// doubles with each that fails, up to MaxDelay. A connection that breaks sooner than the next
	// delay counts as an attempt that failed. Default 100 ms and 30 s.
	MinDelay, MaxDelay time.Duration
	// ConnectTimeout bounds an attempt to connect again, OnConnect included. Default 30 s.
	ConnectTimeout time.Duration
	// MaxAttempts is how many attempts in a row may fail before the client is closed. Default 0: any
	// number.
	MaxAttempts int
	// OnConnect is called with each new connection before it carries calls: the place to log in and to
	// subscribe again. The connection is closed when it fails, which counts as a failed attempt. The
	// context is that of connecting. Not called for HTTP.
	OnConnect func(ctx context.Context, p *farcall.Peer) error
	// OnState is called at each change of state, one at a time and in order. It must return soon.
	OnState func(State)
}

// A State is that of the connection of a Client.
type State struct {
	// Connected says that calls can be sent.
	Connected bool
	// Closed says that the client has ended, by Close or after MaxAttempts.
	Closed bool
	// Attempt counts the attempts to connect since the last connection that lasted, the next one
	// included, which is made after Wait.
	Attempt int
	Wait    time.Duration
	// Err is why there is no connection.
	Err error
}

// String returns what a log should say: "connected", "closed: WHY", or "attempt N in WAIT: WHY".
func (s State) String() string {
	switch {
	case s.Connected:
		return "connected"
	case s.Closed:
		return fmt.Sprintf("closed: %v", s.Err)
	}
	return fmt.Sprintf("attempt %d in %v: %v", s.Attempt, s.Wait.Round(time.Millisecond), s.Err)
}

// Dial returns a client of the server at an address:
//
//	http://host:port/path     https too; without a path: /rpc
//	ws://host:port/path       wss too; without a path: /rpc/ws
//	tcp://host:port           tls:// for TCP with TLS; ?framing=header or raw
//	unix:PATH                 a socket; ?framing=header or raw
//	npipe:NAME                a named pipe, on Windows; ?framing=header or raw
//	host:port                 the same as http://host:port
//
// It fails when the first attempt to connect does; nothing is connected over HTTP before the first
// call. The context bounds the connecting only. The client is to be closed.
func Dial(ctx context.Context, address string, o *Options) (*Client, error) {
	at, err := target.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	at.DefaultPath("")
	return open(ctx, at, o)
}

// Command returns a client of a child process, which it starts, over its standard input and output.
// A process that ends is started again. The standard error is that of this process.
func Command(ctx context.Context, o *Options, program string, args ...string) (*Client, error) {
	return open(ctx, target.Child(append([]string{program}, args...)), o)
}

// NewClient returns a client over the transports that dial makes, for those that Dial has no
// address for, or to see the frames of one that it has. It fails when the first attempt does, with
// the error of dial. Of the options TLS, HTTP, Header, MaxMessage and Gzip are for dial to obey.
func NewClient(
	ctx context.Context, dial func(context.Context) (farcall.Transport, error), o *Options,
) (*Client, error) {
	c := newClient(o)
	c.dial = dial
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

func open(ctx context.Context, at *target.Target, o *Options) (*Client, error) {
	c := newClient(o)
	if len(c.o.Header) > 0 && at.Kind != target.HTTP && at.Kind != target.WebSocket {
		return nil,
			fmt.Errorf("rpc: %s has no headers, and would lose those of Options.Header: use https or wss, "+
				"or a client certificate in Options.TLS", at)
	}
	reach := &target.Options{
		TLS: c.o.TLS, Client: c.o.HTTP, Header: c.o.Header, MaxMessage: c.o.MaxMessage, Gzip: c.o.Gzip,
		Prepare: func(cmd *exec.Cmd) { cmd.Stderr = os.Stderr },
	}
	if c.o.RPC != nil {
		reach.Budget = c.o.RPC.Budget
	}
	if at.Kind == target.HTTP {
		x, err := at.Exchange(reach)
		if err != nil {
			c.cancel(err)
			return nil, fmt.Errorf("rpc: %w", err)
		}
		c.peer = farcall.NewClient(x, c.o.Handler, c.o.RPC)
		return c, nil
	}
	c.dial = func(ctx context.Context) (farcall.Transport, error) { return at.Dial(ctx, reach) }
	if err := c.begin(ctx); err != nil {
		return nil, fmt.Errorf("rpc: cannot connect to %s: %w", at, err)
	}
	return c, nil
}

func newClient(o *Options) *Client {
	c := &Client{changed: make(chan struct{})}
	c.o = *cmp.Or(o, &Options{})
	c.o.ConnectTimeout = cmp.Or(c.o.ConnectTimeout, 30*time.Second)
	c.o.MinDelay = cmp.Or(c.o.MinDelay, 100*time.Millisecond)
	c.o.MaxDelay = max(cmp.Or(c.o.MaxDelay, 30*time.Second), c.o.MinDelay)
	//nolint:forbidigo // a client lives until it is closed, not as long as the call that made it
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}
