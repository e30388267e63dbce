// Package fetch answers one question: how do I fetch a document without being led
// to a private address?
//
// Metadata, keys and tokens come from addresses that other documents name, and anyone who
// writes those may name what only this machine reaches: a service on loopback, the
// metadata of a cloud (SSRF). So each fetch says from where its address was learned, its
// origin, and an address that is not public must be within the origin's own reach.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	defaultMaxBytes = 1 << 20
	defaultTimeout  = 10 * time.Second
	maxRedirects    = 3
	maxHeaderBytes  = 64 << 10
)

// ErrAddress is behind the errors of addresses that must not be fetched from.
var ErrAddress = errors.New("the address may not be fetched from")

// ErrTooLarge is behind the error of an answer that exceeds MaxBytes.
var ErrTooLarge = errors.New("the answer is too large")

// Options adjust a Client. The zero value, and nil, mean the defaults.
type Options struct {
	// HTTP connects, for your own certificates. Its redirects, cookies and timeout are not used. When
	// its Transport has a dialer or a proxy, or is no *http.Transport, that decides which host a name
	// leads to: only what an address says itself is checked then. The default uses no proxy of the
	// environment, as a proxy would look names up unchecked.
	HTTP *http.Client
	// Private allows loopback and private addresses (RFC 1918, RFC 4193, RFC 6598) whatever
	// the origin. Never link-local ones: there are the secrets of clouds.
	Private bool
	// MaxBytes bounds a body, unpacked, in bytes: 1 MB by default.
	MaxBytes int64
	// Timeout bounds a fetch with its redirects and body, 10 s by default.
	Timeout time.Duration
}

// A Client fetches small documents. It may be used by any number of goroutines at once. It keeps no
// connection open, so there is nothing to close.
type Client struct {
	private bool
	max     int64
	timeout time.Duration
	given   http.RoundTripper // connects on its own; nil: dial does
	base    *http.Transport   // what dial's transports are made of

	resolver *net.Resolver // nil in all but tests

	mu      sync.Mutex
	byReach map[reach]*http.Transport
}

// New returns a client.
func New(o *Options) *Client {
	o = cmp.Or(o, &Options{})
	c := &Client{
		max: cmp.Or(max(o.MaxBytes, 0), defaultMaxBytes), private: o.Private,
		timeout: cmp.Or(max(o.Timeout, 0), defaultTimeout), byReach: map[reach]*http.Transport{},
	}
	if o.HTTP != nil && o.HTTP.Transport != nil {
		t, ok := o.HTTP.Transport.(*http.Transport)
		if ok && t.Proxy == nil && !dials(t) {
			c.base = t
		} else {
			c.given = o.HTTP.Transport
		}
	}
	return c
}

// dials reports whether a transport has its own dialer.
func dials(t *http.Transport) bool {
	//nolint:staticcheck // the deprecated ones dial as well
	return t.DialContext != nil || t.DialTLSContext != nil || t.Dial != nil || t.DialTLS != nil
}

// Check reports whether an operator may name an address: https, or http to loopback. It looks
// nothing up.
func Check(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("%w: it is no URL", ErrAddress)
	}
	_, err = (&Client{}).check(u, nil)
	return err
}

// Get fetches a document, whatever the status. origin is the address from which this one was
// learned; nil: an operator or user named it, and it may be anywhere.
func (c *Client) Get(
	ctx context.Context, origin *url.URL, address string,
) (body []byte, header http.Header, status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		// its words may have a password
		return nil, nil, 0, fmt.Errorf("fetch: %w: it is no URL", ErrAddress)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := c.Do(r, origin)
	if err != nil {
		return nil, nil, 0, err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return nil, nil, 0, fmt.Errorf("fetch %s: %w", name(r.URL), err)
	}
	return body, resp.Header, resp.StatusCode, nil
}

// Do sends a request, over https, or http to loopback. At most three redirects are followed, of GET
// and HEAD, to the same host and port; any other request has the redirect as its answer. The body
// ends with ErrTooLarge when it is too large, and must be closed.
func (c *Client) Do(r *http.Request, origin *url.URL) (*http.Response, error) {
	reach, err := c.check(r.URL, origin)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", name(r.URL), err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
	client := http.Client{Transport: c.transport(reach), CheckRedirect: checkRedirect}
	resp, err := client.Do(r.WithContext(ctx))
	if err != nil {
		cancel()
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // u has the whole address, with its query
		}
		return nil, fmt.Errorf("fetch %s: %w", name(r.URL), err)
	}
	if resp.ContentLength > c.max && r.Method != http.MethodHead {
		cancel()
		resp.Body.Close()
		return nil, fmt.Errorf("fetch %s: %w: more than %d bytes", name(r.URL), ErrTooLarge, c.max)
	}
	resp.Body = &boundedBody{body: resp.Body, left: c.max, max: c.max, cancel: cancel}
	return resp, nil
}

// name is an address for errors, without what may be secret in it.
func name(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// check returns where a fetch may lead to.
func (c *Client) check(u, origin *url.URL) (reach, error) {
	host := u.Hostname()
	if host == "" || u.User != nil {
		return 0, fmt.Errorf("%w: it must have a host, and no user", ErrAddress)
	}
	may := c.reach(host, origin)
	literal, known := hostClass(host)
	switch u.Scheme {
	case "https":
	case "http":
		if may &= reach(loopback); !known || literal != loopback {
			return 0, fmt.Errorf("%w: it must be https; http is for loopback", ErrAddress)
		}
	default:
		return 0, fmt.Errorf("%w: it must be https", ErrAddress)
	}
	if known && !may.has(literal) {
		return 0, refuse(host, literal)
	}
	return may, nil
}

func (c *Client) reach(host string, origin *url.URL) reach {
	if origin == nil || strings.EqualFold(origin.Hostname(), host) {
		return everywhere
	}
	may := reach(public)
	if c.private {
		may |= reach(loopback | private)
	}
	// Only an origin that says itself what it is counts: what a name resolves to is
	// its owner's choice, and the owner may be the attacker.
	if of, known := hostClass(origin.Hostname()); known && of != special {
		may |= reach(of)
	}
	return may
}

func refuse(address string, of class) error {
	return fmt.Errorf(
		"%w: %s is %s, which the document that names it may not lead to; allow private addresses if "+
			"it is meant",
		ErrAddress, address, of)
}

// transport returns what connects within a reach. Each reach has its own: what one dials
// must not carry another's request.
func (c *Client) transport(may reach) http.RoundTripper {
	if c.given != nil {
		return c.given
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.byReach[may]
	if t == nil {
		t = &http.Transport{}
		if c.base != nil {
			t = c.base.Clone()
		}
		dialer := &net.Dialer{Timeout: c.timeout, Control: control(may), Resolver: c.resolver}
		t.DialContext = dialer.DialContext
		t.DisableKeepAlives = true
		t.MaxResponseHeaderBytes = maxHeaderBytes
		c.byReach[may] = t
	}
	return t
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	if first.Method != http.MethodGet && first.Method != http.MethodHead {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d redirects", ErrAddress, maxRedirects)
	}
	if r.URL.Scheme != first.URL.Scheme || r.URL.User != nil ||
		hostPort(r.URL) != hostPort(first.URL) {
		return fmt.Errorf("%w: it redirects to another host", ErrAddress)
	}
	return nil
}

func hostPort(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// A boundedBody ends with ErrTooLarge where a body is longer than it may be.
type boundedBody struct {
	body      io.ReadCloser
	left, max int64
	cancel    context.CancelFunc
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.max)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more: to see that there is more
	}
	n, err := b.body.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.max)
	}
	return n, err
}

func (b *boundedBody) Close() error {
	b.cancel()
	return b.body.Close()
}

// Transport returns a transport for requests to an address that was learned from origin: it
// connects to what Client.Do would connect to, at every dial, and keeps connections open. private
// is Options.Private. It uses no proxy of the environment.
func Transport(address, origin *url.URL, private bool) (*http.Transport, error) {
	c := New(&Options{Private: private})
	may, err := c.check(address, origin)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", name(address), err)
	}
	dialer := &net.Dialer{Timeout: defaultTimeout, Control: control(may)}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: maxHeaderBytes, MaxIdleConnsPerHost: 16,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: defaultTimeout,
	}, nil
}
