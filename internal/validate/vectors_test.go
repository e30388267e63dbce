package validate

import "testing"

// vectors are schemas with values that fit them and values that do not. What
// TestAgree makes is not repeated here.
var vectors = []struct {
	about, schema string
	fit, unfit    []string
}{
	{
		"a closed tree",
		`{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}},` +
			`"additionalProperties":false}`,
		[]string{`{}`, `{"left":{"right":{}}}`},
		[]string{`{"left":{"right":{"up":{}}}}`, `{"left":[]}`},
	},
	{
		"pointers with escapes",
		`{"$defs":{"a/b":{"c~d":{"type":"null"}},"per cent%":{"type":"string"}},` +
			`"prefixItems":[{"$ref":"#/$defs/a~1b/c~0d"},{"$ref":"#/$defs/per%20cent%25"}]}`,
		[]string{`[null,"x"]`},
		[]string{`[1]`, `[null,1]`},
	},
	{
		"a pointer into a list", `{"prefixItems":[{"type":"integer"},{"$ref":"#/prefixItems/0"}]}`,
		[]string{`[1,2]`},
		[]string{`[1,"2"]`},
	},
	{
		"a reference beside others", `{"$defs":{"a":{"minimum":1}},"$ref":"#/$defs/a","maximum":2}`,
		[]string{`1`, `2`},
		[]string{`0`, `3`},
	},
	{
		"an anchor", `{"$defs":{"x":{"$anchor":"here","type":"integer"}},"items":{"$ref":"#here"}}`,
		[]string{`[1]`},
		[]string{`["1"]`},
	},
	{
		"a resource inside", `{"$id":"https://example.com/root.json","$defs":{"x":{"$id":"sub/x.json",` +
			`"$defs":{"y":{"type":"string"}},"items":{"$ref":"#/$defs/y"}}},` +
			`"properties":{"a":{"$ref":"sub/x.json"},` +
			`"b":{"$ref":"https://example.com/sub/x.json#/$defs/y"}}}`,
		[]string{`{"a":["s"],"b":"s"}`},
		[]string{`{"a":[1]}`, `{"b":1}`},
	},
	{
		"a resource with a name that is no address",
		`{"$id":"urn:example:root","$defs":{"a":{"type":"null"}},` +
			`"items":{"$ref":"urn:example:root#/$defs/a"}}`,
		[]string{`[null]`},
		[]string{`[1]`},
	},
	{
		"a base that changes below a pointer",
		`{"$id":"https://example.com/a/","$defs":{"in":{"$id":"b/","$defs":{"t":{"$ref":"leaf"},` +
			`"leaf":{"$id":"leaf","type":"null"}}}},"$ref":"#/$defs/in/$defs/t"}`,
		[]string{`null`},
		[]string{`1`},
	},
	{
		"a target at an unknown keyword", `{"lib":{"id":{"minLength":2}},"$ref":"#/lib/id"}`,
		[]string{`"ab"`},
		[]string{`"a"`},
	},
	{
		"a dynamic reference: a tree made strict",
		`{"$id":"https://example.com/strict","$dynamicAnchor":"node","$ref":"tree",` +
			`"unevaluatedProperties":false,` +
			`"$defs":{"tree":{"$id":"tree","$dynamicAnchor":"node","type":"object",` +
			`"properties":{"data":true,"children":{"type":"array","items":{"$dynamicRef":"#node"}}}}}}`,
		[]string{`{"children":[{"data":1}]}`},
		[]string{`{"children":[{"daat":1}]}`, `{"daat":1}`},
	},
	{
		"a dynamic reference without a dynamic anchor",
		`{"$id":"https://example.com/r","$ref":"list","$defs":{"foo":{"$dynamicAnchor":"items",` +
			`"type":"string"},` +
			`"list":{"$id":"list","items":{"$dynamicRef":"#items"},"$defs":{"items":{"$anchor":"items"}}}}}`,
		[]string{`["a",1]`},
		nil,
	},
	{
		"generic lists", `{"$id":"https://example.com/strings","$ref":"list",` +
			`"$defs":{"s":{"$dynamicAnchor":"T","type":"string"},` +
			`"list":{"$id":"list","type":"array","items":{"$dynamicRef":"#T"},` +
			`"$defs":{"any":{"$dynamicAnchor":"T"}}}}}`,
		[]string{`["a"]`},
		[]string{`[1]`},
	},
	{
		"2019-09: a recursive reference",
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"https://example.com/outer",` +
			`"$recursiveAnchor":true,"type":["object","integer"],` +
			`"allOf":[{"$ref":"inner"}],"$defs":{"inner":{"$id":"inner","$recursiveAnchor":true,` +
			`"additionalProperties":{"$recursiveRef":"#"}}}}`,
		[]string{`{"a":{"b":1}}`},
		[]string{`{"a":{"b":"c"}}`},
	},
	{
		"2019-09: a list of items", `{"$schema":"https://json-schema.org/draft/2019-09/schema",` +
			`"items":[{"type":"null"}],"additionalItems":{"type":"string"}}`,
		[]string{`[]`, `[null,"a"]`},
		[]string{`[1]`, `[null,null]`},
	},
	{
		"2019-09: contains evaluates nothing",
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","contains":{"type":"null"},` +
			`"unevaluatedItems":false}`,
		nil,
		[]string{`[null]`, `[]`},
	},
	{
		"2020-12: contains evaluates",
		`{"contains":{"type":"null"},"unevaluatedItems":{"type":"string"}}`,
		[]string{`[null]`, `["a",null]`},
		[]string{`[null,1]`},
	},
	{
		"draft-07: beside a reference nothing counts",
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"type":"string"}},` +
			`"properties":{"x":{"$ref":"#/definitions/a","maxLength":1}}}`,
		[]string{`{"x":"abc"}`},
		[]string{`{"x":1}`},
	},
	{
		"draft-07: an id that is an anchor",
		`{"$schema":"http://json-schema.org/draft-07/schema","definitions":{"a":{"$id":"#x",` +
			`"type":"string"}},"items":{"$ref":"#x"}}`,
		[]string{`["a"]`},
		[]string{`[1]`},
	},
	{
		"draft-07: keywords to come",
		`{"$schema":"http://json-schema.org/draft-07/schema#","dependentRequired":{"a":["b"]},` +
			`"unevaluatedProperties":false,"prefixItems":[false],"minContains":2,"contains":true}`,
		[]string{`{"a":1}`, `[1]`},
		[]string{`[]`},
	},
	{
		"draft-06: no condition", `{"$schema":"http://json-schema.org/draft-06/schema#","if":true,` +
			`"then":false,"exclusiveMinimum":1}`,
		[]string{`2`, `"a"`},
		[]string{`1`},
	},
	{
		"draft-04: limits that exclude",
		`{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true,` +
			`"maximum":3,"exclusiveMaximum":false}`,
		[]string{`2`, `3`},
		[]string{`1`, `4`},
	},
	{
		"draft-04: id, and keywords to come",
		`{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://example.com/a",` +
			`"definitions":{"x":{"id":"b","type":"null"}},"items":{"$ref":"b"},"const":1,"contains":false,` +
			`"propertyNames":false}`,
		[]string{`[null]`, `{"a":1}`},
		[]string{`[1]`},
	},
	{
		"another dialect inside", `{"$defs":{"old":{"$id":"http://example.com/old",` +
			`"$schema":"http://json-schema.org/draft-07/schema#","dependentRequired":{"a":["b"]}}},` +
			`"$ref":"http://example.com/old"}`,
		[]string{`{"a":1}`},
		nil,
	},
	{
		"properties that others evaluate",
		`{"type":"object","properties":{"a":true},"patternProperties":{"^x":true},` +
			`"if":{"properties":{"b":{"const":1}},"required":["b"]},"then":{"properties":{"c":true}},` +
			`"dependentSchemas":{"d":{"properties":{"d":true,"e":true}}},` +
			`"anyOf":[{"properties":{"f":{"type":"null"}}},true],"not":{"properties":{"g":false},` +
			`"required":["g"]},"unevaluatedProperties":false}`,
		[]string{`{"a":1,"x1":1}`, `{"b":1,"c":1}`, `{"d":1,"e":1}`, `{"f":null}`},
		[]string{`{"c":1}`, `{"e":1}`, `{"f":1}`, `{"g":1}`, `{"b":2}`},
	},
	{
		"values that are equal", `{"enum":[{"a":[1,{"b":"\u0078"}],"c":null},"\ud83d\ude00",-0.0]}`,
		[]string{`{"c":null,"\u0061":[1.0,{"b":"x"}]}`, `"😀"`, `0`, `0e7`},
		[]string{`{"a":[1,{"b":"x"}]}`, `{"a":[{"b":"x"},1],"c":null}`, `false`, `""`, `[]`},
	},
	{
		"enum and const", `{"const":1,"enum":[1,2]}`, []string{`1`}, []string{`2`, `3`},
	},
	{
		"members that are there twice",
		`{"properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"null"}}`,
		[]string{`{"a":1,"a":2}`, `{"b":null,"b":null}`},
		[]string{`{"a":1,"a":"x"}`, `{"a":"x","a":1}`, `{"a":1,"\u0061":"x"}`, `{"b":null,"b":1}`},
	},
	{
		"dependencies, as they were", `{"dependencies":{"a":["b"],"c":{"minProperties":3}}}`,
		[]string{`{"a":1,"b":1}`, `{"c":1,"x":1,"y":1}`},
		[]string{`{"a":1}`, `{"c":1}`},
	},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		s, err := Compile([]byte(v.schema), Limits{})
		if err != nil {
			t.Errorf("%s: %v", v.about, err)
			continue
		}
		for _, value := range v.fit {
			if err := s.Validate([]byte(value)); err != nil {
				t.Errorf("%s: %s: %v", v.about, value, err)
			}
		}
		for _, value := range v.unfit {
			if err := s.Validate([]byte(value)); err == nil {
				t.Errorf("%s: %s fits", v.about, value)
			}
		}
	}
}
