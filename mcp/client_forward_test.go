package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A spy keeps what a client sends.
type spy struct {
	farcall.Transport
	mu   sync.Mutex
	sent []string
}

func (s *spy) note(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, string(frame))
}

func (s *spy) Write(frames ...[]byte) error {
	for _, f := range frames {
		s.note(f)
	}
	return s.Transport.Write(frames...)
}

func (s *spy) contains(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.sent, func(f string) bool { return strings.Contains(f, text) })
}

// forwarder connects a client with a server, in one revision, over a stream or
// HTTP.
func forwarder(t *testing.T, s *Server, rev, over string, o *ClientOptions) (*Client, *spy) {
	t.Helper()
	if o == nil {
		o = &ClientOptions{}
	}
	o.Era = rev
	if over == "stream" {
		mine, theirs := farcall.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.Serve(t.Context(), theirs) }()
		seen := &spy{Transport: mine}
		c, err := Connect(t.Context(), seen, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Close()
			<-served
		})
		return c, seen
	}
	h, seen := mcphttp.NewHandler(s, nil), &spy{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen.note(body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.Shutdown(context.WithoutCancel(t.Context()))
		server.Close()
	})
	return mustDial(t, server.URL, o), seen
}

// eachForwarder tests every kind of server there is.
func eachForwarder(t *testing.T, f func(t *testing.T, rev *era.Revision, over string)) {
	t.Helper()
	for _, rev := range era.Revisions() {
		for _, over := range []string{"stream", "http"} {
			t.Run("to "+rev.Name+" over "+over, func(t *testing.T) { f(t, rev, over) })
		}
	}
}

// paramsIn puts the _meta into params that a caller's revision wants, and a
// progressToken.
func paramsIn(rev *era.Revision, members string) jsonrpc.Raw {
	meta := `"progressToken":"callers","x":1`
	if !rev.Handshake {
		meta += `,"io.modelcontextprotocol/protocolVersion":"` + rev.Name +
			`","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}`
	}
	if members != "" {
		members += ","
	}
	return jsonrpc.Raw(`{` + members + `"_meta":{` + meta + `}}`)
}

// Calls come through from every revision to every other one.
func TestForward(t *testing.T) {
	eachForwarder(t, func(t *testing.T, rev *era.Revision, over string) {
		c, seen := forwarder(t, bothServer(t), rev.Name, over, nil)
		for _, from := range era.Revisions() {
			call := func(f *relay.Forward, method, members string) (string, error) {
				f.Method, f.Params, f.Revision = method, paramsIn(from, members), from
				raw, in, err := c.Forward(t.Context(), f)
				if err == nil && in != rev {
					t.Errorf("a result in %v", in)
				}
				return string(raw), err
			}
			var reports []string
			got, err := call(&relay.Forward{OnProgress: func(p jsonrpc.Raw) {
				reports = append(reports, string(scan.Member(p, "progress")))
			}}, "tools/call", `"name":"add","arguments":{"a":2,"b":3}`)
			if err != nil || !strings.Contains(got, `"text":"{\"sum\":5}"`) ||
				strings.Join(reports, " ") != "0 1 2" {
				t.Errorf("from %s: %s, %v, reports %q", from.Name, got, err, reports)
			}
			if got, err = call(&relay.Forward{}, "tools/call",
				`"name":"add","arguments":{"a":2,"b":3}`); err != nil ||
				strings.Contains(got, `"resultType":"complete"`) != !rev.Handshake {
				t.Errorf("from %s: %s, %v", from.Name, got, err)
			}
			if got, err = call(&relay.Forward{}, "tools/list", ""); err != nil ||
				!strings.Contains(got, `"greet"`) {
				t.Errorf("from %s: %s, %v", from.Name, got, err)
			}
			if _, err = call(&relay.Forward{}, "resources/read", `"uri":"test:none"`); !errors.Is(err,
				era.Latest().ResourceNotFound) {
				t.Errorf("from %s: %v", from.Name, err)
			}
			if _, err = call(&relay.Forward{}, "x/none", ""); !errors.Is(err, jsonrpc.MethodNotFound) {
				t.Errorf("from %s: %v", from.Name, err)
			}
		}
		if seen.contains("callers") || !seen.contains(`"x":1`) {
			t.Errorf("sent %s", seen.sent)
		}
	})
}

// Over the first HTTP transport all that the server sends comes on one stream.
func TestForwardSSE(t *testing.T) {
	s := bothServer(t)
	h := mcphttp.NewHandler(s, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sse", h.ServeSSE)
	mux.HandleFunc("/messages", h.ServeMessages)
	server := httptest.NewServer(mux)
	defer server.Close()
	defer h.Shutdown(context.WithoutCancel(t.Context()))
	c := mustDial(t, server.URL+"/sse", &ClientOptions{
		Capabilities: &spec.ClientCapabilities{
			Elicitation: &spec.ElicitationCapability{Form: spec.JSONObject{}},
		},
		Ask: func(context.Context, string, jsonrpc.Raw) (jsonrpc.Raw, error) {
			return jsonrpc.Raw(`{"action":"accept","content":{"name":"Bob"}}`), nil
		},
	})
	reports := 0
	for params, want := range map[string]string{
		`{"name":"add","arguments":{"a":2,"b":3}}`: "sum",
		`{"name":"greet"}`:                         "hello Bob",
	} {
		raw, _, err := c.Forward(t.Context(), &relay.Forward{
			Method: "tools/call", Params: jsonrpc.Raw(params), OnProgress: func(jsonrpc.Raw) { reports++ },
		})
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%s, %v", raw, err)
		}
	}
	if reports != 3 {
		t.Errorf("%d reports", reports)
	}
	c.Close() // before the server waits for it
}

// What the server gets, to the byte.
func TestForwardParams(t *testing.T) {
	const (
		version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
		info    = `"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}`
		caps    = `"io.modelcontextprotocol/clientCapabilities":{}`
		tasks   = `"io.modelcontextprotocol/clientCapabilities":{"roots":{},"extensions":{"y":{},` +
			`"io.modelcontextprotocol/tasks":{}}}`
		level = `"io.modelcontextprotocol/logLevel":"debug"`
	)
	who := relay.Forward{
		Info:         jsonrpc.Raw(`{"name":"x","version":"1"}`),
		Capabilities: jsonrpc.Raw(`{"roots":{},"extensions":{"y":{}}}`), LogLevel: "debug",
	}
	knows := relay.Forward{
		Capabilities: jsonrpc.Raw(`{"extensions":{"io.modelcontextprotocol/tasks":{"a":1}}}`),
	}
	for _, test := range []struct {
		from, to   string
		f          relay.Forward
		give, want string
	}{
		{
			revLegacy, revLegacy, who, `{ "name" : "x", "_meta":{"traceparent":"a"}}`,
			`{ "name" : "x", "_meta":{"traceparent":"a"}}`,
		},
		{revLegacy, revLegacy, who, ``, ``},
		{revLegacy, revLegacy, who, `null`, ``},
		{
			revLegacy, revLegacy, who, `{"name":"x","_meta":{"progressToken":5,"a":1}}`,
			`{"name":"x","_meta":{"a":1}}`,
		},
		{
			revLegacy, revLegacy, who,
			`{"_meta":{"progressToken":5},"_meta":{"progress\u0054oken":"a"},"b":{"progressToken":7}}`,
			`{"b":{"progressToken":7}}`,
		},
		{"2024-11-05", revLegacy, who, `{"name":"x"}`, `{"name":"x"}`},

		{
			revModern, revModern, who,
			`{ "a":1,"_meta":{` + info + `,` + caps + `,` + version + `,` + level + `}}`,
			`{ "a":1,"_meta":{` + info + `,` + caps + `,` + version + `,` + level + `}}`,
		},
		{
			revModern, revModern, who, `{"a":1,"_meta":{` + info + `,` + caps + `,` + version + `}}`,
			`{"a":1,"_meta":{` + info + `,` + caps + `,` + version + `,` + level + `}}`,
		},
		{
			revModern, revModern, knows,
			`{"_meta":{` + version + `,` + caps + `,` + info + `,"progressToken":1}}`,
			`{"_meta":{` + caps + `,` + info + `,` + version + `}}`,
		},
		{
			revModern, revModern, who,
			`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-29"},"inputResponses":{},` +
				`"requestState":"s"}`,
			`{"inputResponses":{},"requestState":"s","_meta":{` + version + `,` + info + `,` + tasks + `,` +
				level + `}}`,
		},

		{
			revLegacy, revModern, who, ``,
			`{"_meta":{` + version + `,` + info + `,` + tasks + `,` + level + `}}`,
		},
		{
			revLegacy, revModern, who, `{"a":[1, 2],"_meta":{"progressToken":5,"b":2}}`,
			`{"a":[1, 2],"_meta":{"b":2,` + version + `,` + info + `,` + tasks + `,` + level + `}}`,
		},
		{
			revLegacy, revModern, who, `null`,
			`{"_meta":{` + version + `,` + info + `,` + tasks + `,` + level + `}}`,
		},
		{
			revLegacy, revModern, who, ` { } `,
			`{"_meta":{` + version + `,` + info + `,` + tasks + `,` + level + `}}`,
		},
		{
			revLegacy, revModern, who, ` {"a": {} } `,
			`{"a": {} ,"_meta":{` + version + `,` + info + `,` + tasks + `,` + level + `}}`,
		},
		{
			revLegacy, revModern, knows, `{}`,
			`{"_meta":{` + version +
				`,"io.modelcontextprotocol/clientInfo":{"name":"me","version":"0"},` +
				`"io.modelcontextprotocol/clientCapabilities":{"extensions":` +
				`{"io.modelcontextprotocol/tasks":{"a":1}}}}}`,
		},
		{
			revLegacy, revModern,
			relay.Forward{},
			`{}`,
			`{"_meta":{` + version +
				`,"io.modelcontextprotocol/clientInfo":{"name":"me","version":"0"},` +
				`"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}`,
		},

		{
			revModern, revLegacy, who, `{"a":1,"_meta":{` + info + `,` + caps + `,` + version + `,"b":2}}`,
			`{"a":1,"_meta":{"b":2}}`,
		},
		{
			revModern, revLegacy, who,
			`{"a":1,"_meta":{` + info + `,` + caps + `,` + version + `,"progressToken":2}}`, `{"a":1}`,
		},
	} {
		o := &ClientOptions{
			Name: "me", Era: test.to, Capabilities: &spec.ClientCapabilities{Roots: &spec.RootsCapability{}},
		}
		all := legacyFake(nil)
		if test.to == revModern {
			all, o.LogLevel = modernFake(nil), "error" // which is the client's own
		}
		all["prompts/get"] = `{"messages":[]}`
		c, f := mustPipe(t, all, o)
		q := test.f
		q.Method, q.Params, q.Revision = "prompts/get", jsonrpc.Raw(test.give), era.Lookup(test.from)
		for range 2 { // what is remembered of a caller is the same
			raw, in, err := c.Forward(t.Context(), &q)
			if err != nil || string(raw) != `{"messages":[]}` || in.Name != test.to {
				t.Errorf("%s: %s, %v, %v", test.give, raw, in, err)
			}
			f.mu.Lock()
			got := ""
			for _, m := range f.got { // the notification of the handshake may come last
				if strings.HasPrefix(m, "prompts/get") {
					got = m
				}
			}
			f.mu.Unlock()
			if got != strings.TrimSpace("prompts/get "+test.want) {
				t.Errorf("%s from %s:\n got %s\nwant prompts/get %s", test.give, test.from, got, test.want)
			}
		}
	}
}

// What the server's revision cannot express is not sent.
func TestForwardRefused(t *testing.T) {
	c, f := mustPipe(t, legacyFake(nil), nil)
	before := f.count("tools/call")
	for _, params := range []string{
		`[1]`, ` 5`, `{"name":"x","inputResponses":{}}`,
		`{"name":"x","requestState":"s"}`,
	} {
		_, _, err := c.Forward(t.Context(),
			&relay.Forward{Method: "tools/call", Params: jsonrpc.Raw(params)})
		if !errors.Is(err, jsonrpc.InvalidParams) {
			t.Errorf("%s: %v", params, err)
		}
	}
	if n := f.count("tools/call"); n != before {
		t.Errorf("%d calls were sent", n)
	}
	if _, _, err := c.Forward(t.Context(), &relay.Forward{Method: "tasks/update"}); !errors.Is(err,
		jsonrpc.MethodNotFound) {
		t.Error(err)
	}
}

// Each caller is notified of on its own, also when there are more than are remembered.
func TestForwardCallers(t *testing.T) {
	all := modernFake(nil)
	all["x"] = `{}`
	c, f := mustPipe(t, all, &ClientOptions{Era: revModern})
	for n := range 3 * maxCallers {
		info := fmt.Sprintf(`{"name":"%d","version":"1"}`, n%(maxCallers+1))
		if _, _, err := c.Forward(t.Context(),
			&relay.Forward{Method: "x", Revision: era.Lookup(revLegacy), Info: jsonrpc.Raw(info)}); err !=
			nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		got := f.got[len(f.got)-1]
		f.mu.Unlock()
		if !strings.Contains(got, info) {
			t.Errorf("%s called: %s", info, got)
		}
	}
	if n := len(c.callers.all); n != maxCallers {
		t.Errorf("%d are remembered", n)
	}
}

type tagKey struct{}

// tagged is a context as a gateway gives it to Forward.
func tagged(ctx context.Context, tag string) context.Context {
	return context.WithValue(ctx, tagKey{}, tag)
}

func tagOf(ctx context.Context) string {
	tag, _ := ctx.Value(tagKey{}).(string)
	return tag
}

// What the server asks goes to Ask, with what belongs to the call where that is
// known.
func TestForwardAsk(t *testing.T) {
	eachForwarder(t, func(t *testing.T, rev *era.Revision, over string) {
		if !rev.Elicitation {
			t.Skip("nothing to ask")
		}
		var mu sync.Mutex
		var asked []string
		c, _ := forwarder(t, bothServer(t), rev.Name, over, &ClientOptions{
			Capabilities: &spec.ClientCapabilities{
				Elicitation: &spec.ElicitationCapability{Form: spec.JSONObject{}},
			},
			Ask: func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, fmt.Sprintf("%s %s %s", tagOf(ctx), method, scan.Member(params, "mode")))
				if ctx.Value(sinkKey{}) != nil {
					t.Error("what Ask calls would report progress to the call during which it is asked")
				}
				if tagOf(ctx) == "absent" {
					return nil, jsonrpc.Errorf(-1, "no user is there")
				}
				return jsonrpc.Raw(`{"action":"accept","content":{"name":"Bob"}}`), nil
			},
		})
		f := &relay.Forward{
			Method: "tools/call", Params: jsonrpc.Raw(`{"name":"greet"}`),
			Capabilities: jsonrpc.Raw(`{"elicitation":{"form":{}}}`), Rounds: true,
			OnProgress: func(jsonrpc.Raw) {},
		}
		raw, in, err := c.Forward(tagged(t.Context(), "A"), f)
		if err != nil || in != rev || !strings.Contains(string(raw), "hello Bob") {
			t.Fatalf("%s, %v, %v", raw, in, err)
		}
		known := !rev.Handshake || over == "http"
		tag := ""
		if known {
			tag = "A"
		}
		if len(asked) != 1 || !strings.HasPrefix(asked[0], tag+" elicitation/create") {
			t.Errorf("asked %q", asked)
		}
		if known {
			raw, _, err := c.Forward(tagged(t.Context(), "absent"), f)
			if err == nil && !strings.Contains(string(raw), `"isError":true`) ||
				err != nil && !strings.Contains(err.Error(), "no user is there") {
				t.Errorf("%s, %v", raw, err)
			}
		}
		if f.Rounds = false; !rev.Handshake {
			raw, _, err := c.Forward(t.Context(), f)
			if err != nil || string(scan.Member(raw, "resultType")) != `"input_required"` {
				t.Errorf("%s, %v", raw, err)
			}
		}
	})
}

// A server that never has enough is not asked for ever.
func TestForwardRounds(t *testing.T) {
	c, f := mustPipe(t,
		modernFake(replies{"tools/call": `{"resultType":"input_required","requestState":"s"}`}),
		&ClientOptions{MaxRounds: 3})
	if _, _, err := c.Forward(t.Context(),
		&relay.Forward{Method: "tools/call", Params: jsonrpc.Raw(`{"name":"x"}`), Rounds: true}); err ==
		nil || !strings.Contains(err.Error(), "MaxRounds") {
		t.Error(err)
	}
	if n := f.count("tools/call"); n != 4 || f.last("tools/call")["requestState"] != "s" {
		t.Errorf("%d rounds, %v", n, f.got)
	}
	f.set("prompts/list", `{"resultType":"input_required","requestState":"s"}`)
	if _, _, err := c.Forward(t.Context(),
		&relay.Forward{Method: "prompts/list", Rounds: true}); !errors.Is(err, farcall.ErrProtocol) {
		t.Error(err)
	}
}
