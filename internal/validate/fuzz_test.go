package validate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/internal/scan"
)

// A maker makes schemas and values that have to do with each other.
type maker struct {
	*rand.Rand
	dialect string // what $schema says, "" for 2020-12
	foreign bool   // some keywords cannot be judged
}

func (m *maker) pick(of ...string) string { return of[m.IntN(len(of))] }

func (m *maker) numeral() string {
	return m.pick("0", "-0", "1", "1.0", "2", "10e-1", "3", "-1", "2.5", "0.1", "0.30", "1e3",
		"9007199254740993", "9007199254740992", "-9007199254740993.5")
}

func (m *maker) text() string {
	return m.pick(`""`, `"a"`, `"ab"`, `"abc"`, `"\u0061b"`, `"é"`, `"\ud83d\ude00"`, `"a\\b"`, `"12"`)
}

// sequence joins up to three of what one makes.
func (m *maker) sequence(one func() string) string {
	var all []string
	for range m.IntN(4) {
		all = append(all, one())
	}
	return strings.Join(all, ",")
}

// object makes one with names that differ.
func (m *maker) object(value func() string) string {
	var all []string
	for _, name := range []string{`"a"`, `"b"`, `"c"`, `"\u0061b"`, `"é"`, `"x-y"`} {
		if m.IntN(3) == 0 {
			all = append(all, name+":"+value())
		}
	}
	m.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return "{" + strings.Join(all, ",") + "}"
}

func (m *maker) value(depth int) string {
	k := m.IntN(8)
	if depth == 0 {
		k = m.IntN(5)
	}
	switch k {
	case 0, 1:
		return m.numeral()
	case 2, 3:
		return m.text()
	case 4:
		return m.pick("null", "true", "false")
	case 5:
		return "[" + m.sequence(func() string { return m.value(depth - 1) }) + "]"
	default:
		return m.object(func() string { return m.value(depth - 1) })
	}
}

func (m *maker) schema(depth int) string {
	if m.foreign && m.IntN(8) == 0 {
		return m.pick(`{"pattern":"(?=a)"}`, `{"$ref":"`+elsewhere+`"}`,
			`{"patternProperties":{"(?!b)":`+m.schema(0)+`}}`)
	}
	if depth == 0 || m.IntN(12) == 0 {
		return m.pick("true", "{}", "false", `{"type":"integer"}`, `{"type":"string"}`,
			`{"$ref":"#/definitions/d"}`, `{"type":["object","array"]}`)
	}
	sub := func() string { return m.schema(depth - 1) }
	subs := func() string { return "[" + sub() + "," + sub() + "]" }
	count := func() string { return m.pick("0", "1", "2", "2.0") }
	names := func() string { return m.pick(`[]`, `["a"]`, `["a","b"]`, `["ab","c"]`) }
	makers := map[string]func() string{
		"type": func() string {
			return m.pick(`"null"`, `"boolean"`, `"object"`, `"array"`, `"number"`, `"integer"`, `"string"`,
				`["string","integer"]`, `["object","array","number"]`)
		},
		"enum":    func() string { return "[" + m.value(1) + "," + m.value(1) + "]" },
		"const":   func() string { return m.value(2) },
		"minimum": m.numeral, "maximum": m.numeral, "exclusiveMinimum": m.numeral,
		"exclusiveMaximum": m.numeral,
		"multipleOf":       func() string { return m.pick("1", "2", "0.1", "0.5", "3e0", "0.30") },
		"minLength":        count, "maxLength": count, "minItems": count, "maxItems": count,
		"minProperties": count, "maxProperties": count,
		"pattern": func() string {
			if m.foreign && m.IntN(2) == 0 {
				return m.pick(`"(?=a)b"`, `"(a)\\1"`)
			}
			return m.pick(`"^a"`, `"b$"`, `"^[a-c]*$"`, `"\\d"`)
		},
		"properties": func() string { return m.object(sub) },
		"patternProperties": func() string {
			if m.foreign && m.IntN(2) == 0 {
				return `{"^a":` + sub() + `,"(?!x)":` + sub() + `}`
			}
			return `{"^a":` + sub() + `,"b":` + sub() + `}`
		},
		"additionalProperties": sub, "propertyNames": sub, "required": names,
		"dependentRequired": func() string {
			return `{"a":` + names() + `}`
		}, "dependentSchemas": func() string { return m.object(sub) },
		"dependencies": func() string { return `{"a":` + names() + `,"b":` + sub() + `}` },
		"items":        sub, "prefixItems": subs, "additionalItems": sub, "uniqueItems": func() string {
			return m.pick("true", "false")
		},
		"contains": sub, "minContains": count, "maxContains": count,
		"allOf": subs, "anyOf": subs, "oneOf": subs, "not": sub, "if": sub, "then": sub, "else": sub,
		"unevaluatedProperties": sub, "unevaluatedItems": sub,
	}
	all := make([]string, 0, len(makers))
	for name := range makers {
		all = append(all, name)
	}
	slices.Sort(all)
	var out []string
	for _, i := range m.Perm(len(all))[:1+m.IntN(4)] {
		body := makers[all[i]]
		if all[i] == "items" && m.dialect != "" && m.IntN(2) == 0 {
			body = subs
		}
		out = append(out, `"`+all[i]+`":`+body())
	}
	return "{" + strings.Join(out, ",") + "}"
}

// root makes a whole schema, with a definition that refers to itself.
func (m *maker) root() string {
	s := `"definitions":{"d":{"properties":{"a":{"$ref":"#/definitions/d"}},` +
		`"items":{"$ref":"#/definitions/d"},"allOf":[` + m.schema(0) + `]}},"allOf":[` + m.schema(3) + `]`
	s = strings.ReplaceAll(s, `"allOf":[{"$ref":"#/definitions/d"}]}},`,
		`"type":["object","string","array","number"]}},`)
	if m.dialect != "" {
		s = `"$schema":"` + m.dialect + `",` + s
	}
	return "{" + s + "}"
}

// oracle compiles a schema with the library that is the judge here.
func oracle(schema string) (*jsonschema.Schema, error) {
	return meant(schema, jsonschema.NewCompiler())
}

func meant(schema string, c *jsonschema.Compiler) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, err
	}
	if err := c.AddResource("mem:schema", doc); err != nil {
		return nil, err
	}
	return c.Compile("mem:schema")
}

// elsewhere is the address of a schema that is not fetched.
const elsewhere = "https://elsewhere.example/schema"

// A meaning is what keywords may say that cannot be judged.
type meaning struct {
	schema  string // elsewhere
	matches func(pattern, text string) bool
}

var meanings = []meaning{
	{`true`, func(string, string) bool { return true }},
	{`false`, func(string, string) bool { return false }},
	{
		`{"properties":{"a":true,"c":{"type":"string"}},"items":{"type":"integer"}}`,
		func(_, text string) bool {
			return len(text)%2 == 0
		},
	},
	{`{"type":["string","object"],"minProperties":1}`, func(p, text string) bool {
		return (len(p)+len(text))%3 == 0
	}},
	{`{"prefixItems":[true],"maxLength":1}`, func(p, text string) bool {
		return strings.Contains(text, p[3:4])
	}},
}

// expression is a pattern under a meaning.
type expression struct {
	pattern string
	meaning *meaning
}

func (e expression) String() string            { return e.pattern }
func (e expression) MatchString(s string) bool { return e.meaning.matches(e.pattern, s) }

// engine compiles patterns; those that cannot be judged get a meaning.
func (m *meaning) engine(pattern string) (jsonschema.Regexp, error) {
	if strings.Contains(pattern, "(?") || strings.Contains(pattern, `\1`) {
		return expression{pattern, m}, nil
	}
	return regexp.Compile(pattern)
}

// agreeOnForeign reports a schema with parts that cannot be judged, and a value that is judged as
// in none of the meanings that these may have.
func agreeOnForeign(t *testing.T, seed uint64, values int) (whole, open int) {
	t.Helper()
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 2)), foreign: true}
	m.dialect = m.pick("", "", "", "https://json-schema.org/draft/2019-09/schema",
		"http://json-schema.org/draft-07/schema#")
	schema := m.root()
	oracles := make([]*jsonschema.Schema, len(meanings))
	for i := range meanings {
		c := jsonschema.NewCompiler()
		c.UseRegexpEngine(meanings[i].engine)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(meanings[i].schema))
		if err == nil {
			err = c.AddResource(elsewhere, doc)
		}
		if err == nil {
			oracles[i], err = meant(schema, c)
		}
		if err != nil {
			return 0, 0 // the older meta-schemas ask for more
		}
	}
	s := CompileForeign([]byte(schema), Limits{})
	if _, err := Compile([]byte(schema), Limits{}); (err == nil) != (len(s.Unjudged()) == 0) {
		t.Fatalf("seed %d: %s: left out %q, but the error is %v", seed, schema, s.Unjudged(), err)
	}
	for range values {
		value := m.value(3)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Judge([]byte(value))
		if err != nil && !errors.As(err, new(*Error)) {
			t.Fatalf("seed %d: %s of %s: %v", seed, value, schema, err)
		}
		for i, o := range oracles {
			switch wrong := o.Validate(doc); {
			case err != nil && wrong == nil:
				t.Fatalf("seed %d: %s of %s: got %v, but it fits in meaning %d", seed, value, schema, err, i)
			case err == nil && all && wrong != nil:
				t.Fatalf("seed %d: %s of %s: fits for sure, but not in meaning %d: %v", seed, value, schema,
					i, wrong)
			}
		}
		if all {
			whole++
		} else {
			open++
		}
	}
	return whole, open
}

func TestAgreeOnForeign(t *testing.T) {
	n := uint64(1500)
	if testing.Short() {
		n = 300
	}
	whole, open := 0, 0
	for seed := range n {
		w, o := agreeOnForeign(t, seed, 20)
		whole, open = whole+w, open+o
	}
	if t.Logf("%d values were judged, of %d that is open", whole, open); whole < open ||
		open < whole/50 {
		t.Error("that tests little")
	}
}

func FuzzAgreeOnForeign(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { agreeOnForeign(t, seed, 20) })
}

// agree reports a schema and a value on which the two judges differ.
func agree(t *testing.T, seed uint64, values int) {
	t.Helper()
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1))}
	m.dialect = m.pick("", "", "", "https://json-schema.org/draft/2019-09/schema",
		"http://json-schema.org/draft-07/schema#")
	schema := m.root()
	want, wantErr := oracle(schema)
	got, err := Compile([]byte(schema), Limits{})
	if err != nil && wantErr == nil {
		t.Fatalf("seed %d: %s: %v", seed, schema, err)
	}
	if err != nil || wantErr != nil {
		// the older meta-schemas ask for more, as that the values of enum differ
		return
	}
	for range values {
		value := m.value(3)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
		if err != nil {
			t.Fatal(err)
		}
		wantErr, err := want.Validate(doc), got.Validate([]byte(value))
		if (err == nil) != (wantErr == nil) || err != nil && !errors.As(err, new(*Error)) {
			t.Fatalf("seed %d: %s of %s: got %v, want %v", seed, value, schema, err, wantErr)
		}
	}
}

func TestAgree(t *testing.T) {
	n := uint64(3000)
	if testing.Short() {
		n = 300
	}
	for seed := range n {
		agree(t, seed, 20)
	}
}

func FuzzAgree(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { agree(t, seed, 20) })
}

// FuzzCompile gives hostile schemas and values: whatever comes, it comes soon,
// and a value that is no JSON never fits.
func FuzzCompile(f *testing.F) {
	for _, v := range vectors {
		for _, value := range append(v.fit, v.unfit...) {
			f.Add([]byte(v.schema), []byte(value))
		}
	}
	f.Add(
		[]byte(`{"$defs":{"a":{"$dynamicAnchor":"a","items":{"$dynamicRef":"#a"}}},"$ref":"#/$defs/a"}`), []byte(`[[[[]]]]`))
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		start := time.Now()
		s, err := Compile(schema, Limits{Bytes: 10_000, Work: 100_000})
		if err != nil {
			if s = CompileForeign(schema, Limits{Bytes: 10_000, Work: 100_000}); len(s.Unjudged()) == 0 {
				t.Errorf("nothing is left out of %s: %v", schema, err)
			}
		}
		err = s.Validate(value)
		if _, fault := scan.Text(value, -1); fault != scan.OK && len(value) > 0 && err == nil {
			t.Errorf("%q fits %s", value, schema)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("took %s: %s", d, schema)
		}
	})
}

// TestBounded has schemas that would cost a judge without bounds dear.
func TestBounded(t *testing.T) {
	for name, test := range map[string]struct{ schema, value string }{
		"alternatives": {
			`{"$defs":{"a":{"anyOf":[{"properties":{"x":{"$ref":"#/$defs/a"}},"required":["y"]},` +
				`{"properties":{"x":{"$ref":"#/$defs/a"}},"required":["z"]}]}},"$ref":"#/$defs/a"}`,
			strings.Repeat(`{"x":`, 60) + "1" + strings.Repeat("}", 60),
		},
		"unevaluated": {
			`{"$defs":{"a":{"anyOf":[{"properties":{"x":{"$ref":"#/$defs/a"}}},` +
				`{"properties":{"x":{"$ref":"#/$defs/a"}}}],"unevaluatedProperties":false}},` +
				`"$ref":"#/$defs/a"}`,
			strings.Repeat(`{"x":`, 60) + "1" + strings.Repeat("}", 60),
		},
		"doubling": {doubling(40), `1`},
		"depth": {
			`{"items":{"$ref":"#"}}`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		},
		"dynamic": {`{"$dynamicAnchor":"a","allOf":[{"$id":"http://x/y","$dynamicAnchor":"a",` +
			`"allOf":[{"$dynamicRef":"#a"}]}]}`, `1`},
		"pattern": {`{"pattern":"(a{1,30}){1,30}$"}`, `"` + strings.Repeat("a", 1_000_000) + `"`},
		"many patterns": {
			`{"patternProperties":{` + manyPatterns(100) + `}}`,
			`{` + strings.Repeat(`"aaaaaaaaaaaaaaaaaaaaaaaaaaaa":1,`, 5000) + `"a":1}`,
		},
		"applied to all": {
			`{"items":{"allOf":[` + strings.Repeat(`{"type":"number"},`, 5000) + `{}]}}`,
			"[" + strings.Repeat("1,", 10_000) + "1]",
		},
	} {
		s := mustCompile(t, test.schema)
		start := time.Now()
		if err := s.Validate([]byte(test.value)); !errors.Is(err, ErrTooComplex) {
			t.Errorf("%s: got %v", name, err)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s: took %s", name, d)
		}
	}
}

// doubling makes a schema that applies its smallest part 2^n times.
func doubling(n int) string {
	var s strings.Builder
	s.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&s, `"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&s, `"%d":{"type":"number"}}}`, n)
	return s.String()
}

func manyPatterns(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, `"(a|aa){1,100}%d$":true,`, i)
	}
	return s.String() + `"z":true`
}

// TestCompileBounded has schemas of a megabyte that are worth it.
func TestCompileBounded(t *testing.T) {
	long := strings.Repeat("n", 500_000)
	var refs strings.Builder
	for i := range 4900 {
		fmt.Fprintf(&refs, `"d%d":{"$ref":"#/$defs/d%d"},`, i, (i+1)%4901)
	}
	for name, schema := range map[string]string{
		"references": `{"$defs":{` + refs.String() + `"d4900":{}},"items":{"$ref":"#/$defs/d0"}}`,
		"long path": `{"properties":{"` + long + `":{"allOf":[` + strings.Repeat(`{"$ref":"#"},`, 9000) +
			`{}]}}}`,
		"list": `{"$defs":{"a":[` + strings.Repeat(`{},`, 4900) + `{}]},"items":{"allOf":[` +
			strings.Repeat(`{"$ref":"#/$defs/a/4900"},`, 4900) + `{}]}}`,
		"patterns": `{"allOf":[` +
			strings.Repeat(`{"pattern":"(abcdefghijklmnopqrstuvwxyz{1,30}){1,30}"},`, 9000) + `{}]}`,
		"enum": `{"enum":[` + strings.Repeat(`[[[[[[[1]]]]]]],`, 60_000) + `1]}`,
		"nested": strings.Repeat(`{"properties":{"a":`, 64) + `{"enum":[` +
			strings.Repeat("1,", 500_000) + `1]}` + strings.Repeat("}}", 64),
	} {
		for how, compile := range map[string]func([]byte) error{
			"own":     func(b []byte) error { _, err := Compile(b, Limits{}); return err },
			"foreign": func(b []byte) error { CompileForeign(b, Limits{}); return nil },
		} {
			start, most := time.Now(), 5*time.Second
			if race.Enabled {
				most = time.Minute
			}
			err := compile([]byte(schema))
			if d := time.Since(start); d > most {
				t.Errorf("%s, %s: took %s (%v)", name, how, d, err)
			}
		}
	}
}
