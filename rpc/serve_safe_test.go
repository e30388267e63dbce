package rpc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/certificate"
)

// TestReach is an invariant over addresses, guards and certificates: what other machines can
// reach has a guard, and no secret that can be used again crosses the network in the clear.
func TestReach(t *testing.T) {
	allow, onTrial := []guard.Rule{{Calls: []string{"math/*"}}},
		[]guard.Rule{{Calls: []string{"math/*"}, Mode: "shadow"}}
	keys := []guard.Key{{ID: "a"}}
	limited := &guard.Config{Anonymous: true}
	limited.Limits.Rates = []guard.Rate{{Limit: 1}}
	scoped := &guard.Config{Anonymous: true}
	scoped.Resource.Scopes = map[string][]string{"*": {"use"}}
	guards := map[string]struct {
		c            *guard.Config
		open, bearer bool
	}{
		"none":          {nil, true, false},
		"empty":         {&guard.Config{}, false, false},
		"anonymous":     {&guard.Config{Anonymous: true}, true, false},
		"limits":        {limited, true, false},
		"rule on trial": {&guard.Config{Anonymous: true, Deny: onTrial}, true, false},
		"guard on trial": {
			&guard.Config{Anonymous: true, Allow: allow, Mode: "shadow"},
			true, false,
		},
		"allow": {&guard.Config{Anonymous: true, Allow: allow}, false, false},
		"deny":  {&guard.Config{Anonymous: true, Deny: allow}, false, false},
		"local": {&guard.Config{Anonymous: true, Local: []string{"*"}}, false, false},
		"Cedar": {
			&guard.Config{Anonymous: true, Cedar: "permit(principal, action, resource);"}, false, false,
		},
		"scopes":              {scoped, false, false},
		"keys":                {&guard.Config{Keys: keys}, false, true},
		"keys on trial":       {&guard.Config{Keys: keys, Mode: "shadow"}, false, true},
		"keys, anonymous":     {&guard.Config{Anonymous: true, Keys: keys}, true, true},
		"keys, some may call": {&guard.Config{Anonymous: true, Keys: keys, Allow: allow}, false, true},
		"tokens":              {&guard.Config{JWT: []guard.Issuer{{Issuer: "x"}}}, false, true},
		"DPoP": {
			&guard.Config{JWT: []guard.Issuer{{Issuer: "x", DPoP: "required"}}},
			false, false,
		},
		"one DPoP": {
			&guard.Config{JWT: []guard.Issuer{{Issuer: "x", DPoP: "required"}, {Issuer: "y"}}}, false, true,
		},
		"mtls":       {&guard.Config{MTLS: []guard.Certificate{{SAN: "x"}}}, false, false},
		"signatures": {&guard.Config{Signatures: []guard.Signer{{ID: "a"}}}, false, false},
	}
	addresses := map[string]bool{
		"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, "unix:/s": false,
		"[::ffff:127.0.0.1]:1": false,
		":1":                   true, "0.0.0.0:1": true, "[::]:1": true, "172.17.0.2:1": true,
		"192.168.1.5:1": true,
		"[fd00::5]:1":   true, "tools.example.com:1": true,
	}
	servers := map[string]*Server{
		"": served(t, nil), "TLS": served(t, nil),
		"proxies": served(t, &ServeOptions{TrustedProxies: []string{"10.0.0.1"}}),
	}
	servers["TLS"].certs = &certificate.Source{}
	for address, reachable := range addresses {
		for name, g := range guards {
			for _, by := range []string{"", "TLS", "proxies"} {
				secure := by != ""
				var p Policy
				if g.c != nil {
					p = g.c
				}
				s := servers[by]
				err := s.Check(p, "127.0.0.1:0", address)
				want := reachable && (g.open || g.bearer && !secure)
				x, got := errors.AsType[*ServeError](err)
				if got != want {
					t.Errorf("%s, guard %s, TLS %v: %v, want refused %v", address, name, secure, err, want)
				}
				if got && (x.Address != address || !strings.Contains(x.Reason, address) ||
					!strings.Contains(x.Hint, "ServeOptions.Insecure") ||
					!strings.Contains(x.Hint, "listen on 127.0.0.1:1") ||
					strings.Contains(x.Hint, "ServeOptions.CertFile") == g.open ||
					strings.Contains(x.Hint, "ServeOptions.TrustedProxies") == g.open ||
					strings.Contains(x.Hint, "Anonymous") != (g.open && g.c != nil)) {
					t.Errorf("%s, guard %s: %+v", address, name, x)
				}
			}
		}
	}
}

func TestReachOfNothing(t *testing.T) {
	t.Parallel()
	for _, addresses := range [][]string{nil, {"127.0.0.1:7331"}, {"unix:/s"}} {
		for _, insecure := range []bool{false, true} {
			s := served(t, &ServeOptions{Insecure: insecure, OnInsecure: func(why string) { t.Error(why) }})
			if err := s.Check(nil, addresses...); err != nil {
				t.Error(err)
			}
			s.tellInsecure(nil, addresses...)
		}
	}
}

// TestInsecure: it says once, and in one line, what is not safe.
func TestInsecure(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := served(t, &ServeOptions{Insecure: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.certs = &certificate.Source{}
	s.tellInsecure(nil, ":7331", "0.0.0.0:80", "127.0.0.1:1")
	const want = `level=WARN msg="INSECURE, as ServeOptions.Insecure demands: other machines can ` +
		`reach :7331, and no guard says who may call what; ` +
		`other machines can reach 0.0.0.0:80, and no guard says who may call what; connections without ` +
		`TLS are accepted" component=rpc` + "\n"
	if _, line, _ := strings.Cut(log.String(), " "); line != want {
		t.Errorf("%s", &log)
	}
}

// TestPlainThroughProxy: where a trusted proxy stands in for a certificate, other machines connect
// through it only, so that no key crosses the network in the clear.
func TestPlainThroughProxy(t *testing.T) {
	t.Parallel()
	s := served(t, &ServeOptions{TrustedProxies: []string{"10.0.0.1"}})
	if err := s.Check(&guard.Config{Keys: []guard.Key{{ID: "a"}}}, ":7331"); err != nil {
		t.Error(err)
	}
	for address, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "10.0.0.2": false,
		"192.0.2.1": false,
	} {
		conn := addressed{remote: &net.TCPAddr{IP: net.ParseIP(address), Port: 1}}
		if reason := s.plain()(conn); (reason == "") != want {
			t.Errorf("%s: %q", address, reason)
		}
	}
	if reason := s.plain()(addressed{remote: &net.UnixAddr{Net: "unix"}}); reason != "" {
		t.Error(reason)
	}
	s.certs = &certificate.Source{}
	if s.plain() != nil {
		t.Error("with a certificate the proxies are not asked")
	}
	s.o.Insecure = true
	if s.plain()(addressed{remote: &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}}) != "" {
		t.Error("Insecure does not insist")
	}
}

// addressed is a connection with an address.
type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }

// served returns a server of a handler that has no methods.
func served(t *testing.T, o *ServeOptions) *Server {
	t.Helper()
	s, err := NewServer(farcall.NewMux(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
	return s
}

// TestListenerOfAnother: what one server may listen on, another one may not serve for that alone.
func TestListenerOfAnother(t *testing.T) {
	t.Parallel()
	open, closed := served(t, &ServeOptions{Insecure: true, OnInsecure: func(string) {}}),
		served(t, nil)
	l, err := open.Listen(t.Context(), "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := closed.Serve(ctx, l[0]); err == nil || !strings.Contains(err.Error(), "no guard") {
		t.Errorf("%v, want a refusal", err)
	}
}
