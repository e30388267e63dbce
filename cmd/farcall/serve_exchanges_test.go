package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// exchanges are the worked examples of JSON-RPC 2.0, section 7. An empty want
// means no answer at all.
var exchanges = []struct{ name, send, want string }{
	{
		"1 positional", `{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}`,
		`{"jsonrpc": "2.0", "result": 19, "id": 1}`,
	},
	{
		"1 positional, the other way round",
		`{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}`,
		`{"jsonrpc": "2.0", "result": -19, "id": 2}`,
	},
	{
		"2 named",
		`{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}`,
		`{"jsonrpc": "2.0", "result": 19, "id": 3}`,
	},
	{
		"2 named, the other way round",
		`{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}`,
		`{"jsonrpc": "2.0", "result": 19, "id": 4}`,
	},
	{"3 notification", `{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, ``},
	{"3 notification of an unknown method", `{"jsonrpc": "2.0", "method": "foobar"}`, ``},
	{
		"4 unknown method", `{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`,
		`{"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "1"}`,
	},
	{
		"5 invalid JSON", `{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`,
		`{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}`,
	},
	{
		"6 invalid request", `{"jsonrpc": "2.0", "method": 1, "params": "bar"}`,
		`{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}`,
	},
	{
		"7 batch, invalid JSON",
		`[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, {"jsonrpc": ` +
			`"2.0", "method" ]`,
		`{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}`,
	},
	{
		"8 empty array", `[]`,
		`{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}`,
	},
	{
		"9 invalid batch, not empty", `[1]`,
		`[{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}]`,
	},
	{
		"10 invalid batch", `[1,2,3]`,
		`[{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
		  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
		  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}]`,
	},
	{
		"11 batch",
		`[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
		  {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
		  {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
		  {"foo": "boo"},
		  {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
		  {"jsonrpc": "2.0", "method": "get_data", "id": "9"}]`,
		`[{"jsonrpc": "2.0", "result": 7, "id": "1"},
		  {"jsonrpc": "2.0", "result": 19, "id": "2"},
		  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
		  {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "5"},
		  {"jsonrpc": "2.0", "result": ["hello", 5], "id": "9"}]`,
	},
	{
		"12 batch of notifications",
		`[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
		  {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}]`, ``,
	},
}

// dropReasons takes out of answers why they refuse: the exchanges have only what the specification
// has.
func dropReasons(answer any) {
	switch v := answer.(type) {
	case []any:
		for _, element := range v {
			dropReasons(element)
		}
	case map[string]any:
		if e, ok := v["error"].(map[string]any); ok {
			if data, ok := e["data"].(map[string]any); ok && len(data) == 1 && data["reason"] != "" {
				delete(e, "data")
			}
		}
	}
}

// sameJSON compares two texts after JSON normalisation, without the reasons of refusals.
func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Fatalf("the answer %q is not JSON: %v", got, err)
	}
	dropReasons(a)
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("answer:\n\t%s\nwant:\n\t%s", got, want)
	}
}

// afterwards is a call with an answer that proves that an exchange without an answer
// had none.
const (
	afterwards       = `{"jsonrpc":"2.0","method":"echo","params":["afterwards"],"id":"afterwards"}`
	afterwardsAnswer = `{"jsonrpc":"2.0","result":["afterwards"],"id":"afterwards"}`
)

// worked runs the examples over one connection: exchange sends a text and
// returns the next answer.
func worked(t *testing.T, exchange func(t *testing.T, text string) string) {
	t.Helper()
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			text := strings.ReplaceAll(x.send, "\n", " ") // one line, for the framing that needs it
			if x.want != "" {
				sameJSON(t, exchange(t, text), x.want)
				return
			}
			got := exchange(t, text+"\x00"+afterwards)
			sameJSON(t, got, afterwardsAnswer)
		})
	}
}

func headerFrame(text string) string {
	return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text)
}

func (w *wire) headerAnswer(t *testing.T) string {
	t.Helper()
	length := 0
	for {
		line := strings.TrimSuffix(w.line(t), "\r")
		if line == "" {
			break
		}
		if _, err := fmt.Sscanf(line, "Content-Length: %d", &length); err != nil {
			t.Fatalf("header line %q: %v", line, err)
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(w.r, body); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestWorkedExamples(t *testing.T) {
	t.Parallel()
	s := serve(t, "--listen", "127.0.0.1:0", "--listen", "unix:"+t.TempDir()+"/s", "--log", "off")
	lines := func(w *wire) func(*testing.T, string) string {
		return func(t *testing.T, text string) string {
			t.Helper()
			return w.call(t, strings.ReplaceAll(text, "\x00", "\n"))
		}
	}
	t.Run("tcp", func(t *testing.T) { worked(t, lines(dial(t, s.addrs[0], nil))) })
	t.Run("unix", func(t *testing.T) { worked(t, lines(dial(t, s.addrs[1], nil))) })
	t.Run("content-length", func(t *testing.T) {
		w := dial(t, s.addrs[0], nil)
		worked(t, func(t *testing.T, text string) string {
			t.Helper()
			for part := range strings.SplitSeq(text, "\x00") {
				w.send(t, headerFrame(part))
			}
			return w.headerAnswer(t)
		})
	})
	t.Run("http", func(t *testing.T) {
		client := httpClient(nil)
		worked(t, func(t *testing.T, text string) string {
			t.Helper()
			first, second, silent := strings.Cut(text, "\x00")
			res := request(t, client, "POST", s.addrs[0]+"/rpc", first)
			if !silent {
				return res.body
			}
			if res.status != http.StatusNoContent || res.body != "" {
				t.Errorf("a notification is answered with %d and %q, want 204 and nothing", res.status,
					res.body)
			}
			return request(t, client, "POST", s.addrs[0]+"/rpc", second).body
		})
	})
	s.stop(t)
}
