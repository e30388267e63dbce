package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
)

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
	// doubles with each that fails, up to MaxDelay. A connection that breaks sooner than the next delay
	// counts as an attempt that failed. Default 100 ms and 30 s.
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
func NewClient(ctx context.Context, dial func(context.Context) (farcall.Transport, error), o *Options) (*Client, error) {
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
		return nil, fmt.Errorf("rpc: %s has no headers, and would lose those of Options.Header: use https or wss, or a client certificate in Options.TLS", at)
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
	if o != nil {
		c.o = *o
	}
	c.o.ConnectTimeout = cmp.Or(c.o.ConnectTimeout, 30*time.Second)
	c.o.MinDelay = cmp.Or(c.o.MinDelay, 100*time.Millisecond)
	c.o.MaxDelay = max(cmp.Or(c.o.MaxDelay, 30*time.Second), c.o.MinDelay)
	//nolint:forbidigo // a client lives until it is closed, not as long as the call that made it
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}
