package schema_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/schema"
)

type (
	keywords struct {
		Name  string         `json:"name" minLength:"1" maxLength:"10" examples:"Ada,Alan"`
		Tags  []string       `json:"tags" minItems:"1" maxItems:"5" uniqueItems:"true" minLength:"2" examples:"[[\"a b\",\"c,d\"]]"`
		Rates []float64      `json:"rates" minimum:"0" maximum:"1.5"`
		More  map[string]int `json:"more" minProperties:"1" maxProperties:"2"`
		Count int            `json:"count" jsonschema:"how many, a+b=c at most" examples:"1,2"`
		Note  string         `json:"note" jsonschema_description:"a note"`
	}
	shape  struct{ Kind string }
	amount int
	cents  struct{ N int }
	loud   struct{}
	bent   struct{}
	later  struct{}
	never  struct{}
	within struct {
		shape
		Area float64
	}
	holder struct {
		Shape  shape  `json:"shape" doc:"a circle or a square"`
		Other  *shape `json:"other"`
		Amount amount `json:"amount" min:"1"`
		Many   []cents
	}
)

func (shape) JSONSchema() string { return `{"oneOf":[{"const":"circle"},{"const":"square"}]}` }

func (*amount) JSONSchema() json.RawMessage {
	return json.RawMessage(`{"type":"integer","minimum":5,"description":"own"}`)
}

func (cents) JSONSchema() map[string]any {
	return map[string]any{"type": "string", "pattern": "^[0-9]+$"}
}
func (loud) JSONSchema() string          { panic("loud") }
func (bent) JSONSchema() string          { return "[1]" }
func (never) JSONSchema() bool           { return false }
func (later) JSONSchema() string         { return `{"$ref":"#/$defs/a","$defs":{"a":{}}}` }
func (later) UnmarshalJSON([]byte) error { return nil }

func TestKeywords(t *testing.T) {
	for _, test := range []struct {
		v    any
		want string
	}{
		{keywords{}, `{"type":"object","properties":{` +
			`"name":{"type":"string","minLength":1,"maxLength":10,"examples":["Ada","Alan"]},` +
			`"tags":{"type":"array","items":{"type":"string","minLength":2},"minItems":1,"maxItems":5,` +
			`"uniqueItems":true,"examples":[["a b","c,d"]]},` +
			`"rates":{"type":"array","items":{"type":"number","minimum":0,"maximum":1.5}},` +
			`"more":{"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,` +
			`"maxProperties":2},` +
			`"count":{"description":"how many, a+b=c at most","type":"integer","examples":[1,2]},` +
			`"note":{"description":"a note","type":"string"}},"required":["name","tags","rates","more",` +
			`"count","note"]}`},
		{shape{}, `{"oneOf":[{"const":"circle"},{"const":"square"}]}`},
		{[]shape{}, `{"type":"array","items":{"oneOf":[{"const":"circle"},{"const":"square"}]}}`},
		{never{}, `{"not":{}}`},
		{later{}, `{"$ref":"#/$defs/a","$defs":{"a":{}}}`},
		{holder{}, `{"type":"object","properties":{` +
			`"shape":{"description":"a circle or a square","oneOf":[{"const":"circle"},` +
			`{"const":"square"}]},` +
			`"other":{"anyOf":[{"oneOf":[{"const":"circle"},{"const":"square"}]},{"type":"null"}]},` +
			`"amount":{"minimum":1,"type":"integer","description":"own"},` +
			`"Many":{"type":"array","items":{"pattern":"^[0-9]+$","type":"string"}}},"required":["shape",` +
			`"amount","Many"]}`},
	} {
		s, err := schema.For(reflect.TypeOf(test.v), false)
		if err != nil {
			t.Errorf("%T: %v", test.v, err)
			continue
		}
		if got := render(t, s); got != test.want {
			t.Errorf("%T: got\n\t%s\nwant\n\t%s", test.v, got, test.want)
		}
		if !s.Constrained() {
			t.Errorf("%T is not constrained", test.v)
		}
	}
}

func TestKeywordsFail(t *testing.T) {
	for want, v := range map[string]any{
		"does not apply to bool": struct {
			A bool `minLength:"1"`
		}{},
		"does not apply to string": struct {
			A string `minItems:"1"`
		}{},
		`minLength:"-1" is no number`: struct {
			A string `minLength:"-1"`
		}{},
		`maximum:"x" is no number`: struct {
			A int `maximum:"x"`
		}{},
		"what min or max says already": struct {
			A int `min:"1" minimum:"2"`
		}{},
		`uniqueItems:"yes" must be`: struct {
			A []int `uniqueItems:"yes"`
		}{},
		"uniqueItems does not apply": struct {
			A int `uniqueItems:"true"`
		}{},
		`the tag examples: "x" is no`: struct {
			A int `examples:"1,x"`
		}{},
		`the tag examples: "1" is no`: struct {
			A int `examples:"[\"1\"]"`
		}{},
		`write doc:"…"`: struct {
			A int `jsonschema:"required,description=the a"`
		}{},
		`jsonschema:"required" is a list`: struct {
			A int `jsonschema:"required"`
		}{},
		`jsonschema:"minimum=1" is`: struct {
			A int `jsonschema:"minimum=1"`
		}{},
		"panics for a zero value: loud":   loud{},
		"returned no schema":              bent{},
		"write it without $ref":           []later{},
		"of the embedded schema_test.sha": within{},
	} {
		_, err := schema.For(reflect.TypeOf(v), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: got %v, want %q", v, err, want)
		}
	}
}

// A tag that limits values is in LimitTags, by which others find out whether there are limits.
func TestLimitTags(t *testing.T) {
	for _, tag := range schema.LimitTags() {
		limited := 0
		for _, v := range []any{"", 0, []string{}, map[string]int{}} {
			value := map[string]string{"enum": "1", "pattern": "1", "uniqueItems": "true"}[tag]
			if value == "" {
				value = "1"
			}
			f := reflect.StructField{
				Name: "A", Type: reflect.TypeOf(v),
				Tag: reflect.StructTag(tag + `:"` + value + `"`),
			}
			if s, err := schema.For(reflect.StructOf([]reflect.StructField{f}), false); err == nil &&
				s.Constrained() {
				limited++
			}
		}
		if limited == 0 {
			t.Errorf("%s limits nothing", tag)
		}
	}
}

func TestMerge(t *testing.T) { // most are of RFC 7396, appendix A
	for _, test := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{` {"\u0061":1}`, ` {"a":{"x":2}}`, `{"a":{"x":2}}`},
	} {
		if got := string(schema.Merge([]byte(test[0]), []byte(test[1]))); got != test[2] {
			t.Errorf("%s with %s: got %s, want %s", test[0], test[1], got, test[2])
		}
	}
}
