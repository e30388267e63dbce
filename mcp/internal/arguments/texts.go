package arguments

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Texts binds the arguments of a prompt, which are texts, to the fields of a struct. It does not
// change and is safe for concurrent use.
type Texts struct{ fields []textField }

// textField is an argument.
type textField struct {
	schema.Field
	textKind
	values   []string // the only texts that it takes; nil: any that parse accepts
	fallback string   // what an absent argument means; of an argument with a default tag
}

// textKind is how the texts of one type are read.
type textKind struct {
	parse func(v reflect.Value, text string) error // v is settable and no pointer
	want  string                                   // follows "must be"
	own   bool                                     // a method of the type parses; its error says more
}

// NewTexts describes the arguments that a struct stands for. The error names the first field that
// cannot be one.
func NewTexts(t reflect.Type) (*Texts, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no struct", t)
	}
	fields, rest, err := schema.AllFields(t)
	if err != nil {
		return nil, err
	}
	if rest != nil {
		return nil, fmt.Errorf("%s: a field for all other arguments is not supported", t)
	}
	x := &Texts{}
	for _, f := range fields {
		one, err := newTextField(f)
		if err != nil {
			return nil, fmt.Errorf("%s: the argument %q: %w", t, f.Name, err)
		}
		x.fields = append(x.fields, one)
	}
	return x, nil
}

func newTextField(field schema.Field) (f textField, err error) {
	t := field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	f = textField{Field: field}
	if f.textKind, err = textKindOf(t); err != nil {
		return f, err
	}
	for _, tag := range append(schema.LimitTags(), "format", "header") {
		if _, ok := f.Tag.Lookup(tag); ok && tag != "enum" {
			return f, fmt.Errorf("the tag %s is not supported for prompts: the function has to check this", tag)
		}
	}
	if t.Kind() == reflect.Bool && f.want == boolTexts {
		f.values = []string{"true", "false"}
	}
	if enum, ok := f.Tag.Lookup("enum"); ok {
		f.values = strings.Split(enum, ",")
		f.want = "one of " + strings.Join(f.values, ", ")
		for _, value := range f.values {
			if err := f.parse(reflect.New(t).Elem(), value); err != nil {
				return f, fmt.Errorf("the tag enum: %q is no %s", value, t)
			}
		}
	}
	if text, ok := f.Tag.Lookup("default"); ok {
		if err := f.bind(reflect.New(t).Elem(), text); err != nil {
			return f, fmt.Errorf("the tag default: %w", err)
		}
		f.fallback = text
	}
	return f, schema.ForeignTag(f.Tag)
}

const boolTexts = "true or false"

// textKindOf returns how the texts of a type that is no pointer are read.
func textKindOf(t reflect.Type) (textKind, error) {
	switch p := reflect.PointerTo(t); {
	case p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return textKind{func(v reflect.Value, text string) error {
			u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
			if !ok {
				return fmt.Errorf("%s does not take text", v.Type()) // never: it implements it
			}
			return u.UnmarshalText([]byte(text))
		}, "a valid " + t.String(), true}, nil
	case t == reflect.TypeFor[time.Duration]():
		return textKind{func(v reflect.Value, text string) error {
			d, err := time.ParseDuration(text)
			v.SetInt(int64(d))
			return err
		}, "a duration such as 1m30s", false}, nil
	case schema.OwnJSON(t):
		return textKind{}, fmt.Errorf("%s has its own JSON: it needs a method UnmarshalText", t)
	}
	switch kind := t.Kind(); {
	case kind == reflect.String:
		return textKind{func(v reflect.Value, text string) error { v.SetString(text); return nil }, "a string", false}, nil
	case kind == reflect.Bool:
		return textKind{func(v reflect.Value, text string) error {
			if text != "true" && text != "false" {
				return strconv.ErrSyntax
			}
			v.SetBool(text == "true")
			return nil
		}, boolTexts, false}, nil
	case kind >= reflect.Int && kind <= reflect.Int64:
		most := int64(math.MaxInt64) >> (64 - t.Bits())
		return textKind{func(v reflect.Value, text string) error {
			n, err := strconv.ParseInt(text, 10, t.Bits())
			v.SetInt(n)
			return err
		}, fmt.Sprintf("an integer from %d to %d", -most-1, most), false}, nil
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		return textKind{func(v reflect.Value, text string) error {
			n, err := strconv.ParseUint(text, 10, t.Bits())
			v.SetUint(n)
			return err
		}, fmt.Sprintf("an integer from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits())), false}, nil
	case kind == reflect.Float32, kind == reflect.Float64:
		return textKind{func(v reflect.Value, text string) error {
			n, err := strconv.ParseFloat(text, t.Bits())
			if v.SetFloat(n); math.IsNaN(n) || math.IsInf(n, 0) {
				return strconv.ErrRange
			}
			return err
		}, "a number", false}, nil
	}
	return textKind{}, fmt.Errorf("%s is not supported: use a string, a bool, a number, a type with a method UnmarshalText, or a pointer to one", t)
}

// Arguments returns how the prompt describes its arguments, in the order of the fields.
func (x *Texts) Arguments() []spec.PromptArgument {
	var all []spec.PromptArgument
	for i := range x.fields {
		f := &x.fields[i]
		all = append(all, spec.PromptArgument{Name: f.Name, Title: f.Tag.Get("title"), Description: f.Doc(), Required: !f.Optional})
	}
	return all
}

// Complete returns the values of an argument that begin with the prefix, in any case of letters, in
// the order of its enum. known is false when its values are not known.
func (x *Texts) Complete(argument, prefix string) (values []string, known bool) {
	i := x.index(argument)
	if i < 0 || x.fields[i].values == nil {
		return nil, false
	}
	for _, value := range x.fields[i].values {
		if len(value) >= len(prefix) && strings.EqualFold(value[:len(prefix)], prefix) {
			values = append(values, value)
		}
	}
	return values, true
}

// Completes reports whether the values of some argument are known.
func (x *Texts) Completes() bool {
	return slices.ContainsFunc(x.fields, func(f textField) bool { return f.values != nil })
}

// Unknown returns the first, by name, of the arguments that the struct does not have.
func (x *Texts) Unknown(args map[string]string) (name string, found bool) {
	for given := range args {
		if x.index(given) < 0 && (!found || given < name) {
			name, found = given, true
		}
	}
	return name, found
}

func (x *Texts) index(name string) int {
	return slices.IndexFunc(x.fields, func(f textField) bool { return f.Name == name })
}

// Bind sets the fields of v, a settable struct of the type. An optional argument that is empty
// counts as absent. The error names the argument, what it is, and what it must be. Unknown
// arguments have no effect.
func (x *Texts) Bind(v reflect.Value, args map[string]string) error {
	for i := range x.fields {
		f := &x.fields[i]
		text := args[f.Name]
		if f.Optional && text == "" {
			if text = f.fallback; text == "" {
				continue
			}
		}
		if err := f.bind(settable(v, f.Index), text); err != nil {
			return fmt.Errorf("the argument %q %w", Clip(f.Name), err)
		}
	}
	return nil
}

// bind sets a field. The error says what the text must be.
func (f *textField) bind(v reflect.Value, text string) error {
	if f.values != nil && !slices.Contains(f.values, text) {
		return f.wrong(text)
	}
	err := f.parse(v, text)
	switch {
	case err == nil:
		return nil
	case f.own:
		return fmt.Errorf("%w: %s", f.wrong(text), Clip(err.Error()))
	}
	return f.wrong(text)
}

func (f *textField) wrong(text string) error {
	return errors.New("is " + strconv.Quote(Clip(text)) + "; it must be " + f.want)
}

// settable returns the field of a struct, or what it points to, and makes the pointers on the way.
func settable(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v = v.Field(i); v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
	}
	return v
}

// clipBytes bounds what an error repeats of an argument.
const clipBytes = 100

// Clip bounds a text that an error repeats.
func Clip(text string) string {
	if len(text) <= clipBytes {
		return text
	}
	n := clipBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
