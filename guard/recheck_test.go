package guard_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestRecheck: a call with arguments that have changed since it was let pass is refused if it would
// be with these arguments, and the audit has that; in shadow mode it passes, and the audit has that
// it would be refused.
func TestRecheck(t *testing.T) {
	for mode, refuses := range map[string]bool{"enforce": true, "shadow": false} {
		c := &guard.Config{
			Mode: mode, Keys: []guard.Key{keyOf("ci", goodKey, "dev")},
			Cedar: `permit(principal, action, resource); @id("no secrets") forbid(principal, action, ` +
				`resource) when { context.arguments has secret };`,
		}
		c.Limits.Rates = []guard.Rate{{Limit: 2, Every: 1 << 40}}
		c.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
		g := newGuard(t, c, nil)
		mux := farcall.NewMux()
		mux.Handle("change",
			farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				for range 5 { // more often than the rate allows calls
					if err := g.Recheck(ctx,
						&guard.Call{
							Method: "change", Params: jsonrpc.Raw(`{}`),
							Arguments: jsonrpc.Raw(`{}`),
						}); err != nil {
						return nil, err
					}
				}
				return "passed", g.Recheck(ctx,
					&guard.Call{Method: "change", Params: req.Params, Arguments: jsonrpc.Raw(`{"secret":1}`)})
			}))
		rpc := &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}}
		web := http.NewServeMux()
		web.Handle("/rpc",
			httprpc.NewHandler(mux, &httprpc.Options{RPC: rpc, Hosts: []string{"rpc.example"}}))
		s := serve(t, g, g.HTTP(web))
		if refuses {
			s.call("change", "{}", bearer(goodKey)).wants(t, denied)
		} else {
			s.call("change", "{}", bearer(goodKey)).wants(t, "passed")
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		audit, err := os.ReadFile(c.Audit.File)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: `"decision":"denied"`, false: `"decision":"would deny"`}[refuses]
		if text := string(audit); strings.Count(text, want) != 1 ||
			!strings.Contains(text, `"policies":["no secrets"]`) {
			t.Errorf("%s: no %s in the audit:\n%s", mode, want, text)
		}
	}
}
