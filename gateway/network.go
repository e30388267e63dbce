package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/certificate"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// proxyNone is the Proxy of an Upstream that is reached directly, whatever the environment says.
const proxyNone = "none"

// ownTLS reports whether TLS is other than by default.
func (c *Upstream) ownTLS() bool {
	return c.TLS.CA != "" || c.TLS.Cert != "" || c.TLS.Key != "" || c.TLS.ServerName != ""
}

// tlsConfig returns how the server's certificate is verified, and which one the gateway has; nil:
// by default.
func (c *Upstream) tlsConfig(log *slog.Logger) (*tls.Config, error) {
	if !c.ownTLS() {
		return nil, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	files := certificate.ClientFiles{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key}
	return certificate.Client(files, u.Hostname(), c.TLS.ServerName, log)
}

// proxy returns which proxy a request takes; nil: none.
func (c *Upstream) proxy() func(*http.Request) (*url.URL, error) {
	switch c.Proxy {
	case "":
		return http.ProxyFromEnvironment
	case proxyNone:
		return nil
	}
	u, err := url.Parse(c.Proxy)
	return func(*http.Request) (*url.URL, error) { return u, err }
}

// network makes what connects to the server where its configuration says how. A nil client, and a
// nil Config, are those that the transport has by default.
func (s *server) network(log *slog.Logger) (err error) {
	c := s.cfg
	if s.target == nil {
		return nil
	}
	if s.tls, err = c.tlsConfig(log); err != nil {
		return fmt.Errorf("gateway: upstream %s: tls: %w", c.Name, err)
	}
	if s.target.Queue() {
		if s.g.opts.NATS == nil {
			return fmt.Errorf("gateway: upstream %s: nothing here sends over NATS; Options.NATS does",
				c.Name)
		}
		s.http = &http.Client{Transport: s.g.opts.NATS}
		return nil
	}
	if c.Proxy == "" && s.tls == nil ||
		s.target.Kind != target.HTTP && s.target.Kind != target.WebSocket {
		return nil
	}
	s.http = &http.Client{Transport: &http.Transport{
		Proxy: c.proxy(),
		DialContext: (&net.Dialer{
			Timeout:   30 * time.Second,
			KeepAlive: 30 * time.Second,
		}).DialContext,
		TLSClientConfig:        s.tls,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxIdleConnsPerHost:    128, // calls come in numbers
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      s.web(), // HTTP/2 has no connection that could become a WebSocket's
	}}
	return nil
}

// The bounds of ForwardHeaders and of a value.
const (
	maxForwarded      = 32
	maxForwardedValue = 4 << 10
)

// forwarded returns the headers of the caller's request that go to the server. A header that comes
// more than once, or is too long, is refused: the server would not see what the caller has sent.
func (s *server) forwarded(ctx context.Context) (http.Header, error) {
	r := mcphttp.RequestFrom(ctx)
	if r == nil || len(s.cfg.ForwardHeaders) == 0 {
		return nil, nil
	}
	h := http.Header{}
	for _, name := range s.cfg.ForwardHeaders {
		key := textproto.CanonicalMIMEHeaderKey(name)
		values := r.Header[key]
		switch {
		case len(values) > 1:
			return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
				"Invalid request: the header %s, which goes to %s, comes %d times; send it once", key,
				s.cfg.Name, len(values))
		case len(values) == 1 && len(values[0]) > maxForwardedValue:
			return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
				"Invalid request: the header %s, which goes to %s, has %d bytes; at most %d are passed on",
				key, s.cfg.Name, len(values[0]), maxForwardedValue)
		case len(values) == 1:
			h[key] = values
		}
	}
	return h, nil
}

// unforwarded are headers that never go on, with the reason.
var unforwarded = map[string]string{
	"Authorization": forwardsCredentials, "Proxy-Authorization": forwardsCredentials,
	"Cookie": forwardsCredentials, "Cookie2": forwardsCredentials,
	"Set-Cookie": forwardsCredentials, "Dpop": forwardsCredentials, "Signature": forwardsCredentials,
	"Signature-Input": forwardsCredentials,
	"X-Api-Key":       forwardsCredentials, "Api-Key": forwardsCredentials,
	"X-Auth-Token": forwardsCredentials, "X-Csrf-Token": forwardsCredentials,

	"Forwarded": forwardsAddress, "Via": forwardsAddress, "X-Real-Ip": forwardsAddress,
	"Cf-Connecting-Ip": forwardsAddress,
	"True-Client-Ip":   forwardsAddress, "X-Client-Ip": forwardsAddress,
	"X-Cluster-Client-Ip": forwardsAddress,

	"Expect": forwardsHop, "Proxy-Connection": forwardsHop, "Proxy-Authenticate": forwardsHop,
	"Http2-Settings": forwardsHop,

	"Origin": forwardsMessage, "Referer": forwardsMessage, "Content-Encoding": forwardsMessage,
	"Content-Digest": forwardsMessage, "Digest": forwardsMessage,
	"Accept-Encoding": forwardsMessage, "Cache-Control": forwardsMessage, "Range": forwardsMessage,
	"User-Agent":  forwardsMessage,
	"Traceparent": forwardsTrace, "Tracestate": forwardsTrace, "Baggage": forwardsTrace,
}

const (
	forwardsTrace       = "farcall passes the trace context on without it"
	forwardsCredentials = "it has credentials of the caller, which no other server may see" //nolint:gosec // it has none
	forwardsAddress     = "it says where the caller is, which a server can believe farcall only"
	forwardsHop         = "it is about the connection of the caller"
	forwardsMessage     = "it is about the caller's own message to farcall"
)

// unforwardable returns why a header cannot go on to a server; "": it can.
func unforwardable(key string) string {
	if why := unforwarded[key]; why != "" {
		return why
	}
	switch {
	case isOwnHeader(key):
		return "farcall sets this header itself"
	case strings.HasPrefix(key, "X-Forwarded-"):
		return forwardsAddress
	case strings.HasPrefix(key, "Proxy-"), strings.HasPrefix(key, "Sec-"),
		strings.HasPrefix(key, "Access-Control-"), strings.HasPrefix(key, "If-"):
		return forwardsMessage
	}
	return ""
}

// network checks how the server is reached, and what of a caller's request goes there.
func (c *checker) network(u *Upstream, path string, t *target.Target) {
	isHTTP, isWS := t.Kind == target.HTTP && !t.Queue(), t.Kind == target.WebSocket
	switch {
	case !u.ownTLS():
	case t.Queue():
		c.problem(path+".tls", "a connection to NATS has the roots of the system", "remove it")
	case !t.Secure:
		c.problem(path+".tls", "the url has the scheme "+t.Scheme+", which has no TLS",
			"write "+secured[t.Scheme]+" in the url, or remove tls")
	case (u.TLS.Cert == "") != (u.TLS.Key == ""):
		c.problem(path+".tls", "a certificate needs both cert and key",
			"name the files of the certificate and of its private key")
	case strings.ContainsAny(u.TLS.ServerName, ":/ \t"):
		c.problem(path+".tls.server_name",
			c.quote(path+".tls.server_name", u.TLS.ServerName)+" is not a host name",
			"write the name that is in the server's certificate, without a port")
	case !u.Disabled:
		if _, err := u.tlsConfig(nil); err != nil {
			c.problem(path+".tls", err.Error(), "name files in PEM that farcall may read")
		}
	}
	if u.Proxy != "" && !isHTTP && !isWS {
		c.problem(path+".proxy", "only http, https, ws and wss have it", "remove it")
	} else {
		c.proxy(u, path+".proxy")
	}
	if len(u.ForwardHeaders) > 0 && (!isHTTP || u.profile() == profileRaw) {
		c.problem(path+".forward_headers",
			"only MCP over http and https has it: other connections carry the calls of many", "remove it")
		return
	}
	c.forwarded(u, path+".forward_headers")
}

// secured are the schemes with TLS for those without.
var secured = map[string]string{
	"http": "https", "ws": "wss", "tcp": "tls", "unix": "tls",
	"npipe": "tls",
}

func (c *checker) proxy(u *Upstream, path string) {
	if u.Proxy == "" || u.Proxy == proxyNone {
		return
	}
	const hint = "write http://host:port, https://host:port, socks5://host:port, or none for a " +
		"direct connection"
	p, err := url.Parse(u.Proxy)
	switch {
	case err != nil || p.Hostname() == "" || p.Opaque != "":
		c.problem(path, "it is not the URL of a proxy", hint)
	case p.Scheme != "http" && p.Scheme != "https" && p.Scheme != "socks5" && p.Scheme != "socks5h":
		c.problem(path, "there are no proxies of that scheme", hint)
	case strings.Trim(p.Path, "/") != "" || p.RawQuery != "" || p.Fragment != "":
		c.problem(path, "a proxy has neither a path nor a query", hint)
	case p.Scheme == "https" && u.ownTLS():
		c.problem(path, "the proxy would need the same tls as the server",
			"write http:// or socks5://; TLS goes through the proxy to the server")
	}
}

func (c *checker) forwarded(u *Upstream, path string) {
	if len(u.ForwardHeaders) > maxForwarded {
		c.problem(path, fmt.Sprintf("there are %d headers", len(u.ForwardHeaders)),
			fmt.Sprintf("name %d at most", maxForwarded))
	}
	own := map[string]bool{}
	for name := range u.Headers {
		own[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	seen := map[string]bool{}
	for i, name := range u.ForwardHeaders {
		at, key := fmt.Sprintf("%s[%d]", path, i), textproto.CanonicalMIMEHeaderKey(name)
		why := unforwardable(key)
		switch {
		case !headerName.MatchString(name) || strings.Contains(name, "*"):
			c.problem(at, c.quote(at, name)+" is not the name of a header",
				"write one name, such as x-request-id; there are no patterns")
		case why == forwardsCredentials:
			c.problem(at, why, "remove it; auth has ways to show the server who calls")
		case why != "":
			c.problem(at, why, "remove it")
		case own[key]:
			c.problem(at, "it is in headers, too", "remove one")
		case seen[key]:
			c.problem(at, "it is there twice", "remove one")
		}
		seen[key] = true
	}
}
