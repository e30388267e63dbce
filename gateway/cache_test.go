package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// What a server says may be kept is asked for once: for all callers when it is
// public, and for each principal when it is not.
func TestListsAreKeptByScope(t *testing.T) {
	for scope, want := range map[string]int64{spec.CachePublic: 1, spec.CachePrivate: 3} {
		t.Run(scope, func(t *testing.T) {
			s := mcp.NewServer("s", "1",
				&mcp.ServerOptions{Eras: "modern", CacheTTL: time.Hour, CacheScope: scope})
			t.Cleanup(s.Close)
			mcp.AddTool(s, mcp.Tool{Name: "echo"}, func(_ context.Context, in textIn) (string, error) {
				return in.Text, nil
			})
			var lists atomic.Int64
			h := mcphttp.NewHandler(s, nil)
			back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == spec.MethodToolsList {
					lists.Add(1)
				}
				h.ServeHTTP(w, r)
			}))
			t.Cleanup(back.Close)
			l := newLab(t, principals(), &gateway.Upstream{Name: "s", URL: back.URL + "/mcp"})
			for range 4 {
				for _, who := range []string{"ann", "bob", "cy"} {
					got, err := l.modern(t.Context(), spec.MethodToolsList, "", "", "X-Who: "+who)
					if err != nil || got.err != nil {
						t.Fatal(got, err)
					}
				}
			}
			if n := lists.Load(); n != want {
				t.Errorf("the server was asked %d times, not %d", n, want)
			}
		})
	}
}
