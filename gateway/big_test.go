package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
)

// Streams without a sign of life were cut at the edge: here comments keep them
// alive, while a call takes long, and on the stream for what belongs to no call.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	m := newMock("legacy")
	l := newLab(t, &gateway.Options{Heartbeat: 20 * time.Millisecond}, m.tcp(t, "m"))
	beats := func(t *testing.T, body io.Reader) {
		t.Helper()
		in := bufio.NewReader(body)
		for n := 0; n < 3; {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			if strings.HasPrefix(line, ":") {
				n++
			}
		}
	}
	begun, err := l.post(t.Context(), "/mcp", initialize)
	if err != nil || begun.err != nil {
		t.Fatal(begun, err)
	}
	session := []string{
		"Mcp-Session-Id: " + begun.header.Get("Mcp-Session-Id"),
		"MCP-Protocol-Version: " + legacy,
	}
	for name, open := range map[string]func(ctx context.Context) (*http.Response, error){
		"a call of a session": func(ctx context.Context) (*http.Response, error) {
			return l.open(ctx, http.MethodPost,
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`,
				session...)
		},
		"a modern call": func(ctx context.Context) (*http.Response, error) {
			return l.open(ctx, http.MethodPost,
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{},`+
					`"_meta":{"io.modelcontextprotocol/protocolVersion":"`+modern+
					`","io.modelcontextprotocol/clientCapabilities":{}}}}`,
				"MCP-Protocol-Version: "+modern, "Mcp-Method: tools/call", "Mcp-Name: wait")
		},
		"the stream of a session": func(ctx context.Context) (*http.Response, error) {
			return l.open(ctx, http.MethodGet, "", session...)
		},
		"a subscription": func(ctx context.Context) (*http.Response, error) {
			return l.open(ctx, http.MethodPost,
				`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen",`+
					`"params":{"notifications":{"toolsListChanged":true},`+
					`"_meta":{"io.modelcontextprotocol/protocolVersion":"`+modern+
					`","io.modelcontextprotocol/clientCapabilities":{}}}}`,
				"MCP-Protocol-Version: "+modern, "Mcp-Method: subscriptions/listen")
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got, err := open(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			beats(t, got.Body)
			if strings.HasSuffix(name, "call") || strings.HasPrefix(name, "a call") {
				m.release <- struct{}{}
				received(t, "the end of the call", m.ended)
			}
		})
	}
}

// open sends a request and returns the answer before its body has come.
func (l *lab) open(
	ctx context.Context, method, body string, headers ...string,
) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, l.url+"/mcp", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
	}
	if method == http.MethodGet {
		r.Header.Set("Accept", "text/event-stream")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return l.web.Do(r)
}

// Each event reaches the client when it happens: the server goes on only when the
// client has seen its progress.
func TestFlushed(t *testing.T) {
	m := newMock("legacy")
	mcp.AddTool(m.Server, mcp.Tool{Name: "steps"},
		func(ctx context.Context, _ textIn) (string, error) {
			for n := range 3 {
				if err := mcp.Progress(ctx, float64(n+1), 3, "step"); err != nil {
					return "", err
				}
				select {
				case <-m.release:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return "done", nil
		})
	l := newLab(t, nil, m.tcp(t, "m"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := l.open(ctx, http.MethodPost,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"steps","arguments":{},`+
			`"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"`+modern+
			`","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		"MCP-Protocol-Version: "+modern, "Mcp-Method: tools/call", "Mcp-Name: steps")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	in := bufio.NewReader(got.Body)
	progress := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d: %v", progress, err)
		}
		if strings.Contains(line, `"notifications/progress"`) {
			progress++
			m.release <- struct{}{}
		}
		if strings.Contains(line, `"result"`) {
			break
		}
	}
	if progress != 3 {
		t.Errorf("progress came %d times", progress)
	}
}

// A client that does not read holds up itself, and not those that share the child
// with it.
func TestSlowReader(t *testing.T) {
	m := newMock("legacy")
	mcp.AddTool(m.Server, mcp.Tool{Name: "big"}, func(context.Context, textIn) (string, error) {
		return strings.Repeat("x", 8<<20), nil
	})
	l := newLab(t, nil, m.tcp(t, "m"))
	quick := l.client(t, mcp.ClientOptions{Era: "legacy"})
	wants(t, quick, "echo", "hello", "hello")
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"big","arguments":{},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for n, dial := range []func() (net.Conn, string){
		func() (net.Conn, string) {
			return dialTCP(t, strings.TrimPrefix(l.url, "http://")),
				"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
					"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: " + modern +
					"\r\nMcp-Method: tools/call\r\nMcp-Name: big\r\n" +
					"Content-Length: " + itoa(len(call)) + "\r\n\r\n" + call
		},
		func() (net.Conn, string) {
			url := listen(t, func(conn net.Conn) { l.serveConn(conn) })
			return dialTCP(t, strings.TrimPrefix(url, "tcp://")), strings.Repeat(call+"\n", 3)
		},
	} {
		conn, text := dial()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		if _, err := io.ReadFull(conn, one); err != nil { // the answer is on its way
			t.Fatal(err)
		}
		// The median: on a busy machine anything may hold up some of them.
		var took []time.Duration
		for range 100 {
			began := time.Now()
			wants(t, quick, "echo", "hello", "hello")
			took = append(took, time.Since(began))
		}
		if slices.Sort(took); took[len(took)/2] > 100*time.Millisecond {
			t.Errorf("front %d: calls of another took %v", n, took[len(took)/2])
		}
		conn.Close()
	}
}
