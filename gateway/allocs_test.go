package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/mcp"
)

// TestForwardAllocations bounds what a forwarded call allocates where no revision differs: 13, and
// one for the runtime's own; and one more for the params without the qualifier, where names are
// qualified. The server runs in this process and allocates nothing. An endpoint of another address,
// its overrides, and hooks about other tools cost nothing.
func TestForwardAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, c := range map[string]struct {
		gateway.Config

		path, call string
		most       float64
	}{
		"never": {
			gateway.Config{Namespace: "never"},
			"/mcp",
			strings.Replace(benchCall, "server__greet", "greet", 1), 14,
		},
		"always":             {gateway.Config{Namespace: "always"}, "/mcp", benchCall, 15},
		"beside an endpoint": {*withUnused(), "/mcp", benchCall, 15},
		"at an endpoint":     {*withUnused(), "/mcp/plain", benchCall, 15},
	} {
		t.Run(name, func(t *testing.T) { forwardAllocates(t, &c.Config, c.path, c.call, c.most) })
	}
}

// withUnused is a configuration with what calls at /mcp make no use of.
func withUnused() *gateway.Config {
	return &gateway.Config{
		Namespace: "always",
		Hooks: []gateway.Hook{
			{On: "before", Tools: []string{"server/other"}, Command: []string{"/bin/false"}},
		},
		Endpoints: []*gateway.Endpoint{
			{Name: "plain", Tools: []string{"server/*"}},
			{Name: "changed", Overrides: map[string]mcp.Transform{"server/greet": {Description: "Greets."}}},
		},
	}
}

func forwardAllocates(t *testing.T, config *gateway.Config, at, body string, most float64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveSparingly(l)
	}()
	config.Upstreams = []*gateway.Upstream{{Name: "server", URL: "unix:" + path, Era: "2025-06-18"}}
	g, err := gateway.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		l.Close()
		<-served
	})
	c := &benchClient{g: g, path: at, revision: "2025-06-18"}
	c.begin(t)
	call := c.call(t, body)
	if answer := call(); !bytes.Contains(answer, []byte("hello")) {
		t.Fatalf("answered %s", answer)
	}
	if n := testing.AllocsPerRun(500, func() { call() }); n > most {
		t.Errorf("%v allocations for a forwarded call", n)
	}
}

// serveSparingly serves the tool greet on one connection after the other until l is closed.
func serveSparingly(l net.Listener) {
	answers := []struct{ method, result []byte }{
		{[]byte(`"tools/call"`), []byte(`{"content":[{"type":"text","text":"hello"}]}`)},
		{
			[]byte(`"initialize"`),
			[]byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`),
		},
		{[]byte(`"tools/list"`), []byte(`{"tools":[{"name":"greet","inputSchema":{"type":"object"}}]}`)},
	}
	var out []byte
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				break
			}
			_, id, asked := bytes.Cut(line, []byte(`"id":`))
			if !asked {
				continue
			}
			id = id[:bytes.IndexAny(id, ",}")]
			for _, a := range answers {
				if bytes.Contains(line, a.method) {
					out = append(append(append(append(out[:0], `{"jsonrpc":"2.0","id":`...), id...),
						`,"result":`...), a.result...)
					if _, err := conn.Write(append(out, "}\n"...)); err != nil {
						break
					}
				}
			}
		}
		conn.Close()
	}
}
