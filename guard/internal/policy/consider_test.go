package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// considered makes a set of policies, and a query, at random.
func considered(r *rand.Rand) (set *Set, text string, q *Query) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	condition := func() string {
		return pick(
			`context.arguments has path`, `context.arguments.path == "/a"`,
			`context.arguments.path like "/a*"`, `context.arguments.n > 5`,
			`context.arguments == {"path": "/a"}`,
			`principal.roles.contains("dev")`, `principal in Role::"dev"`, `principal.scopes.contains("s")`,
			`principal.claims has team && principal.claims.team == "core"`,
			`context.local`, `context.annotations.readOnlyHint`, `resource.name == "x"`,
			`principal.id == "ada"`, `true`, `false`, `context has arguments`, `context == {"a": 1}`,
			`(if context.local then context.arguments.path else principal.id) == "ada"`,
			`[context.arguments.path].contains("/a")`, `context.arguments.deep.path == "/a"`,
		)
	}
	for range 1 + r.IntN(4) {
		text += pick("permit", "permit", "forbid") + "(principal" + pick("", "", ` in Role::"dev"`) +
			", action, resource" + pick("", ` == Tool::"x"`) + ")"
		for range r.IntN(3) {
			text += pick(" when ", " unless ") + "{ " + condition() +
				pick("", " && "+condition(), " || "+condition()) + " }"
		}
		text += ";\n"
	}
	src := &Source{Cedar: []Text{{Text: text}}}
	if r.IntN(4) == 0 {
		src.Local = []string{pick("tools/call x", "tools/call y")}
	}
	no := false
	for range r.IntN(3) {
		src.Rules = append(src.Rules,
			Rule{
				Deny: r.IntN(2) == 0, Roles: []string{"dev"},
				Calls: []string{pick("*", "tools/call x", "tools/call ?")},
			})
		if r.IntN(2) == 0 {
			src.Rules[len(src.Rules)-1].Destructive = &no
		}
	}
	set, _ = Compile(src)
	return set, text + fmt.Sprint(src.Rules, src.Local), &Query{
		Method: "tools/call",
		Name:   pick("x", "y"), Subject: &Subject{ID: pick("ada", "bob"), Name: "ada", Kind: "user"},
	}
}

// known fills in what was not known.
func known(r *rand.Rand, q *Query, u *Unknown) *Query {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	out, p := *q, q.Subject
	subject := &Subject{
		ID: p.ID, Name: p.Name, Kind: p.Kind, Roles: p.Roles, Scopes: p.Scopes,
		Claims: p.Claims,
	}
	out.Subject = subject
	if u.Arguments {
		out.Arguments = []byte(
			pick(`{}`, `{"path":"/a"}`, `{"path":"/b","n":9}`, `{"n":"x"}`, `{"deep":{"path":"/a"}}`, `[1]`))
	}
	if u.Annotations {
		out.Annotations = []byte(pick(``, `{"readOnlyHint":true}`, `{"destructiveHint":false}`))
	}
	if u.Roles {
		subject.Roles = strings.Fields(pick("", "dev", "dev ops"))
	}
	if u.Scopes {
		subject.Scopes = strings.Fields(pick("", "s", "t"))
	}
	if u.Claims {
		subject.Claims = []map[string]any{nil, {"team": "core"}, {"team": 1}}[r.IntN(3)]
	}
	if u.Local {
		out.Local = r.IntN(2) == 0
	}
	return &out
}

// TestConsider: what is decided without knowing all is what is decided whatever the rest is.
func TestConsider(t *testing.T) {
	decided, all := 0, 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		set, text, q := considered(r)
		base := known(r, q, &Unknown{true, true, true, true, true, true})
		bit := func() bool { return r.IntN(2) == 0 }
		u := &Unknown{bit(), bit(), bit(), bit(), bit(), bit()}
		d, ok := set.Consider(base, u)
		all++
		if !ok {
			continue
		}
		decided++
		for range 20 {
			full := known(r, base, u)
			if got := set.Decide(full); got.Allowed != d.Allowed {
				t.Fatalf("seed %d: %s\n%+v of %s: considered %v (%s), decided %v (%s) with %+v", seed, text, *u,
					full.Arguments, d.Allowed, d.Reason, got.Allowed, got.Reason, full.Subject)
			}
		}
	}
	if t.Logf("%d of %d were decided", decided, all); decided < all/4 || decided > all*9/10 {
		t.Error("that tests little")
	}
}
