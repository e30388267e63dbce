package farcall_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// specTests are the worked examples of the specification (JSON-RPC 2.0 §7).
var specTests = []struct{ name, request, want string }{
	{
		"1 positional", `{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}`,
		`{"jsonrpc": "2.0", "result": 19, "id": 1}`,
	},
	{
		"1 positional", `{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}`,
		`{"jsonrpc": "2.0", "result": -19, "id": 2}`,
	},
	{
		"2 named",
		`{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}`,
		`{"jsonrpc": "2.0", "result": 19, "id": 3}`,
	},
	{
		"2 named",
		`{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}`,
		`{"jsonrpc": "2.0", "result": 19, "id": 4}`,
	},
	{"3 notification", `{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, ``},
	{"3 notification", `{"jsonrpc": "2.0", "method": "foobar"}`, ``},
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
		"[\n" + `{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},` + "\n" +
			`{"jsonrpc": "2.0", "method"` + "\n]",
		`{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}`,
	},
	{
		"8 empty array", `[]`,
		`{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}`,
	},
	{
		"9 invalid batch", `[1]`,
		`[{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}]`,
	},
	{
		"10 invalid batch", `[1,2,3]`, `[
		{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
		{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
		{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}]`,
	},
	{
		"11 batch", `[
		{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
		{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
		{"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
		{"foo": "boo"},
		{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
		{"jsonrpc": "2.0", "method": "get_data", "id": "9"}
		]`, `[
		{"jsonrpc": "2.0", "result": 7, "id": "1"},
		{"jsonrpc": "2.0", "result": 19, "id": "2"},
		{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
		{"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "5"},
		{"jsonrpc": "2.0", "result": ["hello", 5], "id": "9"}]`,
	},
	{"12 notifications", `[
		{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
		{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}
		]`, ``},
}

func specMux() *farcall.Mux {
	m := farcall.NewMux()
	farcall.Handle(m, "subtract", func(_ context.Context, p struct {
		Minuend    int `json:"minuend"`
		Subtrahend int `json:"subtrahend"`
	},
	) (int, error) {
		return p.Minuend - p.Subtrahend, nil
	})
	sum := func(_ context.Context, all []int) (total int, _ error) {
		for _, n := range all {
			total += n
		}
		return total, nil
	}
	nothing := func(context.Context, jsonrpc.Raw) (struct{}, error) { return struct{}{}, nil }
	farcall.Handle(m, "sum", sum)
	farcall.Handle(m, "notify_sum", sum)
	farcall.Handle(m, "notify_hello", nothing)
	farcall.Handle(m, "update", nothing)
	farcall.Handle(m, "get_data", func(context.Context, struct{}) ([]any, error) {
		return []any{"hello", 5}, nil
	})
	m.Handle("echo", farcall.HandlerFunc(echo))
	return m
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSpecificationExamples(t *testing.T) {
	framings(t, func(t *testing.T, f stream.Framing) {
		w := newWire(t, f, specMux(), nil)
		for _, test := range specTests {
			request := test.request
			if f == stream.NDJSON {
				request = strings.ReplaceAll(request, "\n", " ")
			}
			w.write(request)
			if test.want != "" {
				if got, want := w.read(), compact(t, test.want); got != want {
					t.Errorf("%s: %s\n got %s\nwant %s", test.name, test.request, got, want)
				}
			}
			w.ping()
		}
	})
	t.Run("responder", func(t *testing.T) {
		r := farcall.NewResponder(specMux(), nil)
		for _, test := range specTests {
			want := ""
			if test.want != "" {
				want = compact(t, test.want)
			}
			if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(test.request), nil))); got !=
				want {
				t.Errorf("%s: %s\n got %s\nwant %s", test.name, test.request, got, want)
			}
		}
	})
}
