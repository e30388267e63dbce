package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

type bug struct {
	Number int    `json:"number"`
	Body   string `json:"body"`
	User   struct {
		ID    int    `json:"id"`
		Email string `json:"email"`
	} `json:"user"`
}

type bugs struct {
	Total int   `json:"total"`
	Items []bug `json:"items"`
}

// TestVirtualOutput: an endpoint leaves some fields of structured results and of their texts, and
// bounds the size of a result, in every revision; the upstream's own address has all of it.
func TestVirtualOutput(t *testing.T) {
	t.Parallel()
	c, err := gateway.Parse("f.yaml", []byte(`
upstreams: {tracker: {command: b}}
endpoints:
  own:
    overrides:
      tracker/list: {output: {fields: [items.number, items.user.id]}}
      tracker/say: {output: {fields: [number]}}
      tracker/long: {output: {max: 2KB}}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := mcp.NewServer("tracker", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "list"}, func(context.Context, struct{}) (bugs, error) {
		b := bug{Number: 7, Body: "long"}
		b.User.ID, b.User.Email = 3, "a@example.com"
		return bugs{Total: 1, Items: []bug{b}}, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "say"}, func(_ context.Context, in textIn) (string, error) {
		if in.Text == "fail" {
			return "", errors.New(`{"number":1,"why":"x"}`)
		}
		return in.Text, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "long"}, func(_ context.Context, in textIn) (bugs, error) {
		return bugs{Items: []bug{{Body: strings.Repeat(in.Text, 2000)}}}, nil
	})
	c.Upstreams = []*gateway.Upstream{{Name: "tracker", Server: s}}
	l := newLabOf(t, nil, c)
	for _, era := range []string{"legacy", "modern"} {
		own := l.clientAt(t, "/mcp/own", mcp.ClientOptions{Era: era})
		r, err := own.CallTool(t.Context(), "tracker__list", nil)
		const want = `{"items":[{"number":7,"user":{"id":3}}]}`
		if err != nil || string(r.StructuredContent) != want || saysOf(r) != want {
			t.Errorf("%s: %s %q %v", era, r.StructuredContent, saysOf(r), err)
		}
		for text, want := range map[string]string{
			"plain": "plain", ` [{"number":1,"x":2}, 3]`: `[{"number":1},3]`,
			"fail": `{"number":1,"why":"x"}`, `{"number":1`: `{"number":1`, "12": "12",
		} {
			if r, err := own.CallTool(t.Context(), "tracker__say", textIn{text}); err != nil ||
				!strings.HasSuffix(saysOf(r), want) {
				t.Errorf("%s: %s: %+v %v", era, text, r, err)
			}
		}
		for _, text := range []string{"a", "é", "\\", "\x01"} {
			r, err := own.CallTool(t.Context(), "tracker__long", textIn{text})
			says := saysOf(r)
			if err != nil || r.StructuredContent != nil || !utf8.ValidString(says) ||
				!strings.Contains(says, `{"total":0`) || !strings.HasSuffix(says, "bytes.]") {
				t.Errorf("%s: %q: %v %.300s", era, text, err, says)
			}
			if size := len(jsonrpc.AppendString(nil, says)); size > 2000 || text == "a" && size < 1400 {
				t.Errorf("%s: %q: %d bytes", era, text, size)
			}
		}
		for path, some := range map[string]bool{"/mcp": true, "/mcp/own": false} {
			tools, err := l.clientAt(t, path, mcp.ClientOptions{Era: era}).Tools(t.Context())
			for _, tool := range tools {
				if (tool.OutputSchema != nil) != some && !strings.HasSuffix(tool.Name, "say") {
					t.Errorf("%s: the output schema of %s: %s", path, tool.Name, tool.OutputSchema)
				}
			}
			if err != nil || len(tools) != 3 {
				t.Errorf("%+v %v", tools, err)
			}
		}
		all, err := l.clientAt(t, "/mcp", mcp.ClientOptions{Era: era}).CallTool(t.Context(), "list", nil)
		if err != nil || !strings.Contains(string(all.StructuredContent), "email") {
			t.Errorf("%s: at /mcp: %+v %v", era, all, err)
		}
	}
}
