package guard

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	wellKnown = "/.well-known/oauth-protected-resource"
	// bytes of a signed request, which is held in memory, where no other limit is set
	signedBody  = 50 << 20
	bodyTimeout = 30 * time.Second
	refusedBody = time.Second // for the rest of a body after a refusal
)

// An exchange is a request over HTTP on its way through the guard.
type exchange struct {
	s *state
	r *http.Request
	w http.ResponseWriter
	// lacks are the scopes that a refused call lacks, for the header of the answer. The
	// calls of a batch run at the same time.
	lacks  atomic.Pointer[[]string]
	timed  timedBody    // that of r
	ticket *ticket      // of its signature or proof; nil: it has none
	cut    atomic.Bool  // the stream of its answer was ended
	loan   *budget.Loan // holds the body of a signed request; nil: there is none
}

// A requestContext is the context of a request with all that the guard knows of it: in one piece,
// since each request needs it.
type requestContext struct {
	callctx.Context

	session  session
	exchange exchange
}

// ContextValue returns the session, and who knows the names of this server.
func (v *requestContext) ContextValue(key any) (any, bool) {
	if _, ok := key.(origin.VouchKey); ok {
		return v.exchange.s, true
	}
	return v.session.ContextValue(key)
}

// Kept implements callctx.Keeper.
func (v *requestContext) Kept() callctx.Values { return v.session.apart() }

// ContextValue implements callctx.Values.
func (who *session) ContextValue(key any) (any, bool) {
	switch key.(type) {
	case sessionKey:
		return who, true
	case owner.ContextKey:
		if who.owner.Authenticated() {
			return who.owner, true
		}
	}
	return nil, false
}

// Kept implements callctx.Keeper.
func (who *session) Kept() callctx.Values { return who }

// HTTP authenticates each request before h gets it, with the [Principal] in its context, and
// answers those that may not pass. It serves the metadata of the resource. The bodies of signed
// requests are held in memory. Below it, the handlers of farcall accept every Host header when each
// caller needs credentials, and with Anonymous also the host of Resource.URL; other names are for
// their Options.Hosts.
func (g *Guard) HTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := g.state.Load()
		if rest, ok := strings.CutPrefix(r.URL.Path, wellKnown); ok && s.metadata != nil &&
			(rest == "" || rest[0] == '/') {
			s.serveMetadata(w, r)
			return
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			// A browser asks, without credentials, whether it may ask. It may do nothing else so.
			h.ServeHTTP(w, r.WithContext(origin.WithVouch(r.Context(), s)))
			return
		}
		v := &requestContext{exchange: exchange{s: s, r: r, w: w}}
		v.Context = callctx.Over(r.Context(), v)
		x, who, remote := &v.exchange, &v.session, host(r.RemoteAddr)
		*who = session{remote: remote, transport: "http", http: x}
		if refused := x.bounds(w); refused != nil {
			s.answer(w, x, who, refused)
			return
		}
		k, refused := s.request(x)
		defer x.loan.Close()
		if refused != nil {
			s.answer(w, x, who, s.failed(remote, refused))
			return
		}
		who.principal, who.subject, who.owner = k.principal, k.subject, k.owner
		if who.owner.IsZero() {
			who.owner = address(remote)
		}
		if g.opts.Authenticate != nil && k.owner.Authenticated() {
			g.guesses.accepted(r.Header, who.owner, g.now())
		}
		if refused := s.locked(who); refused != nil {
			s.answer(w, x, who, refused)
			return
		}
		if r.Method == http.MethodGet { // its answer may be a stream, or all of a connection
			leave, ok := g.streams.add(who, r, w)
			if !ok {
				s.answer(w, x, who, tooManyStreams())
				return
			}
			defer leave()
		}
		r = r.WithContext(v)
		if len(s.scopes) > 0 {
			w = &stepUp{ResponseWriter: w, x: x}
		}
		h.ServeHTTP(w, r)
		if x.ticket != nil {
			x.ticket.settle(r.Context())
		}
		if x.cut.Load() { // the contexts of further requests on this connection have ended as well
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way to close it
		}
	})
}

// ConnOf is what is known of a connection that began as a request over HTTP, which [Guard.HTTP] let
// pass: a WebSocket.
func ConnOf(r *http.Request, transport string) *Conn {
	return &Conn{
		Transport: transport, Remote: r.RemoteAddr, TLS: r.TLS, Principal: From(r.Context()),
		Local: isLocal(r),
	}
}

// newFailures returns the rate of wrong credentials of an address.
func newFailures(now func() time.Time) *limit.Limiter {
	return limit.New(
		&limit.Options{
			Rates: []limit.Rate{{Per: "address", Limit: 10, Burst: 100, Every: time.Second}},
			Now:   now,
		})
}

// failed counts a wrong credential: failed authentication is rate-limited per address.
func (s *state) failed(remote string, r *refusal) *refusal {
	if r.nonce || r.reason == noCredentials || r.status != http.StatusUnauthorized {
		return r
	}
	_, err := s.g.failures.Take(&limit.Caller{Address: remote}, "authenticate")
	if full := (*limit.Exceeded)(nil); errors.As(err, &full) {
		r = refuse(jsonrpc.RateLimited,
			"too many wrong credentials from "+remote+"; the last one: "+r.reason)
		return r.later(full.RetryAfter)
	}
	return r
}

// bounds checks a request against the limits of HTTP.
func (x *exchange) bounds(w http.ResponseWriter) *refusal {
	c := &x.s.c.Limits
	if c.MaxHeader > 0 {
		n := len(x.r.RequestURI)
		for name, values := range x.r.Header {
			for _, v := range values {
				n += len(name) + len(v) + 4
			}
		}
		if n > c.MaxHeader {
			return tooLarge("Request header", int64(n), int64(c.MaxHeader),
				http.StatusRequestHeaderFieldsTooLarge)
		}
	}
	if x.r.ContentLength == 0 || x.r.Body == nil || x.r.Body == http.NoBody {
		return nil
	}
	if c.MaxBody > 0 {
		if x.r.ContentLength > c.MaxBody {
			return tooLarge("Request", x.r.ContentLength, c.MaxBody, http.StatusRequestEntityTooLarge)
		}
		x.r.Body = http.MaxBytesReader(w, x.r.Body, c.MaxBody)
	}
	x.timed = timedBody{
		ReadCloser: x.r.Body, w: w, by: time.Now().Add(cmp.Or(c.BodyTimeout, bodyTimeout)),
	}
	// from now on: when no handler reads the body, the server does, before it sends the answer
	x.timed.set(x.timed.by)
	x.r.Body = &x.timed
	return nil
}

// timedBody bounds how long a body may take.
type timedBody struct {
	io.ReadCloser
	w       http.ResponseWriter
	by      time.Time
	stands  bool // there is a deadline
	handler bool // knows of it, and sets no other
}

// Bounded tells a handler that the body has a deadline already, and whether it still stands. The
// handler sets no other then.
func (b *timedBody) Bounded() (stands bool) {
	b.handler = true
	return b.stands
}

// set moves the deadline. Where there is no connection, there is no deadline.
func (b *timedBody) set(by time.Time) {
	b.stands = !by.IsZero()
	_ = http.NewResponseController(b.w).SetReadDeadline(by)
}

func (b *timedBody) Read(p []byte) (int, error) {
	if !b.handler {
		b.set(b.by) // a handler may have another one, and move it
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) { // otherwise the server waits for the rest of it before it answers
		b.set(time.Time{})
	}
	return n, err
}

// answer refuses a request.
func (s *state) answer(w http.ResponseWriter, x *exchange, who *session, r *refusal) {
	r = s.recordRefusal(who, &Call{Method: "http " + x.r.Method + " " + x.r.URL.Path},
		"refused", nil, r)
	h := w.Header()
	if x.r.ContentLength != 0 {
		// the server waits for the body before it sends the answer, and unauthenticated callers may let
		// it there may be no connection
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBody))
	}
	if r.status == http.StatusUnauthorized {
		s.challenge(h, x, r)
	}
	if r.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int((r.after+time.Second-1)/time.Second)))
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	call := &Call{
		Modern: x.r.Header.Get("Mcp-Method") != "",
		MCP:    x.r.Header.Get("Mcp-Session-Id") != "",
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(append(jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), r.wire(call, r.locked && s.tells(who))), '\n')) //nolint:gosec // it is JSON, and says so; an error means that the client has gone
}

// challenge says which credentials are wanted (RFC 6750, section 3; RFC 9449, section 7.1; RFC
// 9728, section 5.1).
func (s *state) challenge(h http.Header, x *exchange, r *refusal) {
	var params []string
	if s.location != "" {
		params = append(params, `resource_metadata="`+s.location+`"`)
	}
	if len(r.scopes) > 0 {
		params = append(params, `scope="`+strings.Join(r.scopes, " ")+`"`)
	}
	given := x.r.Header.Get("Authorization") != ""
	code := `error="invalid_token"`
	switch {
	case r.nonce:
		code = `error="use_dpop_nonce"`
		h.Set("DPoP-Nonce", s.g.dpop.Issue(s.g.now()))
	case r.status == http.StatusForbidden:
		code = `error="insufficient_scope"`
	}
	if given || r.status == http.StatusForbidden {
		params = append(params, code)
	}
	list := func(scheme string, more ...string) {
		h.Add("WWW-Authenticate",
			strings.TrimSuffix(scheme+" "+strings.Join(append(slices.Clone(params), more...), ", "), " "))
	}
	if s.dpopFirst() || r.nonce {
		list("DPoP", `algs="ES256 RS256 PS256 EdDSA"`)
	}
	if !r.nonce {
		list("Bearer")
	}
}

// dpopFirst reports whether there is an issuer with tokens that need a proof.
func (s *state) dpopFirst() bool {
	return slices.ContainsFunc(s.c.JWT, func(i Issuer) bool { return i.DPoP == "required" })
}

// stepUp gives an answer the status and the header that tell which scopes were missing.
type stepUp struct {
	http.ResponseWriter
	x     *exchange
	begun bool
}

// Unwrap is for http.ResponseController.
func (w *stepUp) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the answer.
func (w *stepUp) WriteHeader(status int) {
	if !w.begun && status >= http.StatusOK {
		w.begun = true
		if lacks := w.x.lacks.Load(); lacks != nil && status < http.StatusInternalServerError {
			status = http.StatusForbidden
			w.x.s.challenge(w.Header(), w.x, &refusal{status: http.StatusForbidden, scopes: *lacks})
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes of the body.
func (w *stepUp) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// resource makes the metadata of the resource (RFC 9728, section 2).
func (s *state) resource(u *url.URL) {
	servers := s.c.Resource.Servers
	if len(servers) == 0 {
		for _, i := range s.c.JWT {
			servers = append(servers, i.Issuer)
		}
	}
	var scopes []string
	for _, list := range s.c.Resource.Scopes {
		for _, scope := range list {
			if !slices.Contains(scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
	}
	slices.Sort(scopes)
	doc := map[string]any{
		"resource": s.c.Resource.URL, "authorization_servers": servers,
		"bearer_methods_supported": []string{"header"},
	}
	if len(scopes) > 0 {
		doc["scopes_supported"] = scopes
	}
	if s.dpopFirst() {
		doc["dpop_bound_access_tokens_required"] = true
	}
	var err error
	if s.metadata, err = jsonv2.Append(nil, doc); err != nil {
		s.metadata = nil
	}
	s.location = s.origin + wellKnown + strings.TrimSuffix(u.EscapedPath(), "/")
}

func (s *state) serveMetadata(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*") // it is public
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "max-age=300")
	h.Set("X-Content-Type-Options", "nosniff")
	switch r.Method {
	case http.MethodGet:
		_, _ = w.Write(append(slices.Clone(s.metadata), '\n')) // the client has gone
	case http.MethodHead:
	case http.MethodOptions: // browsers ask, because of the headers of MCP
		h.Set("Access-Control-Allow-Methods", "GET, HEAD")
		h.Set("Access-Control-Allow-Headers", "*")
		w.WriteHeader(http.StatusNoContent)
	default:
		h.Set("Allow", "GET, HEAD, OPTIONS")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

// isLocal reports whether a request came from this machine on its own: one that a proxy passed on
// did not.
func isLocal(r *http.Request) bool {
	if ip, err := netip.ParseAddr(host(r.RemoteAddr)); err != nil || !ip.IsLoopback() {
		if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !ok ||
			at.Network() != "unix" {
			return false
		}
	}
	for name := range r.Header {
		if slices.Contains(proxied, name) || strings.HasPrefix(name, "X-Forwarded-") {
			return false
		}
	}
	return true
}

// proxied are headers in which proxies name the client, in addition to X-Forwarded-For and the
// like.
var proxied = []string{
	"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For",
	"X-Envoy-External-Address", "X-Azure-Clientip",
	"X-Forwarded", "Forwarded-For", "True-Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip",
	"Fly-Client-Ip",
}

// AllowsHost reports whether a request may ask for a host. Where every caller shows credentials any
// name will do: a web page with a name that was rebound to this server has none to show. Otherwise
// it is the host of Resource.URL.
func (s *state) AllowsHost(host string) bool {
	return !s.c.Anonymous || s.host != "" && strings.EqualFold(origin.Hostname(s.host), host)
}

// Public serves what is for everybody and needs no credentials, such as a static page, under the
// host names that [Guard.HTTP] admits.
func (g *Guard) Public(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(origin.WithVouch(r.Context(), g.state.Load())))
	})
}

// This file is what a server asks of a guard: rpc.Guard is the interface.

// ConnOver returns what is known of a network connection. Nil is standard input and output.
func ConnOver(conn net.Conn) *Conn {
	if conn == nil {
		return &Conn{Transport: "stdio", Local: true}
	}
	c := &Conn{
		Transport: conn.LocalAddr().Network(), Remote: conn.RemoteAddr().String(),
		At: conn.LocalAddr(),
	}
	// A client behind a proxy is not on this machine.
	c.Local = !forwarded.Via(conn) && port.Schemes().Local(conn.RemoteAddr())
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		c.Transport, c.TLS = c.Transport+"+tls", &state
	}
	return c
}

// Connection makes o the options of a connection that carries messages: it puts the interceptor of
// the guard before the others, and sets the budget. conn is the connection, nil for standard input
// and output; r is the request that began it, and conn is not looked at then, for a WebSocket
// behind [Guard.HTTP]. The guard calls end when the principal may not stay. It returns the most
// bytes that a message may have, 0 for no bound; see [Guard.MaxMessage].
func (g *Guard) Connection(
	o *farcall.Options, conn net.Conn, r *http.Request, end func() error,
) (maxMessage int) {
	var c *Conn
	if r != nil {
		c = ConnOf(r, o.Transport)
	} else {
		c = ConnOver(conn)
	}
	c.Close = end
	o.Budget = g.Budget(c, o.Budget)
	o.Interceptors = append([]farcall.Interceptor{g.Interceptor(c)}, o.Interceptors...)
	return g.MaxMessage(context.Background(), c) //nolint:forbidigo // it looks at the certificate only
}

// Restricts reports whether the guard keeps anything from a caller without credentials: it lets
// none in, or it has a rule that is enforced. Limits say how much may be called, not what.
func (c *Config) Restricts() bool {
	enforced := func(r Rule) bool { return r.Mode != modeShadow }
	switch {
	case !c.Anonymous:
		return true
	case c.Mode == modeShadow:
		return false
	}
	return slices.ContainsFunc(c.Allow, enforced) || slices.ContainsFunc(c.Deny, enforced) ||
		len(c.Local)+len(c.Cedar)+len(c.CedarFiles)+len(c.Resource.Scopes) > 0
}

// BearerSecrets names the credentials that everyone who reads them can use again, "" for none. A
// signature counts once, and a DPoP-bound token is useless without its key.
func (c *Config) BearerSecrets() string {
	var list []string
	if len(c.Keys) > 0 {
		list = append(list, "API keys")
	}
	if slices.ContainsFunc(c.JWT, func(i Issuer) bool { return i.DPoP != "required" }) {
		list = append(list, "tokens")
	}
	return strings.Join(list, " and ")
}

// Authorities returns the authorities of client certificates that entries of MTLS name, in PEM.
func (c *Config) Authorities() (list [][]byte) {
	for _, m := range c.MTLS {
		if m.CA != "" {
			list = append(list, []byte(m.CA))
		}
	}
	return list
}

// Connections returns the bounds of connections in Limits, 0 for the default: how many of one
// address and of all, how many are accepted in a second, and how long one may be unused.
func (c *Config) Connections() (perAddress, total, rate int, idle time.Duration) {
	l := &c.Limits
	return l.Connections, l.Accepted, l.AcceptRate, l.Idle
}

// Restricts is [Config.Restricts] of the configuration as it is now.
func (g *Guard) Restricts() bool { return g.state.Load().c.Restricts() }

// BearerSecrets is [Config.BearerSecrets] of the configuration as it is now.
func (g *Guard) BearerSecrets() string { return g.state.Load().c.BearerSecrets() }

// Authorities is [Config.Authorities] of the configuration as it is now.
func (g *Guard) Authorities() [][]byte { return g.state.Load().c.Authorities() }

// Connections is [Config.Connections] of the configuration as it is now.
func (g *Guard) Connections() (perAddress, total, rate int, idle time.Duration) {
	return g.state.Load().c.Connections()
}

// Requests makes o the options of a handler of messages behind [Guard.HTTP]: it puts the
// interceptor of the guard before the others.
func (g *Guard) Requests(o *farcall.Options) {
	o.Interceptors = append([]farcall.Interceptor{g.Interceptor(nil)}, o.Interceptors...)
}
