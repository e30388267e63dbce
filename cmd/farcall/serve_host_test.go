package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
)

// hostRequests are one request for each thing that is served over HTTP.
var hostRequests = []struct {
	method, path, body, upgrade string
	gateway, playground         bool // where it is served
}{
	{http.MethodPost, "/rpc", addCall, "", true, true},
	{http.MethodOptions, "/rpc", "", "", true, true},
	{http.MethodGet, "/rpc/stream?method=math/add&params=[2,3]", "", "", true, true},
	{http.MethodGet, "/rpc/ws", "", "websocket", true, true},
	{http.MethodPost, "/mcp", initialize, "", true, true},
	{http.MethodDelete, "/mcp", "", "", true, true},
	{http.MethodGet, "/mcp", "", "websocket", true, true},
	{http.MethodGet, "/sse", "", "", true, true},
	{http.MethodPost, "/messages?sessionId=x", initialize, "", true, true},
	{http.MethodGet, "/", "", "", true, true},
	{http.MethodGet, "/style.css", "", "", true, true},
	{http.MethodPost, "/mcp/up", initialize, "", true, false},
	{http.MethodPost, "/rpc/up", addCall, "", true, false},
	{http.MethodGet, "/api/status", "", "", true, false},
	{http.MethodGet, "/api", "", "websocket", true, true},
	{http.MethodGet, "/no/such/path", "", "", true, true},
}

const notAName = "is not a name of this server"

// TestHostNames is an invariant: whatever address a request over HTTP arrives on, and whatever path
// it is for, where callers need no credentials its host is an address, localhost, or configured.
func TestHostNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const key = "\n  keys: [{id: ci, hash: " +
		"'sha256:4a1f0e8c9c0b6f0d2f4f6b7f3f1f1c1b5c5a4d3e2f1a0b9c8d7e6f5a4b3c2d1e'}]\n"
	guards := map[string]string{
		"none":      "",
		"anonymous": "guard: {anonymous: true}",
		"resource":  "guard: {anonymous: true, resource: 'https://tools.example.com/mcp'}",
		"keys":      "guard:" + key,
		"both":      "guard:" + key + "  anonymous: true",
	}
	hosts := map[string]string{ // and with which guards it is allowed
		"127.0.0.1:7331":         "none anonymous resource keys both",
		"[::1]:7331":             "none anonymous resource keys both",
		"172.17.0.2":             "none anonymous resource keys both",
		"localhost:7331":         "none anonymous resource keys both",
		"listed.example":         "none anonymous resource keys both",
		"a.more.example:1":       "none anonymous resource keys both",
		"tools.example.com":      "resource keys",
		"tools.example.com:7331": "resource keys",
		"evil.example:7331":      "keys",
		"127.0.0.1.nip.example":  "keys",
	}
	locals := []net.Addr{
		&net.TCPAddr{IP: net.ParseIP("127.0.0.1"), Port: 7331},
		&net.TCPAddr{IP: net.ParseIP("::1"), Port: 7331},
		&net.TCPAddr{IP: net.ParseIP("172.17.0.2"), Port: 7331},
		&net.TCPAddr{IP: net.ParseIP("192.168.1.5"), Port: 7331},
		&net.TCPAddr{IP: net.ParseIP("fd00::5"), Port: 7331},
		&net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1"), Port: 7331},
		&net.UnixAddr{Name: "/run/x", Net: "unix"},
	}
	for name, text := range guards {
		file := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for kind, h := range hostServices(t, file, text != "") {
			for host, by := range hosts {
				allowed := slices.Contains(strings.Fields(by), name)
				for i, q := range hostRequests {
					if kind == "gateway" && !q.gateway || kind == "playground" && !q.playground {
						continue
					}
					answer := hostAnswer(h, locals[i%len(locals)], host, q.method, q.path, q.body, q.upgrade)
					said := strings.Contains(answer.Body.String(), notAName) && answer.Code == http.StatusForbidden
					if said == allowed {
						t.Errorf("%s, guard %s, host %s, %s %s: %d %s; want allowed %v", kind, name, host, q.method,
							q.path, answer.Code, answer.Body, allowed)
					}
				}
				for _, local := range locals {
					if answer := hostAnswer(h, local, host, http.MethodPost, "/mcp", initialize,
						""); allowed == strings.Contains(answer.Body.String(), notAName) {
						t.Errorf("%s, guard %s, host %s on %v: %d %s", kind, name, host, local, answer.Code,
							answer.Body)
					}
				}
				if answer := hostAnswer(h, locals[0], host, http.MethodGet, "/healthz", "",
					""); answer.Code != http.StatusOK {
					t.Errorf("%s, guard %s, host %s: /healthz: %d", kind, name, host, answer.Code)
				}
			}
		}
	}
}

// hostServices are what farcall serve serves over HTTP, with the guard of a file.
func hostServices(t *testing.T, file string, guarded bool) map[string]http.Handler {
	t.Helper()
	f := serveFlags{
		logFlags:  logFlags{log: "off"},
		hosts:     []string{"listed.example", "*.more.example"},
		upstreams: []string{"up=http://127.0.0.1:1/mcp"},
	}
	if guarded {
		f.guard = file
	}
	of, err := f.loadGuard()
	if err != nil {
		t.Fatal(err)
	}
	play, err := f.playground(t.Context(), of, nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.gatewayConfig()
	if err == nil {
		err = f.putUp(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Hosts = []string{"*.more.example"}
	behind, err := gateway.New(c,
		&gateway.Options{Hosts: []string{"listed.example"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		_ = behind.Shutdown(ctx)
		_ = f.server.Shutdown(ctx)
		_ = play.Close()
	})
	return map[string]http.Handler{"playground": f.server, "gateway": behind}
}

// hostAnswer sends a request with a context that has ended: streams end at once.
func hostAnswer(
	h http.Handler, local net.Addr, host, method, path, body, upgrade string,
) *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancel(
		context.WithValue(context.Background(), http.LocalAddrContextKey, local))
	cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodOptions {
		r.Header.Set("Access-Control-Request-Method", http.MethodPost)
		r.Header.Set("Origin", "http://"+host)
	}
	if upgrade != "" {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", upgrade)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
