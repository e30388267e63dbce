package main

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestSchemaText(t *testing.T) {
	for schema, want := range map[string]string{
		``:                           "any",
		`{}`:                         "any",
		`true`:                       "any",
		`{"type":"number"}`:          "number",
		`{"type":["string","null"]}`: "string | null",
		`{"type":"array"}`:           "any[]",
		`{"type":"array","items":{"type":"string"}}`:                             "string[]",
		`{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"null"}]}}`: "(string | null)[]",
		`{"enum":["a",1,null]}`:                                                  `"a" | 1 | null`,
		`{"const":"x"}`:                                                          `"x"`,
		`{"$ref":"#/components/schemas/Ada"}`:                                    "Ada",
		`{"type":"object"}`:                                                      "object",
		`{"type":"object","title":"Pair"}`:                                       "Pair",
		`{"type":"object","properties":{"b":{"type":"null"},"a":{}},` +
			`"required":["a"]}`: "{a: any, b?: null}",
		`{"oneOf":[{"type":"string"},` +
			`{"type":"string"}]}`: "string",
		"{\"const\":\"\u009b31m\"}": `"\u009b31m"`,
		`{"type":"array","items":` + strings.Repeat(`{"type":"array","items":`, 20) + `{}` +
			strings.Repeat("}", 21): "any" + strings.Repeat("[]", 9),
	} {
		if got := (&descriptor{Schema: jsonrpc.Raw(schema)}).kind(); got != want {
			t.Errorf("%s is %s, want %s", schema, got, want)
		}
	}
}

// Params that are a list of any length have no names, and are shown all the same.
func TestSignatureOfList(t *testing.T) {
	for whole, want := range map[string]string{
		``: "total()", `{}`: "total()",
		`{"type":"array","items":{"type":"number"}}`: "total(number[])",
		`{"type":"object"}`:                          "total(object)",
	} {
		if got := (&method{Name: "total", Whole: jsonrpc.Raw(whole)}).signature(); got != want {
			t.Errorf("%s: %s, want %s", whole, got, want)
		}
	}
}

func FuzzSchemaText(f *testing.F) {
	f.Add(`{"type":["array",1],"items":[{}],"enum":{},"properties":[],"required":1}`)
	f.Add(`{"$ref":"/","oneOf":[true,null,{"anyOf":[]}]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		m := method{
			Name: "m", Params: []descriptor{{Name: "p", Schema: jsonrpc.Raw(schema)}},
			Result: &descriptor{Schema: jsonrpc.Raw(schema)},
		}
		if s := m.signature(); tame(s) != s {
			t.Errorf("%q", s)
		}
	})
}
