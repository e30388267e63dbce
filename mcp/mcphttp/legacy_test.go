package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestSession(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	if len(v.id) < 26 {
		t.Errorf("session id %q", v.id)
	}
	for _, test := range []struct {
		name   string
		reply  *reply
		status int
		body   string
	}{
		{"call", v.call("1", "echo", ""), 200, `"result":{"name":"echo"}`},
		{
			"without a version", e.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+v.id),
			200, `"ok":true`,
		},
		{"another version", e.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+v.id,
			"MCP-Protocol-Version: "+batchName), 200, `"ok":true`},
		{"unknown version", e.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+v.id,
			"MCP-Protocol-Version: x"), 400, `"id":1}`},
		{"modern header", e.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+v.id,
			"MCP-Protocol-Version: "+modernName, "Mcp-Method: ping"), 400, `-32602`},
		{
			"text that looks modern",
			v.call("1", "echo", `,"text":"io.modelcontextprotocol/protocolVersion"`), 200, `"text"`,
		},
		{"modern body", v.send(modernBody("1", "tools/list", "")), 400, `-32020`},
		{"exact id", v.call("1.50", "echo", ""), 200, `"id":1.50}`},
		{"null id", v.call("null", "echo", ""), 400, `-32600`},
		{"unknown method", v.send(`{"jsonrpc":"2.0","id":1,"method":"x"}`), 200, `-32601`},
		{"panic", v.call("1", "panic", ""), 200, `-32603`},
		{"Goexit", v.call("1", "goexit", ""), 500, `-32603`},
		{
			"trace",
			v.call("1", "trace", "", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
			200, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`,
		},
		{"no JSON", v.send(`{`), 400, `-32700`},
		{"no message", v.send(`{"id":7}`), 400, `"id":7}`},
		{"notification", v.send(`{"jsonrpc":"2.0","method":"notifications/x"}`), 202, ""},
		{"unexpected response", v.send(`{"jsonrpc":"2.0","id":1,"result":{}}`), 202, ""},
		{"batch", v.send(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`), 400, `no batches`},
		{
			"second initialize",
			v.send(`{"jsonrpc":"2.0","id":1,"method":"initialize",` +
				`"params":{"protocolVersion":"2025-11-25"}}`), 200, `Initialized already`,
		},
		{
			"bad cancel",
			v.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`), 202,
			"",
		},
		{
			"CloseStream, JSON only", v.call("1", "header", "", "Accept: application/json", "X-Test: yes"),
			200, `"yes"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.reply.t = t
			test.reply.is(test.status, test.body)
		})
	}
	v.call("1", "echo", "", "Accept: text/event-stream").wants("", `"name":"echo"`, "EOF")
	if n := e.h.Sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	v.do("DELETE", "/mcp", "", v.headers()...).is(204, "")
	v.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).is(404, `"id":1}`)
	v.do("DELETE", "/mcp", "", v.headers()...).is(404, "Session not found")
	if n := e.f.last().closed.Load(); n != 1 || e.h.Sessions() != 0 {
		t.Errorf("closed %d times, %d sessions", n, e.h.Sessions())
	}
}

func TestPrincipal(t *testing.T) {
	e := serve(t, &Options{Owner: func(r *http.Request) string { return r.Header.Get("X-User") }})
	v := e.session(legacyName)
	v.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "X-User: mallory").is(404, "Session not found")
	v.get("X-User: mallory").is(404, "Session not found")
	v.do("DELETE", "/mcp", "", v.headers("X-User: mallory")...).is(404, "Session not found")
	v.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).is(200, "ok")
}

func TestBatch(t *testing.T) {
	v := serve(t, nil).session(batchName)
	v.send(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},`+
		`{"jsonrpc":"2.0","id":2.0,"method":"tools/call","params":{"name":"echo"}},1]`).
		is(200,
			`[{"jsonrpc":"2.0","result":{"ok":true},"id":1},{"jsonrpc":"2.0","result":{"name":"echo"},`+
				`"id":2.0},{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request",`+
				`"data":{"reason":"a message must be an object at offset 161"}},"id":null}]`)
	v.send(`[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":1,"result":{}}]`).
		is(202, "")
	v.send(`[]`).is(400, "-32600")
	v.send(`[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}]`).is(200, "batch")
	r := v.send(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","n":2}}]`)
	r.wants(`"progress":0`, `"progress":1`, `[{"jsonrpc":"2.0","result":{"done":true},"id":1}]`, "EOF")
}

// The server asks in a call; the client answers with another POST.
func TestAsk(t *testing.T) {
	for _, version := range []string{legacyName, batchName} {
		e := serve(t, nil)
		v := e.session(version)
		r := v.call(`"c"`, "ask", "")
		if version == legacyName {
			r.wants("")
		}
		r.wants(`{"jsonrpc":"2.0","method":"elicitation/create","params":{"message":"?"},"id":1}`)
		other := e.session(version)
		other.send(`{"jsonrpc":"2.0","id":1,"result":{"stolen":true}}`).is(202, "")
		if version == batchName {
			v.send(`[{"jsonrpc":"2.0","id":1,"result":{"yes":true}}]`).is(202, "")
		} else {
			v.send(`{"jsonrpc":"2.0","id":1,"result":{"yes":true}}`).is(202, "")
		}
		r.wants(`{"jsonrpc":"2.0","result":{"yes":true},"id":"c"}`, "EOF")

		r = v.call("2", "ask", "")
		if version == legacyName {
			r.wants("")
		}
		r.wants(`"id":2}`)
		v.send(`{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no"}}`).is(202, "")
		r.wants(`{"code":-1,"message":"no"}`, "EOF")
	}
}

func TestAskFails(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	v.call("1", "ask", "", "Accept: application/json").is(200, "has none open")

	// The client cancels: its call is not answered, and the server's call is cancelled.
	r := v.call("3", "ask", "")
	r.wants("", "elicitation/create")
	v.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`).is(202, "")
	r.wants(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,`+
		`"reason":"context canceled"}}`, "EOF")

	// The session ends.
	r = v.call("4", "ask", "")
	r.wants("", "elicitation/create")
	v.do("DELETE", "/mcp", "", v.headers()...).is(204, "")
	r.wants("error")
	if err := e.f.last().client.Call(t.Context(), "ping", nil, nil); !errors.Is(err,
		farcall.ErrClosed) {
		t.Error(err)
	}
}

func TestCancel(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	for _, accept := range []string{"application/json, text/event-stream", "application/json"} {
		got := make(chan *reply)
		go func() { got <- v.call(`"x"`, "wait", "", "Accept: "+accept) }()
		<-e.f.began
		v.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x",`+
			`"reason":"r"}}`).is(202, "")
		if s := <-e.f.began; s != "ended" {
			t.Error(s)
		}
		if r := <-got; accept == "application/json" {
			r.is(202, "")
		} else {
			r.wants("EOF")
		}
	}
}

func TestDuplicateID(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	got := make(chan *reply)
	go func() { got <- v.call(`1`, "wait", "") }()
	<-e.f.began
	v.call("1", "echo", "").is(200, "in use")
	close(e.f.release)
	(<-got).is(200, "waited")
}

func TestInRequestOrder(t *testing.T) {
	v := serve(t, nil).session(legacyName)
	for range 20 {
		r := v.call("1", "progress", `,"n":20`)
		r.wants("")
		for i := range 20 {
			r.wants(fmt.Sprintf(`"params":{"progress":%d}}`, i))
		}
		r.wants(`{"jsonrpc":"2.0","result":{"done":true},"id":1}`, "EOF")
	}
}

// What belongs to no call goes to one of the client's own streams, and waits for
// the first.
func TestOwnStreams(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	client := e.f.last().client
	note := func(n int) {
		t.Helper()
		if err := client.Notify(context.Background(), "notifications/message",
			map[string]int{"n": n}); err != nil {
			t.Fatal(err)
		}
	}
	note(1)
	// its notification waits, too
	v.call("1", "progress", `,"n":1`, "Accept: application/json").is(200, "done")
	note(2)
	one := v.get()
	one.wants("", `"n":1`, `"progress":0`, `"n":2`)
	note(3)
	one.wants(`"n":3`)
	two := v.get()
	two.wants("")
	note(4) // on the newest only
	two.wants(`"n":4`)
	one.cancel()
	two.cancel()

	// Each is resumed for itself.
	again := v.get("Last-Event-ID: " + two.lastID)
	again.wants("")
	note(5)
	again.wants(`"n":5`)
	first := v.get("Last-Event-ID: 1-1")
	first.wants("", `"progress":0`, `"n":2`, `"n":3`)

	// A call of the server's.
	answer := make(chan error)
	var result struct{ Pong int }
	go func() { answer <- client.Call(t.Context(), "ping", nil, &result) }()
	got := again.next()
	v.send(`{"jsonrpc":"2.0","id":1,"result":{"Pong":7}}`).is(202, "")
	if err := <-answer; err != nil || result.Pong != 7 ||
		!strings.Contains(got, `"method":"ping","id":1}`) {
		t.Errorf("%v %s", err, got)
	}
	v.do("DELETE", "/mcp", "", v.headers()...).is(204, "")
	again.wants("EOF")
	first.wants("EOF")
}

func TestOwnStreamsBounded(t *testing.T) {
	v := serve(t, nil).session(legacyName)
	first := v.get()
	first.wants("")
	for range maxOwn - 1 {
		v.get().wants("")
	}
	last := v.get() // takes the place of the first
	last.wants("")
	first.wants("EOF")
	if first.lastID != last.lastID {
		t.Errorf("%s %s", first.lastID, last.lastID)
	}
}

func TestPoll(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	r := v.call("1", "poll", "")
	if s := <-e.f.began; s != "closed true" {
		t.Fatal(s)
	}
	r.wants("", "EOF")
	if r.reader.Retry() != retryAfter {
		t.Error("no retry")
	}
	early := v.get("Last-Event-ID: " + r.lastID)
	early.wants("")
	close(e.f.release)
	early.wants(`"progress":1`, `"polled":true`, "EOF")
	// It can be had again, for as long as it is kept.
	late := v.get("Last-Event-ID: " + r.lastID)
	late.wants("", `"progress":1`, `"polled":true`, "EOF")
	v.get("Last-Event-ID: "+late.lastID).is(400, "send the request again")
	v.get("Last-Event-ID: 99-1").is(400, "no event of this session")
	v.get("Last-Event-ID: x").is(400, "no event of this session")

	// An older revision has no such thing.
	v = e.session(batchName)
	r = v.call("1", "poll", "")
	if s := <-e.f.began; s != "closed false" {
		t.Fatal(s)
	}
	r.wants("progress", "polled", "EOF")
}

func TestKeepConnections(t *testing.T) {
	e := serve(t, &Options{KeepConnections: true})
	v := e.session(legacyName)
	done := make(chan *reply)
	go func() { done <- v.call("1", "poll", "") }()
	if s := <-e.f.began; s != "closed false" {
		t.Fatal(s)
	}
	close(e.f.release)
	(<-done).wants("", "progress", "polled", "EOF")
}

// The end of an interceptor's context is one of the call's.
func TestInterceptorEnds(t *testing.T) {
	stop := make(chan struct{})
	ending := func(h farcall.Handler) farcall.Handler {
		return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if req.Method == "tools/call" {
				go func() {
					<-stop
					cancel()
				}()
			}
			return h.ServeRPC(ctx, req)
		})
	}
	e := serve(t,
		&Options{
			KeepConnections: true, RPC: &farcall.Options{Interceptors: []farcall.Interceptor{ending}},
		})
	v := e.session(legacyName)
	done := make(chan *reply)
	go func() { done <- v.call("1", "wait", "") }()
	if s := <-e.f.began; s != "wait" {
		t.Fatal(s)
	}
	close(stop)
	if s := <-e.f.began; s != "ended" {
		t.Fatal(s)
	}
	(<-done).is(200, "-32800")
}

// A connection that breaks does not cancel the call; its answer can be fetched.
func TestResume(t *testing.T) {
	t.Run("", func(t *testing.T) { testResume(t, false) })
	t.Run("KeepConnections", func(t *testing.T) { testResume(t, true) })
}

func testResume(t *testing.T, keep bool) {
	t.Helper()
	for _, version := range []string{legacyName, batchName} {
		e := serve(t, &Options{KeepConnections: keep})
		v := e.session(version)
		var prime []string // what a stream begins with
		if version == legacyName {
			prime = []string{""}
		}
		r := v.call("1", "ask", "")
		r.wants(append(prime, "elicitation/create")...)
		r.cancel()
		v.send(`{"jsonrpc":"2.0","id":1,"result":{"yes":true}}`).is(202, "")
		again := v.get("Last-Event-ID: " + r.lastID)
		again.wants(append(prime, `{"jsonrpc":"2.0","result":{"yes":true},"id":1}`, "EOF")...)
		if e.f.ended.Load() != 0 {
			t.Error("the call was cancelled")
		}
	}
}

func (t *table) idles() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _, ok := t.sessions.Oldest()
	return ok
}

// A client that goes for good while it is asked does not keep its session.
func TestAbandoned(t *testing.T) {
	for _, version := range []string{legacyName, batchName} {
		e := serve(t, &Options{MaxSessions: 1, KeepConnections: version == legacyName})
		r := e.session(version).call("1", "ask", "")
		for !strings.Contains(r.next(), "elicitation/create") {
		}
		r.cancel()
		for !e.h.table.idles() { // until the handler has noticed
			runtime.Gosched()
		}
		e.session(version).call("1", "echo", "").is(200, "echo") // there is room
	}
}

// What was cancelled of a batch has no answer, and a batch of it none at all.
func TestBatchCancelled(t *testing.T) {
	e := serve(t, nil)
	v := e.session(batchName)
	wait := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"wait"}}`
	}
	cancel := func(id string) {
		t.Helper()
		v.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`).
			is(202, "")
	}
	for _, test := range []struct {
		batch, id string
		status    int
		want      string
	}{
		{
			`[` + wait(`"a"`) + `,{"jsonrpc":"2.0","id":2,"method":"ping"}]`, `"\u0061"`, 200,
			`[{"jsonrpc":"2.0","result":{"ok":true},"id":2}]`,
		},
		{`[` + wait("3") + `]`, "3", 202, ""},
	} {
		answer := make(chan *reply)
		go func() { answer <- v.send(test.batch) }()
		<-e.f.began
		cancel(test.id)
		<-e.f.began // it has ended
		(<-answer).is(test.status, test.want)
	}
}

// What the store has dropped is lost, and a comment tells the client so; what
// is left it gets.
func TestResumeTooLate(t *testing.T) {
	e := serve(t, &Options{EventBytes: 3 * (eventCost + 100)})
	v := e.session(legacyName)
	r := v.call("1", "progress", `,"n":20`)
	r.wants("")
	for r.next() != "EOF" {
	}
	text := v.get("Last-Event-ID: 1-0").text()
	if !strings.Contains(text, " events are lost") || !strings.Contains(text, `"done":true`) ||
		strings.Contains(text, `"progress":0`) {
		t.Error(text)
	}
	if v.call("1", "progress", `,"n":20`).text(); true {
		v.get("Last-Event-ID: 1-0").is(400, "send the request again")
	}
}

func TestHTTPSSE(t *testing.T) {
	e := serve(t, nil)
	r := e.do("GET", "/sse", "")
	ev, err := r.reader.Next()
	path := string(ev.Data)
	if err != nil || ev.Type != "endpoint" || !strings.HasPrefix(path, "/messages?sessionId=") {
		t.Fatalf("%+v %v", ev, err)
	}
	send := func(body string) { t.Helper(); e.do("POST", path, body, "Accept: ").is(202, "") }
	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`)
	ev, _ = r.reader.Next()
	if ev.Type != "message" || !strings.Contains(string(ev.Data), `"2024-11-05"`) || ev.ID != "" {
		t.Errorf("%+v", ev)
	}
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","n":2}}`)
	r.wants(`"progress":0`, `"progress":1`, `{"jsonrpc":"2.0","result":{"done":true},"id":1}`)
	send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
	r.wants(`"elicitation/create"`)
	send(`{"jsonrpc":"2.0","id":1,"result":{"yes":true}}`)
	r.wants(`{"jsonrpc":"2.0","result":{"yes":true},"id":2}`)
	send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wait"}}`)
	<-e.f.began
	send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	<-e.f.began
	send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"wait"}}`)
	<-e.f.began
	e.do("POST", path, `{`).is(400, "-32700")
	e.do("POST", path, `[{"jsonrpc":"2.0","id":4,"method":"ping"}]`).is(400, "-32600")
	id := strings.TrimPrefix(path, "/messages?sessionId=")
	e.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+id).is(404,
		"Session not found")

	// The session ends with its stream.
	r.cancel()
	if s := <-e.f.began; s != "ended" {
		t.Error(s)
	}
	for e.h.Sessions() > 0 {
		e.do("POST", path, `{"jsonrpc":"2.0","method":"notifications/x"}`)
	}
}

func TestShutdown(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	own := v.get()
	own.wants("")
	old := e.do("GET", "/sse", "")
	old.wants("/messages")
	got := make(chan *reply)
	go func() { got <- v.call("1", "wait", "") }()
	<-e.f.began
	done := make(chan error)
	go func() { done <- e.h.Shutdown(t.Context()) }()
	own.wants("EOF")
	old.wants("EOF")
	close(e.f.release)
	(<-got).is(200, "waited")
	if err := <-done; err != nil || e.h.Sessions() != 0 || e.f.last().closed.Load() > 1 {
		t.Error(err, e.h.Sessions())
	}
	v.call("1", "echo", "").is(503, "Shutting down")
}

func TestShutdownDeadline(t *testing.T) {
	e := serve(t, nil)
	v := e.session(legacyName)
	got := make(chan *reply)
	go func() { got <- v.call("1", "wait", "") }()
	<-e.f.began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.h.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s := <-e.f.began; s != "ended" {
		t.Error(s)
	}
	(<-got).is(200, "-32800")
}

func TestPendingBounded(t *testing.T) {
	s := &session{h: NewHandler(newFake(), nil), key: "x"}
	for range maxPending {
		if _, err := s.register(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Call(t.Context(), "ping", nil, nil); !errors.Is(err, errPending) {
		t.Error(err)
	}
	if err := s.Notify(t.Context(), "x", jsonrpc.Raw(`7`)); err == nil {
		t.Error("params that are no object were sent")
	}
}
