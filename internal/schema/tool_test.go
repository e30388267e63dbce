package schema_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/internal/validate"
)

type (
	query struct {
		SQL    string  `json:"sql" doc:"what to run" min:"1"`
		Region *string `json:"region" header:"Region" enum:"eu,us"`
		Limit  int     `json:"limit" default:"10" max:"100" title:"Rows"`
		Nested struct {
			Dry bool `json:"dry,omitempty" header:"Dry-Run"`
		} `json:"nested,omitzero"`
		Tree *tree `json:"tree"`
	}
	everything struct {
		Bytes   []byte           `json:"bytes"`
		Raw     json.RawMessage  `json:"raw,omitempty"`
		When    time.Time        `json:"when"`
		Later   *time.Time       `json:"later"`
		Never   *time.Time       `json:"never,omitempty"`
		Count   *int             `json:"count" min:"0" enum:"0,1,2"`
		Counts  []*int           `json:"counts" enum:"1,2"`
		Slice   []string         `json:"slice"`
		Map     map[string]point `json:"map"`
		Point   *point           `json:"point"`
		Tree    tree             `json:"tree"`
		Any     any              `json:"any"`
		Wait    time.Duration    `json:"wait"`
		Level   colour           `json:"level" enum:"red,green"`
		Numbers [2]float64       `json:"numbers"`
	}
)

// typeList finds lists of types, which many clients do not take.
var typeList = regexp.MustCompile(`"type":\s*\[`)

func TestInput(t *testing.T) {
	s, err := schema.Input(reflect.TypeFor[*query]())
	if err != nil {
		t.Fatal(err)
	}
	const treeSchema = `{"type":"object","properties":{"value":{},"left":{"$ref":"#/$defs/tree"},` +
		`"more":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["value"],` +
		`"additionalProperties":false}`
	const want = `{"type":"object","properties":{` +
		`"sql":{"description":"what to run","type":"string","minLength":1},` +
		`"region":{"type":"string","enum":["eu","us"],"x-mcp-header":"Region"},` +
		`"limit":{"title":"Rows","type":"integer","maximum":100,"default":10},` +
		`"nested":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry-Run"}},` +
		`"additionalProperties":false},` +
		`"tree":{"$ref":"#/$defs/tree"}},` +
		`"required":["sql"],"additionalProperties":false,"$defs":{"tree":` + treeSchema + `}}`
	if got := render(t, s); got != want {
		t.Errorf("got\n\t%s\nwant\n\t%s", got, want)
	}
	headers, err := schema.Headers([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	wantHeaders := []schema.Header{
		{"Dry-Run", []string{"nested", "dry"}, "boolean"},
		{"Region", []string{"region"}, "string"},
	}
	if !reflect.DeepEqual(headers, wantHeaders) {
		t.Errorf("got %v", headers)
	}
}

func TestInputRoot(t *testing.T) {
	for _, v := range []any{struct{}{}, &struct{}{}, map[string]int{}, tree{}, query{}, everything{}} {
		s, err := schema.Input(reflect.TypeOf(v))
		if err != nil {
			t.Errorf("%T: %v", v, err)
			continue
		}
		if text := render(t, s); s.Type != "object" || typeList.MatchString(text) ||
			strings.Contains(text, `"null"`) {
			t.Errorf("%T: got %s", v, text)
		}
	}
	for want, v := range map[string]any{
		"is no JSON object":           0,
		"[]string is no JSON object":  []string{},
		"time.Time is no JSON object": time.Time{},
		"x-mcp-header of B: A has the name": struct {
			A, B int `header:"X"`
		}{},
		"must be integer, string or boolean": struct {
			A float64 `header:"X"`
		}{},
		"no name of a header": struct {
			A int `header:"a b"`
		}{},
		`x-mcp-header below "items", in A.header`: struct {
			A []struct {
				X int `json:"header" header:"X"`
			}
		}{},
	} {
		if _, err := schema.Input(reflect.TypeOf(v)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: got %v, want %q", v, err, want)
		}
	}
}

// What is written must fit the output schema, also where pointers are nil, and
// members that come later must fit an older one.
func TestOutput(t *testing.T) {
	s, err := schema.Output(reflect.TypeFor[everything]())
	if err != nil {
		t.Fatal(err)
	}
	text := render(t, s)
	if typeList.MatchString(text) || strings.Contains(text, "additionalProperties\":false") {
		t.Errorf("got %s", text)
	}
	for _, part := range []string{
		`"bytes":{"type":"string","contentEncoding":"base64"}`,
		`"slice":{"type":"array","items":{"type":"string"}}`,
		`"later":{"anyOf":[{"type":"string","format":"date-time"},{"type":"null"}]}`,
		`"never":{"type":"string","format":"date-time"}`,
		`"count":{"anyOf":[{"type":"integer","enum":[0,1,2],"minimum":0},{"type":"null"}]}`,
		`"counts":{"type":"array","items":{"anyOf":[{"type":"integer","enum":[1,2]},{"type":"null"}]}}`,
		`"point":{"anyOf":[{"$ref":"#/$defs/point"},{"type":"null"}]}`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	v, err := validate.Compile([]byte(text), validate.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	one, now := 1, time.Now()
	for _, value := range []any{
		everything{Level: "red"},
		everything{
			Bytes: []byte("hi"), Raw: json.RawMessage("[1]"), Later: &now, Count: &one,
			Counts: []*int{nil, &one},
			Slice:  []string{"a"}, Map: map[string]point{"p": {}}, Point: &point{X: 1}, Level: "green",
			Tree: tree{Left: &tree{More: []tree{{}}}},
		},
		struct {
			everything
			New int
		}{everything{Level: "red"}, 1},
	} {
		raw, err := jsonv2.Append(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Validate(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	property := func(s string) string { return `{"type":"object","properties":{"a":` + s + `}}` }
	for schemaText, want := range map[string]string{
		property(`{"type":"string","x-mcp-header":"X"}`):                                              "",
		property(`{"type":"object","properties":{"b":{"type":"integer","x-mcp-header":"X"}}}`):        "",
		property(`{"type":"string","description":"x-mcp-header","default":"\"x-mcp-header\""}`):       "",
		property(`{"type":"object","default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}]}`):        "",
		`{"type":"object","properties":{"x-mcp-header":{"type":"number"},"items":{"type":"string"}}}`: "",
		`true`: "",
		property(
			`{"type":"string","x-mcp-header":""}`): "no name of a header",
		property(
			`{"type":"string","x-mcp-header":"a b"}`): "no name of a header",
		property(
			`{"type":"string","x-mcp-header":"a:"}`): "no name of a header",
		property(
			`{"type":"string","x-mcp-header":"a\r\nB"}`): "no name of a header",
		property(
			`{"type":"string","x-mcp-header":"Région"}`): "no name of a header",
		property(
			`{"type":"string","x-mcp-header":1}`): "no name of a header",
		property(
			`{"type":"number","x-mcp-header":"X"}`): "x-mcp-header of a: the type",
		property(
			`{"type":"array","x-mcp-header":"X"}`): "the type",
		property(
			`{"type":["string","null"],"x-mcp-header":"X"}`): "the type",
		property(
			`{"x-mcp-header":"X"}`): "the type",
		property(
			`{"$ref":"#/$defs/X","x-mcp-header":"X"}`): "the type",
		`{"x-mcp-header":"X"}`: "in the root",
		property(
			`{"items":{"type":"string","x-mcp-header":"X"}}`): `below "items", in a`,
		property(
			`{"anyOf":[{"type":"string","x-mcp-header":"X"}]}`): `below "anyOf", in a`,
		property(
			`{"not":{"properties":{"b":{"x-mcp-header":"X"}}}}`): `below "not", in a.b`,
		`{"$defs":{"x":{"type":"string",` +
			`"x-mcp-header":"X"}}}`: `below "$defs"`,
		`{"if":{"properties":{"b":{"type":"string",` +
			`"x-mcp-header":"X"}}}}`: `below "if"`,
		`{"properties":{"a":{"type":"string","x-mcp-header":"X-y"},"b":{"type":"string",` +
			`"x-mcp-header":"x-Y"}}}`: `a has the name "x-Y" already`,
		`{"a":1,"a":2}`: "a member twice",
		`{`:             "no JSON",
	} {
		_, err := schema.Headers([]byte(schemaText))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", schemaText, err, want)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add(
		[]byte(`{"properties":{"a":{"type":"string","x-mcp-header":"X"}},"anyOf":[{"x-mcp-header":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := schema.Headers(text)
		for _, h := range found {
			if err != nil || h.Name == "" || len(h.Path) == 0 || h.Type == "" {
				t.Errorf("got %v, %v", h, err)
			}
		}
	})
}

func TestElicitation(t *testing.T) {
	type form struct {
		Name   string    `json:"name" title:"Your name" doc:"as in your passport" min:"3" max:"50" default:"Ada"`
		Mail   string    `json:"mail" format:"email"`
		Born   time.Time `json:"born"`
		Age    *uint     `json:"age" max:"150"`
		Height float64   `json:"height" min:"0.5" default:"1.7"`
		Agree  bool      `json:"agree" default:"false"`
		Colour colour    `json:"colour" enum:"red,green" default:"red"`
		Shade  string    `json:"shade" enum:"#f00,#0f0" titles:"Red,Green"`
		Some   []string  `json:"some" enum:"a,b" min:"1" max:"2" default:"[\"a\"]"`
		More   []colour  `json:"more,omitempty" enum:"red,green" titles:"Red,Green"`
	}
	got, err := schema.Elicitation(reflect.TypeFor[form]())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{` +
		`"name":{"title":"Your name","description":"as in your passport","type":"string","minLength":3,` +
		`"maxLength":50,"default":"Ada"},` +
		`"mail":{"type":"string","format":"email"},` +
		`"born":{"type":"string","format":"date-time"},` +
		`"age":{"type":"integer","minimum":0,"maximum":150},` +
		`"height":{"type":"number","minimum":0.5,"default":1.7},` +
		`"agree":{"type":"boolean","default":false},` +
		`"colour":{"type":"string","enum":["red","green"],"default":"red"},` +
		`"shade":{"type":"string","oneOf":[{"title":"Red","const":"#f00"},{"title":"Green",` +
		`"const":"#0f0"}]},` +
		`"some":{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":1,"maxItems":2,` +
		`"default":["a"]},` +
		`"more":{"type":"array","items":{"anyOf":[{"title":"Red","const":"red"},{"title":"Green",` +
		`"const":"green"}]}}},` +
		`"required":["mail","born","shade"]}`
	if string(got) != want {
		t.Errorf("got\n\t%s\nwant\n\t%s", got, want)
	}
	if got, err := schema.Elicitation(reflect.TypeFor[struct{}]()); err != nil ||
		string(got) != `{"type":"object","properties":{}}` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestElicitationFails(t *testing.T) {
	for want, v := range map[string]any{
		"int is no form":                       0,
		"time.Time is no form":                 time.Time{},
		"A: a form has no fields of type":      struct{ A point }{},
		"A: a form has no fields of type map":  struct{ A map[string]string }{},
		"A: a form has no fields of type [2]":  struct{ A [2]string }{},
		"A: a form has no fields of type inte": struct{ A any }{},
		"A: a list in a form":                  struct{ A []string }{},
		"B: a list in a form":                  struct{ B []byte }{},
		"C: a list in a form": struct {
			C []int `enum:"1,2"`
		}{},
		"D: the values of enum must be": struct {
			D int `enum:"1,2"`
		}{},
		"E: a form has no patterns": struct {
			E string `pattern:"a"`
		}{},
		`F: a form has no format "ipv4"`: struct {
			F string `format:"ipv4"`
		}{},
		"G: the tag titles has 1 titles for 2": struct {
			G string `enum:"a,b" titles:"A"`
		}{},
		"H: a form has no numbers in": struct {
			H int `json:",string"`
		}{},
		"I: the tag min": struct {
			I bool `min:"1"`
		}{},
	} {
		if _, err := schema.Elicitation(reflect.TypeOf(v)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%T: got %v, want %q", v, err, want)
		}
	}
}
