package main

import (
	"net/http"
	"strings"
	"testing"
)

// TestServeOrigin: the pages that --origin names may call on every path, in the playground and in a
// gateway, and those of other hosts may not.
func TestServeOrigin(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"playground": nil,
		"gateway":    {"--upstream", "up=http://127.0.0.1:1/mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, append(args, "--listen", "127.0.0.1:0", "--log", "off", "--origin",
				"https://app.example.com", "--origin", "*.example.org")...)
			for origin, allowed := range map[string]bool{
				"https://app.example.com":  true,
				"https://a.example.org":    true,
				"http://app.example.com":   false,
				"https://evil.example.com": false,
			} {
				for _, path := range []string{"/rpc", "/rpc/ws", "/mcp"} {
					method, body, upgrade := http.MethodPost, addCall, ""
					switch path {
					case "/mcp":
						body = initialize
					case "/rpc/ws":
						method, body, upgrade = http.MethodGet, "", "websocket"
					}
					r, err := http.NewRequestWithContext(t.Context(), method, s.addrs[0]+path,
						strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					r.Header = http.Header{
						"Origin": {origin}, "Content-Type": {"application/json"},
						"Accept": {"application/json, text/event-stream"},
					}
					if upgrade != "" {
						r.Header = http.Header{
							"Origin": {origin}, "Connection": {"Upgrade"}, "Upgrade": {upgrade},
							"Sec-WebSocket-Version": {"13"}, "Sec-WebSocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
						}
					}
					answer, err := http.DefaultTransport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					_ = answer.Body.Close()
					if refused := answer.StatusCode == http.StatusForbidden; refused == allowed {
						t.Errorf("%s of %s: status %d", path, origin, answer.StatusCode)
					}
				}
			}
		})
	}
	if code, _, stderr := execute(t, "serve", "--listen", "127.0.0.1:0", "--origin",
		"https://app.example.com/path"); code != exitUsage ||
		!strings.Contains(stderr, "an origin has no path") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
