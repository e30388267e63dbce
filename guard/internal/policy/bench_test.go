package policy

import (
	"fmt"
	"testing"
	"time"
)

// tenAndFive is ten rules and five Cedar policies; more adds what looks at values.
func tenAndFive(tb testing.TB, more string) *Set {
	tb.Helper()
	src := &Source{}
	for i := range 8 {
		src.Rules = append(src.Rules,
			Rule{
				Roles: []string{fmt.Sprint("role", i)},
				Calls: []string{fmt.Sprintf("tools/call up%d/*", i), fmt.Sprintf("math%d/*", i)},
			})
	}
	src.Rules = append(src.Rules,
		Rule{Deny: true, Roles: []string{"guest"}, Calls: []string{"tools/call *delete*"}},
		Rule{Deny: true, Principals: []string{"mallory"}, Calls: []string{"*"}})
	src.Cedar = []Text{{Name: "five.cedar", Text: `
permit (principal in Role::"dev", action == Action::"tools/call", resource in Upstream::"github");
permit (principal is Service, action in Action::"any read", resource);
forbid (principal, action, resource is Tool) when { resource.name like "*_admin" };
permit (principal == User::"bob", action, resource == Method::"math/add");
forbid (principal, action == Action::"tools/call", resource) unless { principal.roles.contains("dev") || principal.roles.contains("role3") };
` + more}}
	s, problems := Compile(src)
	if hasErrors(problems) {
		tb.Fatal(problems)
	}
	return s
}

func callOfAlice() *Query {
	return &Query{
		Subject: &Subject{
			ID: "alice", Name: "https://id.example|alice", Kind: "user", Method: "jwt",
			Issuer: "https://id.example", Roles: []string{"dev", "role3"}, Scopes: []string{"a", "b"},
		},
		Method: "tools/call", Upstream: "github", Name: "create_issue",
		Arguments: []byte(`{"title":"x","labels":["a","b"],"n":3}`), Transport: "http",
		Remote: "192.0.2.1:4444", Now: time.Unix(1800000000, 0),
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, bench := range []struct {
		name string
		more string
		cold bool
	}{
		{"cached", "", false},
		{"not-cached", "", true},
		{
			"context",
			`forbid (principal, action, resource) when { context has remote && ` +
				`context.remote.isInRange(ip("203.0.113.0/24")) || context.arguments has force && ` +
				`context.arguments.force == true };`, false,
		},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s, q := tenAndFive(b, bench.more), callOfAlice()
			if bench.cold {
				s.cache = nil
			}
			if d := s.Decide(q); !d.Allowed {
				b.Fatal(d)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Decide(q)
			}
		})
	}
}
