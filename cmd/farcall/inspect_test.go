package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/conform"
	"github.com/farcall-dev/farcall/inspect"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/wsrpc"
)

// The page checks a server by its specification over every transport.
func TestConformPage(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("checked", "1", nil)
	mux := farcall.NewMux()
	echo := func(_ context.Context, p jsonrpc.Raw) (jsonrpc.Raw, error) { return p, nil }
	farcall.Handle(mux, "echo", echo, "")
	web := httptest.NewServer(mcphttp.NewHandler(s, nil))
	defer web.Close()
	socket := httptest.NewServer(wsrpc.NewHandler(func(t farcall.Transport, _ *http.Request) {
		farcall.NewPeer(t, mux, nil)
	}, nil))
	defer socket.Close()
	for name, test := range map[string]struct {
		protocol, first string
		server          inspect.Server
	}{
		conform.HTTP: {"mcp", "2024-11-05/", inspect.Server{Target: web.URL, HTTP: web.Client()}},
		conform.WebSocket: {
			"jsonrpc", "", inspect.Server{Target: "ws" + strings.TrimPrefix(socket.URL, "http")},
		},
		conform.Messages: {
			"jsonrpc", "",
			inspect.Server{Dial: func(context.Context) (farcall.Transport, error) {
				near, far := farcall.Pipe()
				farcall.NewPeer(far, mux, nil)
				return near, nil
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			report, err := conformPage(t.Context(), test.protocol, &test.server, func(one string) {
				names = append(names, one)
			})
			r, ok := report.(*conform.Report)
			if err != nil || !ok {
				t.Fatalf("%v, %v", report, err)
			}
			if r.Transport != name || r.Failed > 0 || r.Passed < 50 || len(names) != len(r.Cases) ||
				!strings.HasPrefix(names[0], test.first) {
				t.Errorf("%s: %d passed, %d cases, %d reported", r.Transport, r.Passed, len(r.Cases),
					len(names))
			}
			for _, c := range r.Cases {
				if c.Verdict == conform.Fail {
					t.Errorf("%s: %s", c.Name, c.Finding)
				}
			}
		})
	}
}
