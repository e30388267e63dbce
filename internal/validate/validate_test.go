package validate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func mustCompile(tb testing.TB, schema string) *Schema {
	tb.Helper()
	s, err := Compile([]byte(schema), Limits{})
	if err != nil {
		tb.Fatalf("%s: %v", schema, err)
	}
	return s
}

const sumSchema = `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},` +
	`"required":["a","b"],"additionalProperties":false}`

func TestMessages(t *testing.T) {
	object := func(property string) string { return `{"properties":{"n":` + property + `}}` }
	for _, test := range []struct{ schema, value, want string }{
		{sumSchema, `{"a":2,"b":3}`, ""},
		{sumSchema, ` { "b" : 3e0 , "a" : 2.5 } `, ""},
		{sumSchema, `{"\u0061":2,"\u0062":3}`, ""},
		{sumSchema, ``, `missing property "a"; missing property "b"`},
		{sumSchema, `{"a":1}`, `missing property "b"`},
		{sumSchema, `{"a":1,"b":1,"c":1}`, `unknown property "c"; allowed: a, b`},
		{sumSchema, `{"a":1,"b":"1"}`, `property "b": got string, want number`},
		{sumSchema, `{"a":1,"b":2,"a":"x"}`, `property "a": got string, want number`},
		{sumSchema, `[]`, `got array, want object`},
		{`{"properties":{"f":` + sumSchema + `}}`, `{"f":{"a":1}}`, `property "f": missing property "b"`},
		{`{"type":"object","additionalProperties":false}`, `{"x":1}`, `unknown property "x"`},
		{
			`{"properties":{"a":false,"b":true},"additionalProperties":false}`, `{"c":1}`,
			`unknown property "c"; allowed: b`,
		},
		{object(`{"type":"integer"}`), `{"n":1.5}`, `property "n": got number 1.5, want integer`},
		{
			object(`{"type":["integer","null"]}`), `{"n":"x"}`,
			`property "n": got string, want null or integer`,
		},
		{
			object(`{"enum":["celsius","fahrenheit"]}`), `{"n":"kelvin"}`,
			`property "n": "kelvin" is not one of "celsius", "fahrenheit"`,
		},
		{object(`{"const":1}`), `{"n":2}`, `property "n": 2 is not 1`},
		{object(`{"maximum":10}`), `{"n":11}`, `property "n": 11 is greater than the maximum 10`},
		{object(`{"minimum":10}`), `{"n":9}`, `property "n": 9 is less than the minimum 10`},
		{
			object(`{"exclusiveMinimum":0,"exclusiveMaximum":1}`), `{"n":0}`,
			`property "n": 0 must be greater than 0`,
		},
		{
			object(`{"exclusiveMinimum":0,"exclusiveMaximum":1}`), `{"n":1}`,
			`property "n": 1 must be less than 1`,
		},
		{object(`{"multipleOf":0.01}`), `{"n":1.005}`, `property "n": 1.005 is not a multiple of 0.01`},
		{object(`{"minLength":2}`), `{"n":"é"}`, `property "n": has 1 character, the minimum is 2`},
		{
			object(`{"maxLength":1}`), `{"n":"\u00e9é"}`, `property "n": has 2 characters, the maximum is 1`,
		},
		{
			object(`{"pattern":"^[a-z]+$"}`), `{"n":"A"}`,
			`property "n": "A" does not match the pattern ^[a-z]+$`,
		},
		{object(`{"minItems":2}`), `{"n":[1]}`, `property "n": has 1 item, the minimum is 2`},
		{object(`{"maxItems":0}`), `{"n":[1]}`, `property "n": has 1 item, the maximum is 0`},
		{
			object(`{"uniqueItems":true}`), `{"n":[1,2,1.0]}`,
			`property "n": items 0 and 2 are equal, each must be different`,
		},
		{
			object(`{"items":{"type":"string"}}`), `{"n":["a",1]}`,
			`property "n[1]": got number, want string`,
		},
		{
			object(`{"items":` + object(`{"type":"string"}`) + `}`), `{"n":[{"n":1}]}`,
			`property "n[0].n": got number, want string`,
		},
		{`{"prefixItems":[{"type":"null"}]}`, `[1]`, `item [0]: got number, want null`},
		{object(`{"minProperties":1}`), `{"n":{}}`, `property "n": has 0 members, the minimum is 1`},
		{object(`{"maxProperties":0}`), `{"n":{"a":1}}`, `property "n": has 1 member, the maximum is 0`},
		{
			object(`{"contains":{"const":1}}`), `{"n":[2]}`,
			`property "n": 0 items fit what the array must contain, the minimum is 1`,
		},
		{
			object(`{"contains":true,"maxContains":1}`), `{"n":[2,2]}`,
			`property "n": 2 items fit what the array must contain, the maximum is 1`,
		},
		{`{"properties":{"n":false}}`, `{"n":1}`, `property "n": is not allowed`},
		{`false`, `1`, `is not allowed`},
		{
			`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`,
			`property "ab": the name: has 2 characters, the maximum is 1`,
		},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `missing property "b", which "a" needs`},
		{`{"not":{"type":"string"}}`, `"a"`, `is what the schema excludes with "not"`},
		{
			object(`{"anyOf":[{"type":"integer","maximum":3},{"type":"null"}]}`), `{"n":4}`,
			`property "n": 4 is greater than the maximum 3`,
		},
		{
			object(`{"anyOf":[{"type":"integer"},{"type":"null"}]}`), `{"n":"4"}`,
			`property "n": got string, want null or integer`,
		},
		{
			object(`{"oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]}`), `{"n":"c"}`,
			`property "n": "c" is not one of "a", "b"`,
		},
		{
			`{"oneOf":[{"minimum":1},{"minimum":2}]}`, `3`,
			`fits alternatives 1 and 2, must fit exactly one`,
		},
		{
			`{"anyOf":[{"minimum":5},{"multipleOf":2}]}`, `3`,
			`fits none of 2 alternatives; 1: 3 is less than the minimum 5; 2: 3 is not a multiple of 2`,
		},
		{
			`{"oneOf":[{"properties":{"kind":{"const":"circle"},"r":{"type":"number"}}},` +
				`{"properties":{"kind":{"const":"box"},"r":{"type":"null"}}}]}`,
			`{"kind":"circle","r":"1"}`, `property "r": got string, want number`,
		},
		{
			`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, `{"b":1}`,
			`unknown property "b"`,
		},
		{`{"unevaluatedItems":false}`, `[1]`, `item [0]: is not allowed`},
		{object(`{"type":"integer"}`), `{"n":}`, "the value is no JSON: expected a value at byte 5"},
		{`{}`, `{} x`, "the value is no JSON: unexpected data after the value at byte 3"},
		{
			object(`{"const":1}`), `{"n":"` + strings.Repeat("é", 100) + `"}`,
			`property "n": "` + strings.Repeat("é", 49) + `… is not 1`,
		},
	} {
		err := mustCompile(t, test.schema).Validate([]byte(test.value))
		if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
			t.Errorf("%s of %s:\n\tgot  %s\n\twant %s", test.value, test.schema, got, test.want)
		}
	}
}

func TestProblems(t *testing.T) {
	s := mustCompile(t, `{
		"properties": {"a/b": {"items": {"properties": {"~": {"type": "string"}}, "additionalProperties": false}}, "z": {"type": "null"}},
		"required": ["m"]}`)
	err := s.Validate([]byte(`{"a/b":[{},{"~":1,"x":1}],"z":1}`))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := []Problem{
		{"/a~1b/1/~0", "~", "type", `property "a/b[1].~": got number, want string`},
		{"/a~1b/1/x", "x", "additionalProperties", `property "a/b[1]": unknown property "x"; allowed: ~`},
		{"/z", "z", "type", `property "z": got number, want null`},
		{"", "m", "required", `missing property "m"`},
	}
	if fmt.Sprint(e.Problems) != fmt.Sprint(want) || e.More {
		t.Errorf("got\n%v, want\n%v", e.Problems, want)
	}
}

func TestManyProblems(t *testing.T) {
	err := mustCompile(t,
		`{"items":{"type":"null"}}`).Validate([]byte("[" + strings.Repeat("1,", 100) + "1]"))
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != 10 || !e.More ||
		!strings.HasSuffix(e.Error(), "; and more") {
		t.Errorf("got %v", err)
	}
	err = mustCompile(t,
		`{"items":{"type":"null"}}`).Validate([]byte("[" + strings.Repeat("1,", 9) + "1]"))
	if !errors.As(err, &e) || len(e.Problems) != 10 || e.More {
		t.Errorf("got %v", err)
	}
}

// Numbers are what is written.
func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		schema, value string
		valid         bool
	}{
		{`{"maximum":9007199254740992}`, "9007199254740993", false},
		{`{"maximum":9007199254740993}`, "9007199254740993", true},
		{`{"const":9007199254740993}`, "9007199254740992", false},
		{`{"enum":[9007199254740993]}`, "9007199254740993.0", true},
		{`{"type":"integer"}`, "1.0", true},
		{`{"type":"integer"}`, "100e-2", true},
		{`{"type":"integer"}`, "1e400", true},
		{`{"type":"integer"}`, "1e-1", false},
		{`{"type":"integer"}`, "-0.0", true},
		{`{"const":0}`, "-0e5", true},
		{`{"minimum":-1e-400}`, "-1e-399", false},
		{`{"minimum":1e999999999999999999999}`, "5", false},
		{`{"exclusiveMinimum":0}`, "1e-9999999999999999", true},
		{`{"multipleOf":0.0001}`, "0.0075", true},
		{`{"multipleOf":0.0001}`, "0.00751", false},
		{`{"multipleOf":3}`, "1e1000000000000", false},
		{`{"multipleOf":2.5e2}`, "1e1000000000000", true},
		{`{"multipleOf":123456789012345678}`, "246913578024691356", true},
		{`{"multipleOf":123456789012345678}`, "246913578024691357", false},
		{`{"multipleOf":7}`, "0.0", true},
		{`{"minLength":2e0,"maxLength":1e99}`, `"ab"`, true},
	} {
		err := mustCompile(t, test.schema).Validate([]byte(test.value))
		if (err == nil) != test.valid {
			t.Errorf("%s of %s: got %v", test.value, test.schema, err)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, value string
		valid          bool
	}{
		{`^\\d{4}-\\d\\d$`, `2026-07`, true},
		{`^\\u00e9$`, `é`, true},
		{`^\\uD83D\\uDE00$`, `😀`, true},
		{`^[\\u0041-\\u0043]+$`, `ABC`, true},
		{`^\\cJ$`, `\n`, true},
		{`^\\s$`, `\u00a0`, true},
		{`^[\\s]$`, `\u2028`, true},
		{`^\\S$`, `\u00a0`, false},
		{`^\\/a\\-b$`, `/a-b`, true},
		{`^(?<year>\\d+)$`, `12`, true},
		{`^\\p{L}+$`, `aé`, true},
		{`^\\\\u$`, `\\u`, true},
		{`^.$`, `\ud83d\ude00`, true},
	} {
		err := mustCompile(t, `{"pattern":"`+test.pattern+`"}`).Validate([]byte(`"` + test.value + `"`))
		if (err == nil) != test.valid {
			t.Errorf("%s of %s: got %v", test.value, test.pattern, err)
		}
	}
}

func TestCompileFails(t *testing.T) {
	for schema, want := range map[string]string{
		``:                             "no JSON that is accepted here: unexpected end",
		`{`:                            "unexpected end",
		`1`:                            "the schema: a schema must be an object, true or false",
		`null`:                         "must be an object, true or false",
		`{"type":"strin"}`:             `the schema at /type: there is no type "strin"`,
		`{"type":[]}`:                  "name of a type",
		`{"type":["string","string"]}`: "name of a type",
		`{"type":1}`:                   "name of a type",
		`{"properties":{"a/b":{"minimum":"1"}}}`: "the schema at /properties/a~1b/minimum: must " +
			"be a number",
		`{"properties":[]}`:                   "/properties: must be an object",
		`{"properties":{"a":null}}`:           "/properties/a: a schema must be",
		`{"required":["a","a"]}`:              "array of different strings",
		`{"required":"a"}`:                    "array of different strings",
		`{"required":[1]}`:                    "array of different strings",
		`{"enum":1}`:                          "array of values",
		`{"minLength":-1}`:                    "integer that is not negative",
		`{"maxItems":1.5}`:                    "integer that is not negative",
		`{"minContains":"1","contains":true}`: "integer that is not negative",
		`{"multipleOf":0}`:                    "greater than 0",
		`{"multipleOf":-1}`:                   "greater than 0",
		`{"uniqueItems":1}`:                   "true or false",
		`{"allOf":{}}`:                        "array of schemas",
		`{"anyOf":[]}`:                        "at least one",
		`{"items":[{}]}`:                      "a schema must be",
		`{"pattern":1}`:                       "must be a string",
		`{"pattern":"("}`:                     "/pattern: \"(\" is not supported: missing closing )",
		`{"pattern":"(?=a)"}`:                 "is not supported: invalid or unsupported Perl syntax",
		`{"pattern":"((a{100}){100}){100}"}`:  "is not supported",
		`{"pattern":"` + strings.Repeat("a", 5000) + `"}`: "the pattern has 5000 bytes",
		`{"patternProperties":{"[":true}}`:                "/patternProperties/[: ",
		`{"$ref":1}`:                                      "/$ref: must be a string",
		`{"$ref":"#/$defs/x"}`: `the schema at /$ref: "#/$defs/x": ` +
			`there is no "$defs"`,
		`{"$ref":"#x"}`:                              "there is no such anchor",
		`{"$ref":"#/%"}`:                             "is no URI reference",
		`{"$defs":{"a":1},"$ref":"#/$defs/a"}`:       "/$defs/a: a schema must be",
		`{"x":{"y":{"minimum":"1"}},"$ref":"#/x/y"}`: "must be a number",
		`{"items":{"$ref":"https://example.com/s.json"}}`: `the schema at /items/$ref: ` +
			`"https://example.com/s.json" leads out of the schema; nothing is fetched`,
		`{"$ref":"file:///etc/passwd"}`:                           "nothing is fetched",
		`{"$ref":"other.json#/a"}`:                                "nothing is fetched",
		`{"$id":"http://x/a","$ref":"b"}`:                         "nothing is fetched",
		`{"$dynamicRef":"http://x/y#z"}`:                          "nothing is fetched",
		`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`: "nothing is fetched",
		`{"$schema":"https://example.com/my"}`: `the schema: the dialect ` +
			`"https://example.com/my" is not supported; these are: ` +
			`https://json-schema.org/draft/2020-12/schema`,
		`{"$ref":"#"}`: "a reference leads back to itself",
		`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"}]}}}`: "a reference leads " +
			"back to itself",
		`{"$id":"http://x/#a"}`:                               "must have no fragment",
		`{"$id":"http://x","items":{"$id":"http://x"}}`:       "is the id of another",
		`{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`: "the anchor \"x\" is there twice",
		`{"type":"string","type":"number"}`:                   `"type" is there twice`,
		`{"properties":{"a":{},"\u0061":{}}}`:                 `"a" is there twice`,
		`{"x":"` + strings.Repeat("x", 1<<20) + `"}`:          "are allowed",
		strings.Repeat(`{"not":`, 66) + `{}` +
			strings.Repeat("}", 66): "more than 64 subschemas inside each other",
		strings.Repeat(`[`, 300) + strings.Repeat("]", 300):   "nested too deeply",
		`{"allOf":[` + strings.Repeat("{},", 10_000) + `{}]}`: "more than 10000 subschemas",
	} {
		_, err := Compile([]byte(schema), Limits{})
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.100s: got %v, want %q", schema, err, want)
		}
	}
}

// TestUnsupported: what may be valid is distinguished from what is not.
func TestUnsupported(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"items":{"pattern":"(?!a)"}}`: true, `{"patternProperties":{"(a)\\1":true}}`: true,
		`{"$ref":"https://example.com/x"}`:    true,
		`{"$schema":"https://example.com/x"}`: true, `{"type":5}`: false, `{"$ref":"#/x"}`: false,
		`{"minLength":-1}`: false,
	} {
		if _, err := Compile([]byte(schema), Limits{}); errors.Is(err, ErrUnsupported) != want ||
			err == nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// What is wrong inside an annotation, or below a keyword that does not exist, is
// not reported.
func TestCompileIgnores(t *testing.T) {
	for _, schema := range []string{
		`{"title":1,"description":null,"examples":{"$ref":"http://x"},"default":{"type":"no"},` +
			`"x-y":{"type":"no"},"format":1}`,
		`{"const":{"$ref":"http://x"},"enum":[{"$id":1}]}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","prefixItems":1,` +
			`"$defs":{"a":{"type":"no"}}}`,
		`{"then":{"type":"string"},"else":false,"minContains":5,"additionalItems":1}`,
	} {
		s := mustCompile(t, schema)
		if strings.Contains(schema, "const") {
			continue
		}
		if err := s.Validate([]byte(`[1]`)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// A compiled schema does not depend on the bytes it was made of.
func TestCompileCopies(t *testing.T) {
	text := []byte(`{"minimum":5,"enum":[4,5,"x"]}`)
	s, err := Compile(text, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	clear(text)
	if err := s.Validate([]byte("4")); err == nil || err.Error() != "4 is less than the minimum 5" {
		t.Error(err)
	}
}

// Names beyond what is compared one by one, and beyond one word of bits.
func TestManyProperties(t *testing.T) {
	var properties, required, value []string
	for i := range 150 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"integer"}`, i))
		required = append(required, fmt.Sprintf(`"p%d"`, i))
		value = append(value, fmt.Sprintf(`"p%d":%d`, i, i))
	}
	s := mustCompile(t,
		`{"properties":{`+strings.Join(properties, ",")+`},"required":[`+strings.Join(required, ",")+
			`],"additionalProperties":false}`)
	if err := s.Validate([]byte("{" + strings.Join(value, ",") + "}")); err != nil {
		t.Error(err)
	}
	slices.Reverse(value)
	if err := s.Validate([]byte("{" + strings.Join(value, ",") + "}")); err != nil {
		t.Error(err)
	}
	for i := range value {
		err := s.Validate(
			[]byte("{" + strings.Join(slices.Delete(slices.Clone(value), i, i+1), ",") + "}"))
		if want := fmt.Sprintf(`missing property "p%d"`, 149-i); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := s.Validate([]byte("{" + strings.Join(value, ",") + `,"x":1}`)); err == nil ||
		!strings.Contains(err.Error(), "… (150 in all)") {
		t.Errorf("got %v", err)
	}
}

func TestLimits(t *testing.T) {
	for _, test := range []struct {
		schema string
		limits Limits
	}{
		{`{"type":"string"}`, Limits{Bytes: 10}},
		{`{"not":{"not":{}}}`, Limits{Depth: 1}},
		{`{"not":{"not":{}}}`, Limits{Subschemas: 2}},
		{`{"pattern":"abc"}`, Limits{Pattern: 2}},
	} {
		if _, err := Compile([]byte(test.schema), test.limits); err == nil {
			t.Errorf("%s: %+v", test.schema, test.limits)
		}
	}
	s, err := Compile(
		[]byte(`{"items":{"allOf":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}}`), Limits{Work: 1, Problems: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate([]byte(`[1,2,3,4,5]`)); !errors.Is(err, ErrTooComplex) {
		t.Errorf("got %v", err)
	}
}

func TestOptionalNulls(t *testing.T) {
	const schema = `{"type":"object","required":["r"],"additionalProperties":false,"properties":{
		"r":{"type":"integer"},"o":{"type":"integer","minimum":1},"n":{"type":["integer","null"]},
		"d":{"$ref":"#/$defs/d"},"never":false,"any":{}},
		"$defs":{"d":{"type":"object","properties":{"s":{"type":"string"},"e":{"type":"string","enum":["a"]}},"required":["s"]}}}`
	for value, fits := range map[string]struct{ nulls, strict bool }{
		`{"r":1}`:                              {true, true},
		`{"r":1,"o":null}`:                     {true, false},
		`{"r":1,"n":null,"any":null}`:          {true, true},
		`{"r":1,"d":null}`:                     {true, false},
		`{"r":1,"d":{"s":"x","e":null}}`:       {true, false},
		`{"r":1,"d":{"s":null}}`:               {false, false},
		`{"r":null}`:                           {false, false},
		`{"r":1,"o":0}`:                        {false, false},
		`{"r":1,"never":null}`:                 {false, false},
		`{"r":1,"unknown":null}`:               {false, false},
		`{"o":null}`:                           {false, false},
		`{"r":1,"d":{"s":"x","e":null,"e":1}}`: {false, false},
	} {
		for _, o := range []Limits{{}, {OptionalNulls: true}} {
			s, err := Compile([]byte(schema), o)
			if err != nil {
				t.Fatal(err)
			}
			want := fits.strict
			if o.OptionalNulls {
				want = fits.nulls
			}
			if err := s.Validate([]byte(value)); (err == nil) != want {
				t.Errorf("%s, nulls %v: %v", value, o.OptionalNulls, err)
			}
		}
	}
}
