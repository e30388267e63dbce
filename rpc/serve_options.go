package rpc

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/port"
)

// ServeOptions adjust a Server. They are copied; zero values are the defaults.
type ServeOptions struct {
	// RPC adjusts the connections and the handlers of HTTP. The server sets its Transport and Conn.
	// Its Budget is the memory for the large messages of all.
	RPC *farcall.Options
	// Guard decides who may call what: a *guard.Guard. Default: everybody everything, which is refused
	// at an address that other machines can reach.
	Guard Guard
	// MCP serves MCP beside the handler: an *mcp.Server. It is at /mcp, /sse and /messages, and on
	// every connection that begins with a message of MCP. Default none.
	MCP MCP
	// Page serves the other paths, without a guard, such as a static page. Where it has a method
	// Has(path string) bool, it serves those for which that returns true. Default none.
	Page http.Handler
	// Service takes the place of the handler, Guard, MCP and Page: a *gateway.Gateway.
	Service Service

	// CertFile and KeyFile have a certificate and its key, in PEM. With them the server accepts
	// connections without TLS over unix sockets and named pipes only. ClientCAFile has the authorities
	// that sign the accepted client certificates; a client may have none. The files are read again
	// when they change. Default: no TLS.
	CertFile, KeyFile, ClientCAFile string
	// Insecure lets the server listen where other machines can connect without a guard or TLS, and
	// accepts connections without TLS beside a certificate. OnInsecure is called once for each
	// [Server.Listen] with what is not safe. Default: the Logger gets a warning.
	Insecure   bool
	OnInsecure func(why string)
	// TrustedProxies are addresses and networks (CIDR) of proxies, or "unix"; their X-Forwarded-For,
	// Forwarded and PROXY protocol name the client. Default none.
	TrustedProxies []string
	// Origins are the web pages of other hosts that may call, and Hosts the DNS names of the server:
	// see [github.com/farcall-dev/farcall/httprpc.Options].
	Origins, Hosts []string

	// MaxMessage bounds a message that arrives, in bytes. Default: that of each transport.
	MaxMessage int
	// Gzip reads and sends bodies of JSON-RPC over HTTP in gzip, for clients that have it, too; event
	// streams, other protocols and a Service are not concerned. Default: no, for sizes may reveal
	// secrets (BREACH): see [github.com/farcall-dev/farcall/httprpc].
	Gzip bool
	// StdHTTP lets net/http read every request over HTTP. Otherwise a POST over HTTP/1.1 that is
	// exactly the common case is read by a second, stricter reader, and net/http has the others: see
	// docs/limits.md. The environment variable FARCALL_HTTP=std does the same. Default: no.
	StdHTTP bool
	// FrameTimeout is how long a message over a byte stream or WebSocket may take from its first byte,
	// and a second more for each 100 KB. Default 30 s; negative: no bound.
	FrameTimeout time.Duration
	// MaxConnections bounds the open connections of a listener, and MaxConnectionsPerClient those of
	// one IP address among them; AcceptRate is how many are accepted in a second. A connection that is
	// not HTTP and is unused for IdleTimeout is closed. Default: what the guard says, or else 16,384,
	// 4,096 (none for the loopback address), 1,000 and 1 h. Negative: no bound.
	MaxConnections, MaxConnectionsPerClient, AcceptRate int
	IdleTimeout                                         time.Duration
	// DrainTimeout is how long calls in flight may take when the context of Serve ends. Default 10 s.
	DrainTimeout time.Duration
	// Logger takes what an operator should know. Default [slog.Default].
	Logger *slog.Logger
}

// A Policy says what a guard keeps from callers. *guard.Config and *guard.Guard are policies.
type Policy interface {
	// Restricts reports whether anything is kept from a caller without credentials.
	Restricts() bool
	// BearerSecrets names the credentials that everyone who reads them can use again, "" for none.
	BearerSecrets() string
	// Authorities returns further authorities of client certificates, in PEM.
	Authorities() [][]byte
	// Connections returns the bounds of connections, as in ServeOptions: 0 for the default.
	Connections() (perClient, total, rate int, idle time.Duration)
}

// A Guard decides who may call what. *guard.Guard is one; only a program that makes one links it.
// Where it has a method Ready() error, that returns why all calls are refused, in words for
// everybody, and nil while they are not.
type Guard interface {
	Policy
	// HTTP authenticates each request before h gets it. Public is for what needs no credentials.
	HTTP(h http.Handler) http.Handler
	Public(h http.Handler) http.Handler
	// Requests makes o the options of a handler behind HTTP.
	Requests(o *farcall.Options)
	// Connection makes o the options of a connection that carries messages: conn, or, for a WebSocket,
	// the one that began with the request r behind HTTP. Both are nil for standard input and output.
	// end ends the connection. It returns the most bytes that a message may have, 0 for no bound.
	Connection(o *farcall.Options, conn net.Conn, r *http.Request, end func() error) (maxMessage int)
}

// MCP is a server of MCP. *mcp.Server is one; only a program that makes one links it.
type MCP interface {
	// ServeTransport serves a connection until it ends or the context does.
	ServeTransport(ctx context.Context, t farcall.Transport, o *farcall.Options) error
	// Routes returns the handler of /mcp, /sse and /messages. end ends its sessions.
	Routes(
		o *farcall.Options, maxMessage int, origins []string,
	) (routes http.Handler, end func(context.Context) error)
	// Close ends subscriptions and tasks.
	Close()
}

// A Service is all that a Server serves, where that is more than a handler. Where it has a method
// Fast(path string) bool, a POST to a path for which that returns true need not go through
// net/http: see ServeOptions.StdHTTP. Its answers have no trailers, and its connection cannot be
// hijacked.
type Service interface {
	http.Handler
	// Accept is called with each connection that carries JSON texts, before any of it is read. Nil is
	// standard input and output.
	Accept(conn net.Conn) Accepted
	// Policy returns that of its guard; nil: there is none.
	Policy() Policy
	// Shutdown takes no new calls and lets those in flight finish, as long as the context lasts.
	Shutdown(ctx context.Context) error
}

// Accepted is how a Service takes a connection.
type Accepted struct {
	// MaxMessage bounds its messages further, 0: no further. Budget is the memory for large ones; nil
	// is that of the process.
	MaxMessage int
	Budget     *farcall.Budget
	// Serve serves the connection. It returns nil when the connection has ended, or what is closed
	// then.
	Serve func(t farcall.Transport) (ended <-chan struct{})
}

// A ServeError reports why a Server does not serve: its options, or an address.
type ServeError struct {
	Address string // that is not served; "" when it is about the options alone
	Reason  string
	Hint    string // what to do, in terms of ServeOptions
	Err     error  // the cause; may be nil
}

// Error implements error.
func (e *ServeError) Error() string {
	text := "rpc: " + e.Reason
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap returns the cause, if any.
func (e *ServeError) Unwrap() error { return e.Err }

// rpc returns a copy of the options of all connections.
func (o *ServeOptions) rpc() farcall.Options {
	var c farcall.Options
	if o.RPC != nil {
		c = *o.RPC
	}
	c.Logger = cmp.Or(c.Logger, o.Logger)
	return c
}

// check returns what is wrong with the options, apart from the contents of their files.
func (o *ServeOptions) check() *ServeError {
	switch {
	case o.CertFile == "" && o.KeyFile == "" && o.ClientCAFile != "":
		return &ServeError{
			Reason: "ServeOptions.ClientCAFile is given without ServeOptions.CertFile",
			Hint: "set ServeOptions.CertFile and ServeOptions.KeyFile: clients show certificates " +
				"over TLS only",
		}
	case o.CertFile != "" && o.KeyFile == "":
		return &ServeError{
			Reason: "ServeOptions.CertFile is given without ServeOptions.KeyFile",
			Hint:   "set ServeOptions.KeyFile to the file of its private key",
		}
	case o.CertFile == "" && o.KeyFile != "":
		return &ServeError{
			Reason: "ServeOptions.KeyFile is given without ServeOptions.CertFile",
			Hint:   "set ServeOptions.CertFile to the file of its certificate",
		}
	}
	for _, origin := range o.Origins {
		_, rest, found := strings.Cut(origin, "://")
		if strings.ContainsAny(rest, "/ ") || !found && strings.ContainsAny(origin, "/ ") ||
			origin == "" {
			return &ServeError{
				Reason: "ServeOptions.Origins: " + strconv.Quote(origin) + " is not an origin",
				Hint:   "write https://app.example.com, or a host with its port: an origin has no path",
			}
		}
	}
	return nil
}

// bounds fills in what a policy says about connections.
func (o *ServeOptions) bounds(p Policy) {
	if p == nil {
		return
	}
	perClient, total, rate, idle := p.Connections()
	o.MaxConnectionsPerClient = cmp.Or(o.MaxConnectionsPerClient, perClient)
	o.MaxConnections = cmp.Or(o.MaxConnections, total)
	o.AcceptRate = cmp.Or(o.AcceptRate, rate)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, idle)
}

// This file has the rule for the addresses that are served: one that other machines can reach needs
// a guard that restricts something, and a guard with bearer secrets needs encryption there.

// Check returns a *[ServeError] for the first of addresses that [Server.Listen] would refuse with a
// policy: one that cannot be read, or, without ServeOptions.Insecure, one that is not safe. p may
// be nil. It is for those who are about to change the configuration of a guard.
func (s *Server) Check(p Policy, addresses ...string) error {
	for _, address := range addresses {
		if err := s.readable(address); err != nil {
			return err
		}
	}
	if s.o.Insecure {
		return nil
	}
	for _, address := range addresses {
		if bad := s.unsafe(p, address); bad != nil {
			return bad
		}
	}
	return nil
}

// readable returns a *ServeError for an address that cannot be read.
func (s *Server) readable(address string) error {
	err := s.schemes.Check(address)
	if err == nil {
		return nil
	}
	e := &ServeError{Address: address, Reason: err.Error(), Err: err}
	if bad, ok := err.(*port.AddressError); ok { //nolint:errorlint // it is not wrapped
		e.Hint = "write " + bad.Instead
	}
	return e
}

// unsafe returns how an address breaks the rule, or nil.
func (s *Server) unsafe(p Policy, address string) *ServeError {
	if !s.schemes.Reachable(address) {
		return nil
	}
	e := &ServeError{Address: address}
	switch {
	case p == nil:
		e.Reason = "no guard says who may call what"
		e.Hint = "set ServeOptions.Guard"
	case !p.Restricts():
		e.Reason = "the guard lets anonymous callers call everything"
		e.Hint = "say what anonymous callers may call (Allow or Deny of guard.Config, not in the mode " +
			"shadow), or unset Anonymous"
	case p.BearerSecrets() != "" && port.IsQueue(address) && !s.schemes.Secure(address):
		e.Reason, e.Hint = p.BearerSecrets()+" would cross the network unencrypted", "write nats+tls://"
	case p.BearerSecrets() != "" && !port.IsQueue(address) && s.certs == nil && s.proxies == nil:
		e.Reason = p.BearerSecrets() + " would cross the network unencrypted"
		e.Hint = "set ServeOptions.CertFile and ServeOptions.KeyFile, name the proxy that terminates " +
			"TLS (ServeOptions.TrustedProxies)"
	default:
		return nil
	}
	e.Reason = "other machines can reach " + port.Redacted(address) + ", and " + e.Reason
	if port.IsQueue(address) {
		e.Hint += ", or insist with ServeOptions.Insecure where only those reach the engine who may call"
		return e
	}
	_, number, _ := net.SplitHostPort(address)
	e.Hint += ", listen on 127.0.0.1:" + cmp.Or(number, "0") +
		" or a unix socket, or insist with ServeOptions.Insecure"
	return e
}

// tellInsecure reports, in one line, what ServeOptions.Insecure lets pass at addresses.
func (s *Server) tellInsecure(p Policy, addresses ...string) {
	if !s.o.Insecure {
		return
	}
	var why []string
	for _, address := range addresses {
		if bad := s.unsafe(p, address); bad != nil {
			why = append(why, bad.Reason)
		}
	}
	if s.certs != nil && len(addresses) > 0 {
		why = append(why, "connections without TLS are accepted")
	}
	switch {
	case len(why) == 0:
	case s.o.OnInsecure != nil:
		s.o.OnInsecure(strings.Join(why, "; "))
	default:
		s.o.Logger.Warn("INSECURE, as ServeOptions.Insecure demands: " + strings.Join(why, "; "))
	}
}

// plain decides which connections are accepted without TLS; nil leaves that to the port. Where a
// trusted proxy stands in for a certificate, other machines connect through it only.
func (s *Server) plain() func(net.Conn) string {
	switch {
	case s.o.Insecure:
		return func(net.Conn) string { return "" }
	case s.certs != nil || s.proxies == nil:
		return nil
	}
	return func(conn net.Conn) string {
		if from, ok := conn.RemoteAddr().(*net.TCPAddr); !ok || from.IP.IsLoopback() ||
			forwarded.Via(conn) {
			return ""
		}
		return "only trusted proxies connect to this port; use the address of the proxy"
	}
}
