package openapi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
)

const (
	maxSchemaNesting = 48
	maxDefault       = 200 // bytes of a default that is shown
	maxExample       = 100
)

// A shaper turns schemas of a document into schemas of tools: JSON Schema 2020-12, without
// what models do not need. References become $defs; nothing is copied into its place, as
// schemas may be recursive, and large.
type shaper struct {
	d          *document
	slim       Slim
	components map[string]*component
	patterns   map[string]bool // whether they compile
	keywords   map[string]func(*schemaWriter, *keyword) error
	response   bool // schemas are those of answers
	work       int  // bytes of schemas that may still be read
}

// errWork is behind the error of a document with schemas that lead to each other too often.
var errWork = errors.New("the schemas of the document are too complex")

// spend counts reading a schema: in a document with schemas that lead to each other that may be
// without end.
func (s *shaper) spend(n node) error {
	if s.work -= len(n.raw); s.work < 0 {
		return errWork
	}
	return nil
}

// A component is a schema that references lead to.
type component struct {
	target
	name  string // in $defs
	done  bool
	err   error
	shape fragment
}

// A fragment is a schema of a tool, and the components that it refers to.
type fragment struct {
	raw  []byte
	refs []*component
}

// component returns what a reference leads to.
func (s *shaper) component(from *file, to string) (*component, error) {
	t, err := s.d.resolve(from, to)
	if err != nil {
		return nil, err
	}
	if c := s.components[t.key()]; c != nil {
		return c, nil
	}
	c := &component{target: t, name: defName(t)}
	s.components[t.key()] = c
	return c, nil
}

// defName is the last part of a pointer, which is what people call a schema.
func defName(t target) string {
	at := strings.LastIndexByte(t.pointer, '/')
	name := slug(t.pointer[at+1:])
	within := t.pointer[:max(at, 0)]
	common := within == "/components/schemas" ||
		within == "/definitions" && !t.f.find("/components/schemas/"+name).there()
	if t.f.name == "" && common && name == t.pointer[at+1:] {
		return name
	}
	return name[:min(len(name), 40)] + "_" + hash8(t.key())
}

// shape makes the schema of a component, once.
func (s *shaper) shape(c *component) error {
	if !c.done {
		c.done = true
		w := schemaWriter{shaper: s, within: c}
		c.err = w.schema(c.node, 0)
		c.shape = fragment{w.out, w.refs}
	}
	return c.err
}

// fragment makes a schema. A description replaces its own.
func (s *shaper) fragment(n node, description string) (fragment, error) {
	w := schemaWriter{shaper: s, describe: description}
	if !n.there() {
		n = node{raw: []byte("{}")}
	}
	err := w.schema(n, 0)
	return fragment{w.out, w.refs}, err
}

// A schemaWriter writes one schema with all that is in it.
type schemaWriter struct {
	*shaper
	within   *component // nil: no component
	describe string     // the description of the next schema, in place of the one it has
	out      []byte
	refs     []*component
}

func (w *schemaWriter) open() { w.out = append(w.out, '{') }

// key begins a member.
func (w *schemaWriter) key(name string) { w.raw(name, nil) }

func (w *schemaWriter) raw(name string, value []byte) {
	w.out = scan.AppendMember(w.out, name, value)
}

func (w *schemaWriter) string(name, value string) {
	w.key(name)
	w.out = scan.AppendQuoted(w.out, value)
}

func (w *schemaWriter) close() { w.out = append(w.out, '}') }

// schema writes a schema.
func (w *schemaWriter) schema(n node, depth int) error {
	if depth > maxSchemaNesting {
		return fmt.Errorf("a schema is nested more than %d deep", maxSchemaNesting)
	}
	if err := w.spend(n); err != nil {
		return err
	}
	if !n.is('{') {
		if n.is('f') {
			w.out = append(w.out, "false"...)
		} else {
			w.out = append(w.out, "{}"...)
		}
		return nil
	}
	nullable := n.get("nullable").yes()
	if to, ok := w.reference(n); ok {
		return w.refer(n, to, nullable)
	}
	if nullable && !n.get("type").there() &&
		(n.get("allOf").there() || n.get("anyOf").there() || n.get("oneOf").there()) {
		w.open()
		w.key("anyOf")
		w.out = append(w.out, '[')
		if err := w.object(n, false, depth); err != nil {
			return err
		}
		w.out = append(w.out, `,{"type":"null"}]`...)
		w.close()
		return nil
	}
	return w.object(n, nullable, depth)
}

// reference returns where a schema refers to. A dynamic or recursive reference leads to the
// component that it is in.
func (w *schemaWriter) reference(n node) (to string, ok bool) {
	if to, ok = n.ref(); ok {
		return to, true
	}
	for _, name := range []string{"$dynamicRef", "$recursiveRef"} {
		if r := n.get(name); r.is('"') && w.within != nil {
			return "#" + w.within.pointer, true
		}
	}
	return "", false
}

// refer writes a reference, with the description beside it.
func (w *schemaWriter) refer(n node, to string, nullable bool) error {
	c, err := w.component(n.f, to)
	if err != nil {
		return err
	}
	if !slices.Contains(w.refs, c) {
		w.refs = append(w.refs, c)
	}
	w.open()
	if nullable {
		w.raw("anyOf",
			append(scan.AppendQuoted([]byte(`[{"$ref":`), "#/$defs/"+c.name), `},{"type":"null"}]`...))
	} else {
		w.string("$ref", "#/$defs/"+c.name)
	}
	w.description(n)
	w.close()
	return nil
}

func (w *schemaWriter) description(n node) {
	text := paragraph(cmp.Or(w.describe, n.get("description").text()))
	w.describe = ""
	switch w.slim {
	case SlimOff:
	case SlimHard:
		if i := strings.Index(text, ". "); i > 0 {
			text = text[:i+1] // the first sentence
		}
		text = shorten(text, 120)
	default:
		text = shorten(text, 200)
	}
	if text != "" {
		w.string("description", text)
	}
}

// object writes a schema that is an object and no reference.
func (w *schemaWriter) object(n node, nullable bool, depth int) error {
	if values, text, ok := constants(n); ok {
		w.open()
		w.raw("enum", values)
		if w.describe == "" {
			w.describe = strings.TrimSpace(n.get("description").text() + " " + text)
		}
		w.description(n)
		w.close()
		return nil
	}
	w.open()
	w.types(n, nullable)
	w.description(n)
	hiddenNames := w.hidden(n, 0)
	for name, value := range n.each {
		how := w.keywords[name]
		if how == nil || w.slim == SlimHard && constraints[name] {
			continue
		}
		if err := how(w, &keyword{name, value, n, hiddenNames, depth}); err != nil {
			return err
		}
	}
	w.examples(n)
	w.close()
	return nil
}

// types writes type, enum and const, with null where the schema says nullable.
func (w *schemaWriter) types(n node, nullable bool) {
	var types []string
	switch t := n.get("type"); {
	case t.is('"'):
		types = []string{t.text()}
	case t.is('['):
		types = t.texts()
	}
	known := types[:0:0]
	for _, t := range types {
		if t == "file" {
			t = "string"
		}
		if slices.Contains([]string{"null", "boolean", "object", "array", "number", "string", "integer"},
			t) && !slices.Contains(known, t) {
			known = append(known, t)
		}
	}
	if len(known) < len(types) {
		known = nil // one that is not known may be anything
	}
	if nullable && len(known) > 0 && !slices.Contains(known, "null") {
		known = append(known, "null")
	}
	switch len(known) {
	case 0:
	case 1:
		w.string("type", known[0])
	default:
		w.key("type")
		w.out = append(w.out, `["`+strings.Join(known, `","`)+`"]`...)
	}
	if e := n.get("enum"); e.is('[') && len(e.items()) > 0 {
		w.raw("enum", withNull(e, nullable))
	}
	if c := n.get("const"); c.there() {
		w.raw("const", c.raw)
	}
}

func withNull(enum node, nullable bool) []byte {
	if !nullable || slices.ContainsFunc(enum.items(), func(v node) bool {
		return string(v.raw) == "null"
	}) {
		return compact(enum.raw)
	}
	raw := bytes.TrimRight(compact(enum.raw), "] \n\t\r")
	return append(bytes.Clone(raw), ",null]"...)
}

// constants makes an enum of a oneOf of constants, which is how documents describe each value.
func constants(n node) (values []byte, text string, ok bool) {
	of := n.get("oneOf")
	if !of.is('[') {
		of = n.get("anyOf")
	}
	items := of.items()
	if len(items) == 0 || n.get("properties").there() {
		return nil, "", false
	}
	values = []byte{'['}
	var b strings.Builder
	for _, item := range items {
		value := item.get("const")
		if !value.there() {
			return nil, "", false
		}
		if len(values) > 1 {
			values = append(values, ',')
		}
		values = append(values, value.raw...)
		if label := cmp.Or(item.get("description").text(), item.get("title").text()); label != "" {
			fmt.Fprintf(&b, "%s: %s; ", value.raw, strings.TrimRight(paragraph(label), "."))
		}
	}
	return append(values, ']'), strings.TrimSuffix(b.String(), "; "), true
}

// hidden returns the properties that are left out: in requests those that are only read, and
// deprecated ones that are not required; in answers those that are only written.
func (w *schemaWriter) hidden(n node, depth int) map[string]bool {
	if w.spend(n) != nil {
		return nil // a later check reports it
	}
	names := map[string]bool{}
	required := n.get("required").texts()
	for name, value := range n.get("properties").each {
		target, err := w.d.deref(value)
		says := func(keyword string) bool {
			return value.get(keyword).yes() || err == nil && target.get(keyword).yes()
		}
		hide := says("writeOnly")
		if !w.response {
			hide = says("readOnly") || value.get("deprecated").yes() && !slices.Contains(required, name)
		}
		if hide {
			names[name] = true
		}
	}
	if n.get("required").there() {
		for _, branch := range n.get("allOf").items() {
			if w.work < 0 || depth >= 4 {
				break
			}
			if target, err := w.d.deref(branch); err == nil {
				maps.Copy(names, w.hidden(target, depth+1))
			}
		}
	}
	return names
}

// examples keeps one short example, where schemas are not slimmed.
func (w *schemaWriter) examples(n node) {
	if w.slim != SlimOff {
		return
	}
	example := n.get("example")
	if all := n.get("examples").items(); len(all) > 0 {
		example = all[0]
	}
	if example.there() && len(example.raw) <= maxExample {
		w.raw("examples", append(append([]byte{'['}, example.raw...), ']'))
	}
}

// pattern reports whether a regular expression can be checked.
func (s *shaper) pattern(raw []byte) bool {
	ok, known := s.patterns[string(raw)]
	if !known {
		_, err := validate.Compile(append(append([]byte(`{"pattern":`), raw...), '}'), validate.Limits{})
		ok = err == nil
		s.patterns[string(raw)] = ok
	}
	return ok
}

var errName = errors.New("holds a control character, or one that is not seen")
