package schema

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// A Field is a member of the JSON object that a struct stands for.
type Field struct {
	Name     string
	Index    []int // see reflect.Value.FieldByIndex
	Type     reflect.Type
	Optional bool // a pointer, or tagged omitempty, omitzero or default
	Omitted  bool // tagged omitempty or omitzero: an empty one is not written
	Quoted   bool // tagged string: its numbers are written in strings
	Tag      reflect.StructTag

	rest bool // it keeps the members that the struct does not know
}

// Doc is what the tag "doc" says of the field, or a tag of the same meaning.
func (f *Field) Doc() string {
	return cmp.Or(f.Tag.Get("doc"), f.Tag.Get("jsonschema"), f.Tag.Get("jsonschema_description"))
}

// Fields lists the members of a struct in the order of its fields, those of
// embedded structs in the place of the embedded one. Where names collide, Go's
// rules for promoted fields decide, as they do in encoding/json.
func Fields(t reflect.Type) ([]Field, error) {
	fields, _, err := AllFields(t)
	return fields, err
}

// AllFields is Fields that also returns the field for members that the struct does not know, or
// nil: a map with the tag json:",embed".
func AllFields(t reflect.Type) (fields []Field, rest *Field, err error) {
	type level struct {
		typ     reflect.Type
		index   []int
		descend bool // into embedded structs; false for a type that was seen before
	}
	byName := map[string][]candidate{}
	visited := map[reflect.Type]bool{t: true}
	for queue := []level{{typ: t, descend: true}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for i := range at.typ.NumField() {
			sf := at.typ.Field(i)
			index := append(slices.Clip(at.index), i)
			f, tagged, skip, err := parse(sf)
			switch {
			case err != nil:
				return nil, nil, fmt.Errorf("%s.%s: %w", at.typ, sf.Name, err)
			case skip:
			case f.rest:
				if f.Index = index; rest == nil {
					rest = &f
				}
			case sf.Anonymous && !tagged:
				inner := deref(sf.Type)
				if inner.Kind() != reflect.Struct || OwnJSON(inner) || OwnText(inner) {
					return nil, nil,
						fmt.Errorf("%s.%s: an embedded type that is no plain struct needs a name in its json tag",
							at.typ, sf.Name)
				}
				if !sf.IsExported() && sf.Type.Kind() == reflect.Pointer {
					return nil, nil, fmt.Errorf("%s.%s: an embedded pointer to an unexported type cannot be set",
						at.typ, sf.Name)
				}
				if at.descend {
					queue = append(queue, level{inner, index, !visited[inner]})
					visited[inner] = true
				}
			default:
				f.Index = index
				byName[f.Name] = append(byName[f.Name], candidate{f, tagged})
			}
		}
	}
	if fields, err = dominant(t, byName); err != nil {
		return nil, nil, err
	}
	return fields, rest, nil
}

// candidate is a field that may stand for a name.
type candidate struct {
	Field
	tagged bool
}

// dominant returns the fields that stand for their names, in order.
func dominant(t reflect.Type, byName map[string][]candidate) (fields []Field, err error) {
	for name, all := range byName {
		slices.SortStableFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(len(a.Index), len(b.Index)), -compareBool(a.tagged, b.tagged))
		})
		if len(all) > 1 && len(all[0].Index) == len(all[1].Index) {
			if len(all[0].Index) == 1 {
				return nil, fmt.Errorf("%s: two fields have the JSON name %q", t, name)
			}
			if all[0].tagged == all[1].tagged {
				continue // none wins: the name is not promoted
			}
		}
		fields = append(fields, all[0].Field)
	}
	slices.SortFunc(fields, func(a, b Field) int { return slices.Compare(a.Index, b.Index) })
	return fields, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// parse reads a field's json tag.
func parse(sf reflect.StructField) (f Field, tagged, skip bool, err error) {
	tag := sf.Tag.Get("json")
	if tag == "-" || !sf.IsExported() && !sf.Anonymous {
		return f, false, true, nil
	}
	name, options, _ := strings.Cut(tag, ",")
	if strings.HasPrefix(name, "'") { // the library's way to write any name at all
		return f, false, false, errors.New("a quoted name in the json tag is not supported")
	}
	f = Field{Name: cmp.Or(name, sf.Name), Type: sf.Type, Tag: sf.Tag}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "":
		case "omitempty", "omitzero":
			f.Omitted = true
		case "string":
			f.Quoted = true
		case "case:strict":
		case "embed":
			if sf.Type.Kind() != reflect.Map || sf.Type.Key().Kind() != reflect.String || tag != ",embed" {
				return f, false, false, errors.New(
					`the option "embed" of the json tag is for a map with string keys, and stands alone: ` +
						`json:",embed"`)
			}
			f.rest = true
		case "unknown", "inline":
			return f, false, false,
				fmt.Errorf(
					"the option %q of the json tag is called embed in encoding/json/v2 now: write json:\",embed\"",
					option)
		default:
			return f, false, false, fmt.Errorf("the option %q of the json tag is not supported", option)
		}
	}
	_, hasDefault := sf.Tag.Lookup("default")
	f.Optional = f.Omitted || hasDefault || sf.Type.Kind() == reflect.Pointer
	return f, name != "", false, nil
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()

	jsonTypes = []reflect.Type{
		reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }](),
		reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }](),
	}
	textTypes = []reflect.Type{
		reflect.TypeFor[encoding.TextMarshaler](),
		reflect.TypeFor[encoding.TextUnmarshaler](),
	}
)

// OwnJSON reports whether a type has methods that decide what its JSON is. A
// time.Time has, but its JSON is known: it counts as text.
func OwnJSON(t reflect.Type) bool {
	if t == timeType || t.Kind() == reflect.Pointer {
		return false
	}
	p := reflect.PointerTo(t)                      // has the methods of t as well
	_, from := p.MethodByName("UnmarshalJSONFrom") // of encoding/json/v2
	_, to := p.MethodByName("MarshalJSONTo")
	return from || to || slices.ContainsFunc(jsonTypes, p.Implements)
}

// OwnText reports whether a type is written as a JSON string by its own methods.
func OwnText(t reflect.Type) bool {
	return t.Kind() != reflect.Pointer && !OwnJSON(t) &&
		slices.ContainsFunc(textTypes, reflect.PointerTo(t).Implements)
}

// deref returns what t points to, or t when it is no pointer.
func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// member returns the schema of a member, with what its tags say.
func (b *builder) member(f Field) (*Schema, error) {
	base := deref(f.Type)
	s, err := b.of(base)
	if err != nil {
		return nil, err
	}
	if f.Quoted {
		s = &Schema{Type: "string", Pattern: `^-?[0-9]`}
	} else {
		err = errors.Join(s.limits(f.Tag, base), s.values(f.Tag, base), s.keywords(f.Tag, base),
			s.examples(f.Tag, base))
	}
	err = errors.Join(err, ForeignTag(f.Tag))
	if b.tools {
		s.Header = f.Tag.Get("header")
	}
	// Of a member that is omitted the nil pointer is not written.
	if f.Type.Kind() == reflect.Pointer && !f.Omitted && !f.Quoted {
		s = b.nullable(s)
	}
	s.Title = cmp.Or(f.Tag.Get("title"), s.Title)
	s.Description = cmp.Or(f.Doc(), s.Description)
	raw, defaultErr := f.Default()
	s.Default = raw
	return s, errors.Join(err, defaultErr)
}

// limits applies min and max.
func (s *Schema) limits(tag reflect.StructTag, t reflect.Type) error {
	var low, high *Raw
	switch {
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64:
		low, high = &s.Minimum, &s.Maximum
	case stringType(t):
		low, high = &s.MinLength, &s.MaxLength
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		low, high = &s.MinItems, &s.MaxItems
	case t.Kind() == reflect.Map:
		low, high = &s.MinProperties, &s.MaxProperties
	}
	return errors.Join(limit(tag, "min", low, t), limit(tag, "max", high, t))
}

func limit(tag reflect.StructTag, name string, to *Raw, t reflect.Type) error {
	text, ok := tag.Lookup(name)
	switch {
	case !ok:
		return nil
	case to == nil:
		return fmt.Errorf("the tag %s does not apply to %s", name, t)
	case !isNumber(text):
		return fmt.Errorf("the tag %s:%q is no number", name, text)
	}
	*to = Raw(text)
	return nil
}

func isNumber(text string) bool {
	var n float64
	return jsonv2.Unmarshal([]byte(text), &n) == nil && text != "null"
}

func stringType(t reflect.Type) bool {
	return OwnText(t) || t == timeType || t.Kind() == reflect.String && !OwnJSON(t)
}

// elements returns the schema of the elements of lists, which may be lists of lists, or else s.
func (s *Schema) elements(t reflect.Type) (*Schema, reflect.Type) {
	for (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && s.Items != nil {
		if s, t = s.Items, deref(t.Elem()); len(s.AnyOf) > 0 { // with null
			s = s.AnyOf[0]
		}
	}
	return s, t
}

// values applies enum, pattern and format.
func (s *Schema) values(tag reflect.StructTag, t reflect.Type) error {
	s, t = s.elements(t)
	if text, ok := tag.Lookup("enum"); ok {
		for value := range strings.SplitSeq(text, ",") {
			raw, err := literal(value, t)
			if err != nil {
				return fmt.Errorf("the tag enum: %w", err)
			}
			s.Enum = append(s.Enum, raw)
		}
		if _, null := s.Type.([]string); null { // elements that are pointers
			s.Enum = append(s.Enum, Raw("null"))
		}
	}
	if text, ok := tag.Lookup("pattern"); ok {
		if _, err := regexp.Compile(text); err != nil {
			return fmt.Errorf("the tag pattern: %w", err)
		}
		s.Pattern = text
	}
	if text, ok := tag.Lookup("format"); ok {
		s.Format = text
	}
	return nil
}

// Default returns the JSON of what an absent member means, nil when its tags do not say.
func (f *Field) Default() (Raw, error) {
	text, ok := f.Tag.Lookup("default")
	if !ok {
		return nil, nil
	}
	raw, err := literal(text, deref(f.Type))
	if err != nil {
		return nil, fmt.Errorf("the tag default: %w", err)
	}
	if f.Quoted {
		return jsonv2.Append(nil, string(raw))
	}
	return raw, nil
}

// literal reads a value from a tag: a string as it is, anything else as JSON.
func literal(text string, t reflect.Type) (Raw, error) {
	if stringType(t) {
		return jsonv2.Append(nil, text)
	}
	v := reflect.New(t)
	raw := bytes.TrimSpace([]byte(text))
	if err := jsonv2.Unmarshal(raw, v.Interface()); err != nil {
		return nil, fmt.Errorf("%q is no JSON for %s", text, t)
	}
	return raw, nil
}

// Elicitation returns the schema of a form that fills in a struct. Its fields are strings, numbers,
// booleans, times, and lists of strings to select from: a form is flat (MCP 2026-07-28,
// client/elicitation, "Requested Schema"). The error names the field that does not fit into one.
//
// The tag enum makes a string a choice and a list of strings a choice of
// several; titles names the options for people.
func Elicitation(t reflect.Type) ([]byte, error) {
	t = deref(t)
	if t.Kind() != reflect.Struct || opaque(t) {
		return nil, fmt.Errorf("%s is no form: take a struct with the fields of the form", t)
	}
	fields, err := Fields(t)
	if err != nil {
		return nil, err
	}
	b := newBuilder(localDefs)
	b.nulls = absent
	form := &Schema{Type: "object", Properties: Members{}}
	for _, f := range fields {
		s, err := b.formField(f)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		form.Properties = append(form.Properties, Member{f.Name, s})
		if !f.Optional {
			form.Required = append(form.Required, f.Name)
		}
	}
	return form.JSON()
}

// formFormats are the formats that a form knows.
var formFormats = []string{"", "email", "uri", "date", "date-time"}

func (b *builder) formField(f Field) (*Schema, error) {
	t := deref(f.Type)
	list := t.Kind() == reflect.Slice
	if list {
		t = deref(t.Elem())
	}
	k := t.Kind()
	switch {
	case f.Quoted:
		return nil, errors.New("a form has no numbers in strings")
	case OwnSchema(t):
		return nil, fmt.Errorf("a form has no fields of type %s, which has its own schema", f.Type)
	case list && (!stringType(t) || t == timeType || f.Tag.Get("enum") == ""):
		return nil, errors.New("a list in a form must be one of strings, with the tag enum")
	case stringType(t), !opaque(t) && k >= reflect.Bool && k <= reflect.Float64:
	default:
		return nil, fmt.Errorf(
			"a form has no fields of type %s, only strings, numbers, booleans and lists of strings", f.Type)
	}
	s, err := b.member(f)
	if err != nil {
		return nil, err
	}
	if s.Examples != nil || s.UniqueItems {
		return nil, errors.New(
			"a form has neither examples nor uniqueItems; use a default or the tag doc")
	}
	return f.options(s, t, list)
}

// options checks what a field selects from.
func (f *Field) options(s *Schema, t reflect.Type, list bool) (*Schema, error) {
	options := s
	if list {
		options = s.Items
	}
	switch {
	case len(options.Enum) > 0 && !stringType(t):
		return nil, errors.New("the values of enum must be strings in a form")
	case options.Pattern != "":
		return nil, errors.New("a form has no patterns; check the answer instead")
	case list && options.Format != "", !slices.Contains(formFormats, options.Format):
		return nil, fmt.Errorf(
			"a form has no format %q here, only email, uri, date and date-time of a string", options.Format)
	}
	return s, options.entitle(f.Tag, list)
}

// entitle gives the values of enum the names of the tag titles.
func (s *Schema) entitle(tag reflect.StructTag, list bool) error {
	text, ok := tag.Lookup("titles")
	if !ok {
		return nil
	}
	titles := strings.Split(text, ",")
	if len(titles) != len(s.Enum) {
		return fmt.Errorf("the tag titles has %d titles for %d values of enum", len(titles), len(s.Enum))
	}
	var options []*Schema
	for i, title := range titles {
		options = append(options, &Schema{Title: title, Const: s.Enum[i]})
	}
	s.Enum = nil
	if list {
		s.Type, s.AnyOf = nil, options
	} else {
		s.OneOf = options
	}
	return nil
}
