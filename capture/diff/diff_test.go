package diff_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// said is what was found: level, rule and path of each.
func said(all []diff.Finding) (out []string) {
	for _, f := range all {
		out = append(out, strings.TrimSpace(fmt.Sprint(f.Level, " ", f.Rule, " ", f.Path)))
	}
	return out
}

func expect(t *testing.T, name string, got []diff.Finding, want ...string) {
	t.Helper()
	if !slices.Equal(said(got), want) {
		t.Errorf("%s:\ngot  %q\nwant %q", name, said(got), want)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method, was, is string
		want            []string
	}{
		{"m", `{"id":1,"result":{"a":1,"b":[1,2]}}`, `{"result":{"b":[1, 2],"a":1},"id":"x"}`, nil},
		{"m", `{"result":{"a":1}}`, `{"result":{"a":2.5,"b":1}}`, []string{
			"compatible value-changed result.a", "compatible member-added result.b",
		}},
		{"m", `{"result":{"a":1}}`, `{"result":{}}`, []string{"breaking member-removed result.a"}},
		{"m", `{"result":{"a":true}}`, `{"result":{"a":"x"}}`, []string{
			"breaking type-changed result.a",
		}},
		{"m", `{"result":{"a":true}}`, `{"result":{"a":false}}`, []string{
			"compatible value-changed result.a",
		}},
		{"m", `{"result":[{"a":1}]}`, `{"result":[{"a":1},{"b":1}]}`, []string{
			"compatible length-changed result", "breaking member-removed result.1.a",
			"compatible member-added result.1.b",
		}},
		{"m", `{"result":[1]}`, `{"result":[]}`, []string{"unclear length-changed result"}},
		{"m", `{"result":1}`, `{"error":{"code":-1}}`, []string{"breaking outcome-changed"}},
		{
			"m", `{"error":{"code":-1,"message":"a"}}`, `{"error":{"code":-2,"message":"b"}}`,
			[]string{"breaking error-code-changed error.code"},
		},
		{"m", `{"error":{"code":-1,"message":"a"}}`, `{"error":{"code":-1,"message":"b"}}`, nil},
		{
			"tools/call", `{"result":{"content":[]}}`, `{"result":{"content":[],"isError":true}}`,
			[]string{"breaking tool-error-changed result.isError"},
		},
		{
			"tools/list", `{"result":{"tools":[{"name":"a"},{"name":"b"}]}}`,
			`{"result":{"tools":[{"name":"c"},{"name":"b"}]}}`,
			[]string{"breaking tool-removed result.tools.a", "compatible tool-added result.tools.c"},
		},
		{
			"resources/list", `{"result":{"resources":[{"uri":"a:"}]}}`, `{"result":{"resources":[]}}`,
			[]string{"breaking resource-removed result.resources.a:"},
		},
		{
			"prompts/list",
			`{"result":{"prompts":[{"name":"p","arguments":[{"name":"x"},{"name":"y"}]}]}}`,
			`{"result":{"prompts":[{"name":"p","arguments":[` +
				`{"name":"x","required":true},{"name":"z"}]}]}}`,
			[]string{
				"breaking input-required-added result.prompts.p.arguments.x",
				"breaking input-property-removed result.prompts.p.arguments.y",
				"compatible input-property-added result.prompts.p.arguments.z",
			},
		},
	} {
		got := diff.New(nil).Answers(test.method, []byte(test.was), []byte(test.is))
		expect(t, test.was, got, test.want...)
	}
}

func TestExact(t *testing.T) {
	t.Parallel()
	was := []byte(`{"id":1,"result":{"a":{"at":1,"v":[1,{"at":2}]},"é":"\u00e9"}}`)
	is := []byte(`{"id":2,"result":{"\u00e9":"é","a":{"at":7,"v":[1,{"at":3},4]}}}`)
	exact := func(ignore ...string) []diff.Finding {
		return diff.New(&diff.Options{Exact: true, Ignore: ignore}).Answers("m", was, is)
	}
	expect(t, "all", exact(), "breaking value-changed result.a.at",
		"breaking value-changed result.a.v.1.at", "breaking member-added result.a.v.2")
	expect(t, "**", exact("**.at"), "breaking member-added result.a.v.2")
	expect(t, "both", exact("a.*", "a.v.2"))
}

const tools = `{"tools":[{"name":"t","description":"d","annotations":{"readOnlyHint":true},` +
	`"inputSchema":{"type":"object","properties":{"a":{"type":"string"},` +
	`"b":{"type":["string","null"],"enum":["x","y"]},"c":{"$ref":"#/$defs/c"},"n":{"minimum":1}},` +
	`"required":["a"],"$defs":{"c":{"type":"number","x-note":1}}},` +
	`"outputSchema":{"type":"object","properties":{"r":{"type":"integer"}},"required":["r"]}}]}`

// Each change of the list of tools has its rule and its level.
func TestTools(t *testing.T) {
	t.Parallel()
	at := "tools.t.inputSchema."
	for _, test := range []struct {
		from, to string
		want     []string
	}{
		{``, ``, nil},
		{`"d"`, `"e"`, []string{"compatible description-changed tools.t.description"}},
		{
			`"readOnlyHint":true`, `"destructiveHint":false`, []string{
				"breaking annotation-changed tools.t.annotations.readOnlyHint",
				"compatible annotation-changed tools.t.annotations.destructiveHint",
			},
		},
		{`"required":["a"]`, `"required":["a","b"]`, []string{
			"breaking input-required-added " + at + "required",
		}},
		{`"required":["a"]`, `"required":[]`, []string{
			"compatible input-required-removed " + at + "required",
		}},
		{`"required":["r"]`, `"required":[]`, []string{
			"breaking output-required-removed tools.t.outputSchema.required",
		}},
		{`"a":{"type":"string"}`, `"a":{"type":"number"}`, []string{
			"breaking input-type-narrowed " + at + "properties.a.type",
			"compatible input-type-widened " + at + "properties.a.type",
		}},
		{`"a":{"type":"string"},`, ``, []string{
			"breaking input-property-removed " + at + "properties.a",
		}},
		{`"a":{`, `"new":{},"a":{`, []string{
			"compatible input-property-added " + at + "properties.new",
		}},
		{`["x","y"]`, `["x"]`, []string{
			"breaking input-enum-narrowed " + at + "properties.b.enum",
		}},
		{`["x","y"]`, `["x","y","z"]`, []string{
			"compatible input-enum-widened " + at + "properties.b.enum",
		}},
		{`"minimum":1`, `"minimum":2`, []string{
			"breaking input-bound-tightened " + at + "properties.n.minimum",
		}},
		{`"minimum":1`, `"maximum":2`, []string{
			"compatible input-bound-loosened " + at + "properties.n.minimum",
			"breaking input-bound-tightened " + at + "properties.n.maximum",
		}},
		{`{"type":"number","x-note":1}`, `{"type":"integer"}`, []string{
			"breaking input-type-narrowed " + at + "properties.c.type",
		}},
		{`"type":"integer"`, `"type":"number"`, []string{
			"breaking output-type-widened tools.t.outputSchema.properties.r.type",
		}},
		{`"type":"integer"`, `"type":"integer","multipleOf":2`, []string{
			"unclear output-schema-changed tools.t.outputSchema.properties.r.multipleOf",
		}},
		{`"inputSchema":{`, `"inputSchema":{"additionalProperties":false,`, []string{
			"breaking input-closed tools.t.inputSchema.additionalProperties",
		}},
		{`"outputSchema"`, `"other"`, []string{"breaking output-removed tools.t.outputSchema"}},
	} {
		is := tools
		if test.from != "" {
			is = strings.Replace(tools, test.from, test.to, 1)
		}
		got, err := diff.New(nil).Documents([]byte(tools), []byte(`{"result":`+is+`}`))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, test.to, got, test.want...)
	}
}

func TestOpenRPC(t *testing.T) {
	t.Parallel()
	const was = `{"openrpc":"1.3.2","methods":[{"name":"add","params":[` +
		`{"name":"a","schema":{"$ref":"#/components/schemas/N"}},` +
		`{"name":"b","schema":{"type":"number"}}],` +
		`"result":{"name":"r","schema":{"$ref":"#/components/schemas/Tree"}}},{"name":"gone"}],` +
		`"components":{"schemas":{"N":{"type":"number"},"Tree":{"type":"object","properties":` +
		`{"next":{"$ref":"#/components/schemas/Tree"},"v":{"type":"number"}}}}}}`
	is := strings.NewReplacer(
		`"name":"gone"`, `"name":"new"`, `"N":{"type":"number"}`, `"N":{"type":"integer"}`,
		`{"name":"b",`, `{"name":"c","required":true},{"name":"b",`, `"v":{"type":"number"}`, `"v":{}`,
	).Replace(was)
	got, err := diff.New(nil).Documents([]byte(was), []byte(is))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "OpenRPC", got,
		"breaking input-type-narrowed methods.add.params.a.schema.type",
		"breaking param-moved methods.add.params.b",
		"breaking input-required-added methods.add.params.c",
		"breaking output-type-widened methods.add.result.schema.properties.v.type",
		"breaking method-removed methods.gone", "compatible method-added methods.new")
	for _, text := range []string{`{}`, `1`, `"x"`, `{"result":1}`} {
		if _, err := diff.New(nil).Documents([]byte(text), []byte(tools)); err == nil {
			t.Errorf("%s was compared", text)
		}
	}
}

// Nesting and cycles have bounds.
func TestBounds(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`[`, 1<<16) + strings.Repeat(`]`, 1<<16)
	other := strings.Repeat(`[`, 1<<16) + `1` + strings.Repeat(`]`, 1<<16)
	for _, exact := range []bool{false, true} {
		diff.New(&diff.Options{Exact: exact}).Answers("m",
			[]byte(`{"result":`+deep+`}`), []byte(`{"result":`+other+`}`))
	}
	cycle := `[{"name":"t","inputSchema":{"$ref":"#/a","a":{"$ref":"#/a"},` +
		`"properties":{"x":{"$ref":"#"}}}}]`
	changed := []byte(strings.Replace(cycle, `"x"`, `"y"`, 1))
	if _, err := diff.New(nil).Documents([]byte(cycle), changed); err != nil {
		t.Fatal(err)
	}
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `,"m%d":1`, i)
	}
	was := []byte(`{"result":{"a":1` + many.String() + `}}`)
	got := diff.New(nil).Answers("m", was, []byte(`{"result":{}}`))
	if len(got) != 1000 {
		t.Errorf("%d findings", len(got))
	}
}

func FuzzDiff(f *testing.F) {
	f.Add([]byte(tools), []byte(strings.Replace(tools, `"required":["a"]`, `"$ref":"#/$defs/c"`, 1)))
	f.Add([]byte(`{"result":[1,{"a":null}]}`), []byte(`{"error":{"code":1}}`))
	f.Add([]byte(`{"openrpc":"1","methods":[{"name":"a","params":[{"$ref":"#/x"}]}],`+
		`"x":{"name":"p"}}`),
		[]byte(`{"openrpc":"1","methods":[{"name":"a","params":[]}]}`))
	f.Fuzz(func(t *testing.T, was, is []byte) {
		if jsonrpc.Valid(was) != nil || jsonrpc.Valid(is) != nil {
			return
		}
		for _, exact := range []bool{false, true} {
			c := diff.New(&diff.Options{Exact: exact, Ignore: []string{"**.at"}})
			for _, method := range []string{"m", "tools/list", "tools/call"} {
				if got := c.Answers(method, was, was); len(got) > 0 {
					t.Fatalf("an answer differs from itself: %v", got)
				}
				c.Answers(method, was, is)
			}
			if _, err := c.Documents(was, is); err != nil {
				continue
			}
			if got, err := c.Documents(was, was); err != nil || len(got) > 0 {
				t.Fatalf("a document differs from itself: %v %v", got, err)
			}
		}
	})
}
