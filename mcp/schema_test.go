package mcp

import (
	"context"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A figure is a circle or a square: what a struct cannot say.
type figure struct {
	Radius float64 `json:"radius,omitzero"`
	Side   float64 `json:"side,omitzero"`
}

func (figure) JSONSchema() jsonrpc.Raw {
	return jsonrpc.Raw(`{"oneOf":[` +
		`{"type":"object","properties":{"radius":{"type":"number"}},"required":["radius"],` +
		`"additionalProperties":false},` +
		`{"type":"object","properties":{"side":{"type":"number"}},"required":["side"],` +
		`"additionalProperties":false}]}`)
}

// A patched type derives its schema and changes it.
type patched struct {
	Name string `json:"name" jsonschema:"the name of it"`
	More *int   `json:"more"`
}

func (*patched) JSONSchema() jsonrpc.Raw {
	type plain patched
	return SchemaOf[plain](`{"title":"Patched","properties":{"name":{"minLength":2}}}`).Input
}

func TestSchemaOf(t *testing.T) {
	type in struct {
		A string `json:"a"`
		B *int   `json:"b"`
	}
	for _, test := range []struct {
		name string
		got  Schemas
		want Schemas
	}{
		{"struct", SchemaOf[in](), Schemas{
			jsonrpc.Raw(
				`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},` +
					`"required":["a"],"additionalProperties":false}`),
			jsonrpc.Raw(
				`{"type":"object","properties":{"a":{"type":"string"},"b":{"anyOf":[{"type":"integer"},` +
					`{"type":"null"}]}},"required":["a"]}`),
		}},
		{"patches", SchemaOf[*in](`{"properties":{"b":null,"a":{"minLength":3}}}`,
			`{"title":"T"}`), Schemas{
			jsonrpc.Raw(
				`{"type":"object","properties":{"a":{"type":"string","minLength":3}},"required":["a"],` +
					`"additionalProperties":false,"title":"T"}`),
			jsonrpc.Raw(
				`{"type":"object","properties":{"a":{"type":"string","minLength":3}},"required":["a"],` +
					`"title":"T"}`),
		}},
		{"text", SchemaOf[string](`{"minLength":1}`), Schemas{}},
		{
			"list", SchemaOf[[]int](),
			Schemas{Output: jsonrpc.Raw(`{"type":"array","items":{"type":"integer"}}`)},
		},
		{"method", SchemaOf[patched](), Schemas{
			jsonrpc.Raw(
				`{"type":"object","properties":{"name":{"description":"the name of it","type":"string",` +
					`"minLength":2},"more":{"type":"integer"}},"required":["name"],"additionalProperties":false,` +
					`"title":"Patched"}`),
			jsonrpc.Raw(
				`{"type":"object","properties":{"name":{"description":"the name of it","type":"string",` +
					`"minLength":2},"more":{"type":"integer"}},"required":["name"],"additionalProperties":false,` +
					`"title":"Patched"}`),
		}},
	} {
		if string(test.got.Input) != string(test.want.Input) ||
			string(test.got.Output) != string(test.want.Output) {
			t.Errorf("%s: got\n\t%s\n\t%s", test.name, test.got.Input, test.got.Output)
		}
	}
	for want, f := range map[string]func(){
		"SchemaOf: chan int has no JSON": func() { SchemaOf[chan int]() },
		"is no JSON object":              func() { SchemaOf[in](`[1]`) },
		`patch {"a" is no JSON object`:   func() { SchemaOf[in](`{"a"`) },
		`the tag jsonschema:"required"`: func() {
			AddTool(NewServer("x", "1", nil), Tool{Name: "a"}, func(context.Context, struct {
				A int `jsonschema:"required"`
			},
			) (string, error) {
				return "", nil
			})
		},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("got %q, want %q", text, want)
				}
			}()
			f()
		}()
	}
}

// What is published for a type is enforced, wherever it comes from.
func TestSchemasAreEnforced(t *testing.T) {
	type in struct {
		Figure figure   `json:"figure"`
		Name   string   `json:"name" minLength:"2"`
		Tags   []string `json:"tags,omitzero" maxItems:"2" uniqueItems:"true"`
	}
	s := NewServer("calc", "1.0", nil)
	AddTool(s, Tool{Name: "in"}, func(_ context.Context, v in) (string, error) { return "ran", nil })
	AddTool(s, Tool{Name: "root"}, func(_ context.Context, v figure) (string, error) {
		return "ran", nil
	})
	AddTool(s, Tool{Name: "out"}, func(_ context.Context, v struct{ Both bool }) (figure, error) {
		if v.Both {
			return figure{1, 2}, nil
		}
		return figure{Side: 2}, nil
	})
	AddTool(s, Tool{
		Name:         "patch",
		InputSchema:  SchemaOf[addIn](`{"properties":{"a":{"maximum":5}}}`).Input,
		OutputSchema: SchemaOf[addIn](`{"properties":{"b":{"maximum":5}}}`).Output,
	}, func(_ context.Context, v addIn) (addIn, error) { return v, nil })
	for _, test := range []struct{ tool, arguments, want string }{
		{"in", `{"figure":{"radius":1},"name":"ab","tags":["a","b"]}`, "ran"},
		{"in", `{"figure":{"radius":1,"side":1},"name":"ab"}`, `\"figure\"`},
		{"in", `{"figure":{},"name":"ab"}`, `\"figure\"`},
		{"in", `{"figure":{"side":1},"name":"a"}`, `\"name\"`},
		{"in", `{"figure":{"side":1},"name":"ab","tags":["a","a"]}`, `\"tags\"`},
		{"in", `{"figure":{"side":1},"name":"ab","tags":["a","b","c"]}`, `\"tags\"`},
		{"root", `{"side":1}`, "ran"},
		{"root", `{"side":1,"radius":1}`, "Invalid arguments"},
		{"out", `{"Both":false}`, `"structuredContent":{"side":2}`},
		{"out", `{"Both":true}`, "does not fit its output schema"},
		{"patch", `{"a":5,"b":5}`, `"structuredContent":{"a":5,"b":5}`},
		{"patch", `{"a":6,"b":5}`, "Invalid arguments"},
		{"patch", `{"a":5,"b":6}`, "does not fit its output schema"},
	} {
		if got := callTool(t, s, test.tool, test.arguments); !strings.Contains(got, test.want) {
			t.Errorf("%s %s: got %s, want %s", test.tool, test.arguments, got, test.want)
		}
	}
}
