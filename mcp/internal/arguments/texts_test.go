package arguments

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type (
	colour string
	parity struct{ odd bool }

	Embedded struct {
		Inner int16 `json:"inner,omitempty"`
	}
	everyText struct {
		*Embedded
		S  string        `json:"s" doc:"a string" title:"S"`
		C  colour        `json:"c,omitempty" enum:"red,Red wine,blue" jsonschema:"a colour"`
		B  bool          `json:"b"`
		I  int           `json:"i"`
		I8 int8          `json:"i8"`
		U  uint          `json:"u"`
		U8 uint8         `json:"u8"`
		N  uint16        `json:"n" enum:"1,2,3" default:"2"`
		F  float64       `json:"f"`
		G  float32       `json:"g,omitzero"`
		D  time.Duration `json:"d"`
		P  parity        `json:"p"`
		PS *string       `json:"ps"`
		PB *bool         `json:"pb"`
		PP *parity       `json:"pp"`
		T  time.Time     `json:"t,omitzero"`
		No string        `json:"-"`
	}
)

func (p parity) MarshalText() ([]byte, error) {
	return []byte(map[bool]string{true: "odd", false: "even"}[p.odd]), nil
}

func (p *parity) UnmarshalText(text []byte) error {
	if p.odd = string(text) == "odd"; !p.odd && string(text) != "even" {
		return errors.New("write odd or even")
	}
	return nil
}

func textsOf[T any](tb testing.TB) *Texts {
	tb.Helper()
	x, err := NewTexts(reflect.TypeFor[T]())
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// written returns the text of a field, "" of a nil pointer.
func written(tb testing.TB, v reflect.Value) string {
	tb.Helper()
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch own := v.Interface().(type) {
	case time.Duration:
		return own.String()
	case encoding.TextMarshaler:
		text, err := own.MarshalText()
		if err != nil {
			tb.Fatal(err)
		}
		return string(text)
	case float64:
		return strconv.FormatFloat(own, 'g', -1, 64)
	case float32:
		return strconv.FormatFloat(float64(own), 'g', -1, 32)
	}
	return fmt.Sprint(v.Interface())
}

// fieldOf returns a field, or the zero value when an embedded pointer is nil.
func fieldOf(v reflect.Value, f schema.Field) reflect.Value {
	if at, err := v.FieldByIndexErr(f.Index); err == nil {
		return at
	}
	return reflect.Zero(f.Type)
}

// What the texts of any values are bound to is these values.
func TestTextsBindWhatWasSent(t *testing.T) {
	x := textsOf[everyText](t)
	numbers := []uint16{1, 2, 3}
	colours := []colour{"", "red", "Red wine", "blue"}
	holds := func(
		inner int16, s string, c, n uint, b bool, i int, i8 int8, u uint, u8 uint8, f float64,
		g float32, d int64, p bool, ps *string, pb, pp *bool, seconds uint32,
	) bool {
		want := everyText{
			Embedded: &Embedded{inner}, S: s, C: colours[c%4], B: b, I: i, I8: i8, U: u, U8: u8,
			N: numbers[n%3], F: f, G: g,
			D: time.Duration(d), P: parity{p}, PS: ps, PB: pb, T: time.Unix(int64(seconds), 0).UTC(),
		}
		if pp != nil {
			want.PP = &parity{*pp}
		}
		if ps != nil && *ps == "" {
			want.PS = nil // an empty optional argument counts as absent
		}
		args := map[string]string{}
		for _, f := range x.fields {
			args[f.Name] = written(t, fieldOf(reflect.ValueOf(want), f.Field))
		}
		var got everyText
		if err := x.Bind(reflect.ValueOf(&got).Elem(), args); err != nil {
			t.Log(args, err)
			return false
		}
		return reflect.DeepEqual(got, want)
	}
	if err := quick.Check(holds, nil); err != nil {
		t.Error(err)
	}
}

// FuzzTexts wants each text that an argument accepts to be bound to one value, and an error to be
// bounded.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{
		"", "red", "true", "-128", "255", "1e3", "0x1p-2", "1_0", "NaN",
		"-Inf", "1m30s", "odd", "2026-07-28T00:00:00Z", strings.Repeat("é", 99),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, one := range textsOf[everyText](t).fields {
			x := &Texts{fields: []textField{one}}
			var got, again everyText
			if err := x.Bind(reflect.ValueOf(&got).Elem(), map[string]string{one.Name: text}); err != nil {
				if len(err.Error()) > 1000 || !strings.Contains(err.Error(), strconv.Quote(one.Name)) {
					t.Errorf("%s: %v", one.Name, err)
				}
				continue
			}
			value := written(t, fieldOf(reflect.ValueOf(got), one.Field))
			if err := x.Bind(reflect.ValueOf(&again).Elem(),
				map[string]string{one.Name: value}); err != nil {
				t.Errorf("%s: %q is %q: %v", one.Name, text, value, err)
			}
			if value != written(t, fieldOf(reflect.ValueOf(again), one.Field)) {
				t.Errorf("%s: %q is %+v, then %+v", one.Name, text, got, again)
			}
		}
	})
}

func TestTextsRefused(t *testing.T) {
	valid := map[string]string{
		"s": "", "b": "true", "i": "0", "i8": "0", "u": "0", "u8": "0",
		"f": "0", "d": "0s", "p": "odd",
	}
	x := textsOf[everyText](t)
	var got everyText
	if err := x.Bind(reflect.ValueOf(&got).Elem(), valid); err != nil || got.N != 2 ||
		got.Embedded != nil || got.PS != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"c", "Red", `is "Red"; it must be one of red, Red wine, blue`},
		{"b", "True", `is "True"; it must be true or false`},
		{"b", "", `is ""; it must be true or false`},
		{"pb", "1", `is "1"; it must be true or false`},
		{"i", "1.5", `is "1.5"; it must be an integer from -9223372036854775808 to 9223372036854775807`},
		{"i8", "-129", `is "-129"; it must be an integer from -128 to 127`},
		{"inner", "32768", `is "32768"; it must be an integer from -32768 to 32767`},
		{"u", "-1", `is "-1"; it must be an integer from 0 to 18446744073709551615`},
		{"u8", "256", `is "256"; it must be an integer from 0 to 255`},
		{"n", "4", `is "4"; it must be one of 1, 2, 3`},
		{"f", "NaN", `is "NaN"; it must be a number`},
		{"g", "1e39", `is "1e39"; it must be a number`},
		{"d", "90", `is "90"; it must be a duration such as 1m30s`},
		{"p", "old", `is "old"; it must be a valid arguments.parity: write odd or even`},
		{"i", strings.Repeat("é", 1000), `is "` + strings.Repeat("é", 50) + `…"; it must be`},
	} {
		args := map[string]string{}
		maps.Copy(args, valid)
		args[c.name] = c.text
		err := x.Bind(reflect.ValueOf(&got).Elem(), args)
		if err == nil ||
			!strings.HasPrefix(err.Error(), fmt.Sprintf("the argument %q %s", c.name, c.want)) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func TestTextsPublished(t *testing.T) {
	x := textsOf[everyText](t)
	all := x.Arguments()
	var names strings.Builder
	for _, a := range all {
		if names.WriteString(a.Name); a.Required {
			names.WriteString("!")
		}
		names.WriteString(" ")
	}
	if want := "inner s! c b! i! i8! u! u8! n f! g d! p! ps pb pp t "; names.String() != want {
		t.Errorf("got %s, want %s", names.String(), want)
	}
	if want := (spec.PromptArgument{
		Name: "s", Title: "S", Description: "a string",
		Required: true,
	}); all[1] != want || all[2].Description != "a colour" {
		t.Errorf("%+v", all[1:3])
	}
	for _, c := range []struct {
		argument, prefix, want string
		known                  bool
	}{
		{"c", "", "[red Red wine blue]", true},
		{"c", "rED", "[red Red wine]", true},
		{"c", "red wines", "[]", true},
		{"b", "t", "[true]", true},
		{"pb", "", "[true false]", true},
		{"n", "3", "[3]", true},
		{"s", "", "[]", false},
		{"x", "", "[]", false},
	} {
		if got, known := x.Complete(c.argument, c.prefix); fmt.Sprint(got) != c.want || known != c.known {
			t.Errorf("%s %q: %v, %t", c.argument, c.prefix, got, known)
		}
	}
	if !x.Completes() || textsOf[struct{ A string }](t).Completes() {
		t.Error("Completes does not follow the values that are known")
	}
	if name, found := x.Unknown(map[string]string{"s": "", "y": "", "x": ""}); name != "x" || !found {
		t.Error(name, found)
	}
}

type ownJSON string

func (o *ownJSON) UnmarshalJSON([]byte) error { return nil }

func TestTextsUnsupported(t *testing.T) {
	for want, v := range map[string]any{
		`int is no struct`: 1,
		`the argument "A": []string is not supported: use a string`: struct{ A []string }{},
		`the argument "A": map[string]string is not supported`:      struct{ A map[string]string }{},
		`the argument "A": struct {} is not supported`:              struct{ A struct{} }{},
		`the argument "A": interface {} is not supported`:           struct{ A any }{},
		`the argument "A": *int is not supported`:                   struct{ A **int }{},
		`the argument "A": uintptr is not supported`:                struct{ A uintptr }{},
		`the argument "A": complex128 is not supported`:             struct{ A complex128 }{},
		`the argument "A": arguments.ownJSON has its own JSON`:      struct{ A ownJSON }{},
		`the argument "A": the tag min is not supported for prompts`: struct {
			A int `min:"1"`
		}{},
		`the argument "A": the tag enum: "x" is no int`: struct {
			A int `enum:"1,x"`
		}{},
		`the argument "A": the tag default: is "3"; it must be one of 1, 2`: struct {
			A int `enum:"1,2" default:"3"`
		}{},
		`the argument "A": the tag jsonschema:"required" is a list of keywor`: struct {
			A int `jsonschema:"required"`
		}{},
		`a field for all other arguments is not supported`: struct {
			A map[string]string `json:",embed"`
		}{},
	} {
		if _, err := NewTexts(reflect.TypeOf(v)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
