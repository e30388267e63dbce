package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const headerTools = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[
	{"name":"good","inputSchema":{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"n":{"type":"integer","x-mcp-header":"N"},
		"on":{"type":"boolean","x-mcp-header":"On"},
		"deep":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"Deep"}}},
		"plain":{"type":"number"}}}},
	{"name":"bad","inputSchema":{"type":"object","properties":{"v":{"type":"string","x-mcp-header":"a b"}}}}]}`

func TestHeaders(t *testing.T) {
	f, url := httpFake(t,
		modernFake(replies{"tools/list": headerTools, "tools/call": `{"content":[]}`}), nil)
	var warn warnings
	c := mustDial(t, url, &ClientOptions{OnWarning: warn.add})
	for _, test := range []struct {
		args string
		want map[string]string
	}{
		{
			`{"region":"us-west1","n":42,"on":false,"plain":3.5,"deep":{"x":"d"}}`,
			map[string]string{"Region": "us-west1", "N": "42", "On": "false", "Deep": "d"},
		},
		{`{"region":null,"n":-7,"on":true,"deep":{}}`, map[string]string{"N": "-7", "On": "true"}},
		{`{"region":"","n":42.0,"deep":null}`, map[string]string{"Region": "", "N": "42"}},
		{
			`{"region":"Hello, 世界","n":4.2e1}`,
			map[string]string{"Region": "=?base64?SGVsbG8sIOS4lueVjA==?=", "N": "42"},
		},
		{`{"region":" padded ","n":1.5}`, map[string]string{"Region": "=?base64?IHBhZGRlZCA=?="}},
		{
			`{"region":"line1\nline2","on":"yes"}`,
			map[string]string{"Region": "=?base64?bGluZTEKbGluZTI=?="},
		},
		{
			`{"region":"=?base64?literal?=","n":1e30}`,
			map[string]string{"Region": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		},
		{`{"region":7}`, nil},
		{``, nil},
	} {
		if _, err := c.CallTool(t.Context(), "good", jsonrpc.Raw(test.args)); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, values := range f.headers[len(f.headers)-1] {
			if name, ok := strings.CutPrefix(name, "Mcp-Param-"); ok {
				got[name] = values[0]
			}
		}
		if len(got)+len(test.want) > 0 && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: headers %v, want %v", test.args, got, test.want)
		}
	}
	if n := f.count("tools/list"); n != 1 {
		t.Errorf("listed %d times", n)
	}
	if _, err := c.CallTool(t.Context(), "bad", nil); err == nil ||
		!strings.Contains(err.Error(), "cannot be called over HTTP") {
		t.Errorf("error %v", err)
	}
	tools, err := c.Tools(t.Context())
	if err != nil || len(tools) != 1 || tools[0].Name != "good" {
		t.Error(tools, err)
	}
	if got := strings.Count(warn.text(), `"bad" is left out`); got != 1 {
		t.Errorf("warnings %q", warn.text())
	}
}

// Over other transports the headers are of no concern.
func TestHeadersOverStream(t *testing.T) {
	c, f := mustPipe(t, modernFake(replies{"tools/list": headerTools, "tools/call": `{"content":[]}`}),
		nil)
	if _, err := c.CallTool(t.Context(), "bad", nil); err != nil || f.count("tools/list") != 0 {
		t.Error(err)
	}
	if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 2 {
		t.Error(tools, err)
	}
}

// A server with a tool that has changed says that the headers do not match.
func TestHeaderMismatch(t *testing.T) {
	tool := func(name string) string {
		return `{"ttlMs":3600000,"tools":[{"name":"x","inputSchema":{"type":"object",` +
			`"properties":{"a":{"type":"string","x-mcp-header":"` + name + `"}}}}]}`
	}
	want := "Old"
	f, url := httpFake(t, modernFake(replies{"tools/list": tool(want)}),
		func(f *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
			if !strings.Contains(string(body), `"tools/call"`) {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			var m struct{ ID json.RawMessage }
			json.Unmarshal(body, &m)
			if r.Header.Get("Mcp-Param-"+want) != "v" {
				w.WriteHeader(http.StatusBadRequest)
				w.Write(
					[]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32020,"message":"Header mismatch"}}`))
				return true
			}
			w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[]}}`))
			return true
		})
	c := mustDial(t, url, nil)
	args := map[string]string{"a": "v"}
	if _, err := c.CallTool(t.Context(), "x", args); err != nil {
		t.Fatal(err)
	}
	want = "New"
	f.set("tools/list", tool(want))
	if _, err := c.CallTool(t.Context(), "x", args); err != nil || f.count("tools/list") != 2 {
		t.Error(err)
	}
	want = "Unknown"
	if _, err := c.CallTool(t.Context(), "x", args); !errors.Is(err, spec.HeaderMismatch) {
		t.Errorf("error %v", err)
	}
}

func TestStructuredOutput(t *testing.T) {
	canary := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a schema was fetched")
	}))
	defer canary.Close()
	var warn warnings
	c, f := mustPipe(t, modernFake(replies{"tools/list": `{"tools":[
		{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},
		{"name":"far","inputSchema":{"type":"object","properties":{"p":{"$ref":"` + canary.URL +
		`"}}},"outputSchema":{"$ref":"` + canary.URL + `"}},
		{"name":"part","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"id":{"type":"string","pattern":"^(?!x)"}}}},
		{"name":"free","inputSchema":{"type":"object"}}]}`}), &ClientOptions{OnWarning: warn.add})
	tools, err := c.Tools(t.Context())
	if err != nil || !strings.Contains(string(tools[1].InputSchema), canary.URL) {
		t.Fatal(tools, err)
	}
	for _, test := range []struct{ tool, answer, want string }{
		{"t", `{"content":[],"structuredContent":{"n":1}}`, ""},
		{"t", `{"content":[],"structuredContent":{"n":"1"}}`, "does not fit its output schema"},
		{"t", `{"content":[]}`, "answered no structured content"},
		{"t", `{"content":[],"isError":true}`, ""},
		{"far", `{"content":[],"structuredContent":{"n":"1"}}`, ""},
		{"part", `{"content":[],"structuredContent":{"id":"1"}}`, ""},
		{"part", `{"content":[],"structuredContent":{"id":1}}`, "does not fit its output schema"},
		{"free", `{"content":[],"structuredContent":5}`, ""},
	} {
		f.set("tools/call", test.answer)
		_, err := c.CallTool(t.Context(), test.tool, nil)
		if test.want == "" && err != nil ||
			test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %s: %v, want %q", test.tool, test.answer, err, test.want)
		}
	}
	if got := strings.Count(warn.text(), "is not enforced"); got != 2 {
		t.Errorf("warnings %q", warn.text())
	}
}

func TestTypedCall(t *testing.T) {
	type sum struct {
		Sum int `json:"sum"`
	}
	c, f := mustPipe(t, modernFake(nil), nil)
	answer := func(s string) { f.set("tools/call", s) }

	answer(`{"content":[{"type":"text","text":"3"}],"structuredContent":{"sum":3}}`)
	if got, err := CallTool[sum](t.Context(), c, "x", nil); err != nil || got.Sum != 3 {
		t.Error(got, err)
	}
	answer(`{"content":[{"type":"text","text":"{\"sum\":4}"}]}`)
	if got, err := CallTool[sum](t.Context(), c, "x", nil); err != nil || got.Sum != 4 {
		t.Error(got, err)
	}
	answer(`{"content":[{"type":"text","text":"a"},{"type":"image","data":"","mimeType":"x/y"},` +
		`{"type":"text","text":"b"}]}`)
	if got, err := CallTool[string](t.Context(), c, "x", nil); err != nil || got != "a\nb" {
		t.Error(got, err)
	}
	if _, err := CallTool[sum](t.Context(), c, "x", nil); err == nil ||
		!strings.Contains(err.Error(), "neither structured content nor JSON") {
		t.Error(err)
	}
	answer(`{"content":[{"type":"text","text":"no such city"}],"isError":true}`)
	var failed *ToolError
	if _, err := CallTool[sum](t.Context(), c, "x", nil); !errors.As(err, &failed) ||
		err.Error() != "no such city" {
		t.Error(err)
	}
	answer(`{"content":[],"structuredContent":{"sum":"x"}}`)
	if _, err := CallTool[sum](t.Context(), c, "x", nil); err == nil ||
		!strings.Contains(err.Error(), "does not fit") {
		t.Error(err)
	}
}

func TestClientPages(t *testing.T) {
	c, f := mustPipe(t,
		modernFake(replies{"prompts/list": do(func(_ context.Context, p map[string]any) (any, error) {
			switch p["cursor"] {
			case nil:
				return `{"prompts":[{"name":"a"}],"nextCursor":"1"}`, nil
			case "1":
				return `{"prompts":[{"name":"b"}],"nextCursor":"2"}`, nil
			}
			return `{"prompts":[]}`, nil
		})}), nil)
	if all, err := c.Prompts(t.Context()); err != nil || len(all) != 2 || all[1].Name != "b" {
		t.Error(all, err)
	}
	f.set("prompts/list", `{"prompts":[],"nextCursor":"again"}`)
	if _, err := c.Prompts(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "round in circles") {
		t.Error(err)
	}
	f.set("resources/list", `{"resources":[]}`)
	if all, err := c.Resources(t.Context()); err != nil || all == nil {
		t.Error(all, err)
	}
}

func TestListsAreBounded(t *testing.T) {
	c, f := mustPipe(t,
		modernFake(replies{"prompts/list": `{"prompts":[` + strings.Repeat("{},", maxItems) + `{}]}`}),
		nil)
	if _, err := c.Prompts(t.Context()); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
	n := 0
	f.set("prompts/list", do(func(context.Context, map[string]any) (any, error) {
		n++
		return fmt.Sprintf(`{"prompts":[%s{}],"nextCursor":"%d"}`, strings.Repeat("{},", maxItems/4), n),
			nil
	}))
	if _, err := c.Prompts(t.Context()); err == nil || !strings.Contains(err.Error(), "too long") ||
		n != 4 {
		t.Error(err, n)
	}
	size := listSize{bytes: maxList - 3}
	if err := size.add(jsonrpc.Raw(`{}`), "prompts"); err != nil {
		t.Error(err)
	}
	if err := size.add(jsonrpc.Raw(`{}`), "prompts"); err == nil {
		t.Error("the bytes are not bounded")
	}
}

// A hint for the cache that cannot be read is no reason to lose the list.
func TestBadHints(t *testing.T) {
	for _, test := range []struct {
		ttl  string
		kept bool
	}{
		{"1e400", true},
		{"300000.0", true},
		{"0.5e6", true},
		{`"x"`, false},
		{"-1e400", false},
		{"[]", false},
	} {
		c, f := mustPipe(t,
			modernFake(
				replies{
					"tools/list": `{"tools":[{"name":"x","inputSchema":{"type":"object"}}],` +
						`"cacheScope":7,"ttlMs":` + test.ttl + `}`,
				}), nil)
		for range 2 {
			if all, err := c.Tools(t.Context()); err != nil || len(all) != 1 {
				t.Error(test.ttl, err)
			}
		}
		if kept := f.count("tools/list") == 1; kept != test.kept {
			t.Errorf("%s: kept %t", test.ttl, kept)
		}
	}
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c, f := mustPipe(t, modernFake(replies{
			"tools/list":     `{"ttlMs":1000,"cacheScope":"public","tools":[]}`,
			"resources/list": `{"ttlMs":0,"resources":[]}`,
			"prompts/list":   `{"ttlMs":-1,"prompts":[]}`,
			"resources/read": do(func(_ context.Context, p map[string]any) (any, error) {
				if n++; n == 3 {
					return `{"resultType":"input_required","requestState":"s"}`, nil
				}
				return `{"ttlMs":60000,"cacheScope":"private","contents":[]}`, nil
			}),
		}), nil)
		calls := func(method string, want int, f2 func() error) {
			t.Helper()
			if err := f2(); err != nil {
				t.Error(err)
			}
			if got := f.count(method); got != want {
				t.Errorf("%s: %d calls, want %d", method, got, want)
			}
		}
		tools := func() error { _, err := c.Tools(t.Context()); return err }
		calls("tools/list", 1, tools)
		calls("tools/list", 1, tools)
		wait(t.Context(), 999*time.Millisecond)
		calls("tools/list", 1, tools)
		wait(t.Context(), time.Millisecond)
		calls("tools/list", 2, tools)
		f.peer.Notify(t.Context(), "notifications/tools/list_changed", nil)
		synctest.Wait()
		calls("tools/list", 3, tools)
		for n := range 2 {
			calls("resources/list", n+1, func() error { _, err := c.Resources(t.Context()); return err })
			calls("prompts/list", n+1, func() error { _, err := c.Prompts(t.Context()); return err })
		}
		read := func(uri string) func() error {
			return func() error { _, err := c.Read(t.Context(), uri); return err }
		}
		calls("resources/read", 1, read("a:"))
		calls("resources/read", 2, read("b:"))
		calls("resources/read", 2, read("a:"))
		f.peer.Notify(t.Context(), "notifications/resources/updated", map[string]string{"uri": "a:"})
		synctest.Wait()
		calls("resources/read", 2, read("b:"))
		calls("resources/read", 4, read("a:")) // in two rounds, which is not kept
		calls("resources/read", 5, read("a:"))
		calls("resources/read", 5, read("a:"))
		calls("resources/read", 6, func() error {
			return c.Request(t.Context(), "resources/read", jsonrpc.Raw(`{"uri":"a:","_meta":{"x":1}}`), nil)
		})
		if c.Ping(t.Context()) != nil || f.count("server/discover") != 2 {
			t.Error("the ping did not go out")
		}
	})
}

func TestCacheOff(t *testing.T) {
	c, f := mustPipe(t, modernFake(replies{"tools/list": `{"ttlMs":1000,"tools":[]}`}),
		&ClientOptions{NoCache: true})
	c.Tools(t.Context())
	c.Tools(t.Context())
	if f.count("tools/list") != 2 {
		t.Error("cached all the same")
	}
}

func TestCacheBounds(t *testing.T) {
	c := newResultCache(false)
	put := func(uri string, size int) *cacheEntry {
		e := c.entry("resources/read", jsonrpc.Raw(`{"uri":"`+uri+`"}`))
		c.put(e, make(jsonrpc.Raw, size), jsonrpc.Raw("1e300"))
		return e
	}
	first := put("first", 10)
	if put("huge", cacheBytes); c.get(first) == nil || len(c.results) != 1 {
		t.Error("one that is too large was kept")
	}
	for i := range cacheEntries + 10 {
		put(string(rune('a'+i%26))+time.Duration(i).String(), 10)
		if c.get(first) == nil {
			t.Fatal("the one used last was dropped")
		}
	}
	if len(c.results) != cacheEntries || c.recent.Len() != cacheEntries {
		t.Errorf("%d entries", len(c.results))
	}
	for i := range 20 {
		put(time.Duration(i).String(), cacheBytes/8)
	}
	if c.bytes > cacheBytes {
		t.Errorf("%d bytes", c.bytes)
	}
	// A result that was on its way when it became stale is not kept.
	e := c.entry("resources/read", jsonrpc.Raw(`{"uri":"x"}`))
	c.drop("resources/read", "x")
	if c.put(e, jsonrpc.Raw("{}"), jsonrpc.Raw("1000")); c.get(e) != nil {
		t.Error("a stale result was kept")
	}
	if c.clear(); c.bytes != 0 || len(c.results) != 0 {
		t.Errorf("%d bytes after clear", c.bytes)
	}
	for ttl, want := range map[string]time.Duration{
		"": 0, "-1": 0, "x": 0, "NaN": 0, `"5"`: 0, "0": 0,
		"0.5": 500 * time.Microsecond, "1000": time.Second, "1e400": cacheTTL,
	} {
		if got := keepFor(jsonrpc.Raw(ttl)); got != want {
			t.Errorf("ttl %s: %v, want %v", ttl, got, want)
		}
	}
}
