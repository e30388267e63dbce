package guard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// seenByPolicy is a policy that allows a call exactly when it sees the arguments as r, which
// encoding/json has read. Members of a type that Cedar and the server do not have in common only
// have to be there.
func seenByPolicy(r *caseless) string {
	conditions := []string{
		seenAs("context.arguments", "path", r.Path),
		seenAs("context.arguments", "key", r.Key), seenAs("context.arguments", "Straße", r.Street),
	}
	var deep caseless
	switch raw := bytes.TrimSpace(r.Deep); {
	case len(raw) == 0:
		conditions = append(conditions, `!(context.arguments has deep)`)
	case raw[0] == '{' && json.Unmarshal(raw, &deep) == nil:
		conditions = append(conditions, `context.arguments has deep`,
			seenAs("context.arguments.deep", "path", deep.Path),
			seenAs("context.arguments.deep", "key", deep.Key))
	}
	return "permit(principal, action, resource) when { " + strings.Join(conditions, " && ") + " };"
}

// A caseless reads members as a server in Go does.
type caseless struct {
	Path   json.RawMessage `json:"path"`
	Key    json.RawMessage `json:"key"`
	Street json.RawMessage `json:"Straße"`
	Deep   json.RawMessage `json:"deep"`
}

// seenAs is the condition that a record has a member as a server has read it.
func seenAs(record, name string, raw json.RawMessage) string {
	var text string
	switch {
	case raw == nil:
		return fmt.Sprintf("!(%s has %q)", record, name)
	case raw[0] != '"' || json.Unmarshal(raw, &text) != nil:
		return fmt.Sprintf("%s has %q", record, name)
	}
	var quoted strings.Builder
	for _, r := range text {
		fmt.Fprintf(&quoted, `\u{%x}`, r)
	}
	return fmt.Sprintf(`(%[1]s has %[2]q && %[1]s[%[2]q] == "%[3]s")`, record, name, quoted.String())
}

// agreeCaseless fails when a server that reads with encoding/json gets other arguments than the
// policy saw.
func agreeCaseless(t *testing.T, arguments []byte) (refused bool) {
	t.Helper()
	var dec jsonrpc.Decoder
	var batch jsonrpc.Batch
	frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":` +
		string(arguments) + `}}`)
	if dec.Decode(frame, &batch) != nil || len(batch.Messages) != 1 ||
		batch.Messages[0].Kind != jsonrpc.Request {
		return true
	}
	var server struct{ Params struct{ Arguments caseless } }
	if json.Unmarshal(frame, &server) != nil { // the arguments are no object
		return true
	}
	g, err := guard.New(&guard.Config{Cedar: seenByPolicy(&server.Params.Arguments)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	h := g.Interceptor(
		&guard.Conn{Transport: "stdio"})(
		farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			return true, nil
		}))
	_, err = h.ServeRPC(t.Context(),
		&farcall.Request{Method: "tools/call", Params: batch.Messages[0].Params})
	var wire *jsonrpc.Error
	switch {
	case err == nil:
		return false
	case errors.As(err, &wire) && wire.Code == jsonrpc.InvalidParams:
		return true
	}
	t.Fatalf("%s: %v; the server reads %s", arguments, errors.Unwrap(wire),
		mustText(server.Params.Arguments))
	return true
}

func mustText(c caseless) string {
	return fmt.Sprintf("path %s, key %s, Straße %s, deep %s", c.Path, c.Key, c.Street, c.Deep)
}

// spelled writes a name in one of the ways that some reader takes for it.
func spelled(r *rand.Rand, name string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range name {
		switch n := r.IntN(40); {
		case n == 0:
			c = []rune(strings.ToUpper(string(c)))[0]
		case n == 1 && c == 'k':
			c = '\u212a'
		case n == 1 && c == 's':
			c = 'ſ'
		case n == 1 && c == 'ß':
			c = 'ẞ'
		case n == 2:
			fmt.Fprintf(&out, `\u%04X`, c)
			continue
		}
		out.WriteRune(c)
	}
	if r.IntN(60) == 0 {
		out.WriteString([]string{`\u0000`, `\ud800`, `\udc01`, ` `}[r.IntN(4)])
	}
	out.WriteByte('"')
	return out.String()
}

// mixed makes an object with members that may be taken for each other.
func mixed(r *rand.Rand, depth int) string {
	var all []string
	for range r.IntN(6) {
		name := spelled(r, []string{"path", "key", "Straße", "deep", "", "other", "a"}[r.IntN(7)])
		value := []string{`"x"`, `"\u0078y"`, `null`, `1`, `"\ud83d\ude00"`, `[]`}[r.IntN(6)]
		if depth > 0 && r.IntN(3) == 0 {
			value = mixed(r, depth-1)
			if r.IntN(3) == 0 {
				value = "[" + value + "," + mixed(r, 0) + "]"
			}
		}
		all = append(all, name+":"+value)
	}
	return "{" + strings.Join(all, ",") + "}"
}

// TestCaseless: of what policies look up, a server in Go that uses encoding/json reads what they
// saw.
func TestCaseless(t *testing.T) {
	t.Parallel()
	race.Skip(t, "nothing is concurrent")
	passed := 0
	n := race.Fewer(20_000)
	if testing.Short() {
		n = 2000
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		if !agreeCaseless(t, []byte(mixed(r, 2))) {
			passed++
		}
	}
	if passed < n/10 || passed > n*9/10 {
		t.Errorf("%d of %d calls passed: that tests little", passed, n)
	}
}

func FuzzCaseless(f *testing.F) {
	for _, seed := range []string{
		`{"path":"a","PATH":"b"}`, `{"PATH":"b"}`, `{"deep":{"path":"a"},"DEEP":{"path":"b"}}`,
		`{"\u212aey":1}`, `{"straße":"a"}`,
		`{"path":"a","pat\u0048":"b"}`, `{"":1,"":2}`, `{"\ud800":1,"\udc00":2}`, `{"path\u0000":1}`,
		`{"deep":[{"path":1,"Path":2}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, arguments []byte) { agreeCaseless(t, arguments) })
}

// TestFoldedNames: names are checked against each other where a policy or a schema looks, in every
// object.
func TestFoldedNames(t *testing.T) {
	schema := func(context.Context, string, string) jsonrpc.Raw {
		return jsonrpc.Raw(`{"type":["object","array"]}`)
	}
	const looks = `permit(principal, action, resource) unless { context.arguments has path && context.arguments.path == "/etc" };
		permit(principal, action, resource) when { context.arguments == {"mode": 1} || principal.claims has region };`
	const ok, invalid = "anonymous anonymous by none", jsonrpc.InvalidParams
	var many strings.Builder
	many.WriteString(`{"k1":1`)
	for i := range 40 {
		fmt.Fprintf(&many, `,"k%d":1`, i+2)
	}
	for name, s := range map[string]*site{
		"policy": newSite(t, &guard.Config{Anonymous: true, Cedar: looks}, nil),
		"schema": newSite(t, &guard.Config{Anonymous: true}, &guard.Options{Schema: schema}),
		"none": newSite(t,
			&guard.Config{Anonymous: true, Allow: []guard.Rule{{Calls: []string{"who"}}}}, &guard.Options{}),
	} {
		for params, c := range map[string]struct{ policy, schema, none any }{
			`{"a":1,"b":2}`:                         {ok, ok, ok},
			`{"a":1,"A":2}`:                         {invalid, invalid, ok},
			`{"a":1,"\u0041":2}`:                    {invalid, invalid, ok},
			`{"k":1,"\u212a":2}`:                    {invalid, invalid, ok},
			`{"s":1,"ſ":2}`:                         {invalid, invalid, ok},
			`{"ß":1,"ẞ":2}`:                         {invalid, invalid, ok},
			`{"ss":1,"ß":2}`:                        {ok, ok, ok}, // not under simple case folding
			`{"a":{"b":[{"c":1,"C":2}]}}`:           {invalid, invalid, ok},
			`[{"c":1,"C":2}]`:                       {invalid, invalid, ok},
			`{"a":1,"a\u0000":2}`:                   {invalid, invalid, ok},
			`{"\ud800":1,"\udc00":2}`:               {invalid, invalid, invalid}, // both are U+FFFD
			`{"":1,"":2}`:                           {invalid, invalid, invalid},
			many.String() + `}`:                     {ok, ok, ok},
			many.String() + `,"K40":1}`:             {invalid, invalid, ok},
			many.String() + `,"\u212a40":1}`:        {invalid, invalid, ok},
			`{"PATH":1}`:                            {invalid, ok, ok},
			`{"a":[{"Path":1}]}`:                    {invalid, ok, ok},
			`[{"Path":1}]`:                          {invalid, ok, ok},
			`{"Mode":1}`:                            {invalid, ok, ok},
			`{"Claims":1,"REGION":2,"Principal":1}`: {ok, ok, ok}, // no policy looks them up in arguments
		} {
			want := map[string]any{"policy": c.policy, "schema": c.schema, "none": c.none}[name]
			t.Run(name+" "+params, func(t *testing.T) { s.call("who", params).wants(t, want) })
		}
	}
	// What is beside the arguments of a tool is not theirs.
	s := newSite(t,
		&guard.Config{
			Anonymous: true,
			Cedar:     `permit(principal, action, resource) unless { context.arguments has Name };`,
		}, nil)
	s.call("tools/call", `{"name":"a","arguments":{"n":1}}`).wants(t, ok)
	s.call("tools/call", `{"name":"a","arguments":{"name":1}}`).wants(t, invalid)
	s.call("tools/call", `{"arguments":{"Name":1},"name":"a"}`).wants(t, jsonrpc.Code(-32056))
}

// TestFoldedNamesAllocate: to check names against each other takes no memory in the usual case.
func TestFoldedNamesAllocate(t *testing.T) {
	params := jsonrpc.Raw(
		`{"repo":"a/b","branch":"main","files":[{"name":"x","mode":1},{"name":"y","mode":2}],"straße":1}`)
	count := func(schemas string) float64 {
		c := &guard.Config{}
		c.Params.Schemas = schemas
		g := newGuard(t, c, &guard.Options{Schema: func(context.Context, string, string) jsonrpc.Raw {
			return jsonrpc.Raw(`{}`)
		}})
		h := g.Interceptor(
			&guard.Conn{Transport: "stdio"})(
			farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
				return true, nil
			}))
		req := &farcall.Request{Method: "x", Params: params}
		return testing.AllocsPerRun(100, func() {
			if _, err := h.ServeRPC(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		})
	}
	if with, without := count(""), count("off"); with != without {
		t.Errorf("%v allocations, without names %v", with, without)
	}
}
