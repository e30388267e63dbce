package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// An old server may refuse a call until the user has visited some URLs.
func TestVisit(t *testing.T) {
	const one = `{"mode":"url","elicitationId":"1","url":"https://a.example/","message":"A"}`
	const two = `{"mode":"url","elicitationId":"2","url":"https://b.example/","message":"B"}`
	action := func(a string) (*spec.ElicitResult, error) { return &spec.ElicitResult{Action: a}, nil }
	failing := errors.New("no user")
	formOnly := &spec.ClientCapabilities{
		Elicitation: &spec.ElicitationCapability{Form: spec.JSONObject{}},
	}
	for _, test := range []struct {
		name, data string
		elicit     func(*spec.ElicitRequestParams) (*spec.ElicitResult, error)
		caps       *spec.ClientCapabilities
		lasting    bool // the server refuses again
		ok         bool
		asked      int32
		calls      int
	}{
		{
			name: "agreed", data: one,
			elicit: func(p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				if p.Mode != "url" || p.URL != "https://a.example/" || p.ElicitationID != "1" ||
					p.Message != "A" {
					t.Errorf("params %+v", p)
				}
				return action("accept")
			}, ok: true, asked: 1, calls: 2,
		},
		{
			name: "two", data: one + "," + two,
			elicit: func(*spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return action("accept")
			}, ok: true, asked: 2, calls: 2,
		},
		{
			name: "one of two", data: one + "," + two,
			elicit: func(p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				if p.Message == "A" {
					return action("decline")
				}
				return action("accept")
			}, asked: 2, calls: 1,
		},
		{
			name: "cancelled", data: one,
			elicit: func(*spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return action("cancel")
			}, asked: 1, calls: 1,
		},
		{
			name: "without end", data: one,
			elicit: func(*spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return action("accept")
			}, lasting: true, asked: 1, calls: 2,
		},
		{name: "failing", data: one, elicit: func(*spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return nil, failing
		}, asked: 1, calls: 1},
		{name: "no callback", data: one, calls: 1},
		{
			name: "not offered", data: one, caps: formOnly,
			elicit: func(*spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return action("accept")
			}, calls: 1,
		},
		{name: "nothing named", elicit: func(*spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return action("accept")
		}, calls: 1},
		{name: "no data", data: `5`, elicit: func(*spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return action("accept")
		}, calls: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var asked atomic.Int32
			refused := false
			o := &ClientOptions{Era: "legacy", Capabilities: test.caps}
			if test.elicit != nil {
				o.Elicit = func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
					asked.Add(1)
					return test.elicit(p)
				}
			}
			c, f := mustPipe(t,
				legacyFake(replies{"tools/call": do(func(context.Context, map[string]any) (any, error) {
					if refused && !test.lasting {
						return `{"content":[]}`, nil
					}
					refused = true
					return nil, &jsonrpc.Error{
						Code: -32042, Message: "visit",
						Data: jsonrpc.Raw(`{"elicitations":[` + test.data + `]}`),
					}
				}), "tools/list": `{"tools":[]}`}), o)
			_, err := c.CallTool(t.Context(), "x", nil)
			if test.ok != (err == nil) || err != nil && !errors.Is(err, spec.URLElicitationRequired) {
				t.Error(err)
			}
			if test.name == "failing" && !errors.Is(err, failing) {
				t.Error(err)
			}
			if n := f.count("tools/call"); n != test.calls || asked.Load() != test.asked {
				t.Errorf("%d calls and %d questions, want %d and %d", n, asked.Load(), test.calls, test.asked)
			}
		})
	}
}

// A server cannot ask for any number of things at once.
func TestManyQuestions(t *testing.T) {
	ask := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"%d":{"method":"roots/list"}`, i))
		}
		return `{"resultType":"input_required","inputRequests":{` + strings.Join(all, ",") + `}}`
	}
	synctest.Test(t, func(t *testing.T) {
		var now, most, all atomic.Int32
		asked := 0
		c, f := mustPipe(t,
			modernFake(replies{"tools/call": do(func(_ context.Context, p map[string]any) (any, error) {
				if answers, ok := p["inputResponses"].(map[string]any); ok {
					asked = len(answers)
					return `{"content":[]}`, nil
				}
				return ask(maxQuestions), nil
			})}), &ClientOptions{Roots: func(ctx context.Context) ([]spec.Root, error) {
				all.Add(1)
				most.Store(max(most.Load(), now.Add(1)))
				wait(ctx, time.Second)
				now.Add(-1)
				return nil, nil
			}})
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil || asked != maxQuestions ||
			most.Load() != maxAtOnce {
			t.Errorf("%v: %d answers, %d at once", err, asked, most.Load())
		}
		all.Store(0)
		f.set("tools/call", ask(maxQuestions+1))
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, farcall.ErrProtocol) ||
			all.Load() != 0 {
			t.Error(err, all.Load())
		}
	})
}
