package schema

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

type builder struct {
	prefix string
	closed bool
	share  bool // each named struct gets a definition
	nulls  nulls
	tools  bool // the tag header counts
	depth  int  // of the calls of root

	uses  map[reflect.Type]int  // how often a type is met
	loops map[reflect.Type]bool // types that contain themselves
	names map[reflect.Type]string
	defs  map[string]*Schema
}

// nulls is how a schema says that a pointer may be nil.
type nulls uint8

const (
	inType  nulls = iota // "type": ["integer", "null"]
	inAnyOf              // "anyOf": [{"type": "integer"}, {"type": "null"}]
	absent               // not at all: who has no value leaves it out
)

func newBuilder(prefix string) *builder {
	return &builder{
		prefix: prefix, uses: map[reflect.Type]int{}, loops: map[reflect.Type]bool{},
		names: map[reflect.Type]string{}, defs: map[string]*Schema{},
	}
}

// survey finds the types that need their own definition.
func (b *builder) survey(t reflect.Type) { b.countUses(t, map[reflect.Type]bool{}) }

// countUses counts the uses of named types. Only these can contain themselves, and
// []T must not hide what is in T.
func (b *builder) countUses(t reflect.Type, path map[reflect.Type]bool) {
	if t.Name() != "" {
		b.loops[t] = b.loops[t] || path[t]
		if b.uses[t]++; b.uses[t] > 1 || opaque(t) {
			return
		}
		path[t] = true
		defer delete(path, t)
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		b.countUses(t.Elem(), path)
	case reflect.Struct:
		fields, rest, _ := AllFields(t) // building reports the error
		for i := range fields {
			b.countUses(fields[i].Type, path)
		}
		if rest != nil {
			b.countUses(rest.Type.Elem(), path)
		}
	}
}

// opaque reports whether a type is described without looking into it.
func opaque(t reflect.Type) bool {
	return t == timeType || OwnSchema(t) || OwnJSON(t) || OwnText(t)
}

func (b *builder) defined(t reflect.Type) bool {
	if t.Name() == "" || opaque(t) {
		return false
	}
	return b.loops[t] || t.Kind() == reflect.Struct && t.NumField() > 0 && (b.share || b.uses[t] > 1)
}

// of returns the schema of t, or a reference to it.
func (b *builder) of(t reflect.Type) (*Schema, error) {
	if !b.defined(t) {
		return b.root(t)
	}
	name, known := b.names[t]
	if !known {
		name = b.name(t)
		b.names[t] = name
		b.defs[name] = nil // taken; t may refer to itself
		s, err := b.root(t)
		if err != nil {
			return nil, err
		}
		b.defs[name] = s
	}
	return &Schema{Ref: b.prefix + name}, nil
}

// root returns the schema of t itself.
func (b *builder) root(t reflect.Type) (*Schema, error) {
	b.depth++
	defer func() { b.depth-- }()
	switch {
	case OwnSchema(t):
		return ownSchema(t, b.depth > 1 || b.share)
	case t == timeType:
		return &Schema{Type: "string", Format: "date-time"}, nil
	case t == durationType:
		return &Schema{Type: "integer", Description: "nanoseconds"}, nil
	case OwnJSON(t):
		return &Schema{}, nil
	case OwnText(t):
		return &Schema{Type: "string"}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: "boolean"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &Schema{Type: "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return &Schema{Type: "integer", Minimum: Raw("0")}, nil
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: "number"}, nil
	case reflect.String:
		return &Schema{Type: "string"}, nil
	case reflect.Interface:
		return &Schema{}, nil
	case reflect.Pointer:
		s, err := b.of(t.Elem())
		if err != nil {
			return nil, err
		}
		return b.nullable(s), nil
	case reflect.Slice, reflect.Array:
		return b.array(t)
	case reflect.Map:
		return b.dictionary(t)
	case reflect.Struct:
		return b.object(t)
	default:
		return nil, fmt.Errorf("%s has no JSON", t)
	}
}

// nullable also allows null.
func (b *builder) nullable(s *Schema) *Schema {
	name, plain := s.Type.(string)
	switch {
	case b.nulls == absent, s.own == nil && s.Ref == "" && !plain: // anything, or nullable already
		return s
	case b.nulls == inAnyOf, s.own != nil, s.Ref != "":
		return &Schema{AnyOf: []*Schema{s, {Type: "null"}}}
	}
	s.Type = []string{name, "null"}
	if len(s.Enum) > 0 {
		s.Enum = append(s.Enum, Raw("null"))
	}
	return s
}

func (b *builder) array(t reflect.Type) (*Schema, error) {
	if t.Elem().Kind() == reflect.Uint8 && !opaque(t.Elem()) {
		return &Schema{Type: "string", ContentEncoding: "base64"}, nil
	}
	items, err := b.of(t.Elem())
	if err != nil {
		return nil, err
	}
	s := &Schema{Type: "array", Items: items}
	if t.Kind() == reflect.Array {
		s.MinItems = Raw(strconv.Itoa(t.Len()))
		s.MaxItems = s.MinItems
	}
	return s, nil
}

func (b *builder) dictionary(t reflect.Type) (*Schema, error) {
	switch k := t.Key().Kind(); {
	case OwnText(t.Key()):
	case k == reflect.String, k >= reflect.Int && k <= reflect.Uintptr:
	default:
		return nil, fmt.Errorf("%s: a JSON object has no names of type %s", t, t.Key())
	}
	values, err := b.of(t.Elem())
	if err != nil {
		return nil, err
	}
	return &Schema{Type: "object", AdditionalProperties: values}, nil
}

func (b *builder) object(t reflect.Type) (*Schema, error) {
	fields, rest, err := AllFields(t)
	if err != nil {
		return nil, err
	}
	s := &Schema{Type: "object"}
	for _, f := range fields {
		m, err := b.member(f)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		s.Properties = append(s.Properties, Member{f.Name, m})
		if !f.Optional {
			s.Required = append(s.Required, f.Name)
		}
	}
	switch {
	case rest != nil:
		s.AdditionalProperties, err = b.of(rest.Type.Elem())
	case b.closed:
		s.AdditionalProperties = false
	}
	return s, err
}

// sorted returns the definitions.
func (b *builder) sorted() (defs Members) {
	for name, s := range b.defs {
		defs = append(defs, Member{name, s})
	}
	slices.SortFunc(defs, func(x, y Member) int { return strings.Compare(x.Name, y.Name) })
	return defs
}

// name finds a name for a definition: the type's, with its package's before it
// when that is taken, and a number after it when that is taken too.
func (b *builder) name(t reflect.Type) string {
	short := plain(t.Name())
	long := plain(path.Base(t.PkgPath())) + "." + short
	name := short
	for n := 2; ; n++ {
		if _, taken := b.defs[name]; !taken {
			return name
		}
		if name = long; n > 2 {
			name = long + strconv.Itoa(n-1)
		}
	}
}

// plain writes a type's name with the characters that a component of an OpenRPC
// document may have. Type arguments lose their packages.
func plain(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("[],* {};", r) })
	for i, p := range parts {
		p = p[strings.LastIndexByte(p, '/')+1:]
		parts[i] = p[strings.LastIndexByte(p, '.')+1:]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '.', r == '-', r == '_', '0' <= r && r <= '9', 'a' <= r && r <= 'z',
			'A' <= r && r <= 'Z':
			return r
		}
		return '_'
	}, strings.Join(parts, "_"))
}

// Input returns the schema of the arguments of a tool, which are a struct or a
// map. It allows no members but those of the structs. Nothing may be null: who
// has no value leaves the member out.
//
// The schemas of tools have no lists of types, which many models' interfaces
// do not take.
func Input(t reflect.Type) (*Schema, error) {
	t = deref(t)
	b := newBuilder(localDefs)
	b.closed, b.nulls, b.tools = true, absent, true
	s, err := b.alone(t)
	if err != nil {
		return nil, err
	}
	if s.own == nil && s.Type != "object" {
		return nil, fmt.Errorf("%s is no JSON object", t)
	}
	text, err := s.JSON()
	if err != nil {
		return nil, err
	}
	if _, err := Headers(text); err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	return s, nil
}

// Output returns the schema of the structured result of a tool. It leaves room
// for members that are added later. A pointer that is written when it is nil may
// be null.
func Output(t reflect.Type) (*Schema, error) {
	b := newBuilder(localDefs)
	b.nulls = inAnyOf
	return b.alone(deref(t))
}

// Constrained reports whether the schema asks for more than the type that it was
// made of guarantees.
func (s *Schema) Constrained() bool {
	if s == nil {
		return false
	}
	limits := []Raw{
		s.Minimum, s.Maximum, s.MinLength, s.MaxLength, s.MinItems, s.MaxItems, s.MinProperties,
		s.MaxProperties,
	}
	more, _ := s.AdditionalProperties.(*Schema)
	member := func(m Member) bool { return m.Schema.Constrained() }
	return s.own != nil || s.UniqueItems || len(s.Enum) > 0 || s.Pattern != "" ||
		s.Items.Constrained() || more.Constrained() ||
		slices.ContainsFunc(limits, func(limit Raw) bool { return limit != nil }) ||
		slices.ContainsFunc(s.AnyOf, (*Schema).Constrained) ||
		slices.ContainsFunc(s.Properties, member) || slices.ContainsFunc(s.Defs, member)
}

// A Header is an argument of a tool that a client repeats in an HTTP header.
type Header struct {
	Name string   // what comes after Mcp-Param-
	Path []string // the names of the members that lead to the argument
	Type string   // integer, string or boolean
}

// Headers returns the arguments that the input schema of a tool marks with
// x-mcp-header, by path. The error says which of the constraints of MCP a mark
// breaks (2026-07-28, basic/transports/streamable-http, "Schema Extension").
func Headers(schema []byte) ([]Header, error) {
	var root any
	if err := jsonv2.Unmarshal(schema, &root); err != nil {
		return nil, errors.New("the schema is no JSON, or has a member twice")
	}
	h := headers{taken: map[string]string{}}
	if err := h.walk(root, nil, ""); err != nil {
		return nil, err
	}
	return h.found, nil
}

// HeaderKeyword is the name of the mark.
const HeaderKeyword = "x-mcp-header"

type headers struct {
	found []Header
	taken map[string]string // paths by names in lower case
}

// parts are the keywords below which there are schemas, but for properties.
var parts = []string{
	"additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames",
	"unevaluatedProperties",
	"unevaluatedItems", "additionalItems", "contentSchema", "allOf", "anyOf", "oneOf", "prefixItems",
	"patternProperties",
	"$defs", "definitions", "dependentSchemas", "dependencies",
}

// byName are those of the parts with members that are schemas.
var byName = []string{
	"patternProperties", "$defs", "definitions", "dependentSchemas",
	"dependencies",
}

// walk looks through a schema. path leads to what it describes; astray is the
// keyword, if any, on the way that is not properties.
func (h *headers) walk(schema any, path []string, astray string) error {
	s, _ := schema.(map[string]any)
	if mark, ok := s[HeaderKeyword]; ok {
		if err := h.add(mark, s["type"], path, astray); err != nil {
			return err
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if err := h.walk(properties[name], append(slices.Clip(path), name), astray); err != nil {
			return err
		}
	}
	for _, keyword := range parts {
		if err := h.walkPart(s[keyword], keyword, path); err != nil {
			return err
		}
	}
	return nil
}

func (h *headers) walkPart(part any, keyword string, path []string) error {
	var schemas []any
	switch part := part.(type) {
	case []any:
		schemas = part
	case map[string]any:
		schemas = []any{part}
		if slices.Contains(byName, keyword) {
			schemas = slices.Collect(maps.Values(part))
		}
	}
	for _, schema := range schemas {
		if err := h.walk(schema, path, keyword); err != nil {
			return err
		}
	}
	return nil
}

func (h *headers) add(mark, typ any, path []string, astray string) error {
	at := cmp.Or(strings.Join(path, "."), "the root")
	name, ok := mark.(string)
	switch {
	case astray != "":
		return fmt.Errorf(
			"%s below %q, in %s: it may only be in a property that is reached from the root by "+
				"properties alone", HeaderKeyword, astray, at)
	case len(path) == 0:
		return fmt.Errorf("%s in the root of the schema: it may only be in a property", HeaderKeyword)
	case !ok || !token(name):
		return fmt.Errorf(
			"%s of %s: %.100q is no name of a header: it must be letters, digits and !#$%%&'*+-.^_`|~",
			HeaderKeyword, at, fmt.Sprint(mark))
	}
	kind, _ := typ.(string)
	if kind != "integer" && kind != "string" && kind != "boolean" {
		return fmt.Errorf("%s of %s: the type of the property must be integer, string or boolean",
			HeaderKeyword, at)
	}
	lower := strings.ToLower(name)
	if other, taken := h.taken[lower]; taken {
		return fmt.Errorf("%s of %s: %s has the name %q already; case makes no difference", HeaderKeyword,
			at, other, name)
	}
	h.taken[lower] = at
	h.found = append(h.found, Header{name, path, kind})
	return nil
}

// token reports whether s is a token of RFC 9110 §5.6.2.
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}
