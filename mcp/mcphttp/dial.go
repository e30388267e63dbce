package mcphttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/internal/wirelog"
)

const (
	// idlePerHost is how many connections wait for the next call. The default of
	// net/http, 2, makes concurrent callers connect again all the time.
	idlePerHost = 128
	// maxResponseHeader bounds the headers of an answer, in bytes.
	maxResponseHeader = 256 << 10
	maxAnswer         = 50 << 20
	maxRedirects      = 10
)

// DialOptions adjust a Client. The zero value, and nil, mean the defaults. They
// are copied; later changes have no effect.
type DialOptions struct {
	// HTTP sends the requests; its CheckRedirect is not used, and its Timeout
	// would end event streams. Default: its own client, with the proxy of
	// the environment.
	HTTP *http.Client
	// TLS is used for https when HTTP is nil.
	TLS *tls.Config
	// Header is sent with every request.
	Header http.Header
	// Authorize adds credentials to requests and gets new ones.
	Authorize Authorizer
	// MaxMessage bounds an answer that is no event stream, in bytes. Default
	// 50 MB.
	MaxMessage int
	// MaxEvent bounds one event of an answer in bytes. Default 10 MB.
	MaxEvent int
	// Budget has the memory for answers and events of more than 64 KiB. The server
	// has one share. Default: that of the process, see [farcall.Budget].
	Budget *farcall.Budget
	// Trace gets a line for each frame that is sent or received; nil: none. See
	// mcp.ClientOptions.Trace.
	Trace io.Writer
}

// An Authorizer gives requests their credentials. It is used by several
// goroutines at once.
type Authorizer interface {
	// Authorize is called with each request before it is sent, and adds headers
	// to it. An error is the error of the call.
	Authorize(ctx context.Context, r *http.Request) error
	// Challenge is called with an answer of status 401 or 403. It reports whether
	// the request shall be sent again, with what Authorize adds now; otherwise
	// the answer counts. It may read the body, which it does not close, when it
	// reports true.
	Challenge(ctx context.Context, r *http.Response) (retry bool, err error)
}

// Dial returns a client of the server at an http or https URL, or one that the client of
// DialOptions.HTTP sends. It fails when the address is invalid; nothing is connected before the first
// exchange.
func Dial(address string, o *DialOptions) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("mcphttp: %w", err)
	}
	others := o != nil && o.HTTP != nil
	if u.Scheme != "http" && u.Scheme != "https" && !others || u.Host == "" {
		return nil, fmt.Errorf("mcphttp: %q is not a URL like http://host:port/mcp", address)
	}
	u.Fragment, u.RawFragment = "", ""
	c := &Client{url: u, trips: map[string]*trip{}}
	if o != nil {
		c.opts = *o
	}
	c.opts.MaxMessage = cmp.Or(c.opts.MaxMessage, maxAnswer)
	c.opts.MaxEvent = cmp.Or(c.opts.MaxEvent, sse.DefaultMaxEvent)
	c.opts.Budget = budget.Named(c.opts.Budget, "server "+u.Host)
	c.header = canonical(c.opts.Header)
	if c.opts.HTTP != nil {
		c.http = *c.opts.HTTP
	} else {
		c.own = newTransport(c.opts.TLS)
		c.http.Transport = c.own
	}
	c.http.Transport = wirelog.New(c.opts.Trace, nil).RoundTripper(c.http.Transport)
	c.http.CheckRedirect = checkRedirect
	//nolint:forbidigo // a client lives until it is closed, not as long as the call that made it
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func newTransport(config *tls.Config) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if d, ok := http.DefaultTransport.(*http.Transport); ok {
		t = d.Clone()
	}
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, idlePerHost
	t.MaxResponseHeaderBytes = maxResponseHeader
	if config != nil {
		t.TLSClientConfig = config.Clone()
	}
	return t
}

// checkRedirect follows a redirect that keeps the method (a POST needs 307 or
// 308) and the origin. Anything else would lose the message, or hand it, with
// its session and its credentials, to another.
func checkRedirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case !sameOrigin(r.URL, first.URL):
		return fmt.Errorf("%w: the server redirects to %s, another origin; use that address if it is meant", farcall.ErrProtocol, r.URL.Redacted())
	case r.Method != first.Method:
		return fmt.Errorf("%w: the server redirects to %s and loses the %s; use that address", farcall.ErrProtocol, r.URL.Redacted(), first.Method)
	case len(via) >= maxRedirects:
		return fmt.Errorf("%w: more than %d redirects", farcall.ErrProtocol, maxRedirects)
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && a.Hostname() == b.Hostname() && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

type headerKey struct{}

// WithHeader returns a context with exchanges that carry more headers: those that
// mirror a tool's arguments, for example. They come before what the protocol
// itself demands.
func WithHeader(ctx context.Context, h http.Header) context.Context {
	all := canonical(h)
	if outer, ok := ctx.Value(headerKey{}).(http.Header); ok {
		for name, values := range outer {
			if _, given := all[name]; !given {
				all[name] = values
			}
		}
	}
	return context.WithValue(ctx, headerKey{}, all)
}

// canonical returns a copy with names that are as net/http writes them, so that
// nothing is sent twice.
func canonical(h http.Header) http.Header {
	c := make(http.Header, len(h))
	for name, values := range h {
		name = textproto.CanonicalMIMEHeaderKey(name)
		c[name] = append(slices.Clip(c[name]), values...)
	}
	return c
}
