package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A schema is compiled once, and their texts have a bound.
func TestSchemasAreCompiledOnce(t *testing.T) {
	var c compiled
	schema := jsonrpc.Raw(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	first := c.of(schema)
	if c.of(jsonrpc.Raw(strings.Clone(string(schema)))) != first {
		t.Error("the schema is compiled again")
	}
	if n := testing.AllocsPerRun(100, func() { c.of(schema) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	filler := strings.Repeat("x", 1<<20)
	for i := range 20 {
		c.of(fmt.Appendf(nil, `{"title":"%d %s"}`, i, filler))
		if c.size > maxSchemas || len(c.all) > 5 {
			t.Fatalf("%d bytes of %d schemas", c.size, len(c.all))
		}
	}
	if again := c.of(schema); again.Validate(jsonrpc.Raw(`{"n":"x"}`)) == nil {
		t.Error("the schema is not enforced when it comes back")
	}
}

// A caller that is refused causes no search for tools with similar names: it would learn from the
// time which names there are.
func TestRefusedCausesNoSearch(t *testing.T) {
	t.Parallel()
	for _, denied := range []bool{false, true} {
		l := newSignLab(t, "legacy", func(c *Config) {
			c.Guard.Allow = []guard.Rule{{Calls: []string{"*"}}}
			if denied {
				c.Guard.Deny = []guard.Rule{{Calls: []string{"tools/call secret"}}}
			}
		})
		asked, unknown := 0, errors.New("unknown tool")
		ask := l.g.shield.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			w := (&calling{Call: upstream.Call{
				Method: spec.MethodToolsCall, Params: jsonrpc.Raw(`{"name":"secret"}`),
			}}).derive(r.Context())
			err := l.g.shield.missingThen(w, "secret", func() error { asked++; return unknown })
			if errors.Is(err, unknown) == denied {
				t.Errorf("denied %v: %v", denied, err)
			}
		}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+personKey("ann"))
		if ask.ServeHTTP(httptest.NewRecorder(), r); asked == 0 != denied {
			t.Errorf("denied %v: %d searches", denied, asked)
		}
	}
}
