package wsrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall"
)

// ErrConnect is wrapped by the failure of [Dial] when no WebSocket connection
// could be made: no server answered, or the answer was a refusal.
//
// Dial fails with the context's error when that ended first, and with
// farcall.ErrProtocol when the answer was not one to a WebSocket handshake.
var ErrConnect = errors.New("wsrpc: cannot connect")

// Dial connects to a ws or wss URL. The context bounds the handshake only.
func Dial(ctx context.Context, address string, o *Options) (farcall.Transport, error) {
	opts := o.withDefaults()
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("wsrpc: %w", err)
	}
	if u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return nil, fmt.Errorf("wsrpc: %q is not a URL like ws://host:port/path", address)
	}
	up := &dialer{}
	client := http.Client{}
	if opts.Client != nil {
		client = *opts.Client
	}
	up.base = cmp.Or(client.Transport, http.DefaultTransport)
	client.Transport = up
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { up.conn = info.Conn },
	})
	//nolint:bodyclose // the library reads the body and closes it
	ws, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient:   &client,
		HTTPHeader:   opts.Header,
		Host:         opts.Header.Get("Host"), // net/http ignores the header itself
		Subprotocols: opts.Subprotocols,
	})
	if err != nil {
		return nil, dialError(ctx, resp, err)
	}
	return newTransport(ws, up.wire, nil, opts.Budget, &opts), nil
}

// dialer is the http.RoundTripper of the handshake. It puts our wire in place
// of the body of the response, which is the connection.
type dialer struct {
	base http.RoundTripper
	conn net.Conn
	wire *wire
}

func (d *dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.base.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	if rwc, ok := resp.Body.(io.ReadWriteCloser); ok {
		d.wire = newWire(rwc, d.conn)
		resp.Body = d.wire
	}
	return resp, nil
}

func dialError(ctx context.Context, resp *http.Response, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wsrpc: %w: %w", ctx.Err(), err)
	case resp != nil && resp.StatusCode == http.StatusSwitchingProtocols:
		return fmt.Errorf("%w: %w", farcall.ErrProtocol, err)
	case resp != nil:
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // of use even when it is incomplete
		return fmt.Errorf("%w: HTTP status %s, %q", ErrConnect, resp.Status, strings.TrimSpace(string(body)))
	case strings.Contains(err.Error(), "malformed"): // net/http has no type for it
		return fmt.Errorf("%w: not an HTTP server: %w", farcall.ErrProtocol, err)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request // without the two layers of the library around it
	}
	return fmt.Errorf("%w: %w", ErrConnect, err)
}
