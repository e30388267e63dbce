package farcall_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type folder struct {
	Name    string    `json:"name" doc:"as it is shown" min:"1"`
	Parent  *folder   `json:"parent"`
	Within  []folder  `json:"within,omitempty"`
	Changed time.Time `json:"changed,omitzero"`
	Colour  string    `json:"colour" enum:"red,green" default:"red"`
}

func describedMux() *farcall.Mux {
	m := farcall.NewMux()
	m.Info.Title, m.Info.Version = "Files", "1.2.3"
	m.Handle("raw", farcall.HandlerFunc(nothing), "Takes anything.")
	farcall.Handle(m, "add", func(_ context.Context, p addends) (float64, error) {
		return p.A + p.B, nil
	}, "Adds.", "Two numbers.")
	farcall.Handle(m, "put", func(context.Context, struct {
		In    folder `json:"in" doc:"where to"`
		Data  []byte `json:"data,omitempty"`
		Force *bool  `json:"force"`
	},
	) (struct{}, error) {
		return struct{}{}, nil
	})
	farcall.Handle(m, "move", func(context.Context, middle) (folder, error) { return folder{}, nil })
	farcall.HandleStream(m, "walk", func(context.Context, folder) iter.Seq2[*folder, error] {
		return nil
	})
	farcall.Handle(m, "sum", func(context.Context, []float64) (float64, error) { return 0, nil })
	farcall.Handle(m, "one", func(context.Context, string) (any, error) { return nil, nil })
	farcall.Handle(m, "map", func(context.Context, map[string]folder) (map[string]int, error) {
		return nil, nil
	})
	farcall.Handle(m, "everything", func(context.Context, everything) (everything, error) {
		return everything{}, nil
	})
	farcall.Handle(m, "none", func(context.Context, struct{}) (jsonrpc.Raw, error) { return nil, nil })
	return m
}

func discover(t *testing.T, m *farcall.Mux) jsonrpc.Raw {
	t.Helper()
	a, b := farcall.Pipe()
	pa, _ := connect(t, a, b, nil, m, nil, nil)
	raw, err := farcall.Call[jsonrpc.Raw](t.Context(), pa, "rpc.discover", nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// resource parses JSON as the validator wants it.
func resource(t *testing.T, raw []byte) any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDiscoverIsValidOpenRPC(t *testing.T) {
	text, err := os.ReadFile("testdata/openrpc.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("file:///openrpc.schema.json", resource(t, text)); err != nil {
		t.Fatal(err)
	}
	rules, err := c.Compile("file:///openrpc.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*farcall.Mux{
		"empty":     farcall.NewMux(),
		"described": describedMux(),
	} {
		if err := rules.Validate(resource(t, discover(t, m))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, broken := range []string{
		`{"openrpc":"1.3.0","info":{"title":"x","version":"1"},"methods":[]}`,
		`{"openrpc":"1.4.0","info":{"title":"x"},"methods":[]}`,
		`{"openrpc":"1.4.0","info":{"title":"x","version":"1"},"methods":[{"name":"a",` +
			`"params":[{"name":"p"}],"result":{"name":"r","schema":{}}}]}`,
		`{"openrpc":"1.4.0","info":{"title":"x","version":"1"},"methods":[{"name":"a","params":[],` +
			`"result":{"name":"r","schema":{"type":"strin"}}}]}`,
	} {
		if rules.Validate(resource(t, []byte(broken))) == nil {
			t.Errorf("%s passes: the rules are too weak", broken)
		}
	}
}

// What the specification asks for and a schema cannot say.
func TestDiscoverKeepsTheOtherRules(t *testing.T) {
	raw := discover(t, describedMux())
	var doc struct {
		Methods []struct {
			Name           string
			ParamStructure string
			Params         []struct {
				Name     string
				Required bool
			}
		}
		Components struct {
			Schemas map[string]any
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range doc.Methods {
		names = append(names, m.Name)
		var params []string
		optional := false
		for _, p := range m.Params {
			params = append(params, p.Name)
			if optional = optional || !p.Required; optional && p.Required {
				t.Errorf("%s: %s is required and stands behind an optional one", m.Name, p.Name)
			}
		}
		if slices.Sort(params); len(slices.Compact(params)) != len(m.Params) {
			t.Errorf("%s: a parameter is listed twice", m.Name)
		}
	}
	if got := strings.Join(names, " "); got != "add everything map move none one put raw sum walk" {
		t.Errorf("got %s", got)
	}
	for part := range strings.SplitSeq(string(raw), `"$ref":"`) {
		if name, ok := strings.CutPrefix(part, "#/components/schemas/"); ok {
			if name, _, _ = strings.Cut(name, `"`); doc.Components.Schemas[name] == nil {
				t.Errorf("there is no %s", name)
			}
		}
	}
}

func TestDiscoverDescribes(t *testing.T) {
	raw := string(discover(t, describedMux()))
	for _, want := range []string{
		`{"openrpc":"1.4.0","info":{"title":"Files","version":"1.2.3"},"methods":[`,
		`{"name":"add","summary":"Adds.","description":"Two numbers.","paramStructure":"either",` +
			`"params":[{"name":"a","required":true,"schema":{"type":"number"}},{"name":"b",` +
			`"required":true,"schema":{"type":"number"}}],"result":{"name":"result",` +
			`"schema":{"type":"number"}}}`,
		`{"name":"map","paramStructure":"by-name","params":[],"result":{"name":"result",` +
			`"schema":{"type":"object","additionalProperties":{"type":"integer"}}},` +
			`"x-farcall-params":{"type":"object",` +
			`"additionalProperties":{"$ref":"#/components/schemas/folder"}}}`,
		// An optional parameter before a required one: by name only, as OpenRPC wants the required ones
		// first.
		`{"name":"move","paramStructure":"by-name","params":[{"name":"b","required":true,` +
			`"schema":{"type":"integer"}},{"name":"a","schema":{"type":["integer","null"]}}],` +
			`"result":{"name":"result","schema":{"$ref":"#/components/schemas/folder"}}}`,
		`{"name":"none","paramStructure":"either","params":[],"result":{"name":"result","schema":{}}}`,
		`{"name":"one","paramStructure":"by-position","params":[{"name":"value","required":true,` +
			`"schema":{"type":"string"}}],"result":{"name":"result","schema":{}}}`,
		`{"name":"put","paramStructure":"either","params":[{"name":"in","description":"where to",` +
			`"required":true,"schema":{"$ref":"#/components/schemas/folder"}},{"name":"data",` +
			`"schema":{"type":"string","contentEncoding":"base64"}},{"name":"force",` +
			`"schema":{"type":["boolean","null"]}}],"result":{"name":"result","schema":{"type":"null"}},` +
			`"x-farcall-notification":true}`,
		`{"name":"raw","summary":"Takes anything.","paramStructure":"either","params":[],` +
			`"result":{"name":"result","schema":{}},"x-farcall-params":{}}`,
		`{"name":"sum","paramStructure":"by-position","params":[],"result":{"name":"result",` +
			`"schema":{"type":"number"}},"x-farcall-params":{"type":"array","items":{"type":"number"}}}`,
		`"result":{"name":"result","schema":{"type":"array",` +
			`"items":{"anyOf":[{"$ref":"#/components/schemas/folder"},{"type":"null"}]}}},` +
			`"x-farcall-streaming":true}`,
		`"folder":{"type":"object","properties":{"name":{"description":"as it is shown",` +
			`"type":"string","minLength":1},"parent":{"anyOf":[{"$ref":"#/components/schemas/folder"},` +
			`{"type":"null"}]},"within":{"type":"array","items":{"$ref":"#/components/schemas/folder"}},` +
			`"changed":{"type":"string","format":"date-time"},"colour":{"type":"string","enum":["red",` +
			`"green"],"default":"red"}},"required":["name"]}`,
	} {
		if !strings.Contains(raw, want) {
			t.Errorf("there is no %s in\n%s", want, raw)
		}
	}
}

// The document is made once, and again when a method was added.
func TestDiscoverIsCached(t *testing.T) {
	m := describedMux()
	first := discover(t, m)
	if again := discover(t, m); !bytes.Equal(first, again) {
		t.Errorf("got\n\t%s\nand\n\t%s", first, again)
	}
	allocs := testing.AllocsPerRun(50, func() {
		if _, err := m.ServeRPC(t.Context(), &farcall.Request{Method: "rpc.discover"}); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 10 {
		t.Errorf("%v allocations: the document is made again each time", allocs)
	}
	m.Handle("zzz", farcall.HandlerFunc(nothing))
	m.Info.Title = "Folders"
	if changed := string(discover(t, m)); !strings.Contains(changed, `"zzz"`) ||
		!strings.Contains(changed, "Folders") {
		t.Errorf("got %s", changed)
	}
}

// Each schema of a method accepts what the method accepts and refuses what it
// refuses.
func TestSchemasAgreeWithBinding(t *testing.T) {
	methods := describedMux()
	for _, test := range []struct{ method, params string }{
		{"add", `{"a":1,"b":2}`},
		{"add", `{"a":1}`},
		{"add", `{"a":1,"b":2,"c":3}`},
		{"add", `{"a":"1","b":2}`},
		{"add", `{"a":null,"b":2}`},
		{"put", `{"in":{"name":"x"}}`},
		{"put", `{"in":{"name":"x"},"force":null,"data":"aGk="}`},
		{
			"put",
			`{"in":{"name":"x","parent":{"name":"y","parent":null},"changed":"2026-01-02T03:04:05Z"}}`,
		},
		{"put", `{"in":{"name":"x","nme":"y"}}`},
		{"put", `{"in":{"name":5}}`},
		{"put", `{"force":true}`},
		{"move", `{"b":1}`},
		{"move", `{"b":1.5}`},
		{"none", `{}`},
		{"none", `{"x":1}`},
		{"sum", `[1,2]`},
		{"sum", `[1,"2"]`},
		{"sum", `{}`},
		{"map", `{"a":{"name":"x"}}`},
		{"map", `{"a":1}`},
		{"everything", `{"name":"x","labels":{"a":"b"},"wait":5,"raw":[1],"any":null}`},
		{"everything", `{"name":"x","labels":{"a":1}}`},
		{"everything", `{"name":"x","big":"5"}`},
		{"everything", `{"name":"x","big":5}`},
	} {
		i := slices.IndexFunc(methods.Methods(), func(m farcall.Method) bool {
			return m.Name == test.method
		})
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("file:///m.json", resource(t, methods.Methods()[i].Params)); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile("file:///m.json")
		if err != nil {
			t.Fatal(err)
		}
		valid := s.Validate(resource(t, []byte(test.params)))
		_, bound := methods.ServeRPC(t.Context(),
			&farcall.Request{Method: test.method, Params: jsonrpc.Raw(test.params)})
		if (valid == nil) != (bound == nil) {
			t.Errorf("%s %s: the schema says %v, binding %v", test.method, test.params, valid, bound)
		}
	}
}
