package schema

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
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
					return nil, nil, fmt.Errorf("%s.%s: an embedded type that is no plain struct needs a name in its json tag", at.typ, sf.Name)
				}
				if !sf.IsExported() && sf.Type.Kind() == reflect.Pointer {
					return nil, nil, fmt.Errorf("%s.%s: an embedded pointer to an unexported type cannot be set", at.typ, sf.Name)
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
				return f, false, false, errors.New(`the option "embed" of the json tag is for a map with string keys, and stands alone: json:",embed"`)
			}
			f.rest = true
		case "unknown", "inline":
			return f, false, false, fmt.Errorf("the option %q of the json tag is called embed in encoding/json/v2 now: write json:\",embed\"", option)
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

// OwnText reports whether a type is written as a JSON string by its
// own methods.
func OwnText(t reflect.Type) bool {
	return t.Kind() != reflect.Pointer && !OwnJSON(t) && slices.ContainsFunc(textTypes, reflect.PointerTo(t).Implements)
}

// deref returns what t points to, or t when it is no pointer.
func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
