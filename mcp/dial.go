package mcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

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
		c.address = addressOf(at.URL)
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

// backoff says how long to wait before the next attempt.
type backoff struct{ next, most time.Duration }

// wait waits, longer each time, and reports whether ctx still lives.
func (b *backoff) wait(ctx context.Context) bool {
	d := b.next
	b.next = min(2*b.next, b.most)
	// Some jitter, so that the clients of a server that has restarted do not
	// come all at once.
	t := time.NewTimer(d/2 + rand.N(d/2+1)) //nolint:gosec // no secret
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dialAttempts is how often one call tries to make a connection again.
const dialAttempts = 5

// redial makes a link over a new connection. One that ends before anything is
// agreed, as that of a process that exits at once, is as good as none.
func (c *Client) redial(ctx context.Context) (*link, error) {
	wait := backoff{next: 100 * time.Millisecond, most: 5 * time.Second}
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
		if attempt == dialAttempts || !wait.wait(ctx) {
			return nil, fmt.Errorf("%w: cannot connect again after %d attempts: %w", farcall.ErrClosed, attempt, err)
		}
	}
}
