package target

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/npipe"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// Standard returns the transports of farcall, in the order in which help lists them.
func Standard() Table {
	return Table{
		{
			Names: []string{"http", "https"}, Secure: []string{"https"}, Kind: HTTP,
			Form:     "://host:port/path",
			Help:     "http://host[:port][/path]            https too; without a path: /rpc",
			Parse:    parseURL,
			Exchange: exchange,
		},
		{
			Names: []string{"ws", "wss"}, Secure: []string{"wss"}, Kind: WebSocket,
			Form:  "://host:port/path",
			Help:  "ws://host[:port][/path]              wss too; without a path: /rpc/ws",
			Parse: parseURL,
			Dial: func(ctx context.Context, t *Target, o *Options) (farcall.Transport, error) {
				return wsrpc.Dial(ctx, t.URL.String(), &wsrpc.Options{
					Client: o.client(t.Kind), Header: o.Header, Subprotocols: o.Subprotocols,
					MaxMessage: o.MaxMessage, MessageTimeout: o.FrameTimeout, Budget: o.Budget,
				})
			},
		},
		{
			Names: []string{"tcp", "tls"}, Secure: []string{"tls"}, Kind: Stream, Form: "://host:port",
			Help:  "tcp://host:port[?framing=FRAMING]    tls:// for TCP with TLS",
			Parse: parseHostPort,
			Open: func(ctx context.Context, t *Target, o *Options) (io.ReadWriteCloser, error) {
				if !t.Secure {
					return new(net.Dialer).DialContext(ctx, "tcp", t.Address)
				}
				return (&tls.Dialer{
					Config: cmp.Or(o.TLS, &tls.Config{MinVersion: tls.VersionTLS12}),
				}).DialContext(ctx, "tcp", t.Address)
			},
		},
		{
			Names: []string{"unix"}, Kind: Stream, Opaque: true, Form: ":/run/server.sock",
			Help:  "unix:PATH[?framing=FRAMING]          a socket",
			Parse: parsePath,
			Open: func(ctx context.Context, t *Target, _ *Options) (io.ReadWriteCloser, error) {
				return new(net.Dialer).DialContext(ctx, "unix", t.Address)
			},
		},
		{
			Names: []string{"nats", "nats+tls"}, Secure: []string{"nats+tls"}, Kind: HTTP,
			Form: "://host:port/SUBJECT", Subject: true,
			Help:     "nats://host[:port]/SUBJECT[/path]    a subject of NATS; nats+tls too",
			Parse:    parseSubject,
			Exchange: exchange,
		},
		{
			Names: []string{"npipe"}, Kind: Stream, Opaque: true, Form: ":farcall",
			Help:  "npipe:NAME[?framing=FRAMING]         a named pipe, on Windows",
			Parse: parsePath,
			Open: func(ctx context.Context, t *Target, _ *Options) (io.ReadWriteCloser, error) {
				return npipe.Dial(ctx, t.Address)
			},
		},
	}
}

// exchange sends requests with the client of HTTP: its transport is what connects over NATS.
func exchange(t *Target, o *Options) (farcall.Exchanger, error) {
	if t.row.Subject && o.Client == nil {
		return nil, fmt.Errorf(
			"%s: nothing here sends over NATS; a natsrpc.Transport in the client of HTTP does", t)
	}
	return httprpc.Dial(t.URL.String(),
		&httprpc.Options{
			Client: o.client(t.Kind), Header: o.Header, MaxMessage: o.MaxMessage,
			Gzip: o.Gzip, Budget: o.Budget,
		})
}

// child is not in the table: a command has no scheme.
func child() *Scheme {
	return &Scheme{
		Kind: Command,
		Dial: func(_ context.Context, t *Target, o *Options) (farcall.Transport, error) {
			if len(t.Command) == 0 {
				return nil, errors.New("target: the command has no program")
			}
			cmd := exec.Command(t.Command[0], t.Command[1:]...) //nolint:noctx // the command is the caller's; closing the transport ends it
			if o.Prepare != nil {
				o.Prepare(cmd)
			}
			return stream.Command(cmd, t.Framing,
				&stream.Options{MaxMessage: o.MaxMessage, FrameTimeout: o.FrameTimeout, Budget: o.Budget})
		},
	}
}

// parseURL reads a URL of HTTP or WebSocket.
func parseURL(t *Target, text string) (why string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "it is not a URL"
	case u.Hostname() == "":
		return "it has no host"
	}
	t.URL = u
	return ""
}

// parseSubject reads SCHEME://host/SUBJECT, with or without a path behind the subject.
func parseSubject(t *Target, text string) (why string) {
	if why := parseURL(t, text); why != "" {
		return why
	}
	if subject, _, _ := strings.Cut(strings.TrimPrefix(t.URL.Path, "/"), "/"); subject == "" ||
		strings.ContainsAny(subject, "*> ") {
		return "it has no subject, or one with a wildcard"
	}
	return ""
}

// parseHostPort reads SCHEME://host:port.
func parseHostPort(t *Target, text string) (why string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "it is not a URL"
	case u.Hostname() == "" || u.Port() == "":
		return "it needs a host and a port"
	case u.Path != "" && u.Path != "/":
		return "a byte stream has no path"
	case u.User != nil:
		return "a byte stream has no user"
	}
	t.Address = u.Host
	return t.query(u.RawQuery)
}

// parsePath reads NAME:PATH, also with slashes that nothing stands before: unix:///run/x.sock is
// common.
func parsePath(t *Target, text string) (why string) {
	_, rest, _ := strings.Cut(text, ":")
	path, query, _ := strings.Cut(rest, "?")
	path = strings.TrimPrefix(path, "//")
	if path == "" {
		return "it has no path"
	}
	t.Address = path
	return t.query(query)
}

// query reads what stands behind the question mark of a byte stream.
func (t *Target) query(query string) (why string) {
	name, found := strings.CutPrefix(query, "framing=")
	framing, known := ParseFraming(name)
	if query != "" && (!found || !known) {
		return fmt.Sprintf("%q is not an option; there is framing=header and framing=raw", query)
	}
	t.Framing = framing
	return ""
}

// ParseFraming reads the name of a framing: "line" or "header", also in the plural, or "raw"; "" is
// line.
func ParseFraming(name string) (f stream.Framing, ok bool) {
	switch name {
	case "", "line", "lines":
		return stream.NDJSON, true
	case "header", "headers":
		return stream.Header, true
	case "raw":
		return stream.Raw, true
	}
	return 0, false
}

// FramingName is the name that ParseFraming reads.
func FramingName(f stream.Framing) string {
	switch f {
	case stream.Header:
		return "header"
	case stream.Raw:
		return "raw"
	default:
		return "line"
	}
}
