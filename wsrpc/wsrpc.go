package wsrpc

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	defaultMaxMessage   = 50 << 20
	defaultPingInterval = 30 * time.Second

	// acceptRead is the read buffer of an accepted connection. It is half of
	// what an idle one costs; larger frames are read past it.
	acceptRead = 2 << 10
	// acceptWrite holds a header only: frames are collected by the wire.
	acceptWrite = 32
)

// Options adjust both ends. The zero value, and nil, mean the defaults. They
// are copied; later changes have no effect.
type Options struct {
	// MaxMessage bounds a message that arrives, in bytes. Default 50 MB.
	MaxMessage int
	// MessageTimeout is how long a message may take from its first byte until it is
	// complete, and a second more for each 100 KB of it. Then the connection is closed
	// with status 1008. Default 30 s; negative: for ever.
	MessageTimeout time.Duration
	// Budget has the memory for messages of more than 64 KiB. One for which there is
	// none is answered with -32010 and skipped; an unauthenticated connection may be
	// closed with status 1013. Default: that of the process, see [farcall.Budget].
	Budget *farcall.Budget
	// PingInterval is how long a connection may be silent before a ping is sent.
	// When the answer does not come within the same time, the connection ends.
	// Default 30 s; negative: no pings.
	PingInterval time.Duration
	// Subprotocols are what Dial offers, the preferred one first, and what NewHandler
	// accepts: it selects the first that the client offers and that is in this list, or
	// none. Dial fails when the server selects one that was not offered. Default: Dial
	// offers none, and NewHandler accepts "jsonrpc" and "json-rpc-2.0".
	Subprotocols []string

	// Origins are the web pages of other hosts that may connect to the serving
	// end: "https://app.example.com", "localhost:3000", "*.example.com", or "*"
	// for all. Default none.
	Origins []string
	// Hosts are the DNS names of the serving end, which a request may have in its
	// Host header: "tools.example.com", "*.example.com", or "*" for all. IP addresses
	// and localhost are always allowed. Other names are answered with 403, since a web
	// page can have its own name point here (DNS rebinding), unless a guard.Guard
	// stands in front that asks every caller for credentials. Default none.
	Hosts []string

	// Client makes the connection of the calling end. Its Transport must be able
	// to upgrade, as that of net/http is. Default http.DefaultClient.
	Client *http.Client
	// Header is sent with the request of the calling end.
	Header http.Header
}

func (o *Options) withDefaults() Options {
	c := *cmp.Or(o, &Options{})
	c.MaxMessage = cmp.Or(c.MaxMessage, defaultMaxMessage)
	c.PingInterval = cmp.Or(c.PingInterval, defaultPingInterval)
	return c
}

// NewHandler accepts connections and hands each to serve, which should start a
// peer and return: the connection does not need the request's goroutine, nor its
// context, and costs much less memory without.
func NewHandler(serve func(t farcall.Transport, r *http.Request), o *Options) http.Handler {
	opts := o.withDefaults()
	if opts.Subprotocols == nil {
		opts.Subprotocols = []string{"jsonrpc", "json-rpc-2.0"}
	}
	policy := origin.Policy{Origins: opts.Origins, Hosts: opts.Hosts}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := policy.Check(r); err != nil {
			refuse(w, http.StatusForbidden, "Forbidden: "+err.Error())
			return
		}
		up := &upgrade{ResponseWriter: w}
		ws, err := websocket.Accept(up, r, &websocket.AcceptOptions{
			Subprotocols:       subprotocol(r, opts.Subprotocols),
			InsecureSkipVerify: true, // checked above
		})
		if err != nil {
			return // answered
		}
		up.wire.remote = r.RemoteAddr // a proxy may have named the client
		serve(newTransport(ws, up.wire, up.reader, budget.Of(r.Context(), opts.Budget), &opts), r)
	})
}

// subprotocol returns the first offer of a client that is accepted, if any. The library alone
// would go by the order of the server, but a client lists its offers by preference (RFC 6455 §1.9).
func subprotocol(r *http.Request, accepted []string) []string {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			if offer = strings.TrimSpace(offer); slices.Contains(accepted, offer) {
				return []string{offer}
			}
		}
	}
	return nil
}

// refuse answers for HTTP itself: the body is a JSON-RPC error.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(jsonrpc.V2.AppendError(nil, jsonrpc.NullID(),
		&jsonrpc.Error{Code: jsonrpc.InvalidRequest, Message: message}))
}

// upgrade is the http.ResponseWriter that the handshake sees. It puts our wire
// and small buffers in place of those of net/http, and makes refusals JSON.
type upgrade struct {
	http.ResponseWriter
	status int
	wire   *wire
	reader *bufio.Reader
}

func (u *upgrade) WriteHeader(status int) {
	u.status = status
	if status == http.StatusSwitchingProtocols {
		u.ResponseWriter.WriteHeader(status)
	}
}

// Write gets the text of a refusal.
func (u *upgrade) Write(text []byte) (int, error) {
	refuse(u.ResponseWriter, u.status, string(text[:len(text)-len("\n")]))
	return len(text), nil
}

// Hijack takes the connection over from net/http.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	u.wire = newWire(conn, conn)
	early, _ := rw.Peek(rw.Reader.Buffered()) // what is buffered can be peeked
	src := io.MultiReader(bytes.NewReader(early), u.wire)
	u.reader = bufio.NewReaderSize(src, max(acceptRead, len(early)))
	_, _ = u.reader.Peek(len(early)) // as above: Accept takes it from the buffer
	return hijacked{u.wire, conn},
		bufio.NewReadWriter(u.reader, bufio.NewWriterSize(u.wire, acceptWrite)), nil
}

// hijacked is a net.Conn; its bytes go through the wire.
type hijacked struct {
	io.ReadWriteCloser
	conn net.Conn
}

func (h hijacked) LocalAddr() net.Addr                { return h.conn.LocalAddr() }
func (h hijacked) RemoteAddr() net.Addr               { return h.conn.RemoteAddr() }
func (h hijacked) SetDeadline(t time.Time) error      { return h.conn.SetDeadline(t) }
func (h hijacked) SetReadDeadline(t time.Time) error  { return h.conn.SetReadDeadline(t) }
func (h hijacked) SetWriteDeadline(t time.Time) error { return h.conn.SetWriteDeadline(t) }

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
		return fmt.Errorf("%w: HTTP status %s, %q", ErrConnect, resp.Status,
			strings.TrimSpace(string(body)))
	case strings.Contains(err.Error(), "malformed"): // net/http has no type for it
		return fmt.Errorf("%w: not an HTTP server: %w", farcall.ErrProtocol, err)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request // without the two layers of the library around it
	}
	return fmt.Errorf("%w: %w", ErrConnect, err)
}
