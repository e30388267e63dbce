package arguments

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
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
			return f, fmt.Errorf("the tag %s is not supported for prompts: the function has to check this",
				tag)
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
		return textKind{func(v reflect.Value, text string) error {
			v.SetString(text)
			return nil
		}, "a string", false}, nil
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
	return textKind{},
		fmt.Errorf(
			"%s is not supported: use a string, a bool, a number, a type with a method UnmarshalText, or "+
				"a pointer to one", t)
}

// Arguments returns how the prompt describes its arguments, in the order of the fields.
func (x *Texts) Arguments() []spec.PromptArgument {
	var all []spec.PromptArgument
	for i := range x.fields {
		f := &x.fields[i]
		all = append(all,
			spec.PromptArgument{
				Name: f.Name, Title: f.Tag.Get("title"), Description: f.Doc(),
				Required: !f.Optional,
			})
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

// maxSafe is the largest integer that every JSON implementation has.
const maxSafe = 1<<53 - 1

// Headers returns the headers that repeat arguments, or nil. The arguments that a tool's input
// schema marks with x-mcp-header are repeated, so that what is between client and server can route
// by them (2026-07-28, Streamable HTTP, "Custom Headers from Tool Parameters").
func Headers(marked []schema.Header, arguments jsonrpc.Raw) http.Header {
	if len(marked) == 0 {
		return nil
	}
	out := http.Header{}
	for i := range marked {
		h := &marked[i]
		value, err := mirrored(h, arguments)
		if text, ok := headerText(h, value); ok && err == nil {
			out.Set(spec.HeaderParam+h.Name, spec.EncodeHeader(text))
		}
	}
	return out
}

// CheckHeaders compares headers with the arguments that they repeat (there, "Server Behavior for
// Custom Headers"). The error names the header.
func CheckHeaders(marked []schema.Header, got http.Header, arguments jsonrpc.Raw) error {
	for i := range marked {
		h := &marked[i]
		name := spec.HeaderParam + h.Name
		value, err := mirrored(h, arguments)
		if err == nil {
			err = checkHeader(h, got.Values(name), value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// mirrored returns the argument that a header repeats, or nil when it is absent or null. One that
// is given twice is an error: the router that read the header may have seen the other one.
func mirrored(h *schema.Header, arguments jsonrpc.Raw) (jsonrpc.Raw, error) {
	value := arguments
	for _, name := range h.Path {
		var found jsonrpc.Raw
		for key, v := range scan.Members(value) {
			if string(key) != name {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("the body has the argument %q more than once", name)
			}
			found = v
		}
		value = found
	}
	if string(value) == "null" {
		return nil, nil
	}
	return value, nil
}

// headerText returns the text of an argument in a header. There is none when it
// is of another type than it is declared to be.
func headerText(h *schema.Header, argument jsonrpc.Raw) (text string, ok bool) {
	switch {
	case len(argument) == 0:
		return "", false
	case h.Type == "string" && argument[0] == '"':
		return string(scan.Unquote(argument)), true
	case h.Type == "boolean" && (argument[0] == 't' || argument[0] == 'f'):
		return string(argument), true
	case h.Type != "integer":
		return "", false
	}
	// 42.0 and 4.2e1 are integers, too, and are written as 42.
	f, err := strconv.ParseFloat(string(argument), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafe {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

func checkHeader(h *schema.Header, values []string, argument jsonrpc.Raw) error {
	switch {
	case argument == nil && len(values) == 0:
		return nil
	case argument == nil:
		return errors.New("the argument is not in the body")
	case len(values) != 1:
		return fmt.Errorf("the argument is in the body, but the header is there %d times", len(values))
	}
	value, ok := spec.DecodeHeader(values[0])
	if !ok {
		return errors.New(
			"the value has characters that a header must not have, or is not the Base64 that it says it " +
				"is; encode it as =?base64?…?=")
	}
	if text, ok := headerText(h, argument); ok &&
		(value == text || h.Type == "integer" && sameInteger(value, text)) || value == string(argument) {
		return nil
	}
	return errors.New("the header does not have the value of the argument in the body")
}

// sameInteger compares numbers, as it should be done with integers.
func sameInteger(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y && math.Abs(x) <= maxSafe
}
