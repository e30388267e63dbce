package guard_test

import (
	"context"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestParams(t *testing.T) {
	c := &guard.Config{Anonymous: true}
	c.Params.MaxString, c.Params.MaxDepth = 100, 8
	s := newSite(t, c, nil)
	many := func(twice bool) string {
		var b strings.Builder
		for i := range 40 {
			b.WriteString(`"k` + string(rune('A'+i%26)) + strings.Repeat("x", i/26) + `":1,`)
		}
		if twice {
			return "{" + b.String() + `"kA":2}`
		}
		return "{" + b.String() + `"last":2}`
	}
	const invalid = jsonrpc.InvalidParams
	for name, c := range map[string]struct {
		params string
		want   any
	}{
		"plain":              {`{"a":1}`, "anonymous anonymous by none"},
		"list":               {`[1,2,{"a":[]}]`, "anonymous anonymous by none"},
		"duplicate":          {`{"a":1,"a":2}`, invalid},
		"escaped duplicate":  {`{"a":1,"\u0061":2}`, invalid},
		"duplicate below":    {`{"a":[{"b":1,"b":2}]}`, invalid},
		"many":               {many(false), "anonymous anonymous by none"},
		"duplicate of many":  {many(true), invalid},
		"name twice":         {`{"name":"a","name":"b"}`, invalid},
		"case variant":       {`{"name":"a","Name":"b"}`, invalid},
		"variant alone":      {`{"NAME":"b"}`, invalid},
		"variant of uri":     {`{"Uri":"b"}`, invalid},
		"variant arguments":  {`{"argumentſ":{}}`, invalid}, // ſ folds to s
		"variant of _meta":   {`{"_Meta":{}}`, invalid},
		"escaped variant":    {`{"\u004eame":"b"}`, invalid},
		"case of others":     {`{"a":1,"A":2}`, "anonymous anonymous by none"},
		"__proto__":          {`{"a":{"__proto__":{"admin":true}}}`, invalid},
		"escaped __proto__":  {`{"a":{"\u005f_proto__":1}}`, invalid},
		"constructor":        {`{"constructor":{"prototype":1}}`, invalid},
		"prototype as value": {`{"a":"__proto__"}`, "anonymous anonymous by none"},
		"string":             {`{"a":"` + strings.Repeat("x", 100) + `"}`, "anonymous anonymous by none"},
		"long string":        {`{"a":"` + strings.Repeat("x", 101) + `"}`, invalid},
		"long name":          {`{"` + strings.Repeat("x", 101) + `":1}`, invalid},
		"deep": {
			strings.Repeat("[", 8) + strings.Repeat("]", 8),
			"anonymous anonymous by none",
		},
		"too deep": {strings.Repeat("[", 9) + strings.Repeat("]", 9), invalid},
	} {
		t.Run(name, func(t *testing.T) { s.call("who", c.params).wants(t, c.want) })
	}
	c.Params.AllowKeys = true
	if err := s.Reload(c); err != nil {
		t.Fatal(err)
	}
	s.call("who", `{"__proto__":1}`).wants(t, "anonymous anonymous by none")
}

func TestSchemas(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],` +
		`"additionalProperties":false}`
	o := &guard.Options{Schema: func(_ context.Context, method, name string) jsonrpc.Raw {
		switch {
		case method == "math/add", method == "tools/call" && name == "add":
			return jsonrpc.Raw(schema)
		case method == "admin/stop":
			return jsonrpc.Raw(`{"$ref":"https://example.org/schema"}`)
		}
		return nil
	}}
	c := &guard.Config{Anonymous: true}
	s := newSite(t, c, o)
	const ok, invalid = "anonymous anonymous by none", jsonrpc.InvalidParams
	s.call("math/add", `{"n":1}`).wants(t, ok)
	s.call("math/add", `{"n":"1"}`).wants(t, invalid)
	s.call("math/add", `{"n":1,"m":2}`).wants(t, invalid)
	s.call("math/add", `{}`).wants(t, invalid)
	s.call("math/add", "").wants(t, invalid)
	s.call("tools/call", `{"name":"add","arguments":{"n":1}}`).wants(t, ok)
	s.call("tools/call", `{"name":"add","arguments":{"n":1.5}}`).wants(t, invalid)
	s.call("tools/call", `{"name":"add"}`).wants(t, invalid)
	s.call("tools/call", `{"name":"other","arguments":{"n":"x"}}`).wants(t, ok)
	s.call("who", `{"n":"x"}`).wants(t, ok)
	s.call("admin/stop", `{}`).wants(t, ok) // nothing is fetched: it is left to the server
	c.Params.Schemas = "off"
	if err := s.Reload(c); err != nil {
		t.Fatal(err)
	}
	s.call("math/add", `{"n":"1"}`).wants(t, ok)
}

// A tool is as harmless as it says, where a rule asks for that.
func TestAnnotations(t *testing.T) {
	no := false
	c := &guard.Config{
		Anonymous: true, Allow: []guard.Rule{{Calls: []string{"tools/call *"}, Destructive: &no}},
	}
	o := &guard.Options{Annotations: func(_ context.Context, _, name string) jsonrpc.Raw {
		return map[string]jsonrpc.Raw{
			"read": jsonrpc.Raw(`{"readOnlyHint":true}`), "add": jsonrpc.Raw(`{"destructiveHint":false}`),
			"drop": jsonrpc.Raw(`{"destructiveHint":true}`),
			"odd":  jsonrpc.Raw(`{"readOnlyHint":"true"}`), "list": jsonrpc.Raw(`[true]`),
		}[name]
	}}
	s := newSite(t, c, o)
	for name, want := range map[string]any{
		"read": "anonymous anonymous by none", "add": "anonymous anonymous by none",
		"drop": jsonrpc.Code(-32056),
		"odd":  jsonrpc.Code(-32056), "list": jsonrpc.Code(-32056), "unknown": jsonrpc.Code(-32056),
	} {
		s.call("tools/call", `{"name":"`+name+`"}`).wants(t, want)
	}
}
