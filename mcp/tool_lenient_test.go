package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

type lenientIn struct {
	Q    string   `json:"q"`
	Page int      `json:"page,omitempty" min:"1"`
	Rate *float64 `json:"rate"`
	All  bool     `json:"all,omitempty"`
	Tags []string `json:"tags,omitempty"`
	At   struct {
		Line int `json:"line"`
	} `json:"at,omitzero"`
	Next *lenientIn `json:"next,omitempty"`
}

func lenientServer(o *ServerOptions) *Server {
	s := NewServer("x", "1", o)
	AddTool(s, Tool{Name: "typed"}, func(_ context.Context, in lenientIn) (string, error) {
		return fmt.Sprintf("%s%d%v%v%d%v", in.Q, in.Page, in.All, in.Tags, in.At.Line,
			in.Next != nil && in.Next.Page == 2), nil
	})
	s.AddTool(Tool{
		Name: "raw",
		InputSchema: jsonrpc.Raw(
			`{"type":"object","properties":{"n":{"type":["integer","null"]},"s":{"type":["string",` +
				`"integer"]},"a":{"items":{"type":"number"}}},"additionalProperties":false}`),
	},
		func(_ context.Context, arguments jsonrpc.Raw) (*ToolResult, error) {
			return &ToolResult{Content: []Content{Text(string(arguments))}}, nil
		})
	return s
}

// What models write for arguments is taken, unless the server is strict.
func TestLenientArguments(t *testing.T) {
	for _, test := range []struct {
		tool, arguments, want string
		strict                bool // it is also taken then
	}{
		{"typed", `{"q":"a","page":null,"tags":null,"rate":null}`, "a0false[]0false", true},
		{"typed", `{"q":"a","page":2.0}`, "a2false[]0false", true},
		{"typed", `{"q":"2","page":"2","rate":" 1.5 ","all":"true"}`, "22true[]0false", false},
		{"typed", `{"q":"a","toolCallId":"x","at":{"line":"7","column":1}}`, "a0false[]7false", false},
		{"typed", `{"q":"a","next":{"q":"b","page":"2","x":1}}`, "a0false[]0true", false},
		{"typed", `{"q":"a","page":"two"}`, "error", false},
		{"typed", `{"q":"a","page":"0"}`, "error", false},
		{"typed", `{"q":"a","page":"true"}`, "error", false},
		{"typed", `{"Q":"a"}`, "error", false},
		{"typed", `{"q":1}`, "error", false},
		{"raw", `{"n":"3","s":"3","a":["1",2]}`, `{"n":3,"s":"3","a":[1,2]}`, false},
		{"raw", `{"n":3, "s":"3"}`, `{"n":3, "s":"3"}`, true},
	} {
		for _, o := range []*ServerOptions{nil, {Arguments: Strict}} {
			want := test.want
			if o != nil && !test.strict {
				want = "error"
			}
			got := sendModern(t, lenientServer(o), canNothing, "tools/call",
				fmt.Sprintf(`{"name":%q,"arguments":%s}`, test.tool, test.arguments))
			if want == "error" && got.Result.IsError {
				continue
			}
			if got.Result.IsError || got.text() != want {
				t.Errorf("%s, %+v: %s", test.arguments, o, got.raw)
			}
		}
	}
}

// The error names everything that the arguments lack, also what would be tolerated.
func TestLenientError(t *testing.T) {
	got := sendModern(t, lenientServer(nil), canNothing, "tools/call",
		`{"name":"typed","arguments":{"Q":"a"}}`)
	if !strings.Contains(got.text(), `unknown property "Q"`) ||
		!strings.Contains(got.text(), `missing property "q"`) {
		t.Error(got.raw)
	}
}

// Each kind is logged once for each tool.
func TestLenientLog(t *testing.T) {
	var log counted
	s := lenientServer(&ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		sendModern(t, s, canNothing, "tools/call", `{"name":"typed","arguments":{"q":"a","x":1}}`)
		sendModern(t, s, canNothing, "tools/call", `{"name":"typed","arguments":{"q":"a","page":"1"}}`)
		sendModern(t, s, canNothing, "tools/call",
			`{"name":"typed","arguments":{"q":"a","page":"1","x":1}}`)
		sendModern(t, s, canNothing, "tools/call", `{"name":"raw","arguments":{"x":1}}`)
	}
	if len(log.all) != 3 || log.count("tool=raw") != 1 {
		t.Errorf("%d lines: %q", len(log.all), log.all)
	}
}
