package mcp_test

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// TestDialLimits has a server on a socket answer with more than MaxMessage allows: the limit holds
// for all addresses.
func TestDialLimits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = conn.Write(
				[]byte(`{"jsonrpc":"2.0","id":1,"result":{"x":"` + strings.Repeat("a", 100_000) + "\"}}\n"))
			_ = conn.Close()
		}
	}()
	c, err := mcp.Dial(t.Context(), "tcp://"+l.Addr().String(),
		&mcp.ClientOptions{Era: "2025-11-25", HTTP: &mcphttp.DialOptions{MaxMessage: 1000}})
	if err == nil {
		_ = c.Close()
		t.Fatal("an answer of 100 KB was taken")
	}
	if !strings.Contains(err.Error(), "the limit of 1000 bytes") {
		t.Error(err)
	}
}
