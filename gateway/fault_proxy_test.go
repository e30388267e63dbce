package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/fault"
	"github.com/farcall-dev/farcall/mcp"
)

// TestFaultsOfConnection puts a proxy with each fault between the gateway and a server. Each call
// of a client has an answer or an error within its timeout, and nothing is left behind.
func TestFaultsOfConnection(t *testing.T) {
	t.Parallel()
	for _, f := range fault.Faults() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			in, err := fault.New(
				[]fault.Rule{{Fault: f.Name, To: f.To, Of: f.Of, Method: "tools/call", Delay: 10 * time.Millisecond, Size: min(f.Size, 100)}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := mcp.NewServer("s", "1", nil)
			mcp.AddTool(s, mcp.Tool{Name: "echo"},
				func(_ context.Context, text map[string]string) (map[string]string, error) {
					return text, nil
				})
			behind := over(t, "s", s)
			url := listen(t, func(conn net.Conn) {
				server, err := net.Dial("tcp", behind.URL[len("tcp://"):])
				if err != nil {
					return
				}
				if err := in.Proxy(context.Background(), conn, server, false); err != nil &&
					!errors.Is(err, io.EOF) {
					t.Logf("the proxy: %v", err)
				}
			})
			l := newLab(t, nil, &gateway.Upstream{Name: "s", URL: url, Timeout: 2 * time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			c, err := mcp.Dial(ctx, l.url+"/mcp", &mcp.ClientOptions{Timeout: 15 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 3 {
				_, err := c.CallTool(ctx, "echo", map[string]string{"text": "ä"})
				if ctx.Err() != nil {
					t.Fatalf("a call hangs: %v", err)
				}
			}
		})
	}
}
