package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

const good = `{"name":"add","description":"Add two numbers and return the sum",` +
	`"inputSchema":{"type":"object","properties":{"a":{"type":"number","description":"the ` +
	`first"}},"required":["a"]},` +
	`"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`

// with is the good tool with one text replaced.
func with(old, text string) string { return strings.Replace(good, old, text, 1) }

func TestRules(t *testing.T) {
	t.Parallel()
	if r := Tools(
		[]jsonrpc.Raw{jsonrpc.Raw(good)},
	); len(r.Findings) > 0 ||
		r.Tokens != len(good)/4 {
		t.Fatalf("the good tool: %+v", r)
	}
	for want, tool := range map[string]string{
		"error name /name":             with(`"add"`, `"a b"`),
		"warning name-of-models /name": with(`"add"`, `"a.b"`),
		"warning no-description /description": with("Add two nu"+
			"mbers and return the sum", " "),
		"note short-description /description": with("Add two nu"+
			"mbers and return the sum", "Add"),
		"warning long-description /description": with("Add two", strings.Repeat(
			"x", 1100)),
		"error hidden-text /description":                          with("Add two", `Add\u202etwo`),
		"error hidden-text /inputSchema/properties/a/description": with("the first", `\u200bignore`),
		"error no-schema /inputSchema":                            with(`"inputSchema"`, `"schema"`),
		"error schema-type /inputSchema/type": with(`{"type":"o`+
			`bject","properties"`, `{"type":"array","items":{},"properties"`),
		"error invalid-schema /inputSchema": with(`"type":"number"`,
			`"type":"numbr"`),
		"warning unsupported-schema /inputSchema": with(`"type":"number"`,
			`"type":"string","pattern":"(?=x)"`),
		"warning top-level-choice /inputSchema/oneOf": with(`"required":["a"]`,
			`"oneOf":[{}]`),
		"error foreign-reference /inputSchema/properties/a/$ref": with(`"type":"number"`,
			`"$ref":"http://x/y"`),
		"warning no-items /inputSchema/properties/a": with(`"type":"number"`,
			`"type":"array"`),
		"note many-choices /inputSchema/properties/a/enum": with(`"type":"number"`,
			`"enum":[`+strings.Repeat("1,", 100)+`1]`),
		"warning wrong-default /inputSchema/properties/a/default": with(`"type":"number"`,
			`"type":"number","default":"x"`),
		"warning parameter-name /inputSchema/properties/a b": with(`{"a":{`,
			`{"a":{"type":"number","description":"x"},"a b":{`),
		"warning no-type /inputSchema/properties/a": with(`"type":"number",`, ``),
		"note no-parameter-description /inputSchema/properties/a": with(`,"descript`+
			`ion":"the first"`, ``),
		"warning unknown-required /inputSchema/required": with(`["a"]`, `["b"]`),
		"note no-output-schema ": with(`"outputSch`+
			`ema":{"type":"object"},`, ``),
		"warning output-type /outputSchema/type": with(`"outputSch`+
			`ema":{"type":"object"}`, `"outputSchema":{"type":"array"}`),
		"note no-annotations ": with(`,"annotati`+
			`ons":{"readOnlyHint":true}`, ``),
		"warning contradicting-hints /annotations": with(`"readOnlyH`+
			`int":true`, `"readOnlyHint":true,"destructiveHint":true`),
		"warning tool-tokens ": with(`"annotations"`, `"_meta":"`+strings.Repeat("x",
			5000)+`","annotations"`),
		"note deep-schema /inputSchema/properties/a/items/items/items/items": with(
			`"type":"number"`, `"items":{"items":{"items":{"items":{}}}}`),
	} {
		var got []string
		for _, f := range Tools([]jsonrpc.Raw{jsonrpc.Raw(tool)}).Findings {
			got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Rule, f.Pointer))
		}
		if !strings.Contains("\n"+strings.Join(got, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("%s is not among %q", want, got)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	r := Tools(
		[]jsonrpc.Raw{jsonrpc.Raw(good), jsonrpc.Raw(good), jsonrpc.Raw(with(`"add"`, `"ADD"`))},
	)
	if r.Count(Error) != 1 || r.Findings[0].Rule != "duplicate-name" || r.Count(Warning) != 1 ||
		r.Findings[1].Rule != "similar-name" {
		t.Errorf("%+v", r.Findings)
	}
	var many []jsonrpc.Raw
	for n := range 20_000 {
		many = append(many, jsonrpc.Raw(with(`"add"`, fmt.Sprintf(`"a%d"`, n))), jsonrpc.Raw(`{}`))
	}
	if r := Tools(
		many,
	); len(r.Findings) != maxFindings || len(r.Costs) != len(many) ||
		r.Costs[0].Tokens < r.Costs[1].Tokens {
		t.Errorf("%d findings, %d costs", len(r.Findings), len(r.Costs))
	}
}

func FuzzTools(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"name":1,"inputSchema":{"properties":{"a":{"$ref":"#"}},"required":[1]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if jsonrpc.Valid(raw) != nil {
			return
		}
		for _, x := range Tools([]jsonrpc.Raw{raw, raw}).Findings {
			if x.Rule == "" || x.Message == "" {
				t.Errorf("%+v", x)
			}
		}
	})
}
