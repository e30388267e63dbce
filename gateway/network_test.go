package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// issueFor writes a certificate that is its own authority, and its key, and returns both.
func issueFor(t *testing.T, certFile, keyFile, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, DNSNames: []string{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for file, text := range map[string][]byte{certFile: cert, keyFile: secret} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(cert, secret)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// headered is a gateway in front of one server, and a call of its tool with headers.
func headered(t *testing.T, u *Upstream) func(h http.Header) (string, error) {
	t.Helper()
	g, err := New(&Config{Upstreams: []*Upstream{u}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(g)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.Shutdown(ctx)
	})
	return func(h http.Header) (string, error) {
		c, err := mcp.Dial(t.Context(), web.URL+"/mcp",
			&mcp.ClientOptions{HTTP: &mcphttp.DialOptions{Header: h}})
		if err != nil {
			return "", err
		}
		defer c.Close()
		return mcp.CallTool[string](t.Context(), c, "add", map[string]int{"A": 1, "B": 2})
	}
}

// TestUpstreamTLS calls a server of a private authority that wants a certificate, before and after
// both have changed.
func TestUpstreamTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"),
		filepath.Join(dir, "key.pem")
	shown := new(atomic.Value)
	serve := new(atomic.Pointer[tls.Config])
	renew := func() {
		server, client := issueFor(t, ca, filepath.Join(dir, "server.key"), "tools.test"),
			issueFor(t, cert, key, "gateway")
		pool := x509.NewCertPool()
		pool.AddCert(client.Leaf)
		serve.Store(
			&tls.Config{
				Certificates: []tls.Certificate{server}, ClientCAs: pool,
				ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
			})
	}
	renew()
	s := mcp.NewServer("private", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "add"},
		func(ctx context.Context, _ struct{ A, B int }) (string, error) {
			shown.Store(mcphttp.RequestFrom(ctx).TLS.ServerName)
			return "3", nil
		})
	web := httptest.NewUnstartedServer(mcphttp.NewHandler(s, nil))
	web.Config.ErrorLog = nil
	web.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return serve.Load(), nil
		},
	}
	web.StartTLS()
	t.Cleanup(func() { web.CloseClientConnections(); web.Close(); s.Close() })
	u := &Upstream{Name: "private", URL: web.URL}
	u.TLS.CA, u.TLS.Cert, u.TLS.Key, u.TLS.ServerName = ca, cert, key, "tools.test"
	call := headered(t, u)
	for range 2 {
		if got, err := call(nil); err != nil || got != "3" || shown.Load() != "tools.test" {
			t.Fatal(got, err, shown.Load())
		}
		renew()
		web.CloseClientConnections()
	}
}

// TestUpstreamProxy sends requests to the proxy of the configuration, and to none.
func TestUpstreamProxy(t *testing.T) {
	t.Parallel()
	server := newCapturing(t, "")
	var passed atomic.Int32
	through := httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) { passed.Add(1) }}
	proxy := httptest.NewServer(&through)
	t.Cleanup(func() { proxy.CloseClientConnections(); proxy.Close() })
	if got, err := headered(t, &Upstream{Name: "up", URL: server.URL, Proxy: proxy.URL})(
		nil); err != nil || got != "3" || passed.Load() == 0 {
		t.Error(got, err, passed.Load())
	}
	none := &Upstream{Name: "up", URL: server.URL, Proxy: proxyNone}
	if got, err := headered(t, none)(nil); err != nil || got != "3" || none.proxy() != nil {
		t.Error(got, err, "a proxy that is switched off is used")
	}
	if (&Upstream{}).proxy() == nil {
		t.Error("the proxy of the environment is not used by default")
	}
}

// TestForwardHeaders passes on the headers that the configuration names, with calls, and no others.
func TestForwardHeaders(t *testing.T) {
	t.Parallel()
	server := newCapturing(t, "")
	call := headered(t,
		&Upstream{
			Name: "up", URL: server.URL, Headers: map[string]string{"X-Team": "a"},
			ForwardHeaders: []string{"x-request-id", "X-User"},
		})
	h := http.Header{
		"X-Request-Id": {"r1"}, "X-User": {"ada"}, "X-Team": {"b"}, "X-Other": {"other"},
		"Authorization": {"Bearer " + callersSecret},
		"Cookie":        {callersSecret}, "X-Api-Key": {callersSecret},
	}
	if got, err := call(h); err != nil || got != "3" {
		t.Fatal(got, err)
	}
	if _, err := call(http.Header{"X-Other": {"other"}}); err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	all := slices.Clone(server.all)
	server.mu.Unlock()
	calls := 0
	for _, request := range all {
		if strings.Contains(request, callersSecret) || strings.Contains(request, "other") ||
			!strings.Contains(request, "X-Team:[a]") {
			t.Error(request)
		}
		has := strings.Contains(request, "X-Request-Id:[r1]") && strings.Contains(request, "X-User:[ada]")
		if strings.Contains(request, `"method":"tools/call"`) {
			if calls++; has != (calls == 1) {
				t.Error(request)
			}
		} else if strings.Contains(request, `"method":"tools/list"`) && strings.Contains(request, "ada") {
			t.Error("a list, which callers share, has headers of one: " + request)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
	for name, values := range map[string][]string{
		"comes 2 times": {"ada", "eve"},
		"at most 4096":  {strings.Repeat("x", maxForwardedValue+1)},
	} {
		if _, err := call(http.Header{"X-User": values}); err == nil ||
			!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "X-User") {
			t.Error(err)
		}
	}
}

// TestNetworkProblems refuses what cannot work, or must not, with its place and the remedy.
func TestNetworkProblems(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"url: 'http://h', tls: {server_name: a}": "upstreams.a.tls: the url has " +
			"the scheme http, which has no TLS; write https in the url, or remove tls",
		"url: 'ws://h', tls: {server_name: a}": "write wss in the url",
		"url: 'https://h', tls: {cert: c.pem}": "upstreams.a.tls: a certificate " +
			"needs both cert and key; name the files",
		"url: 'https://h', tls: {key: c.pem}": "upstreams.a.tls: a certificate " +
			"needs both cert and key; name the files",
		"url: 'https://h', tls: {ca: none.pem}": "none.pem: no such file or " +
			"directory; name files in PEM that farcall may read",
		"url: 'https://h', tls: {ca: load.go}": "load.go: it has no certificate " +
			"in PEM; name files in PEM",
		"url: 'https://h', tls: {server_name: 'a:1'}": `upstreams.a.tls.server_name: ` +
			`"a:1" is not a host name; write the name that is in the server's certificate, without a port`,
		"url: 'https://h', tls: {sni: a}": `upstreams.a.tls.sni: there is ` +
			`no key "sni" here`,
		"url: 'http://h', proxy: 'ftp://p'": "upstreams.a.proxy: there are " +
			"no proxies of that scheme; write http://host:port",
		"url: 'http://h', proxy: 'p:1'": "upstreams.a.proxy: it is not " +
			"the URL of a proxy; write http://host:port",
		"url: 'http://h', proxy: 'http://p/path'": "a proxy has neither a path nor " +
			"a query",
		"url: 'https://h', proxy: 'https://p', tls: {server_name: a}": "the proxy would need the same " +
			"tls as the server; write http:// or socks5://",
		"url: 'tcp://h:1', proxy: none": "upstreams.a.proxy: only " +
			"http, https, ws and wss have it; remove it",
		"command: x, proxy: none": "upstreams.a.proxy: a " +
			"command has none; remove it; it is for a url",
		"command: x, tls: {ca: a}": "upstreams.a.tls: a " +
			"command has none; remove it; it is for a url",
		"command: x, " +
			"forward_headers: [a]": "upstreams.a.forward_headers: a command has none; remove it; it " +
			"is for a url",
		"url: 'ws://h', forward_headers: [x-user]": "only MCP over http and " +
			"https has it: other connections carry the calls of many; remove it",
		"url: 'http://h', profile: raw, forward_headers: [x-user]": "only MCP over http and " +
			"https has it",
		"url: 'http://h', forward_headers: ['x-*']": `upstreams.a.forward_headers[0]: "x-*" ` +
			`is not the name of a header; write one name`,
		"url: 'http://h', forward_headers: ['a b']": "is not the name of a header",
		"url: 'http://h', forward_headers: [x-user, X-User]": "upstreams.a.forward_headers[1]: it is " +
			"there twice; remove one",
		"url: 'http://h', headers: {x-user: a}, forward_headers: [X-User]": "it is in headers, too; " +
			"remove one",
	} {
		_, problems := parse(t, "f.yaml", "upstreams:\n  a: {"+keys+"}\n")
		if !strings.Contains(problems, want) || !strings.HasPrefix(problems, "f.yaml:2:") {
			t.Errorf("%s:\n%s\nwant %s", keys, problems, want)
		}
	}
	for why, names := range map[string][]string{
		forwardsCredentials + "; remove it; auth has ways": {
			"authorization", "Cookie",
			"proxy-authorization", "DPoP", "x-api-key", "signature",
		},
		forwardsHop:     {"proxy-connection", "expect"},
		forwardsAddress: {"Forwarded", "x-forwarded-for", "X-Real-IP", "via"},
		"farcall sets this header": {
			"host", "connection", "te", "upgrade",
			"transfer-encoding", "content-length", "mcp-session-id", "Mcp-Param-X", "accept",
			"last-event-id",
		},
		forwardsMessage: {
			"origin", "sec-fetch-site", "user-agent", "if-match",
			"proxy-x",
		},
		"farcall passes the trace context on": {"traceparent", "Tracestate", "baggage"},
	} {
		for _, name := range names {
			_, problems := parse(t, "f.yaml",
				"upstreams:\n  a: {url: 'http://h', forward_headers: ["+name+"]}\n")
			if !strings.Contains(problems, "upstreams.a.forward_headers[0]: "+why) {
				t.Errorf("%s: %s", name, problems)
			}
		}
	}
	many := strings.Repeat("x-a, ", maxForwarded) + "x-b"
	if _, problems := parse(t, "f.yaml",
		"upstreams:\n  a: {url: 'http://h', forward_headers: ["+many+"]}\n"); !strings.Contains(problems,
		"name 32 at most") {
		t.Error(problems)
	}
}

// TestNetworkLoads reads the keys, with paths beside the file, and hides the key from children.
func TestNetworkLoads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issueFor(t, filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), "x")
	file := filepath.Join(dir, "f.yaml")
	c, err := Parse(file, fmt.Append(nil,
		"upstreams:\n  a: {url: 'https://h', tls: {ca: c.pem, cert: c.pem, key: k.pem}, proxy: "+
			"'socks5://p:1', forward_headers: [x-user]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	u := c.Upstreams[0]
	if u.TLS.CA != filepath.Join(dir, "c.pem") || u.Proxy != "socks5://p:1" ||
		!slices.Equal(u.ForwardHeaders, []string{"x-user"}) ||
		!slices.Contains(c.Private(), filepath.Join(dir, "k.pem")) {
		t.Errorf("%+v %q", u, c.Private())
	}
	if p, err := u.proxy()(nil); err != nil || *p != (url.URL{Scheme: "socks5", Host: "p:1"}) {
		t.Error(p, err)
	}
}
