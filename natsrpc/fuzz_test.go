package natsrpc

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzAddress reads addresses: what is accepted can be written and read again, and its subject can
// be published to.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{
		"nats://localhost/a", "nats+tls://u:p@h:4222/a.b/mcp?x=1", "nats://h/a..b", "nats://h/a.*",
		"nats:///a", "tcp://h/a", "nats://h", "nats://h/>", "nats://h/a%20b/%2e%2e",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		a, err := parse(u)
		if err != nil {
			return
		}
		if checkSubject(a.subject) != "" || strings.Contains(a.subject, "/") {
			t.Errorf("%q: the subject %q", text, a.subject)
		}
		if a.path != "" && a.path[0] != '/' {
			t.Errorf("%q: the path %q", text, a.path)
		}
		if at, err := url.Parse(a.server); err != nil || at.Host != u.Host {
			t.Errorf("%q: the engine %q, %v", text, a.server, err)
		}
	})
}

// FuzzRequest makes requests of messages: whatever is in them, what a handler gets is one of HTTP.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/rpc", "_INBOX.a.b", "{}")
	f.Add("GET", "/mcp?x=%zz", "", "")
	f.Add("A B", "no", "...", "\x00")
	f.Add("CONNECT", "//evil", ".", "x")
	f.Add("POST", "http://evil/rpc", "x", "x")
	f.Fuzz(func(t *testing.T, method, path, reply, body string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &call{
			method: method, path: path, to: reply, frame: []byte(body), ctx: ctx,
			header: http.Header{"Host": {"evil"}},
		}
		r, err := c.request()
		if err != nil {
			return
		}
		host := r.Host + r.Header.Get("Host")
		if host != "localhost" || r.URL.Host != "" && !strings.HasPrefix(path, "//") || r.URL.Path == "" {
			t.Errorf("%q %q: %+v", method, path, r)
		}
		if strings.ContainsAny(r.RemoteAddr, " ./") {
			t.Errorf("%q: %q", reply, r.RemoteAddr)
		}
	})
}
