package schema

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

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
		err = errors.Join(s.limits(f.Tag, base), s.values(f.Tag, base), s.keywords(f.Tag, base), s.examples(f.Tag, base))
	}
	err = errors.Join(err, ForeignTag(f.Tag))
	if b.tools {
		s.Header = f.Tag.Get("header")
	}
	// Of a member that is omitted the nil pointer is not written.
	if f.Type.Kind() == reflect.Pointer && !f.Omitted && !f.Quoted {
		s = b.nullable(s)
	}
	if title := f.Tag.Get("title"); title != "" {
		s.Title = title
	}
	if doc := f.Doc(); doc != "" {
		s.Description = doc
	}
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

// Default returns the JSON of what an absent member means, nil when its tags do
// not say.
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
