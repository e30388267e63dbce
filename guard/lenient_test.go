package guard_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A policy on arguments decides about what the tool gets, also where mcp.Lenient makes that of
// something else.
func TestPolicyOnLenientArguments(t *testing.T) {
	g, err := guard.New(&guard.Config{
		Anonymous: true,
		Cedar: `permit(principal, action, resource);
forbid(principal, action, resource) when { context.arguments has confirm && context.arguments.confirm == true };
forbid(principal, action, resource) when { context.arguments has count && context.arguments.count == 7 };`,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s := mcp.NewServer("calc", "1",
		&mcp.ServerOptions{
			RPC: &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}},
		})
	var ran []bool
	type arguments struct {
		Confirm bool `json:"confirm,omitempty"`
		Count   int  `json:"count,omitempty"`
	}
	mcp.AddTool(s, mcp.Tool{Name: "wipe"}, func(_ context.Context, in arguments) (string, error) {
		ran = append(ran, in.Confirm)
		return "done", nil
	})
	h := mcphttp.NewHandler(s, nil)
	server := httptest.NewServer(g.HTTP(h))
	defer server.Close()
	defer h.Shutdown(context.Background())
	for _, rev := range era.Revisions() {
		c, err := mcp.Dial(t.Context(), server.URL, &mcp.ClientOptions{Era: rev.Name})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, arguments := range []string{`{"confirm":true}`, `{"confirm":"true"}`, `{"count":"7"}`} {
			ran = nil
			err := c.Request(t.Context(), spec.MethodToolsCall,
				jsonrpc.Raw(`{"name":"wipe","arguments":`+arguments+`}`), nil)
			wire, ok := errors.AsType[*jsonrpc.Error](err)
			if !ok || wire.Message != "Permission denied" || ran != nil {
				t.Errorf("%s %s: %v, ran %v", rev.Name, arguments, err, ran)
			} else if want := jsonrpc.PermissionDenied.Condition().Modern; wire.Code != want {
				// clients have all codes as of the newest revision
				t.Errorf("%s %s: code %d", rev.Name, arguments, wire.Code)
			}
		}
		for _, arguments := range []string{
			`{"confirm":"false"}`, `{"confirm":false,"other":1}`,
			`{"count":"8"}`,
		} {
			ran = nil
			if err := c.Request(t.Context(), spec.MethodToolsCall,
				jsonrpc.Raw(`{"name":"wipe","arguments":`+arguments+`}`), nil); err != nil || len(ran) != 1 {
				t.Errorf("%s %s: %v, ran %v", rev.Name, arguments, err, ran)
			}
		}
	}
}
