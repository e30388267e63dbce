package mcp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

// A client's middleware sees each call once, and what the cache answers.
func TestClientMiddleware(t *testing.T) {
	for _, rev := range era.Revisions() {
		t.Run(rev.Name, func(t *testing.T) {
			c := connectedInProcess(t, partsServer(), &ClientOptions{Era: rev.Name})
			var seen []string
			c.Use(func(next Handler) Handler {
				return func(ctx context.Context, r *Request) (*Response, error) {
					seen = append(seen, r.Method+" "+r.Name)
					switch r.Name {
					case "echo":
						r.Arguments = jsonrpc.Raw(`{"text":"changed"}`)
					case "limited":
						return nil, &ToolError{&ToolResult{Content: []Content{Text("slow down")}}}
					case "denied":
						return nil, errOfHandler
					case "virtual":
						return r.Respond(&ToolResult{Content: []Content{Text("answered")}})
					case "wrong":
						return nil, nil //nolint:nilnil // the mistake
					}
					res, err := next(ctx, r)
					if err == nil && res.Err() != nil {
						seen = append(seen, res.Err().Error())
					}
					return res, err
				}
			})
			for tool, want := range map[string]string{
				"echo": "changed echo <nil>", "limited": "slow down",
				"virtual": "answered", "fails": "the handler failed",
			} {
				if r, err := c.CallTool(t.Context(), tool, nil); err != nil || textOf(r) != want {
					t.Errorf("%s: %+v, %v; want %q", tool, r, err, want)
				}
			}
			for tool, want := range map[string]error{"denied": errOfHandler, "wrong": errNoResponse} {
				if _, err := c.CallTool(t.Context(), tool, nil); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", tool, err, want)
				}
			}
			if _, err := c.Read(t.Context(), "a:b"); err != nil {
				t.Error(err)
			}
			slices.Sort(seen)
			if got, want := strings.Join(seen, ", "),
				"resources/read a:b, the handler failed, tools/call denied, tools/call echo, tools/call "+
					"fails, tools/call limited, tools/call virtual, tools/call wrong"; got != want {
				t.Errorf("seen %s, want %s", got, want)
			}
		})
	}
}
