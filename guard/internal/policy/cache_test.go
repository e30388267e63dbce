package policy

import (
	"fmt"
	"strings"
	"testing"
)

// A decision is remembered for those it was for only.
func TestCacheIsExact(t *testing.T) {
	no := false
	rules := []Rule{{Roles: []string{"dev"}, Calls: []string{"*"}, Destructive: &no}}
	text := `forbid (principal, action, resource) when { context.transport == "ws" || principal.scopes.contains("bad") };
permit (principal in Issuer::"i", action, resource) when { context.local };`
	warm := compile(t, rules, text)
	if warm.cache == nil {
		t.Fatal("nothing is remembered")
	}
	base := Query{Method: "tools/call", Upstream: "u", Name: "n"}
	var queries []Query
	for _, roles := range [][]string{nil, {"dev"}, {"d", "ev"}, {"devel"}} {
		for _, issuer := range []string{"", "i"} {
			for _, transport := range []string{"ws", "http"} {
				for _, note := range []string{"", `{"readOnlyHint":true}`} {
					for _, scopes := range [][]string{nil, {"bad"}} {
						for _, local := range []bool{true, false} {
							q := base
							q.Subject = &Subject{
								ID: "a", Name: "a", Kind: "user", Issuer: issuer, Roles: roles,
								Scopes: scopes,
							}
							q.Transport, q.Annotations, q.Local = transport, []byte(note), local
							queries = append(queries, q)
						}
					}
				}
			}
		}
	}
	for range 3 {
		for i := range queries {
			cold := compile(t, rules, text)
			if got, want := warm.Decide(&queries[i]),
				cold.Decide(&queries[i]); got.Allowed != want.Allowed || got.Reason != want.Reason {
				t.Errorf("%+v: %+v, and when asked first: %+v", queries[i], got, want)
			}
		}
	}
	for _, use := range []string{
		"context.time", "context.remote", "context.arguments",
		"principal.claims",
	} {
		if s := compile(t, nil, `permit (principal, action, resource) when { `+use+` == 1 };`); s.cache !=
			nil {
			t.Errorf("decisions that depend on %s are remembered", use)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	s := compile(t, []Rule{{Calls: []string{"*"}}})
	for i := range 3 * cacheEntries {
		s.Decide(&Query{Subject: user(fmt.Sprint("u", i%20_000)), Method: fmt.Sprint("m", i)})
	}
	if n := s.cache.size(); n > cacheEntries || n < cacheEntries/2 {
		t.Errorf("%d decisions are remembered", n)
	}
	if n := s.callers.size(); n > cacheEntries {
		t.Errorf("%d callers are remembered", n)
	}
	before := s.cache.size()
	s.Decide(&Query{Method: "m", Name: strings.Repeat("x", cacheLength)})
	if s.cache.size() > before {
		t.Error("a long name is remembered")
	}
}
