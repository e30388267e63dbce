// Package target answers one question: what can the address of a server be, and how is it reached?
//
// A transport is a row of the table of schemes ([Standard]). Nothing above this package knows more
// of it: the command line, the configuration of a gateway and the clients read their addresses
// here.
package target

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/stream"
)

// A Kind says what a target carries.
type Kind uint8

// The kinds.
const (
	HTTP      Kind = iota + 1 // requests, each with its answer: Exchange
	WebSocket                 // frames, begun by a request of HTTP: Dial
	Stream                    // a byte stream: Dial
	Command                   // a child process, over its standard input and output: Dial
)

// A Target is an address that was read. It must not be changed, but for URL.Path and Framing.
type Target struct {
	Kind    Kind
	Scheme  string         // in lower case; "" of a command
	URL     *url.URL       // of HTTP and WebSocket
	Address string         // of a Stream: host:port, or a path
	Framing stream.Framing // of Stream and Command
	Command []string       // of Command: the program and its arguments
	// Secure: the connection is made with TLS.
	Secure bool

	row *Scheme
}

// Options are what a connection is made with. Zero values are the defaults of the transport.
type Options struct {
	// TLS is how certificates are checked. Client is what HTTP and WebSocket use in place of their
	// default client; then TLS is not for them.
	TLS    *tls.Config
	Client *http.Client
	// Header and Subprotocols are of HTTP and WebSocket.
	Header       http.Header
	Subprotocols []string
	MaxMessage   int
	// Gzip is of HTTP, see [httprpc.Options].
	Gzip bool
	// FrameTimeout is of byte streams and WebSocket, see [stream.Options].
	FrameTimeout time.Duration
	Budget       *farcall.Budget
	// Prepare adjusts the process of a Command before it starts.
	Prepare func(*exec.Cmd)
}

// client returns what HTTP and WebSocket use; nil: their own client.
func (o *Options) client(k Kind) *http.Client {
	if o.Client != nil || o.TLS == nil {
		return o.Client
	}
	// HTTP/2 has no connection that could become a WebSocket's.
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS.Clone(),
			ForceAttemptHTTP2: k == HTTP,
		},
	}
}

// A Scheme is a transport: a row of the table.
type Scheme struct {
	// Names stand before the colon.
	Names []string
	// Form is an example of an address, behind the name, and Help the line about the transport in the
	// list of forms, without indentation.
	Form, Help string
	Kind       Kind
	// Opaque: an address is written NAME:ADDRESS, without slashes.
	Opaque bool
	// Subject: the first part of a path is the subject of a message queue.
	Subject bool
	// Secure are those of Names that mean TLS.
	Secure []string
	// Parse reads what is particular to the transport from text, with the scheme t.Scheme. It returns
	// what is wrong with it, or "".
	Parse func(t *Target, text string) (why string)
	// Open makes a connection of a Stream.
	Open func(ctx context.Context, t *Target, o *Options) (io.ReadWriteCloser, error)
	// Dial makes a connection of a WebSocket or a Command.
	Dial func(ctx context.Context, t *Target, o *Options) (farcall.Transport, error)
	// Exchange is for HTTP.
	Exchange func(t *Target, o *Options) (farcall.Exchanger, error)
}

// Error is what is wrong with an address.
type Error struct {
	Text string // the address
	Why  string // "it has no host"
	Form string // as it may be written instead: "http://host:port/path"; "": in any of Names
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("cannot use %q as the target: %s", e.Text, e.Why)
}

// A Table has all transports.
type Table []*Scheme

// named returns the row of a name, or nil.
func (list Table) named(name string) *Scheme {
	for _, s := range list {
		if slices.Contains(s.Names, name) {
			return s
		}
	}
	return nil
}

// Names returns the names of all schemes.
func (list Table) Names() (names []string) {
	for _, s := range list {
		names = append(names, s.Names...)
	}
	return names
}

// Forms returns the lines of help about all forms, a command excepted.
func (list Table) Forms() (forms []string) {
	for _, s := range list {
		forms = append(forms, s.Help)
	}
	return forms
}

// Parse is [Table.Parse] of [Standard].
func Parse(text string) (*Target, error) { return Standard().Parse(text) }

// Parse reads an address: SCHEME://…, unix:PATH, or host:port with or without a path, which is
// HTTP. A URL of HTTP or WebSocket without a path has none, see [Target.DefaultPath]. Errors are of
// type *[Error].
func (list Table) Parse(text string) (*Target, error) {
	scheme, ok := list.schemeOf(text)
	if !ok {
		return list.parseBare(text)
	}
	row := list.named(strings.ToLower(scheme))
	if row == nil {
		return nil, &Error{text, fmt.Sprintf("there is no transport %q", scheme), ""}
	}
	t := &Target{Kind: row.Kind, Scheme: strings.ToLower(scheme), row: row}
	t.Secure = slices.Contains(row.Secure, t.Scheme)
	if why := row.Parse(t, text); why != "" {
		return nil, &Error{text, why, t.Scheme + row.Form}
	}
	return t, nil
}

// Child returns the target for a command.
func Child(command []string) *Target {
	return &Target{Kind: Command, Command: command, row: child()}
}

// schemeOf returns what stands before ://, or before the colon of unix:PATH.
func (list Table) schemeOf(text string) (scheme string, ok bool) {
	if scheme, _, ok = strings.Cut(text, "://"); ok {
		return scheme, true
	}
	scheme, _, ok = strings.Cut(text, ":")
	row := list.named(scheme)
	return scheme, ok && row != nil && row.Opaque
}

// parseBare reads host:port, with or without a path.
func (list Table) parseBare(text string) (*Target, error) {
	hostport, _, _ := strings.Cut(text, "/")
	host, port, err := net.SplitHostPort(hostport)
	if err != nil || port == "" || strings.ContainsAny(host, " {}\"") {
		return nil, &Error{text, "it is neither a URL nor host:port", ""}
	}
	if host == "" {
		text = "localhost" + text
	}
	return list.Parse("http://" + text)
}

// Queue reports whether requests go to the subject of a message queue.
func (t *Target) Queue() bool { return t.row.Subject }

// DefaultPath sets the path of a URL that has none. Of JSON-RPC it is "": each transport has its
// own.
func (t *Target) DefaultPath(path string) {
	if t.URL == nil {
		return
	}
	own := t.URL.Path
	if t.row.Subject {
		_, own, _ = strings.Cut(strings.TrimPrefix(own, "/"), "/")
	}
	if own != "" {
		return
	}
	if path == "" {
		path = "/rpc"
		if t.Kind == WebSocket {
			path = "/rpc/ws"
		}
	}
	t.URL.Path = strings.TrimSuffix(t.URL.Path, "/") + path
}

// String is the target as it may be typed, without a password.
func (t *Target) String() string {
	switch t.Kind {
	case HTTP, WebSocket:
		return t.URL.Redacted()
	case Command:
		return "-- " + strings.Join(t.Command, " ")
	}
	text := t.Scheme + ":" + t.Address
	if !t.row.Opaque || strings.Contains(text, "://") { // what stands before that is read as a scheme
		text = t.Scheme + "://" + t.Address
	}
	if t.Framing != stream.NDJSON {
		text += "?framing=" + FramingName(t.Framing)
	}
	return text
}

// Dial makes a connection. The context bounds the connecting only. For HTTP see [Target.Exchange].
func (t *Target) Dial(ctx context.Context, o *Options) (farcall.Transport, error) {
	o = cmp.Or(o, &Options{})
	switch t.Kind {
	case Stream:
		rwc, err := t.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return stream.New(rwc, t.Framing,
			&stream.Options{MaxMessage: o.MaxMessage, FrameTimeout: o.FrameTimeout, Budget: o.Budget}), nil
	case WebSocket, Command:
		return t.row.Dial(ctx, t, o)
	}
	return nil, fmt.Errorf("target: %s is not a connection", t)
}

// Open makes a connection of a Stream, for those who frame its messages themselves.
func (t *Target) Open(ctx context.Context, o *Options) (io.ReadWriteCloser, error) {
	if t.row.Open == nil {
		return nil, fmt.Errorf("target: %s is not a byte stream", t)
	}
	o = cmp.Or(o, &Options{})
	return t.row.Open(ctx, t, o)
}

// Exchange returns what sends requests over HTTP. Nothing is connected before the first one.
func (t *Target) Exchange(o *Options) (farcall.Exchanger, error) {
	if t.row.Exchange == nil {
		return nil, fmt.Errorf("target: %s is not HTTP", t)
	}
	o = cmp.Or(o, &Options{})
	return t.row.Exchange(t, o)
}
