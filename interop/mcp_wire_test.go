package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// What other servers do wrong and ours must not, seen on the wire: no client in
// between that could make up for it.

// wire posts messages to a server, in one era.
type wire struct {
	t       *testing.T
	url     string
	session string // "" in the modern era
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"wire","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p"}`

// eras calls f with a wire of each era.
func eras(t *testing.T, f func(t *testing.T, w *wire)) {
	url := serveOurs(t).http
	t.Run("modern", func(t *testing.T) { f(t, &wire{t: t, url: url}) })
	t.Run("legacy", func(t *testing.T) { f(t, legacyWire(t, url, "2025-11-25")) })
}

func legacyWire(t *testing.T, url, revision string) *wire {
	t.Helper()
	w := &wire{t: t, url: url}
	r := w.post(t.Context(),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,`+
			`"capabilities":{},"clientInfo":{"name":"wire","version":"1"}}}`, revision), nil)
	defer r.Body.Close()
	if w.session = r.Header.Get("Mcp-Session-Id"); w.session == "" {
		t.Fatalf("initialize: %s, and no session", r.Status)
	}
	return w
}

func (w *wire) post(ctx context.Context, body string, header map[string]string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if w.session != "" {
		req.Header.Set("Mcp-Session-Id", w.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// call makes a message of the parts of a call and returns the answer, which must
// be JSON, or else the events' data, a line each.
func (w *wire) call(id, method, params string) (status int, answer string) {
	w.t.Helper()
	r := w.begin(w.t.Context(), id, method, params)
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	switch kind := r.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "application/json"):
		if !json.Valid(data) {
			w.t.Errorf("the answer is not JSON: %s", data)
		}
		return r.StatusCode, string(data)
	case strings.HasPrefix(kind, "text/event-stream"):
		var lines strings.Builder
		for line := range strings.Lines(string(data)) {
			if value, ok := strings.CutPrefix(line, "data: "); ok {
				lines.WriteString(value)
			}
		}
		return r.StatusCode, lines.String()
	default:
		w.t.Errorf("the answer has the type %q: %s", kind, data)
		return r.StatusCode, string(data)
	}
}

func (w *wire) begin(ctx context.Context, id, method, params string) *http.Response {
	w.t.Helper()
	var header map[string]string
	if w.session == "" {
		header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method}
		var named struct{ Name string }
		if json.Unmarshal([]byte("{"+params+"}"), &named); named.Name != "" {
			header["Mcp-Name"] = named.Name
		}
	}
	meta := modernMeta
	if w.session != "" {
		meta = `"_meta":{"progressToken":"p"}`
	}
	if params != "" {
		params = "," + params
	}
	return w.post(ctx,
		`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{`+meta+params+`}}`, header)
}

// tool returns the params that call a tool.
func tool(name, arguments string) string { return `"name":"` + name + `","arguments":` + arguments }

// go-sdk's process dies of a panic, mcp-go's connection.
func TestMCPWirePanic(t *testing.T) {
	eras(t, func(t *testing.T, w *wire) {
		_, answer := w.call("1", "tools/call", tool("panic", "{}"))
		if !strings.Contains(answer, `"id":1`) || strings.Contains(answer, "told why") ||
			!strings.Contains(answer, "-32603") {
			t.Errorf("a tool that panics: %s", answer)
		}
		if _, answer := w.call("2", "tools/call", tool("add", `{"A":2,"B":3}`)); !strings.Contains(answer,
			`"Sum":5`) {
			t.Errorf("a call after it: %s", answer)
		}
	})
}

// Others round large ids, and cut off fractions.
func TestMCPWireIDs(t *testing.T) {
	eras(t, func(t *testing.T, w *wire) {
		for _, id := range []string{
			"9007199254740993", "-1", "1.5", "12345678901234567890123",
			`"é\n"`, `""`,
		} {
			if _, answer := w.call(id, "tools/call", tool("add", `{"A":2,"B":3}`)); !strings.Contains(answer,
				`"id":`+id) {
				t.Errorf("id %s: %s", id, answer)
			}
		}
	})
}

// Others answer with text where JSON-RPC has an error, and read names of members
// without regard to case.
func TestMCPWireErrors(t *testing.T) {
	eras(t, func(t *testing.T, w *wire) {
		if _, answer := w.call("1", "no/such-method", ""); !strings.Contains(answer, "-32601") ||
			!strings.Contains(answer, `"id":1`) {
			t.Errorf("an unknown method: %s", answer)
		}
		if _, answer := w.call("1", "tools/call", tool("no-such-tool", "{}")); !strings.Contains(answer,
			"-32602") {
			t.Errorf("an unknown tool: %s", answer)
		}
		for body, code := range map[string]string{
			`{"jsonrpc":"2.0","id":1,"method":`:                          "-32700",
			`{"jsonrpc":"2.0","id":1,"Method":"ping","params":{}}`:       "-32600",
			`{"jsonrpc":"2.0","id":null,"method":"tools/list"}`:          "-32600",
			`{"jsonrpc":"2.0","id":{},"method":"tools/list"}`:            "-32600",
			`{"jsonrpc":"1.0","id":1,"method":"tools/list","params":{}}`: "-32600",
			`7`: "-32600",
		} {
			var header map[string]string
			if w.session == "" {
				header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
			}
			r := w.post(t.Context(), body, header)
			data, _ := io.ReadAll(r.Body)
			r.Body.Close()
			if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") ||
				!strings.Contains(string(data), code) {
				t.Errorf("%s: %s, %s, %s; want %s", body, r.Status, kind, data, code)
			}
		}
	})
}

// In the modern era to close the stream is to cancel, which go-sdk does not do by
// default.
func TestMCPWireDisconnect(t *testing.T) {
	w := &wire{t: t, url: serveOurs(t).http}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + modernMeta + "," +
			tool("wait", `{"Key":"gone"}`) + `}}`
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "wait",
		} {
			req.Header.Set(name, value)
		}
		if r, err := http.DefaultClient.Do(req); err == nil {
			r.Body.Close()
		}
	}()
	w.await("gone" + began)
	cancel()
	<-ended
	w.await("gone")
}

// await waits until a count of the tool "wait" is 1.
func (w *wire) await(key string) {
	w.t.Helper()
	for late := time.After(waitLimit); ; {
		if _, answer := w.call("2", "tools/call",
			tool("cancelled", `{"Key":"`+key+`"}`)); strings.Contains(answer, `"text":"1"`) {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			w.t.Fatalf("%q did not happen", key)
		}
	}
}

// mcp-go loses up to seventeen of twenty reports of progress.
func TestMCPWireProgress(t *testing.T) {
	eras(t, func(t *testing.T, w *wire) {
		for run := range 20 {
			_, answer := w.call("1", "tools/call", tool("count", `{"N":20}`))
			lines := strings.Split(strings.TrimSpace(answer), "\n")
			if len(lines) > 0 && lines[0] == "" { // an event without data, to resume from
				lines = lines[1:]
			}
			if len(lines) != 21 || !strings.Contains(lines[20], "Counted.") {
				t.Fatalf("run %d: %d messages: %s", run, len(lines), answer)
			}
			for i, line := range lines[:20] {
				var report struct {
					Method string
					Params struct{ Progress float64 }
				}
				if err := json.Unmarshal([]byte(line), &report); err != nil ||
					report.Method != "notifications/progress" || report.Params.Progress != float64(i+1) {
					t.Fatalf("run %d: message %d is %s", run, i, line)
				}
			}
		}
	})
}

// A client of 2025-03-26 may send batches, which mcp-go refuses.
func TestMCPWireBatch(t *testing.T) {
	w := legacyWire(t, serveOurs(t).http, "2025-03-26")
	r := w.post(t.Context(), `[{"jsonrpc":"2.0","id":1,"method":"ping"},`+
		`{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":2,`+
		`"method":"ping"}]`,
		map[string]string{"Mcp-Protocol-Version": "2025-03-26"})
	defer r.Body.Close()
	data, _ := io.ReadAll(r.Body)
	if got := string(data); r.StatusCode != http.StatusOK || !strings.Contains(got, `"id":1`) ||
		!strings.Contains(got, `"id":2`) {
		t.Errorf("%s: %s", r.Status, data)
	}
}

// With others 10,000 idle sessions take 150 MB and more, and last for ever.
func TestMCPWireIdleSessions(t *testing.T) {
	const sessions, most = 10_000, 6 << 10 // bytes of each
	s := ours()
	defer s.Close()
	open := func(o *mcphttp.Options, n int) *mcphttp.Handler {
		h := mcphttp.NewHandler(s, o)
		web := httptest.NewServer(h)
		defer web.Close()
		for range n {
			legacyWire(t, web.URL, "2025-11-25")
		}
		return h
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	h := open(nil, sessions)
	if n := h.Sessions(); n != sessions {
		t.Errorf("there are %d sessions; want %d", n, sessions)
	}
	if each := (heap() - before) / sessions; each > most {
		t.Errorf("an idle session takes %d bytes; want %d at most", each, most)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 20 {
		t.Errorf("%d sessions have %d goroutines", sessions, more)
	}
	h = open(&mcphttp.Options{IdleTimeout: 100 * time.Millisecond}, 10)
	for late := time.After(waitLimit); h.Sessions() > 0; {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-late:
			t.Fatalf("%d idle sessions last", h.Sessions())
		}
	}
}

// heap returns the bytes that are in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
