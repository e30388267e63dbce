package schema

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
)

// LimitTags are the tags that limit the values of a member.
func LimitTags() []string {
	return []string{
		"enum", "min", "max", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
		"maxItems",
		"minProperties", "maxProperties", "uniqueItems",
	}
}

// keywords applies the tags that are called like keywords of JSON Schema.
func (s *Schema) keywords(tag reflect.StructTag, t reflect.Type) error {
	one, elem := s.elements(t)
	number := elem.Kind() >= reflect.Int && elem.Kind() <= reflect.Float64
	list := (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && s.Items != nil
	var all []error
	for _, k := range []struct {
		name    string
		to      *Raw
		applies bool
		count   bool
	}{
		{"minimum", &one.Minimum, number, false},
		{"maximum", &one.Maximum, number, false},
		{"minLength", &one.MinLength, stringType(elem), true},
		{"maxLength", &one.MaxLength, stringType(elem), true},
		{"minItems", &s.MinItems, list, true},
		{"maxItems", &s.MaxItems, list, true},
		{"minProperties", &s.MinProperties, t.Kind() == reflect.Map, true},
		{"maxProperties", &s.MaxProperties, t.Kind() == reflect.Map, true},
	} {
		text, ok := tag.Lookup(k.name)
		if !ok {
			continue
		}
		switch {
		case !k.applies && !opaque(elem):
			all = append(all, fmt.Errorf("the tag %s does not apply to %s", k.name, t))
		case k.count && !isCount(text) || !isNumber(text):
			all = append(all, fmt.Errorf("the tag %s:%q is no number that it can have", k.name, text))
		case *k.to != nil && t.Kind() != reflect.Array:
			all = append(all,
				fmt.Errorf("the tag %s says what min or max says already; write one of them", k.name))
		default:
			*k.to = Raw(text)
		}
	}
	return errors.Join(append(all, s.unique(tag, t, list))...)
}

func isCount(text string) bool {
	_, err := strconv.ParseUint(text, 10, 53)
	return err == nil
}

func (s *Schema) unique(tag reflect.StructTag, t reflect.Type, list bool) error {
	text, ok := tag.Lookup("uniqueItems")
	switch {
	case !ok || text == "false":
		return nil
	case text != "true":
		return fmt.Errorf("the tag uniqueItems:%q must be true or false", text)
	case !list && !opaque(t):
		return fmt.Errorf("the tag uniqueItems does not apply to %s", t)
	}
	s.UniqueItems = true
	return nil
}

// examples applies the tag of that name: a JSON array, or values with commas between them.
func (s *Schema) examples(tag reflect.StructTag, t reflect.Type) error {
	text, ok := tag.Lookup("examples")
	if !ok {
		return nil
	}
	var all []Raw
	if jsonv2.Unmarshal([]byte(text), &all) == nil {
		for _, raw := range all {
			if jsonv2.Unmarshal(raw, reflect.New(t).Interface()) != nil {
				return fmt.Errorf("the tag examples: %s is no JSON for %s", raw, t)
			}
		}
		s.Examples = all
		return nil
	}
	for value := range strings.SplitSeq(text, ",") {
		raw, err := literal(value, t)
		if err != nil {
			return fmt.Errorf("the tag examples: %w; write the examples as a JSON array", err)
		}
		s.Examples = append(s.Examples, raw)
	}
	return nil
}

// UnmarshalJSON keeps a copy of the text.
func (r *Raw) UnmarshalJSON(text []byte) error {
	*r = slices.Clone(text)
	return nil
}

// keywordList matches the tag jsonschema of libraries that write keywords into it.
var keywordList = regexp.MustCompile(`^([^ \t,=]+=|(required|nullable|readOnly|writeOnly|-)(,|$))`)

// ForeignTag refuses a jsonschema tag that is a list of keywords, which would be ignored.
func ForeignTag(tag reflect.StructTag) error {
	text := tag.Get("jsonschema")
	if !keywordList.MatchString(text) {
		return nil
	}
	return fmt.Errorf(
		`the tag jsonschema:%q is a list of keywords; write doc:"…" for the description, title, enum, `+
			`min, max, pattern, `+
			`format, default and examples as their own tags, and json:",omitempty" for what is not required`,
		text)
}

// schemaMethod is the name of the method by which a type describes itself.
const schemaMethod = "JSONSchema"

// OwnSchema reports whether a type describes itself.
func OwnSchema(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return false
	}
	_, ok := reflect.PointerTo(t).MethodByName(schemaMethod)
	return ok
}

// ownSchema returns what a type says of itself. inside: it becomes a part of another schema.
func ownSchema(t reflect.Type, inside bool) (*Schema, error) {
	raw, err := callSchema(t)
	if err != nil {
		return nil, fmt.Errorf("%s: its method %s %w", t, schemaMethod, err)
	}
	if from := promotedFrom(t, raw); from != nil {
		return nil, fmt.Errorf(
			"%s has the method %s of the embedded %s, which does not describe it: give it its own, or "+
				"give the field a name in its json tag",
			t, schemaMethod, from)
	}
	if inside && refersToRoot(raw) {
		return nil,
			fmt.Errorf(
				"%s: the schema of its method %s is a part of another one, where its references lead to "+
					"other places; write it without $ref", t, schemaMethod)
	}
	return &Schema{own: raw}, nil
}

// callSchema calls the method.
func callSchema(t reflect.Type) (raw Raw, err error) {
	method := reflect.New(t).MethodByName(schemaMethod)
	if m := method.Type(); m.NumIn() != 0 || m.NumOut() != 1 {
		return nil, fmt.Errorf("is a %s; it must take nothing and return the schema", m)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panics for a zero value: %v", p)
		}
	}()
	switch out := method.Call(nil)[0]; {
	case out.Kind() == reflect.String:
		raw = Raw(out.String())
	case out.Kind() == reflect.Slice && out.Type().Elem().Kind() == reflect.Uint8:
		raw = slices.Clone(out.Bytes())
	default:
		if raw, err = jsonv2.Append(nil, out.Interface()); err != nil {
			return nil, err
		}
	}
	var valid any
	if err := jsonv2.Unmarshal(raw, &valid); err != nil {
		return nil, fmt.Errorf("returned no JSON: %w", err)
	}
	switch valid := valid.(type) {
	case map[string]any:
		return raw, nil
	case bool:
		if valid {
			return Raw("{}"), nil
		}
		return Raw(`{"not":{}}`), nil
	}
	return nil, errors.New("returned no schema: it must be an object")
}

// promotedFrom returns the embedded type with the method that the type has, or nil.
func promotedFrom(t reflect.Type, raw Raw) reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for sf := range t.Fields() {
		if inner := deref(sf.Type); sf.Anonymous && OwnSchema(inner) {
			if same, err := callSchema(inner); err == nil && string(same) == string(raw) {
				return inner
			}
		}
	}
	return nil
}

// refersToRoot reports whether a schema has a reference to itself or a part of it.
func refersToRoot(raw []byte) bool {
	for key, value := range scan.Members(raw) {
		reference := string(key) == "$ref" || string(key) == "$dynamicRef" ||
			string(key) == "$recursiveRef"
		if reference && strings.HasPrefix(string(value), `"#`) || refersToRoot(value) {
			return true
		}
	}
	for value := range scan.Elements(raw) {
		if refersToRoot(value) {
			return true
		}
	}
	return false
}

// MarshalJSON writes the schema. What tags say takes the place of what the type says of itself.
func (s *Schema) MarshalJSON() ([]byte, error) {
	type plain Schema
	if s.own == nil {
		return jsonv2.Append(nil, (*plain)(s))
	}
	tags, err := jsonv2.Append(nil, (*plain)(s))
	if err != nil {
		return nil, err
	}
	return replaceMembers(s.own, tags), nil
}

// replaceMembers returns an object with the members of another one, which replace the members it
// has.
func replaceMembers(object, with []byte) []byte {
	out := []byte{'{'}
	for key, value := range scan.Members(with) {
		out = scan.AppendMember(out, key, value)
	}
	for key, value := range scan.Members(object) {
		if scan.Member(with, string(key)) == nil {
			out = scan.AppendMember(out, key, value)
		}
	}
	return append(out, '}')
}

// Merge applies a JSON Merge Patch (RFC 7396) to a JSON value: members of an object are replaced,
// and those that are null in the patch are removed. The members keep their order. Both are valid
// JSON.
func Merge(value, patch []byte) []byte {
	patch = patch[scan.Space(patch, 0):]
	if len(patch) == 0 || patch[0] != '{' {
		return patch
	}
	out := []byte{'{'}
	for key, old := range scan.Members(value) { // nothing, when it is no object
		switch change := scan.Member(patch, string(key)); {
		case change == nil:
			out = scan.AppendMember(out, key, old)
		case string(change) != "null":
			out = scan.AppendMember(out, key, Merge(old, change))
		}
	}
	for key, change := range scan.Members(patch) {
		if string(change) != "null" && scan.Member(value, string(key)) == nil {
			out = scan.AppendMember(out, key, Merge(nil, change))
		}
	}
	return append(out, '}')
}
