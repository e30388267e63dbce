package mcphttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
)

// direct calls a handler without a network.
func direct(h http.Handler, method, body string, headers ...string) *httptest.ResponseRecorder {
	return directTo(context.Background(), h, method, append(headers, "", body)...)
}

// directTo is direct in a context. What follows an empty header is the body.
func directTo(
	ctx context.Context, h http.Handler, method string, headers ...string,
) *httptest.ResponseRecorder {
	body := ""
	if n := len(headers); n > 1 && headers[n-2] == "" {
		headers, body = headers[:n-2], headers[n-1]
	}
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func begin(t *testing.T, h http.Handler) string {
	t.Helper()
	w := direct(h, "POST",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	if w.Code != 200 || w.Header().Get("Mcp-Session-Id") == "" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Header().Get("Mcp-Session-Id")
}

func ping(h http.Handler, session string) int {
	return direct(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id",
		session).Code
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := NewHandler(f, &Options{IdleTimeout: time.Minute, Heartbeat: -1})
		one := begin(t, h)
		<-time.After(40 * time.Second)
		two := begin(t, h)
		<-time.After(10 * time.Second)
		if ping(h, one) != 200 {
			t.Fatal("expired too early")
		}
		<-time.After(51 * time.Second) // two was idle for 61 s, one for 51 s
		if ping(h, two) != 404 || h.Sessions() != 1 {
			t.Errorf("not expired, %d sessions", h.Sessions())
		}
		if n := f.last().closed.Load(); n != 1 {
			t.Errorf("closed %d times", n)
		}
		// A stream that is open is not idle.
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/mcp", nil)
		r.Header.Set("Mcp-Session-Id", one)
		go h.ServeHTTP(httptest.NewRecorder(), r)
		<-time.After(time.Hour)
		if ping(h, one) != 200 {
			t.Error("expired while its stream was open")
		}
		cancel()
		<-time.After(61 * time.Second)
		if h.Sessions() != 0 {
			t.Error("not expired after its stream has ended")
		}
		begin(t, h)
		h.Shutdown(t.Context())
	})
}

func TestMaxSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(newFake(), &Options{MaxSessions: 2})
		one := begin(t, h)
		two := begin(t, h)
		if ping(h, one) != 200 {
			t.Fatal("lost")
		}
		three := begin(t, h) // two was idle longest
		if ping(h, two) != 404 || ping(h, one) != 200 || ping(h, three) != 200 {
			t.Error("the wrong session went")
		}
		// Nothing goes that is in use.
		ctx, cancel := context.WithCancel(t.Context())
		for _, id := range []string{one, three} {
			r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/mcp", nil)
			r.Header.Set("Mcp-Session-Id", id)
			go h.ServeHTTP(httptest.NewRecorder(), r)
		}
		synctest.Wait()
		w := direct(h, "POST",
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
		if w.Code != 503 || w.Header().Get("Mcp-Session-Id") != "" ||
			w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		cancel()
		synctest.Wait()
		h.Shutdown(t.Context())
	})
}

// A call that is lost before its stream began: what it sends goes to the
// client's own stream.
func TestGoneBeforeStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := NewHandler(f, &Options{Heartbeat: -1})
		id := begin(t, h)
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`))
		r.Header.Set("Mcp-Session-Id", id)
		r.Header.Set("Content-Type", "application/json")
		go h.ServeHTTP(httptest.NewRecorder(), r)
		<-f.began
		cancel()
		synctest.Wait()
		close(f.release)
		synctest.Wait()
		if f.ended.Load() != 0 {
			t.Error("the call was cancelled")
		}
		h.Shutdown(t.Context())
	})
}

// An idle session costs memory only, and little of it.
func TestIdleSessionMemory(t *testing.T) {
	const sessions = 2000
	inner := NewHandler(holding{}, nil)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &largeRequest{}
		x.Context = callctx.Over(r.Context(), nil)
		inner.ServeHTTP(w, r.WithContext(x))
	})
	ids := make([]string, sessions)
	for i := range 10 { // what is there once
		ids[i] = begin(t, h)
	}
	memory := func() (bytes uint64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before, goroutines := memory(), runtime.NumGoroutine()
	for i := range sessions {
		ids[i] = begin(t, h)
		w := direct(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`,
			"Mcp-Session-Id", ids[i])
		if w.Code != 200 {
			t.Fatal(w.Code)
		}
	}
	runtime.Gosched()
	each := (int64(memory()) - int64(before)) / sessions
	t.Logf("%d bytes for each idle session, its id in the test included", each)
	if each > 3<<10 {
		t.Errorf("an idle session has %d bytes", each)
	}
	if n := runtime.NumGoroutine(); n > goroutines+5 {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	inner.Shutdown(t.Context())
	runtime.KeepAlive(ids)
}

// A largeRequest has the context of a request, as internal/http1 has it.
type largeRequest struct {
	callctx.Context

	_ [8 << 10]byte
}

// holding is a backend with sessions that hold the context that they began with.
type holding struct{ quiet }

type heldSession struct {
	quietSession

	ctx context.Context
}

func (holding) Accept(ctx context.Context, _ farcall.Caller) Session {
	return &heldSession{ctx: ctx}
}

var modernCall = modernBody("1", "tools/call", `"name":"echo","arguments":{"a":1,"b":2}`)

// requester sends the same request again and again.
func requester(h http.Handler, body string, header http.Header) func() int {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", nil)
	r.Header = header
	reader := bytes.NewReader([]byte(body))
	r.Body, r.ContentLength = io.NopCloser(reader), int64(len(body))
	w := &discardWriter{header: http.Header{}}
	return func() int {
		reader.Reset([]byte(body))
		w.status = 200
		h.ServeHTTP(w, r)
		return w.status
	}
}

func modernHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {modernName}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"},
	}
}

// quiet is a backend that costs nothing.
type quiet struct{}

func TestAllocations(t *testing.T) {
	h := NewHandler(quiet{}, nil)
	call := requester(h, modernCall, modernHeader())
	if n := testing.AllocsPerRun(200, func() { call() }); n > 12 {
		t.Errorf("a call without a session has %v allocations", n)
	} else {
		t.Logf("%v allocations without a session", n)
	}
	id := begin(t, h)
	header := http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"}, "Mcp-Session-Id": {id},
	}
	call = requester(h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`,
		header)
	if n := testing.AllocsPerRun(200, func() { call() }); n > 25 {
		t.Errorf("a call in a session has %v allocations", n)
	} else {
		t.Logf("%v allocations in a session", n)
	}
	h.Shutdown(t.Context())
}

func BenchmarkModern(b *testing.B) {
	call := requester(NewHandler(quiet{}, nil), modernCall, modernHeader())
	b.ReportAllocs()
	for b.Loop() {
		if call() != 200 {
			b.Fatal("failed")
		}
	}
}

func BenchmarkSession(b *testing.B) {
	h := NewHandler(quiet{}, nil)
	w := direct(h, "POST",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	header := http.Header{
		"Content-Type":   {"application/json"},
		"Accept":         {"application/json, text/event-stream"},
		"Mcp-Session-Id": {w.Header().Get("Mcp-Session-Id")},
	}
	call := requester(h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`,
		header)
	b.ReportAllocs()
	for b.Loop() {
		if call() != 200 {
			b.Fatal("failed")
		}
	}
	h.Shutdown(b.Context())
}

func FuzzEventID(f *testing.F) {
	f.Add("1-2")
	f.Add("01-2")
	f.Add("18446744073709551615-1")
	f.Add("1-2.NA")
	f.Add("1-2.")
	f.Add("1-0.N\rA")
	f.Fuzz(func(t *testing.T, id string) {
		of, n, call, ok := parseEventID(id)
		if st := (&stream{id: of, call: call}); ok && (st.eventID(n) != id || of == 0) {
			t.Errorf("%q is %d %d %v", id, of, n, call)
		}
	})
}

// Whatever is posted, the answer is JSON-RPC or nothing.
func FuzzPost(f *testing.F) {
	f.Add(modernCall, true)
	f.Add(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, false)
	f.Add(`{"jsonrpc":"2.0","id":1,"result":{}}`, false)
	f.Add(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, false)
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x"}}`, true)
	h := NewHandler(quiet{}, &Options{MaxSessions: 10})
	w := direct(h, "POST",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}`)
	id := w.Header().Get("Mcp-Session-Id")
	f.Cleanup(func() { h.Shutdown(context.Background()) })
	f.Fuzz(func(t *testing.T, body string, modern bool) {
		headers := []string{"Mcp-Session-Id", id}
		if modern {
			headers = []string{
				"Mcp-Protocol-Version", modernName, "Mcp-Method", "tools/call",
				"Mcp-Name", "echo",
			}
		}
		w := direct(h, "POST", body, headers...)
		text := w.Body.String()
		switch {
		case w.Code == 202 && text == "":
		case w.Header().Get("Content-Type") == "application/json" &&
			strings.Contains(text, `"jsonrpc":"2.0"`):
		default:
			t.Errorf("%q: %d %v %q", body, w.Code, w.Header(), text)
		}
	})
}

func TestMemoryStore(t *testing.T) {
	m := newMemoryStore(3 * (eventCost + 10))
	data := bytes.Repeat([]byte("x"), 10)
	kept := func(session string, stream, after uint64) (got string) {
		m.Replay(session, stream, after, func(n uint64, _ []byte) error {
			got += fmt.Sprint(n, " ")
			return nil
		})
		return strings.TrimSpace(got)
	}
	for n := range uint64(4) {
		if err := m.Append("x", "a", n%2+1, n+1, data); err != nil {
			t.Fatal(err)
		}
	}
	if one, two := kept("a", 1, 0), kept("a", 2, 0); one != "3" || two != "2 4" {
		t.Errorf("%q %q", one, two)
	}
	if got := kept("a", 2, 2); got != "4" {
		t.Errorf("%q", got)
	}
	if m.Append("x", "a", 1, 5, make([]byte, 1000)) == nil {
		t.Error("too large, and kept")
	}
	for i := range storeFactor * 4 { // another owner fills it, and pushes out its own oldest only
		m.Append("y", fmt.Sprint("b", i), 1, 1, data)
	}
	if got := kept("a", 2, 0); got != "2 4" || kept("b255", 1, 0) != "1" || kept("b0", 1, 0) != "" {
		t.Errorf("the session of another owner has %q left", got)
	}
	m.Drop("a")
	for i := range storeFactor * 4 {
		m.Drop(fmt.Sprint("b", i))
	}
	if c := m.events.Counters(); c.Used != 0 || len(m.sessions) != 0 {
		t.Errorf("%+v, %d sessions", c, len(m.sessions))
	}
}
