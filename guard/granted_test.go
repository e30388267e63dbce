package guard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// during runs f with the context of a request that the guard has let pass; it reports whether there
// was one.
func during(
	t *testing.T, g *guard.Guard, f func(ctx context.Context), header ...string,
) (passed bool) {
	t.Helper()
	h := g.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed = true
		f(r.Context())
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", http.NoBody)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	return passed
}

// A change of a gateway needs a rule that allows it: neither a guard without rules nor one in
// shadow mode lets it pass.
func TestMustBeGranted(t *testing.T) {
	admin := guard.Call{Method: "gateway/admin", Upstream: "files", Name: "restart"}
	for name, x := range map[string]struct {
		mode        string
		allow, deny []guard.Rule
		granted     bool
	}{
		"no rules":         {},
		"no rules, shadow": {mode: "shadow"},
		"another rule":     {allow: []guard.Rule{{Calls: []string{"tools/call *"}}}},
		"shadow":           {mode: "shadow", allow: []guard.Rule{{Calls: []string{"tools/call *"}}}},
		"another upstream": {allow: []guard.Rule{{Calls: []string{"gateway/admin web/*"}}}},
		"the rule": {
			allow:   []guard.Rule{{Calls: []string{"gateway/admin files/*"}}},
			granted: true,
		},
		"the rule, shadow": {
			mode: "shadow", allow: []guard.Rule{{Calls: []string{"gateway/admin files/*"}}}, granted: true,
		},
		"all": {allow: []guard.Rule{{Calls: []string{"*"}}}, granted: true},
		"a rule on trial": {
			allow: []guard.Rule{
				{Calls: []string{"who"}}, {Calls: []string{"gateway/admin *"}, Mode: "shadow"},
			},
		},
		"denied": {
			allow: []guard.Rule{{Calls: []string{"*"}}},
			deny:  []guard.Rule{{Calls: []string{"gateway/admin *"}}},
		},
		"denied, but shadow": {
			mode: "shadow", allow: []guard.Rule{{Calls: []string{"*"}}},
			deny: []guard.Rule{{Calls: []string{"gateway/admin *"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &guard.Config{
				Mode: x.mode, Allow: x.allow, Deny: x.deny,
				Keys: []guard.Key{keyOf("ci", goodKey)},
			}
			c.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
			g, err := guard.New(c, nil)
			if err != nil {
				t.Fatal(err)
			}
			passed := during(t, g, func(ctx context.Context) {
				done, err := g.Begin(ctx, &admin)
				if err == nil {
					done(nil, nil)
				}
				if granted := err == nil; granted != x.granted || g.Visible(ctx, &admin) != x.granted {
					t.Errorf("granted: %v (%v), visible: %v; want %v", granted, err, g.Visible(ctx, &admin),
						x.granted)
				}
				ci := guard.Principal{ID: "ci", Kind: "service", Method: "key"}
				if got := g.Explain(&ci, nil, &admin); got.Allowed != x.granted {
					t.Errorf("explained as %+v", got)
				}
			}, asCI)
			if err := g.Close(); err != nil || !passed {
				t.Fatal(err, passed)
			}
			word := map[bool]string{true: "allowed", false: "denied"}[x.granted]
			if all := decisions(lines(t, c.Audit.File)); len(all) != 1 || all[0].Decision != word ||
				all[0].Call != "gateway/admin files/restart" {
				t.Errorf("the audit has %+v", all)
			}
		})
	}
}

// What the program refuses is in the audit with its reason, in shadow mode, too.
func TestRefuse(t *testing.T) {
	c := &guard.Config{Mode: "shadow", Keys: []guard.Key{keyOf("ci", goodKey)}}
	c.Audit.File = filepath.Join(t.TempDir(), "audit.jsonl")
	g, err := guard.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	during(t, g, func(ctx context.Context) {
		err := g.Refuse(ctx, &guard.Call{Method: "gateway/admin", Name: "reload"},
			"the origin is another one")
		if wire := (*jsonrpc.Error)(nil); !errors.As(err, &wire) ||
			wire.Code != jsonrpc.PermissionDenied || strings.Contains(wire.Message, "origin") {
			t.Errorf("refused with %v", err)
		}
	}, asCI)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	all := decisions(lines(t, c.Audit.File))
	if len(all) != 1 || all[0].Decision != "denied" || all[0].Principal != "ci" ||
		!strings.HasSuffix(all[0].Reason, "the origin is another one") {
		t.Errorf("the audit has %+v", all)
	}
}
