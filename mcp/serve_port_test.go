package mcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
)

// TestRoutes: the three paths are served under any name of the server, with the bounds that are
// given.
func TestRoutes(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("s", "1", nil)
	defer s.Close()
	h, end := s.Routes(&farcall.Options{}, 1000, nil)
	defer func() { _ = end(context.WithoutCancel(t.Context())) }()
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for path, c := range map[string]struct {
		method, body string
		want         int
	}{
		"/mcp": {
			http.MethodPost, strings.Repeat(" ", 1001) + ping,
			http.StatusRequestEntityTooLarge,
		},
		"/mcp?x=1": {
			http.MethodPost,
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
				`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, http.StatusOK,
		},
		"/messages": {http.MethodPost, ping, http.StatusNotFound}, // of no session
		"/sse":      {http.MethodPost, ping, http.StatusMethodNotAllowed},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, path, strings.NewReader(c.body))
		r.Host = "tools.example.com"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, c.want)
		}
	}
}
