package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
)

// compile compiles what must have no errors.
func compile(tb testing.TB, rules []Rule, texts ...string) *Set {
	tb.Helper()
	src := &Source{Rules: rules}
	for i, text := range texts {
		src.Cedar = append(src.Cedar, Text{Name: fmt.Sprint("t", i, ".cedar"), Text: text})
	}
	s, problems := Compile(src)
	if hasErrors(problems) {
		tb.Fatal(problems)
	}
	return s
}

func user(name string, roles ...string) *Subject {
	return &Subject{ID: name, Name: name, Kind: "user", Method: "key", Roles: roles}
}

func TestRules(t *testing.T) {
	yes, no := true, false
	s := compile(t, []Rule{
		{
			Name: "devs", Roles: []string{"dev", "ops"},
			Calls: []string{"tools/call github/*", "math/*", "log?"},
		},
		{Principals: []string{"ci", "https://id.example|7"}, Calls: []string{"build/run"}},
		{Roles: []string{"careful"}, Calls: []string{"*"}, Destructive: &no},
		{Roles: []string{"root"}, Calls: []string{"*"}},
		{Deny: true, Roles: []string{"root"}, Calls: []string{"tools/call wild/*"}, Destructive: &yes},
		{Name: "no-deletes", Deny: true, Calls: []string{"tools/call *delete*", "math/rm"}},
	})
	tool := func(upstream, name string, annotations ...string) Query {
		return Query{
			Method: "tools/call", Upstream: upstream, Name: name,
			Annotations: []byte(strings.Join(annotations, "")),
		}
	}
	for _, test := range []struct {
		who   *Subject
		query Query
		want  string // what decided
	}{
		{user("alice", "dev"), tool("github", "create"), "+devs"},
		{user("alice", "x", "ops"), tool("github", "create"), "+devs"},
		{user("alice", "dev"), tool("githubx", "create"), "-"},
		{user("alice", "dev"), tool("", "create"), "-"},
		{user("alice", "Dev"), tool("github", "create"), "-"},
		{user("alice"), tool("github", "create"), "-"},
		{nil, tool("github", "create"), "-"},
		{user("alice", "dev"), tool("github", "delete_all"), "-no-deletes"},
		{user("root", "root"), tool("github", "delete_all"), "-no-deletes"},
		{user("alice", "dev"), Query{Method: "math/add"}, "+devs"},
		{user("alice", "dev"), Query{Method: "math/rm"}, "-no-deletes"},
		{user("alice", "dev"), Query{Method: "Math/add"}, "-"},
		{user("alice", "dev"), Query{Method: "log1"}, "+devs"},
		{user("alice", "dev"), Query{Method: "log"}, "-"},
		{user("alice", "dev"), Query{Method: "log12"}, "-"},
		{user("ci"), Query{Method: "build/run"}, "+allow[1]"},
		{&Subject{
			ID: "ci", Name: "https://evil.example|ci", Kind: "user",
			Issuer: "https://evil.example",
		}, Query{Method: "build/run"}, "-"},
		{
			&Subject{ID: "7", Name: "https://id.example|7", Kind: "user", Issuer: "https://id.example"},
			Query{Method: "build/run"},
			"+allow[1]",
		},
		{user("c", "careful"), tool("a", "b"), "-"},
		{user("c", "careful"), tool("a", "b", `{"readOnlyHint":true}`), "+allow[2]"},
		{user("c", "careful"), tool("a", "b", `{"destructiveHint":false}`), "+allow[2]"},
		{user("c", "careful"), tool("a", "b", `{"destructiveHint":true,"readOnlyHint":false}`), "-"},
		{user("c", "careful"), tool("a", "b", `{"readOnlyHint":"true"}`), "-"},
		{user("c", "careful"), tool("a", "b", `{"readOnlyHint":true,"readOnlyHint":true}`), "-"},
		{user("c", "careful"), tool("a", "b", `{"readonlyhint":true}`), "-"},
		{user("c", "careful"), tool("a", "b", `{"readOnlyHint":true`), "-"},
		{user("c", "careful"), Query{Method: "any/thing"}, "+allow[2]"},
		{user("r", "root"), tool("wild", "x"), "-deny[0]"},
		{user("r", "root"), tool("wild", "x", `{"readOnlyHint":true}`), "+allow[3]"},
		{user("r", "root"), Query{Method: "tools/call"}, "+allow[3]"},
		{user("r", "root"), Query{Method: "tools/call github/create"}, "-"},
		{user("r", "root"), Query{Method: ""}, "-"},
		{user("r", "root"), Query{Method: "a\tb"}, "-"},
		{user("r", "root"), Query{Method: "a\xff"}, "-"},
		{user("r", "root"), tool("a/b", "c"), "-"},
		{user("r", "root"), tool("a", "c\x1b[2J"), "-"},
	} {
		q := test.query
		q.Subject = test.who
		for range 2 { // the second time from memory
			for name, d := range map[string]Decision{"Decide": s.Decide(&q), "Explain": s.Explain(&q)} {
				sign := "-"
				if d.Allowed {
					sign = "+"
				}
				if got := sign + strings.Join(d.Policies, " "); got != test.want {
					t.Errorf("%s(%v, %q) = %s (%s), want %s", name, test.who,
						CallName(q.Method, q.Upstream, q.Name), got, d.Reason, test.want)
				}
				if d.Reason == "" {
					t.Errorf("%s(%+v): no reason", name, q)
				}
			}
		}
	}
}

func TestCedar(t *testing.T) {
	now := time.Date(2030, 5, 6, 12, 0, 0, 0, time.UTC)
	base := Query{
		Subject: &Subject{
			ID: "alice", Name: "https://id.example|alice", Kind: "user", Method: "jwt",
			Issuer: "https://id.example",
			Roles:  []string{"dev"}, Scopes: []string{"a"},
			Claims: map[string]any{
				"email": "a@b", "level": float64(3), "ratio": 0.5, "ok": true, "none": nil,
				"groups": []any{"x", "y"},
				"org":    map[string]any{"id": 7}, "exp": now, "tags": []string{"t"}, "tiny": 1e-9,
				"fn": func() {},
			},
		},
		Method: "tools/call", Upstream: "github", Name: "create", Transport: "http",
		Remote: "[::ffff:192.0.2.7]:99", Now: now,
		Arguments: []byte(
			`{"n":1e3,"m":1.0,"d":2.25,"s":"x\u0041","nul":null,"list":[1,1,2],"deep":{"a":{"b":true}},` +
				`"big":9223372036854775808}`),
	}
	for when, want := range map[string]bool{
		`principal == User::"https://id.example|alice"`: true,
		`principal == User::"alice"`:                    false,
		`principal in Role::"dev"`:                      true,
		`principal in Role::"ops"`:                      false,
		`principal in Issuer::"https://id.example"`:     true,
		`principal is Service`:                          false,
		`principal.id == "alice" && principal.kind == "user" && principal.method == "jwt" && ` +
			`principal.issuer like "https:*"`: true,
		`principal.scopes.contains("a") && ` +
			`principal.roles.containsAll(["dev"])`: true,
		`principal.claims.email == "a@b" && principal.claims.level == 3 && ` +
			`principal.claims.ok`: true,
		`principal.claims.ratio == decimal("0.5") && principal.claims.tiny == ` +
			`"0.000000001"`: true,
		`principal.claims.groups.contains("y") && principal.claims.tags.contains("t") && ` +
			`principal.claims.org.id == 7`: true,
		`principal.claims.exp == 1904299200 && principal.claims.none == ` +
			`Json::"null"`: true,
		`principal.claims has fn`:           false,
		`action == Action::"tools/call"`:    true,
		`action in Action::"any call"`:      true,
		`action in Action::"any read"`:      false,
		`resource == Tool::"github/create"`: true,
		`resource in Upstream::"github"`:    true,
		`resource in Upstream::"git"`:       false,
		`resource.name == "create" && resource.uri == "" && resource.upstream == "github" && ` +
			`resource.method == "tools/call"`: true,
		`resource.call == "tools/call github/create"`:     true,
		`context.transport == "http" && !context.local`:   true,
		`context.remote.isInRange(ip("192.0.2.0/24"))`:    true,
		`context.time < datetime("2030-05-06T12:00:01Z")`: true,
		`context.time.toTime() >= duration("13h")`:        false,
		`context.annotations.destructiveHint && !context.annotations.readOnlyHint && ` +
			`context.annotations.openWorldHint && !context.annotations.idempotentHint`: true,
		`context.arguments.n == 1000 && context.arguments.m == 1 && context.arguments.d == ` +
			`decimal("2.25")`: true,
		`context.arguments.s == "xA" && context.arguments.nul == Json::"null" && ` +
			`context.arguments.list == [2, 1]`: true,
		`context.arguments has deep.a.b && context.arguments.deep.a.b && context.arguments.big == ` +
			`"9223372036854775808"`: true,
		`context.arguments has other`:                          false,
		`{a: context}.a.arguments.m == 1`:                      true,
		`{a: context}.a has transport`:                         true,
		`(if true then principal else resource).id == "alice"`: true,
	} {
		s := compile(t, nil, `permit (principal, action, resource) when { `+when+` };`)
		if d := s.Explain(&base); d.Allowed != want ||
			strings.Contains(d.Reason, "could not be evaluated") {
			t.Errorf("%s: %+v", when, d)
		}
		if d := s.Decide(&base); d.Allowed != want {
			t.Errorf("%s: Decide %+v", when, d)
		}
	}
}

func TestModel(t *testing.T) {
	for _, test := range []struct {
		policy string
		query  Query
	}{
		{
			`permit (principal == Service::"ci", action, resource);`,
			Query{Subject: &Subject{ID: "ci", Name: "ci", Kind: "service"}, Method: "m"},
		},
		{
			`permit (principal is Agent, action, resource);`,
			Query{Subject: &Subject{Kind: "agent"}, Method: "m"},
		},
		{
			`permit (principal is Process, action, resource);`,
			Query{Subject: &Subject{Kind: "process"}, Method: "m"},
		},
		{
			`permit (principal is Other, action, resource);`,
			Query{Subject: &Subject{Kind: "robot"}, Method: "m"},
		},
		{`permit (principal == Anonymous::"anonymous", action, resource);`, Query{Method: "m"}},
		{`permit (principal, action, resource == Method::"math/add");`, Query{Method: "math/add"}},
		{
			`permit (principal, action, resource == Tool::"add");`,
			Query{Method: "tools/call", Name: "add"},
		},
		{
			`permit (principal, action in Action::"any read", resource is Resource) when { resource.uri ` +
				`== "file:///a" };`, Query{Method: "resources/read", Upstream: "fs", Name: "file:///a"},
		},
		{
			`permit (principal, action, resource == Resource::"fs/file:///a");`,
			Query{Method: "resources/subscribe", Upstream: "fs", Name: "file:///a"},
		},
		{
			`permit (principal, action in [Action::"prompts/get"], resource == Prompt::"p");`,
			Query{Method: "prompts/get", Name: "p"},
		},
		{
			`permit (principal, action, resource is Prompt);`,
			Query{Method: "completion/complete", Name: "p"},
		},
		{
			`permit (principal, action, resource is Resource);`,
			Query{Method: "completion/complete", Name: "file:///{p}"},
		},
		{
			`permit (principal, action, resource is Method in Upstream::"u");`,
			Query{Method: "m", Upstream: "u"},
		},
		{
			`permit (principal, action, resource) when { context.arguments["1"] == "b" };`,
			Query{Method: "m", Arguments: []byte(` ["a","b"]`)},
		},
		{`permit (principal, action, resource) unless { context.arguments has a };`, Query{Method: "m"}},
		{
			`permit (principal, action, resource) unless { context has remote || context has time };`,
			Query{Method: "m", Remote: "pipe"},
		},
		{
			`permit (principal, action, resource) when { context.remote == ip("fe80::1") };`,
			Query{Method: "m", Remote: "fe80::1%eth0"},
		},
	} {
		if d := compile(t, nil, test.policy).Decide(&test.query); !d.Allowed {
			t.Errorf("%s: %+v", test.policy, d)
		}
	}
	// A method cannot pass for a group.
	s := compile(t, nil, `permit (principal, action in Action::"any read", resource);`)
	for _, method := range []string{"read", "any read", "any", "resources/delete", "resources/Read"} {
		if d := s.Decide(&Query{Method: method}); d.Allowed {
			t.Errorf("%s: %+v", method, d)
		}
	}
	if !slices.IsSorted(reads) {
		t.Error("reads is searched by halves")
	}
}

// A forbid that cannot be evaluated denies; a permit that cannot permits nothing.
func TestFailsClosed(t *testing.T) {
	const all = `permit (principal, action, resource);`
	q := &Query{
		Subject: user("a"), Method: "m", Arguments: []byte(`{"ip":"s3cret","n":9223372036854775807}`),
	}
	for when, reason := range map[string]string{
		`context.arguments.missing == 1`:                  "does not have the attribute `missing`",
		`context.arguments.ip > 3`:                        "type error",
		`ip(context.arguments.ip).isLoopback()`:           "a value is not what a function takes",
		`context.arguments.n + 1 > 0`:                     "overflow",
		`principal.claims.level > 3`:                      "does not have the attribute",
		`Role::"x".name == "y"`:                           "does not exist",
		`decimal(context.arguments.ip) == decimal("1.0")`: "a value is not what a function takes",
	} {
		d := compile(t, nil, all,
			`@id("guarded") forbid (principal, action, resource) when { `+when+` };`).Decide(q)
		if d.Allowed || !slices.Equal(d.Policies, []string{"guarded"}) ||
			!strings.Contains(d.Reason, reason) || !strings.Contains(d.Reason, "guarded") {
			t.Errorf("forbid when %s: %+v", when, d)
		}
		e := compile(t, nil, `permit (principal, action, resource) when { `+when+` };`).Explain(q)
		if e.Allowed || !strings.Contains(e.Reason, "could not be evaluated") ||
			!strings.Contains(e.Reason, reason) {
			t.Errorf("permit when %s: %+v", when, e)
		}
		if strings.Contains(d.Reason+e.Reason, "s3cret") {
			t.Errorf("a value of an argument is in %q or %q", d.Reason, e.Reason)
		}
	}
	var none *Set
	broken, _ := Compile(&Source{Cedar: []Text{{Text: "permit"}}})
	for name, s := range map[string]*Set{"nil": none, "broken": broken} {
		if s.Empty() || s.Decide(q).Allowed || s.Explain(q).Allowed {
			t.Errorf("%s: allows", name)
		}
	}
	empty, problems := Compile(nil)
	if !empty.Empty() || !empty.Decide(q).Allowed || problems != nil {
		t.Error("without a policy everything is allowed")
	}
}

func TestLocal(t *testing.T) {
	s, problems := Compile(
		&Source{Local: []string{"admin/*", "tools/call shell/?*"}, Rules: []Rule{{Calls: []string{"*"}}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	only, _ := Compile(&Source{Local: []string{"admin/*", "tools/call shell/?*"}})
	for _, s := range []*Set{s, only} {
		if s.Empty() {
			t.Error("empty")
		}
		for _, q := range []Query{
			{Method: "admin/stop"}, {Method: "tools/call", Upstream: "shell", Name: "run"},
		} {
			for range 2 {
				q.Local = false
				if d := s.Decide(&q); d.Allowed || !d.Local || !strings.HasPrefix(d.Policies[0], "local[") {
					t.Errorf("remote: %+v", d)
				}
				q.Local = true
				if d := s.Decide(&q); !d.Allowed || d.Local {
					t.Errorf("local: %+v", d)
				}
			}
		}
		if d := s.Decide(&Query{Method: "other"}); !d.Allowed {
			t.Error(d)
		}
	}
}

// hostile are strings that would be syntax somewhere.
var hostile = []string{
	`" || true || "`, `"); permit(principal, action, resource); //`, `\`, `\"`, `\*`, `*`, `?`,
	`a\u{2a}`, `${x}`, "`", "'", `};`,
	"é😀\u202e", `User::"root"`, `@id("x")`, `Role::"admin"`, `__proto__`, `constructor`,
}

// What an operator writes never becomes syntax, and neither does what a caller says.
func TestInjection(t *testing.T) {
	for _, h := range hostile {
		victim := &Query{Subject: user("mallory", "guest"), Method: "secret"}
		rules := []Rule{{
			Name: h, Principals: []string{"p" + strings.ReplaceAll(h, "*", "")},
			Roles: []string{"r" + strings.ReplaceAll(h, "*", "")}, Calls: []string{"x" + h},
		}}
		s := compile(t, rules)
		if d := s.Decide(victim); d.Allowed {
			t.Errorf("%q as an operator's string allows: %+v", h, d)
		}
		own := &Query{Subject: user("p" + strings.ReplaceAll(h, "*", "")), Method: "tools/call", Name: h}
		if d := compile(t, []Rule{{Principals: rules[0].Principals, Calls: []string{"tools/call " + h}}}).
			Decide(own); !d.Allowed && h != " " {
			t.Errorf("%q does not match itself: %+v", h, d)
		}
		// Its text in Cedar's language means the same.
		for _, c := range s.list {
			var again cedar.Policy
			if err := again.UnmarshalCedar(c.policy.MarshalCedar()); err != nil ||
				string(again.MarshalCedar()) != string(c.policy.MarshalCedar()) {
				t.Errorf("%q: %v:\n%s", h, err, c.policy.MarshalCedar())
			}
		}
		guarded := compile(t, []Rule{{Roles: []string{"admin"}, Calls: []string{"*"}}},
			`permit (principal == User::"root", action, resource) when { context.arguments.a == 1 || `+
				`principal.claims.b == 1 };`)
		q := &Query{
			Subject: &Subject{
				ID: h, Name: h, Kind: h, Method: h, Issuer: h, Roles: []string{h},
				Scopes: []string{h}, Claims: map[string]any{h: h},
			},
			Method: "tools/call", Name: h, Transport: h, Remote: h,
			Arguments: fmt.Appendf(nil, "{%q:1}", "k"),
		}
		if d := guarded.Explain(q); d.Allowed || strings.ContainsAny(d.Reason, "\n\u202e") {
			t.Errorf("%q as a caller's string: %+v", h, d)
		}
	}
}

func TestExplain(t *testing.T) {
	no := false
	s := compile(t, []Rule{
		{Roles: []string{"dev"}, Calls: []string{"math/*"}},
		{Name: "tools", Roles: []string{"dev"}, Calls: []string{"tools/call safe/*"}, Destructive: &no},
		{Roles: []string{"ops"}, Principals: []string{"ci"}, Calls: []string{"tools/call github/*"}},
		{Deny: true, Roles: []string{"guest"}, Calls: []string{"math/rm"}},
	},
		`@id("hours") permit (principal in Role::"night", action, resource) when { context.time > `+
			`datetime("2040-01-01") };`)
	for _, test := range []struct {
		q    Query
		want string
	}{
		{
			Query{Subject: user("alice", "dev"), Method: "tools/call", Upstream: "github", Name: "x"},
			"denied: no policy allows tools/call github/x for alice (roles dev); nearest: rule allow[2] " +
				"needs role ops, or principal ci",
		},
		{
			Query{Subject: user("alice", "dev"), Method: "tools/call", Upstream: "safe", Name: "x"},
			"denied: no policy allows tools/call safe/x for alice (roles dev); nearest: rule allow[1] " +
				"(tools) is not for this tool, by what it says of harm (destructive)",
		},
		{
			Query{Subject: user("alice", "dev"), Method: "other"},
			"denied: no policy allows other for alice (roles dev); nearest: rule allow[0] allows math/*; " +
				"rule allow[1] (tools) allows tools/call safe/*",
		},
		{
			Query{Subject: user("alice", "dev"), Method: "math/add"},
			"allowed: allow[0], by the role dev, allows math/add for alice (roles dev)",
		},
		{
			Query{Subject: user("alice", "dev", "guest"), Method: "math/rm"},
			"denied: deny[0], by the role guest, denies math/rm for alice (roles dev, guest); allow[0] " +
				"would allow it, but what denies counts first",
		},
		{
			Query{Subject: user("bob", "night"), Method: "x", Now: time.Unix(0, 0)},
			"denied: no policy allows x for bob (roles night); nearest: policy hours is for it, but what " +
				"it says after when or unless does not hold",
		},
		{Query{Method: "x"}, "denied: no policy allows x for anonymous (no roles)"},
		{
			Query{Subject: &Subject{Name: "s", Kind: "service"}, Method: "x\n"},
			"denied: the method has a space or a character that is not printed",
		},
	} {
		if d := s.Explain(&test.q); d.Reason != test.want {
			t.Errorf("got  %s\nwant %s", d.Reason, test.want)
		}
	}
}

func TestConcurrency(t *testing.T) {
	s := tenAndFive(t,
		`permit (principal, action, resource) when { context.arguments has x && `+
			`context.arguments.x == 1 };`)
	cached := tenAndFive(t, "")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				q := callOfAlice()
				q.Name = fmt.Sprint("n", (i+g)%50)
				q.Remote = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String()
				if !s.Decide(q).Allowed || !cached.Decide(q).Allowed || !s.Explain(q).Allowed {
					t.Error("denied")
				}
			}
		})
	}
	wg.Wait()
}

func TestAllocations(t *testing.T) {
	s, q := tenAndFive(t, ""), callOfAlice()
	s.Decide(q)
	if n := testing.AllocsPerRun(100, func() { s.Decide(q) }); n > 1 {
		t.Errorf("%v allocations of a decision that is remembered", n)
	}
}

// What is remembered of some policies changes nothing: the same decisions as when all are asked
// again.
func TestSplit(t *testing.T) {
	src := &Source{
		Rules: []Rule{
			{Roles: []string{"dev"}, Calls: []string{"tools/call a/*", "math/?dd"}},
			{Deny: true, Roles: []string{"guest"}, Calls: []string{"tools/call a/x*"}},
		},
		Local: []string{"math/odd"},
		Cedar: []Text{{Name: "t", Text: `
permit (principal, action, resource) when { context.arguments has open && context.arguments.open == true };
forbid (principal, action, resource) when { context.arguments.n > 5 };
forbid (principal, action, resource) when { resource has uri && resource.uri like "*secret*" };
permit (principal in Role::"ops", action, resource) when { context.transport == "stdio" };`}},
	}
	s, problems := Compile(src)
	if hasErrors(problems) || s.said == nil || len(s.steady) != 4 || len(s.moving) != 2 {
		t.Fatal(problems, len(s.steady), len(s.moving))
	}
	whole, _ := Compile(src)
	whole.said = nil
	n := 0
	for range 2 {
		for _, role := range []string{"dev", "guest", "ops", ""} {
			for _, call := range [][2]string{
				{"tools/call", "xy"},
				{"tools/call", "b"},
				{"math/add", ""},
				{"math/odd", ""},
				{"resources/read", "file:///secret"},
			} {
				for _, arguments := range []string{
					``, `{"n":1}`, `{"n":9}`, `{"open":true,"n":2}`,
					`{"open":true,"n":"x"}`, `[`,
				} {
					for _, transport := range []string{"http", "stdio"} {
						q := &Query{
							Subject: &Subject{ID: "a", Name: "a", Kind: "user", Roles: []string{role}}, Method: call[0],
							Name: call[1], Upstream: "a",
							Arguments: []byte(arguments), Transport: transport,
						}
						if got, want := s.Decide(q), whole.Decide(q); !reflect.DeepEqual(got, want) {
							t.Errorf("%s %v %s %s: %+v, want %+v", role, call, arguments, transport, got, want)
						}
						if got, want := s.Explain(q), whole.Explain(q); !reflect.DeepEqual(got, want) {
							t.Errorf("%s %v %s %s: %+v, want %+v", role, call, arguments, transport, got, want)
						}
						if s.Decide(q).Allowed {
							n++
						}
					}
				}
			}
		}
	}
	if n == 0 || s.said.size() == 0 {
		t.Error(n, s.said.size())
	}
}
