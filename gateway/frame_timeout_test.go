package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/farcall-dev/farcall/gateway"
)

// A server that begins an answer and does not end it is given up after frame_timeout, over every
// transport that has frames, long before the timeout of the call.
func TestFrameTimeoutOfUpstreams(t *testing.T) {
	t.Parallel()
	begin := func(conn net.Conn) {
		if bufio.NewScanner(conn).Scan() {
			_, _ = conn.Write([]byte(`{"jsonrpc":"2.0",`))
		}
		_, _ = io.Copy(io.Discard, conn)
	}
	tcp := func(t *testing.T) *gateway.Upstream { return &gateway.Upstream{URL: listen(t, begin)} }
	command := func(*testing.T) *gateway.Upstream {
		return &gateway.Upstream{
			Command: []string{
				"sh", "-c", `read line; printf '{"jsonrpc":"2.0",'; while read line; do :; done`,
			},
		}
	}
	for name, test := range map[string]struct {
		upstream func(*testing.T) *gateway.Upstream
		profile  string
	}{
		"MCP over TCP":            {tcp, "mcp"},
		"JSON-RPC over TCP":       {tcp, "raw"},
		"MCP of a command":        {command, "mcp"},
		"JSON-RPC of a command":   {command, "raw"},
		"MCP over WebSocket":      {halfWebSocket, "mcp"},
		"JSON-RPC over WebSocket": {halfWebSocket, "raw"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := test.upstream(t)
			u.Name, u.Profile, u.FrameTimeout, u.Timeout = "half", test.profile, 50*time.Millisecond,
				time.Hour
			l := newLab(t, nil, u)
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // lists wait for 10
			defer cancel()
			path, body := "/rpc/half", `{"jsonrpc":"2.0","id":1,"method":"m"}`
			if test.profile == "mcp" {
				path, body = "/mcp/half",
					`{"jsonrpc":"2.0","id":1,"method":"tools/list",`+
						`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
						`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},`+
						`"io.modelcontextprotocol/clientCapabilities":{}}}}`
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Method": {"tools/list"}, "Mcp-Protocol-Version": {"2026-07-28"},
			}
			answer, err := l.web.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			got, err := io.ReadAll(answer.Body)
			if err != nil || !strings.Contains(string(got), `"error"`) &&
				!strings.Contains(string(got), `"state":"absent"`) {
				t.Errorf("%v, %s", err, got)
			}
		})
	}
}

// halfWebSocket is a server that begins a message and does not end it.
func halfWebSocket(t *testing.T) *gateway.Upstream {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		if _, _, err := conn.Read(r.Context()); err != nil {
			return
		}
		half, err := conn.Writer(r.Context(), websocket.MessageText)
		if err != nil {
			return
		}
		_, _ = half.Write([]byte(`{"jsonrpc":"2.0",` + strings.Repeat(" ", 1<<13)))
		_, _, _ = conn.Read(r.Context())
	}))
	t.Cleanup(s.Close)
	return &gateway.Upstream{URL: strings.Replace(s.URL, "http", "ws", 1)}
}
