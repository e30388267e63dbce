package mcphttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestModern(t *testing.T) {
	e := serve(t, nil)
	call := `"name":"echo","arguments":{}`
	for _, test := range []struct {
		name   string
		reply  *reply
		status int
		body   string
	}{
		{"call", e.modern("1", "tools/call", call), 200, `"result":{"name":"echo"`},
		{"exact id", e.modern("9007199254740993", "tools/list", ""), 200, `"id":9007199254740993}`},
		{"exact id", e.modern("1.5", "tools/list", ""), 200, `"id":1.5}`},
		{"exact id", e.modern(`"a\u0041"`, "tools/list", ""), 200, `"id":"a\u0041"}`},
		{"null id", e.modern("null", "tools/list", ""), 400, `"code":-32600`},
		{
			"unknown method", e.modern("1", "no/such", ""), 404,
			`"code":-32601,"message":"Method not found"},"id":1}`,
		},
		{"initialize", e.modern("7", "initialize", ""), 404, `"code":-32601`},
		{"unknown tool", e.modern("1", "tools/call", `"name":"none"`), 200, `"code":-32602`},
		{"capability", e.modern("1", "tools/call", `"name":"capability"`), 400, `"code":-32021`},
		{"panic", e.modern("1", "tools/call", `"name":"panic"`), 200, `"code":-32603`},
		{
			"notification",
			e.post(modernBody("", "notifications/x", ""), "MCP-Protocol-Version: "+modernName), 202, "",
		},
		{
			"notification, other version",
			e.post(modernBody("", "notifications/x", ""), "MCP-Protocol-Version: v999"), 400,
			`"code":-32020`,
		},
		{"session ignored", e.modern("1", "tools/list", "", "Mcp-Session-Id: x"), 200, `"ok":true`},
		{
			"version missing", e.post(modernBody("3", "tools/list", ""), "Mcp-Method: tools/list"), 400,
			`"code":-32020`,
		},
		{
			"version missing in a session",
			e.post(modernBody("3", "tools/list", ""), "Mcp-Method: tools/list", "Mcp-Session-Id: x"), 400,
			`"code":-32020`,
		},
		{
			"version differs", e.modern("3", "tools/list", "", "MCP-Protocol-Version: "+legacyName), 400,
			`"code":-32020`,
		},
		{
			"version unknown", e.modern("3", "tools/list", "", "MCP-Protocol-Version: v9"), 400,
			`"code":-32020`,
		},
		{
			"version unknown in both",
			e.post(strings.Replace(modernBody("3", "tools/list", ""), modernName, "v9", 1),
				"MCP-Protocol-Version: v9"), 400, `"code":-32022`,
		},
		{
			"no _meta", e.post(`{"jsonrpc":"2.0","id":101,"method":"server/discover","params":{}}`,
				"MCP-Protocol-Version: "+modernName, "Mcp-Method: server/discover"), 400,
			`"code":-32602,"message":"_meta is incomplete"},"id":101}`,
		},
		{
			"no capabilities",
			e.post(`{"jsonrpc":"2.0","id":101,"method":"server/discover",`+
				`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
				"MCP-Protocol-Version: "+modernName, "Mcp-Method: server/discover"), 400, `"code":-32602`,
		},
		{"name differs", e.modern("3", "tools/call", call, "Mcp-Name: other"), 400, `"code":-32020`},
		{"name trimmed", e.modern("3", "tools/call", call, "Mcp-Name:   echo  "), 200, `"result"`},
		{"method missing", e.modern("3", "tools/list", "", "Mcp-Method: "), 400, `"code":-32020`},
		{
			"HTTP request", e.modern("3", "tools/call", `"name":"header"`, "X-Test: yes"), 200,
			`"result":"yes"`,
		},
		{
			"JSON only", e.modern("3", "tools/call", `"name":"progress","n":3`, "Accept: application/json"),
			200, `"done":true`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.reply.t = t
			test.reply.is(test.status, test.body)
		})
	}
}

// What is wrong with a request before anybody looks at MCP.
func TestRefused(t *testing.T) {
	e := serve(t, &Options{MaxMessage: 1000})
	version := "MCP-Protocol-Version: " + modernName
	for _, test := range []struct {
		name   string
		reply  *reply
		status int
		body   string
	}{
		{"media type", e.post(`{}`, "Content-Type: text/plain"), 415, `"code":-32600`},
		{"encoding", e.post(`{}`, "Content-Encoding: gzip"), 415, `"code":-32600`},
		{"not acceptable", e.post(`{}`, "Accept: text/html"), 406, `"code":-32600`},
		{
			"too large", e.post(strings.Repeat(" ", 1001)), 413,
			`"code":-32012,"message":"Request too large: the limit is 1000 bytes","data":{"maxSize":1000,` +
				`"unit":"bytes"}}`,
		},
		{"too large, modern", e.post(strings.Repeat(" ", 1001), version), 413, `"code":-31012,`},
		{"method", e.do("PUT", "/mcp", ""), 405, `"code":-32600`},
		{"GET", e.do("GET", "/mcp", ""), 405, `"code":-32600`},
		{"GET, modern", e.do("GET", "/mcp", "", version, "Mcp-Session-Id: x"), 405, `"code":-32600`},
		{"DELETE", e.do("DELETE", "/mcp", ""), 405, `"code":-32600`},
		{"origin", e.post(`{}`, "Origin: http://evil.example.com"), 403, `"code":-32600`},
		{"host", e.post(`{}`, "Host: evil.example.com"), 403, `"code":-32600`},
		{
			"no JSON", e.post(`{"a`), 400,
			`"code":-32700,"message":"Parse error: unexpected end at offset 3",` +
				`"data":{"reason":"unexpected end at offset 3"}},"id":null}`,
		},
		{
			"no JSON, modern", e.post(`{"a":"io.modelcontextprotocol/protocolVersion`, version), 400,
			`"code":-32700`,
		},
		{
			"no message", e.post(`{"id":5}`), 400,
			`"message":"Invalid Request: \"jsonrpc\" must be \"2.0\" at offset 0",` +
				`"data":{"reason":"\"jsonrpc\" must be \"2.0\" at offset 0"}},"id":5}`,
		},
		{
			"Method", e.post(`{"jsonrpc":"2.0","id":5,"Method":"tools/list"}`, version), 400,
			`there is no method`,
		},
		{
			"no session", e.post(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`), 400,
			`begin with initialize`,
		},
		{
			"no session, id",
			e.post(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, "MCP-Protocol-Version: "+legacyName),
			400, `"id":5}`,
		},
		{"response", e.post(`{"jsonrpc":"2.0","id":5,"result":{}}`, version), 400, `"id":null}`},
		{"batch", e.post(`[`+modernBody("1", "tools/list", "")+`]`, version), 400, `batches`},
		{
			"unknown session", e.post(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, "Mcp-Session-Id: x"),
			404, `"id":5}`,
		},
		{"unknown session, GET", e.do("GET", "/mcp", "", "Mcp-Session-Id: x"), 404, `Session not found`},
		{
			"unknown session, DELETE", e.do("DELETE", "/mcp", "", "Mcp-Session-Id: x"), 404,
			`Session not found`,
		},
		{
			"failed initialize", e.post(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}`), 200,
			`"code":-32602`,
		},
		{"messages", e.do("POST", "/messages?sessionId=x", `{}`), 404, `Session not found`},
		{"messages, GET", e.do("GET", "/messages", ""), 405, `"code":-32600`},
		{"sse, POST", e.do("POST", "/sse", ""), 405, `"code":-32600`},
		{"sse, JSON", e.do("GET", "/sse", "", "Accept: application/json"), 406, `"code":-32600`},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.reply.t = t
			test.reply.is(test.status, test.body)
			if test.status == 405 && test.reply.Header.Get("Allow") == "" {
				t.Error("no Allow")
			}
		})
	}
	if n := e.h.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
	if s := e.f.last(); s.closed.Load() != 1 {
		t.Error("the session with an initialize that failed is not closed")
	}
}

func TestAccept(t *testing.T) {
	for accept, want := range map[string]accepts{
		"":                                     acceptsJSON | acceptsEvents,
		"*/*":                                  acceptsJSON | acceptsEvents,
		"application/json":                     acceptsJSON,
		"text/event-stream":                    acceptsEvents,
		"text/event-stream, application/json":  acceptsJSON | acceptsEvents,
		"application/json;q=0.5, text/*":       acceptsJSON | acceptsEvents,
		"application/*, text/event-stream;q=0": acceptsJSON,
		"*/*, text/event-stream;q=0.0":         acceptsJSON,
		"text/html, application/xhtml+xml;q=1": 0,
		"application/json;q=0":                 0,
		"; ,":                                  0,
	} {
		var lines []string
		if accept != "" {
			lines = []string{accept}
		}
		if got := readAccept(lines); got != want {
			t.Errorf("%q: %b, want %b", accept, got, want)
		}
	}
}

func TestModernStream(t *testing.T) {
	e := serve(t, nil)
	for range 20 {
		r := e.modern("1", "tools/call", `"name":"progress","n":20`)
		for i := range 20 {
			r.wants(fmt.Sprintf(`"params":{"progress":%d}}`, i))
		}
		r.wants(`{"jsonrpc":"2.0","result":{"done":true},"id":1}`, "EOF")
		if r.Header.Get("X-Accel-Buffering") != "no" || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", r.Header)
		}
	}
	// A client that reads nothing but event streams.
	e.modern("1", "tools/list", "", "Accept: text/event-stream").wants(`"ok":true`, "EOF")
	e.modern("1", "no/such", "", "Accept: text/event-stream").is(404, "-32601")
}

func TestModernDisconnect(t *testing.T) {
	e := serve(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/mcp",
		strings.NewReader(modernBody("1", "tools/call", `"name":"wait"`)))
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {modernName},
		"Mcp-Method": {"tools/call"}, "Mcp-Name": {"wait"},
	}
	failed := make(chan error)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-e.f.began
	cancel()
	if err := <-failed; err == nil {
		t.Error("answered")
	}
	if s := <-e.f.began; s != "ended" { // the handler's context has ended
		t.Error(s)
	}
}

func TestListen(t *testing.T) {
	e := serve(t, nil)
	r := e.modern("1", "subscriptions/listen", "")
	r.wants("acknowledged")
	<-e.f.began
	done := make(chan error)
	go func() { done <- e.h.Shutdown(t.Context()) }()
	r.wants(`{"jsonrpc":"2.0","result":{"resultType":"complete"},"id":1}`, "EOF")
	if err := <-done; err != nil {
		t.Error(err)
	}
	e.modern("1", "tools/list", "").is(503, "Shutting down")
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(newFake(), &Options{Heartbeat: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "/mcp",
			strings.NewReader(modernBody("1", "subscriptions/listen", "")))
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {modernName},
			"Mcp-Method": {"subscriptions/listen"},
		}
		w := &pipe{header: http.Header{}}
		go func() {
			<-time.After(3500 * time.Millisecond)
			cancel()
		}()
		h.ServeHTTP(w, r)
		if n := strings.Count(w.text.String(), ": \n"); n != 3 {
			t.Errorf("%d heartbeats in %q", n, w.text.String())
		}
	})
}

// pipe is a ResponseWriter.
type pipe struct {
	header http.Header
	text   strings.Builder
}

func (p *pipe) Header() http.Header         { return p.header }
func (p *pipe) Write(b []byte) (int, error) { return p.text.Write(b) }
func (p *pipe) WriteHeader(int)             {}
func (p *pipe) Flush()                      {}

func TestPreflight(t *testing.T) {
	e := serve(t, &Options{Origins: []string{"https://app.example.com"}})
	r := e.do("OPTIONS", "/mcp", "", "Origin: https://app.example.com",
		"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: mcp-method")
	io.Copy(io.Discard, r.Body)
	if r.StatusCode != http.StatusNoContent ||
		r.Header.Get("Access-Control-Allow-Headers") != "mcp-method" ||
		r.Header.Get("Access-Control-Allow-Methods") == "" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	r = e.modern("1", "tools/list", "", "Origin: https://app.example.com").is(200, "ok")
	if r.Header.Get("Access-Control-Expose-Headers") != "Mcp-Session-Id" {
		t.Errorf("%v", r.Header)
	}
}

// A call that is long in coming becomes a stream, so that the connection is not
// taken for dead.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := NewHandler(f, &Options{Heartbeat: time.Second})
		id := begin(t, h)
		for _, test := range []struct {
			body    string
			headers http.Header
			want    string
		}{
			{
				modernBody("1", "tools/call", `"name":"wait"`),
				http.Header{
					"Mcp-Protocol-Version": {modernName}, "Mcp-Method": {"tools/call"},
					"Mcp-Name": {"wait"},
				},
				": \n\n: \n\n: \n\ndata: {\"jsonrpc\":\"2.0\",\"result\":{\"waited\":true},\"id\":1}\n\n",
			},
			{
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`,
				http.Header{"Mcp-Session-Id": {id}},
				"id: 1-0\ndata: \n\nretry: 1000\n\n: \n\n: \n\nid: 1-1\n" +
					"data: {\"jsonrpc\":\"2.0\",\"result\":{\"waited\":true},\"id\":1}\n\n",
			},
		} {
			f.release = make(chan struct{})
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp",
				strings.NewReader(test.body))
			r.Header = test.headers
			r.Header.Set("Content-Type", "application/json")
			w := &pipe{header: http.Header{}}
			go func() {
				<-time.After(3500 * time.Millisecond)
				close(f.release)
			}()
			h.ServeHTTP(w, r)
			if got := w.text.String(); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		}
		h.Shutdown(t.Context())
	})
}

func TestOverloaded(t *testing.T) {
	e := serve(t, &Options{RPC: &farcall.Options{MaxInFlight: 1}})
	v := e.session(legacyName)
	got := make(chan *reply)
	go func() { got <- e.modern("1", "tools/call", `"name":"wait"`) }()
	<-e.f.began
	listen := e.modern("1", "subscriptions/listen", "") // does not count
	listen.wants("acknowledged")
	e.modern("2", "tools/list", "").is(503, `"code":-32010`)
	e.post(modernBody("", "notifications/x", ""), "MCP-Protocol-Version: "+modernName).is(503,
		`"code":-32010`)
	r := v.call("3", "echo", "").is(503,
		`"code":-32010,"message":"Overloaded","data":{"reason":"the limit of 1 requests in flight is `+
			`reached"}},"id":3}`)
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	v.send(`{"jsonrpc":"2.0","method":"notifications/x"}`).is(503, `"code":-32010`)
	v.send(`{"jsonrpc":"2.0","id":1,"result":{}}`).is(202, "")
	close(e.f.release)
	(<-got).is(200, "waited")
}

func TestLargeAnswer(t *testing.T) {
	e := serve(t, nil)
	text := strings.Repeat("x", 1<<20)
	for range 2 { // the second on the same connection
		e.modern("1", "tools/call", `"name":"echo","text":"`+text+`"`).is(200, text)
	}
}

// The refusals of a guard have the status of the registry.
func TestRefusalStatus(t *testing.T) {
	e := serve(t, nil)
	for _, row := range jsonrpc.Conditions() {
		switch row.Name {
		case "Rate limited", "Unauthenticated", "Replayed request", "Bad signature", "Stale request",
			"Permission denied":
			e.modern("1", "tools/call",
				`"name":"refused","code":`+strconv.Itoa(int(row.Modern))).is(row.HTTPStatus, `"Refused"`)
		}
	}
	e.modern("1", "tools/call", `"name":"theirs"`).is(200, "another server")
}
