package schema_test

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
)

type (
	point struct {
		X float64 `json:"x" doc:"to the east" min:"-180" max:"180"`
		Y float64 `json:"y"`
	}
	base struct {
		ID   string `json:"id"`
		Kind string `json:"kind"`
	}
	embeds struct {
		*Named
		base
		Kind int `json:"kind"` // hides the embedded one
	}
	// Named is exported, so that a pointer to it can be embedded.
	Named struct {
		Name string `json:"name"`
	}
	tree struct {
		Value any    `json:"value"`
		Left  *tree  `json:"left,omitzero"`
		More  []tree `json:"more,omitempty"`
	}
	list        []list
	twice       struct{ A, B point }
	colour      string
	page[T any] struct {
		Items []T `json:"items"`
		Next  *T  `json:"next"`
	}
	tags struct {
		Colour colour            `json:"colour" enum:"red,green" default:"red"`
		Level  *int              `json:"level" enum:"1,2,3"`
		Name   string            `json:"name" min:"1" max:"10" pattern:"^[a-z]+$"`
		Mails  []string          `json:"mails" min:"1" format:"email"`
		Labels map[string]string `json:"labels,omitempty" max:"5"`
		On     bool              `json:"on" default:"true"`
		Big    int64             `json:"big,string"`
	}
	raws struct {
		A json.RawMessage
		B any
		C json.Marshaler
	}
	left  struct{ base }
	right struct{ base }
	both  struct {
		left
		right
	}
)

func render(t *testing.T, s any) string {
	t.Helper()
	out, err := jsonv2.Append(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestFor(t *testing.T) {
	const pointSchema = `{"type":"object","properties":{"x":{"description":"to the east",` +
		`"type":"number","minimum":-180,"maximum":180},"y":{"type":"number"}},"required":["x","y"]}`
	for _, test := range []struct {
		v    any
		want string
	}{
		{true, `{"type":"boolean"}`},
		{int8(0), `{"type":"integer"}`},
		{uint(0), `{"type":"integer","minimum":0}`},
		{float32(0), `{"type":"number"}`},
		{"", `{"type":"string"}`},
		{[]byte{}, `{"type":"string","contentEncoding":"base64"}`},
		{[4]byte{}, `{"type":"string","contentEncoding":"base64"}`},
		{[2]int{}, `{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}`},
		{[]*int{}, `{"type":"array","items":{"type":["integer","null"]}}`},
		{
			map[string][]bool{},
			`{"type":"object","additionalProperties":{"type":"array","items":{"type":"boolean"}}}`,
		},
		{map[int]any{}, `{"type":"object","additionalProperties":{}}`},
		{time.Time{}, `{"type":"string","format":"date-time"}`},
		{time.Second, `{"description":"nanoseconds","type":"integer"}`},
		{netip.Addr{}, `{"type":"string"}`},
		{&time.Time{}, `{"type":["string","null"],"format":"date-time"}`},
		{big.NewInt(0), `{}`},
		{struct{}{}, `{"type":"object"}`},
		{point{}, pointSchema},
		{&point{}, strings.Replace(pointSchema, `"object"`, `["object","null"]`, 1)},
		{raws{}, `{"type":"object","properties":{"A":{},"B":{},"C":{}},"required":["A","B","C"]}`},
		{
			embeds{},
			`{"type":"object","properties":{"name":{"type":"string"},"id":{"type":"string"},` +
				`"kind":{"type":"integer"}},"required":["name","id","kind"]}`,
		},
		{both{}, `{"type":"object"}`}, // ambiguous, so promoted by neither
		{
			twice{},
			`{"type":"object","properties":{"A":{"$ref":"#/$defs/point"},"B":{"$ref":"#/$defs/point"}},` +
				`"required":["A","B"],"$defs":{"point":` + pointSchema + `}}`,
		},
		{
			tree{},
			`{"type":"object","properties":{"value":{},"left":{"$ref":"#/$defs/tree"},` +
				`"more":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["value"],` +
				`"$defs":{"tree":{"type":"object","properties":{"value":{},"left":{"$ref":"#/$defs/tree"},` +
				`"more":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["value"]}}}`,
		},
		{
			list{},
			`{"type":"array","items":{"$ref":"#/$defs/list"},"$defs":{"list":{"type":"array",` +
				`"items":{"$ref":"#/$defs/list"}}}}`,
		},
		{
			page[point]{},
			`{"type":"object","properties":{"items":{"type":"array","items":{"$ref":"#/$defs/point"}},` +
				`"next":{"anyOf":[{"$ref":"#/$defs/point"},{"type":"null"}]}},"required":["items"],` +
				`"$defs":{"point":` + pointSchema + `}}`,
		},
		{tags{}, `{"type":"object","properties":{` +
			`"colour":{"type":"string","enum":["red","green"],"default":"red"},` +
			`"level":{"type":["integer","null"],"enum":[1,2,3,null]},` +
			`"name":{"type":"string","minLength":1,"maxLength":10,"pattern":"^[a-z]+$"},` +
			`"mails":{"type":"array","items":{"type":"string","format":"email"},"minItems":1},` +
			`"labels":{"type":"object","additionalProperties":{"type":"string"},"maxProperties":5},` +
			`"on":{"type":"boolean","default":true},` +
			`"big":{"type":"string","pattern":"^-?[0-9]"}},"required":["name","mails","big"]}`},
	} {
		typ := reflect.TypeOf(test.v)
		s, err := schema.For(typ, false)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		if got := render(t, s); got != test.want {
			t.Errorf("%s: got\n\t%s\nwant\n\t%s", typ, got, test.want)
		}
	}
}

func TestForClosed(t *testing.T) {
	s, err := schema.For(reflect.TypeFor[struct{ In struct{ A int } }](), true)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"In":{"type":"object",` +
		`"properties":{"A":{"type":"integer"}},"required":["A"],"additionalProperties":false}},` +
		`"required":["In"],"additionalProperties":false}`
	if got := render(t, s); got != want {
		t.Errorf("got %s", got)
	}
}

func TestForFails(t *testing.T) {
	for want, v := range map[string]any{
		"chan int has no JSON":  make(chan int),
		"A: func() has no JSON": struct{ A func() }{},
		"names of type float64": map[float64]int{},
		`two fields have the JSON name "B"`: struct {
			A int `json:"B"`
			B int
		}{},
		"needs a name in its json tag": struct{ colour }{},
		`option "inline" of the json tag`: struct {
			A point `json:",inline"`
		}{},
		`"x" is no number`: struct {
			A int `min:"x"`
		}{},
		"tag max does not apply to bool": struct {
			A bool `max:"1"`
		}{},
		"tag pattern": struct {
			A string `pattern:"("`
		}{},
		`tag default: "x" is no JSON for`: struct {
			A int `default:"x"`
		}{},
		`tag enum: "y" is no JSON for`: struct {
			A []int `enum:"1,y"`
		}{},
		"embedded pointer to an unexported": struct{ *point }{},
		"B: complex128 has no JSON":         struct{ A struct{ B complex128 } }{},
	} {
		_, err := schema.For(reflect.TypeOf(v), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: got %v, want %q", v, err, want)
		}
	}
}

func TestSet(t *testing.T) {
	type point struct{ Z int } // the same name, another type
	set := schema.NewSet("#/components/schemas/")
	for _, test := range []struct {
		typ  reflect.Type
		want string
	}{
		{reflect.TypeFor[[]twice](), `{"type":"array","items":{"$ref":"#/components/schemas/twice"}}`},
		{reflect.TypeFor[point](), `{"$ref":"#/components/schemas/schema_test.point"}`},
		{reflect.TypeFor[page[time.Time]](), `{"$ref":"#/components/schemas/page_Time"}`},
		{reflect.TypeFor[struct{}](), `{"type":"object"}`},
		{reflect.TypeFor[*tree](), `{"anyOf":[{"$ref":"#/components/schemas/tree"},{"type":"null"}]}`},
	} {
		s, err := set.Of(test.typ)
		if err != nil {
			t.Fatal(err)
		}
		if got := render(t, s); got != test.want {
			t.Errorf("%s: got %s, want %s", test.typ, got, test.want)
		}
	}
	var names []string
	for _, m := range set.Definitions() {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, " "); got != "page_Time point schema_test.point tree twice" {
		t.Errorf("got %s", got)
	}
}

// A type that is used again and again must not make the schema grow with each
// use of its users.
func TestForStaysSmall(t *testing.T) {
	type a struct{ V [3]int }
	type b struct{ X, Y, Z a }
	type c struct{ X, Y, Z b }
	type d struct{ X, Y, Z c }
	s, err := schema.For(reflect.TypeFor[d](), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(render(t, s)); got > 1000 {
		t.Errorf("%d bytes", got)
	}
}

// Types without names lead to the one that contains itself, and hide nothing.
func TestForNested(t *testing.T) {
	const defs = `"$defs":{"tree":{"type":"object","properties":{"value":{},` +
		`"left":{"$ref":"#/$defs/tree"},"more":{"type":"array","items":{"$ref":"#/$defs/tree"}}},` +
		`"required":["value"]}}`
	for _, test := range []struct {
		v    any
		want string
	}{
		{[]tree{}, `{"type":"array","items":{"$ref":"#/$defs/tree"},` + defs + `}`},
		{
			[][]tree{},
			`{"type":"array","items":{"type":"array","items":{"$ref":"#/$defs/tree"}},` + defs + `}`,
		},
		{
			map[string]tree{},
			`{"type":"object","additionalProperties":{"$ref":"#/$defs/tree"},` + defs + `}`,
		},
		{
			map[string][]tree{},
			`{"type":"object","additionalProperties":{"type":"array","items":{"$ref":"#/$defs/tree"}},` +
				defs + `}`,
		},
		{
			[]list{}, `{"type":"array","items":{"$ref":"#/$defs/list"},"$defs":{"list":{"type":"array","items":{"$ref":"#/$defs/list"}}}}`,
		},
		{
			list{},
			`{"type":"array","items":{"$ref":"#/$defs/list"},"$defs":{"list":{"type":"array",` +
				`"items":{"$ref":"#/$defs/list"}}}}`,
		},
	} {
		s, err := schema.For(reflect.TypeOf(test.v), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := render(t, s); got != test.want {
			t.Errorf("%T: got\n\t%s\nwant\n\t%s", test.v, got, test.want)
		}
	}
}
