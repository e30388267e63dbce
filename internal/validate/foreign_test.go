package validate

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestForeign: what cannot be judged is left out on its own, and the rest is enforced. What fits
// may not, as far as that can be known, is under open.
func TestForeign(t *testing.T) {
	for schema, want := range map[string]struct {
		unjudged          string
		fit, open, unfits []string
	}{
		`{"type":"object","properties":{"name":{"type":"string","maxLength":5,` +
			`"pattern":"^(?!admin)[a-z]+$"},"n":{"type":"integer"}},"required":["name"]}`: {
			`/properties/name/pattern: "^(?!admin)[a-z]+$" is not supported: invalid or unsupported Perl ` +
				`syntax: "(?!"`,
			nil,
			[]string{`{"name":"ada"}`, `{"name":"ada","n":1}`},
			[]string{`{}`, `{"name":1}`, `{"name":"longer"}`, `{"name":"ada","n":"1"}`, `[]`},
		},
		`{"pattern":"(?<=a)b"}`: {"(?<", []string{`1`}, []string{`"a"`}, nil},
		`{"pattern":"(a)\\1"}`: {
			`invalid escape sequence: "\\1"`, nil,
			[]string{`"a"`},
			nil,
		},
		`{"pattern":"[^]"}`: {"a class without characters", nil, []string{`"a"`}, nil},
		`{"pattern":"[^]a]","minLength":2}`: {
			"a class without characters", nil,
			[]string{`"a]"`},
			[]string{`"a"`},
		},
		`{"pattern":"x[]","minLength":2}`: {
			"a class without characters", nil,
			[]string{`"a]"`},
			[]string{`"a"`},
		},
		`{"pattern":"a{1001}"}`:                {"invalid repeat count", nil, []string{`"a"`}, nil},
		`{"pattern":"((a{1,99}){1,99}){1,9}"}`: {"", nil, []string{`"a"`}, nil},
		`{"properties":{"a":{"$ref":"https://json-schema.org/x"},"b":{"type":"null"}}}`: {
			`/properties/a/$ref: "https://json-schema.org/x" leads out of the schema`,
			[]string{`{"b":null}`},
			[]string{`{"a":1}`},
			[]string{`{"a":1,"b":1}`},
		},
		`{"$ref":"#/$defs/a","type":"string"}`: {
			"there is no", nil,
			[]string{`"a"`},
			[]string{`1`},
		},
		`{"not":{"pattern":"(?!a)"}}`: {"/not/pattern", nil, []string{`"a"`}, nil},
		`{"not":{"type":"string","pattern":"(?!a)"}}`: {
			"/not/pattern",
			[]string{`1`},
			[]string{`"a"`},
			nil,
		},
		`{"not":{"anyOf":[{"pattern":"(?!a)"},true]}}`: {
			"/not/anyOf/0/pattern", nil, nil,
			[]string{`"a"`, `1`},
		},
		`{"if":{"pattern":"(?!a)"},"then":{"maxLength":1},"else":{"minLength":3}}`: {
			"/if/pattern", []string{}, []string{`"a"`, `"abc"`}, []string{`"ab"`},
		},
		`{"oneOf":[{"pattern":"(?!a)"},{"minLength":2},{"maxLength":3}]}`: {
			"/oneOf/0/pattern", nil,
			[]string{`"abcd"`, `"a"`},
			[]string{`"abc"`},
		},
		`{"patternProperties":{"(?!a)":{"type":"integer"},"^x":{"type":"null"}},` +
			`"additionalProperties":false}`: {
			`/patternProperties/(?!a): "(?!a)" is not supported`,
			[]string{`{}`, `1`},
			[]string{`{"b":"c"}`, `{"x":null}`},
			[]string{`{"x":1}`},
		},
		`{"patternProperties":{"(?!a)":true},"unevaluatedProperties":false}`: {
			"/patternProperties/(?!a)", []string{`{}`}, []string{`{"b":1}`}, nil,
		},
		`{"properties":[],"additionalProperties":false,"minProperties":1}`: {
			"/properties: must be an object", nil, []string{`{"a":1}`}, []string{`{}`},
		},
		`{"prefixItems":{},"items":{"type":"null"},"maxItems":1}`: {
			"/prefixItems: must be an array", nil, []string{`[1]`}, []string{`[1,2]`},
		},
		`{"properties":{"a":{"required":true,"type":"string"}}}`: {
			"/properties/a/required: must be an array of different strings", nil,
			[]string{`{"a":"x"}`},
			[]string{`{"a":1}`},
		},
		`{"type":"strnig","minLength":2}`: {
			`/type: there is no type "strnig"`, nil, []string{`"ab"`, `1`}, []string{`"a"`},
		},
		`{"maxLength":"3","minLength":2}`: {
			"/maxLength: must be an integer", nil, []string{`"abcd"`}, []string{`"a"`},
		},
		`{"contains":{"type":"null"},"minContains":"1"}`: {
			"/contains: must be an integer", nil, []string{`[]`}, nil,
		},
		`{"contains":{"pattern":"(?!a)"},"minContains":2}`: {
			"/contains/pattern", []string{`[1,2]`}, []string{`[1,"a"]`}, []string{`["a"]`},
		},
		`{"contains":{"type":"string","pattern":"(?!a)"},"maxContains":1,"minContains":0}`: {
			"/contains/pattern", []string{`[1]`, `["a"]`}, []string{`["a","b"]`}, nil,
		},
		`{"items":{"$id":"http://x/#y"},"maxItems":2}`: {
			"must have no fragment",
			[]string{`[]`},
			[]string{`[1]`},
			[]string{`[1,2,3]`},
		},
		`{"$schema":"https://example.com/mine","type":"string"}`: {
			"the dialect", nil,
			[]string{`1`},
			nil,
		},
		`{"allOf":[{"$ref":"#"}]}`: {
			"leads back to itself", nil, []string{`1`}, nil,
		},
		`{"type":`: {
			"no JSON that is accepted here", nil, []string{`1`}, nil,
		},
		`[]`: {
			"a schema must be an object", nil, []string{`1`}, nil,
		},
		`{"x":"` + strings.Repeat("x", 1<<20) + `"}`: {
			"are allowed", nil, []string{`1`}, nil,
		},
		strings.Repeat(`{"not":`, 66) + `{}` + strings.Repeat("}", 66): {
			"more than 64 subschemas inside each other", nil, []string{`1`}, nil,
		},
	} {
		s := CompileForeign([]byte(schema), Limits{})
		if len(s.Unjudged()) != 1 || !strings.Contains(s.Unjudged()[0], want.unjudged) {
			t.Errorf("%.100s: left out %q; want %q", schema, s.Unjudged(), want.unjudged)
		}
		for _, value := range slices.Concat(want.fit, want.open, want.unfits) {
			whole, err := s.Judge([]byte(value))
			if unfit := errors.As(err, new(*Error)); unfit != slices.Contains(want.unfits, value) ||
				err != nil && !unfit {
				t.Errorf("%.100s of %s: %v", value, schema, err)
			}
			if whole == slices.Contains(want.open, value) {
				t.Errorf("%.100s of %s: judged %v", value, schema, whole)
			}
		}
	}
}

// TestForeignMany: what is left out of a schema that has no end of it is counted.
func TestForeignMany(t *testing.T) {
	s := CompileForeign([]byte(`{"allOf":[`+strings.Repeat(`{"type":1},`, 500)+`{}]}`), Limits{})
	if list := s.Unjudged(); len(list) != maxUnjudged+1 || list[maxUnjudged] != "and 400 more" {
		t.Errorf("%d: %s", len(list), list[len(list)-1])
	}
}

// TestForeignOfNothing: a schema that has nothing to leave out is the same.
func TestForeignOfNothing(t *testing.T) {
	for _, v := range vectors {
		s := CompileForeign([]byte(v.schema), Limits{})
		if len(s.Unjudged()) > 0 {
			t.Errorf("%s: %q", v.about, s.Unjudged())
		}
		for _, value := range v.fit {
			if whole, err := s.Judge([]byte(value)); err != nil || !whole {
				t.Errorf("%s: %s: %v %v", v.about, value, whole, err)
			}
		}
	}
}
