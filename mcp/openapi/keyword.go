package openapi

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A keyword is a member of a schema.
type keyword struct {
	name   string
	value  node
	of     node            // the schema
	hidden map[string]bool // its properties that are left out
	depth  int
}

// keywordWriters are the keywords that a tool's schema keeps, and how they are written. A value
// that JSON Schema does not allow is left out, as no client could compile it.
func keywordWriters() map[string]func(*schemaWriter, *keyword) error {
	return map[string]func(*schemaWriter, *keyword) error{
		"multipleOf": number, "maximum": number, "minimum": number,
		"exclusiveMaximum": exclusive, "exclusiveMinimum": exclusive,
		"maxLength": count, "minLength": count, "maxItems": count, "minItems": count,
		"maxProperties": count, "minProperties": count, "maxContains": count, "minContains": count,
		"uniqueItems": boolean, "pattern": pattern, "format": format, "contentEncoding": text,
		"contentMediaType": text,
		"default":          defaultValue, "required": required, "title": title,
		"properties": namedSchemas, "patternProperties": patternSchemas, "dependentSchemas": namedSchemas,
		"allOf": listedSchemas, "anyOf": listedSchemas, "oneOf": listedSchemas,
		"prefixItems": listedSchemas,
		"items":       itemSchemas, "additionalItems": tupleRest,
		"additionalProperties": oneSchema, "unevaluatedProperties": oneSchema,
		"unevaluatedItems": oneSchema,
		"not":              oneSchema, "if": oneSchema, "then": oneSchema, "else": oneSchema,
		"contains":      oneSchema,
		"propertyNames": oneSchema,
	}
}

// constraints are the keywords that SlimHard leaves out.
var constraints = map[string]bool{
	"multipleOf": true, "maximum": true, "minimum": true, "exclusiveMaximum": true,
	"exclusiveMinimum": true,
	"maxLength":        true, "minLength": true, "maxItems": true, "minItems": true,
	"maxProperties": true,
	"minProperties": true,
	"maxContains":   true, "minContains": true, "uniqueItems": true, "pattern": true, "format": true,
	"title": true,
}

func (k *keyword) isNumber() bool {
	return k.value.there() && (k.value.raw[0] == '-' || k.value.raw[0] >= '0' && k.value.raw[0] <= '9')
}

func number(w *schemaWriter, k *keyword) error {
	// Before OpenAPI 3.1 exclusiveMinimum says of minimum that it is exclusive.
	if k.name == "minimum" && k.of.get("exclusiveMinimum").yes() ||
		k.name == "maximum" && k.of.get("exclusiveMaximum").yes() {
		return nil
	}
	if k.isNumber() &&
		(k.name != "multipleOf" || k.value.raw[0] != '-' && string(k.value.raw) != "0") {
		w.raw(k.name, k.value.raw)
	}
	return nil
}

func exclusive(w *schemaWriter, k *keyword) error {
	if k.value.yes() {
		bound := map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}[k.name]
		k.value = k.of.get(bound)
	}
	if k.isNumber() {
		w.raw(k.name, k.value.raw)
	}
	return nil
}

func count(w *schemaWriter, k *keyword) error {
	if k.isNumber() && bytes.IndexFunc(k.value.raw, func(r rune) bool {
		return r < '0' || r > '9'
	}) < 0 && len(k.value.raw) < 10 {
		w.raw(k.name, k.value.raw)
	}
	return nil
}

func boolean(w *schemaWriter, k *keyword) error {
	if k.value.yes() {
		w.raw(k.name, k.value.raw)
	}
	return nil
}

func pattern(w *schemaWriter, k *keyword) error {
	if k.value.is('"') && w.pattern(k.value.raw) {
		w.raw(k.name, k.value.raw)
	}
	return nil
}

// format keeps the formats that models know. That of a base64 text has its own keyword.
func format(w *schemaWriter, k *keyword) error {
	switch f := k.value.text(); {
	case f == "byte":
		w.string("contentEncoding", "base64")
	case w.slim == SlimOff && f != "",
		slices.Contains([]string{"date-time", "date", "time", "uuid", "uri", "email"}, f):
		w.raw(k.name, k.value.raw)
	}
	return nil
}

func text(w *schemaWriter, k *keyword) error {
	if k.value.is('"') {
		w.raw(k.name, k.value.raw)
	}
	return nil
}

func title(w *schemaWriter, k *keyword) error {
	if t := clean(k.value.text()); w.slim == SlimOff && t != "" {
		w.string("title", t)
	}
	return nil
}

func defaultValue(w *schemaWriter, k *keyword) error {
	if len(k.value.raw) <= maxDefault && string(k.value.raw) != "null" {
		w.raw(k.name, compact(k.value.raw))
	}
	return nil
}

func required(w *schemaWriter, k *keyword) error {
	var names []string
	for _, name := range k.value.texts() {
		if !k.hidden[name] && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		w.key("required")
		w.list(names)
	}
	return nil
}

func (w *schemaWriter) list(names []string) {
	w.out = append(w.out, '[')
	for i, name := range names {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = scan.AppendQuoted(w.out, name)
	}
	w.out = append(w.out, ']')
}

func oneSchema(w *schemaWriter, k *keyword) error {
	if !k.value.is('{') && !k.value.is('t') && !k.value.is('f') {
		return nil
	}
	if k.value.is('t') && k.name != "not" {
		return nil // what it would be without
	}
	w.key(k.name)
	return w.schema(k.value, k.depth+1)
}

// itemSchemas writes items, which was a list for tuples before OpenAPI 3.1.
func itemSchemas(w *schemaWriter, k *keyword) error {
	if !k.value.is('[') {
		return oneSchema(w, k)
	}
	k.name = "prefixItems"
	return listedSchemas(w, k)
}

func tupleRest(w *schemaWriter, k *keyword) error {
	if !k.of.get("items").is('[') {
		return nil
	}
	k.name = "items"
	return oneSchema(w, k)
}

func namedSchemas(w *schemaWriter, k *keyword) error {
	return w.named(k, func(string) bool { return true })
}

func patternSchemas(w *schemaWriter, k *keyword) error {
	return w.named(k, func(name string) bool { return w.pattern(scan.AppendQuoted(nil, name)) })
}

func (w *schemaWriter) named(k *keyword, keep func(name string) bool) error {
	if !k.value.is('{') {
		return nil
	}
	w.key(k.name)
	w.open()
	seen := map[string]bool{}
	for name, value := range k.value.each {
		if seen[name] || k.name == "properties" && k.hidden[name] || !keep(name) {
			continue
		}
		if unclean(name) {
			return fmt.Errorf("the property %q %w", clip(name), errName)
		}
		seen[name] = true
		w.key(name)
		if err := w.schema(value, k.depth+1); err != nil {
			return err
		}
	}
	w.close()
	return nil
}

func listedSchemas(w *schemaWriter, k *keyword) error {
	items := k.value.items()
	if len(items) == 0 {
		return nil
	}
	w.key(k.name)
	w.out = append(w.out, '[')
	for i, item := range items {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		start := len(w.out)
		if err := w.schema(item, k.depth+1); err != nil {
			return err
		}
		if k.name == "oneOf" || k.name == "anyOf" {
			w.discriminate(k.of.get("discriminator"), item, start)
		}
	}
	w.out = append(w.out, ']')
	return nil
}

// discriminate adds to a case of a union the values that the discriminator has for it, as
// discriminators are unknown to JSON Schema.
func (w *schemaWriter) discriminate(d, item node, start int) {
	property := d.get("propertyName").text()
	to, ok := item.ref()
	if property == "" || !ok || unclean(property) {
		return
	}
	c, err := w.component(item.f, to)
	if err != nil {
		return
	}
	var values []string
	for value, ref := range d.get("mapping").each {
		name := ref.text()
		if m, err := w.component(d.f, name); err == nil && m == c || name == c.name {
			values = append(values, value)
		}
	}
	if len(values) == 0 && !d.get("mapping").there() {
		values = []string{c.name}
	}
	if len(values) == 0 {
		return
	}
	w.out = bytes.TrimSuffix(w.out, []byte("}"))
	if len(w.out) < start {
		return
	}
	w.key("properties")
	w.open()
	w.key(property)
	w.out = append(w.out, `{"enum":`...)
	w.list(values)
	w.out = append(w.out, "}}"...)
	w.key("required")
	w.list([]string{property})
	w.close()
}

// compact removes white space between the tokens of a valid text.
func compact(raw []byte) []byte {
	if !bytes.ContainsAny(raw, " \n\r\t") {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\n', '\r', '\t':
			i++
		case '"':
			end, _, _ := scan.String(raw, i)
			out = append(out, raw[i:end]...)
			i = end
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}
