package mcphttp

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
)

// free waits until nothing of a budget is held any more.
func free(t *testing.T, b *farcall.Budget) {
	t.Helper()
	until := time.Now().Add(10 * time.Second)
	for {
		if n, few := b.Used(); n+few == 0 {
			return
		} else if time.Now().After(until) {
			t.Fatalf("%d and %d bytes are held at the end", n, few)
		}
		<-time.After(time.Millisecond)
	}
}

func padded(id int, tool, more string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"pad":%q%s}}`, id, tool,
		strings.Repeat("x", 300<<10), more)
}

// Large requests give back what they hold, whatever becomes of them, also when the
// client has gone and the call goes on; one that fills the budget is refused at
// once, and another one works.
func TestBudget(t *testing.T) {
	b := farcall.NewBudget(2<<20, 0)
	e := serve(t, &Options{Budget: b})
	const modern = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernName +
		`","io.modelcontextprotocol/clientCapabilities":{}}`
	headers := func(tool string) []string {
		return []string{
			"MCP-Protocol-Version: " + modernName, "Mcp-Method: tools/call",
			"Mcp-Name: " + tool,
		}
	}
	session := "Mcp-Session-Id: " +
		e.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacyName+
			`"}}`).Header.Get("Mcp-Session-Id")
	for _, tool := range []string{"echo", "panic", "unknown"} {
		if r := e.post(padded(1, tool, modern),
			headers(tool)...); r.StatusCode == http.StatusServiceUnavailable {
			t.Errorf("%s: %s", tool, r.Status)
		}
		_, _ = io.Copy(io.Discard, e.post(padded(1, tool, ""), session).Body)
	}
	for _, header := range [][]string{headers("goexit"), {session}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/mcp",
			strings.NewReader(padded(1, "goexit", modern)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for _, h := range header {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			// the goroutine of the connection has ended
			resp.Body.Close()
		}
	}
	if r := e.post(padded(1, "echo", ""), "Mcp-Session-Id: gone"); r.StatusCode !=
		http.StatusNotFound {
		t.Errorf("a session that is gone: %s", r.Status)
	}
	if r := e.post(padded(1, "echo", "")+"x", session); r.StatusCode != http.StatusBadRequest {
		t.Errorf("no JSON: %s", r.Status)
	}
	free(t, b)

	detached := e.do("POST", "/mcp", padded(2, "poll", ""), session)
	<-e.f.began
	detached.Body.Close() // the call goes on
	if n, _ := b.Used(); n < 300<<10 {
		t.Errorf("a call that goes on holds %d bytes", n)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = fmt.Fprintf(conn,
			"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: 40000000\r\n\r\n%s", strings.Repeat("x", 2<<20))
	}()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 2000)
	n, err := conn.Read(answer)
	if text := string(answer[:n]); err != nil || !strings.HasPrefix(text, "HTTP/1.1 503") ||
		!strings.Contains(text, "Retry-After: 1") || !strings.Contains(text, "-32010") {
		t.Errorf("%v: %s", err, text)
	}
	if r := e.post(padded(3, "echo", modern), headers("echo")...); r.StatusCode != http.StatusOK {
		t.Errorf("another caller: %s", r.Status)
	}
	close(e.f.release)
	free(t, b)
}

// What a client reads is bounded by its budget, too.
func TestBudgetOfAClient(t *testing.T) {
	for name, contentType := range map[string]string{
		"answer": "application/json",
		"event":  "text/event-stream",
	} {
		t.Run(name, func(t *testing.T) {
			b := farcall.NewBudget(1<<20, 0)
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", contentType)
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%q}\n\n",
					strings.Repeat("x", 3<<20))
			})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: h}
			served := make(chan struct{})
			go func() { defer close(served); _ = server.Serve(l) }()
			c, err := Dial("http://"+l.Addr().String(), &DialOptions{Budget: b})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Exchange(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`),
				func([]byte) error {
					return nil
				})
			if err == nil || !strings.Contains(err.Error(), "no memory") {
				t.Errorf("%.300v", err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			server.Close()
			<-served
			free(t, b)
		})
	}
}
