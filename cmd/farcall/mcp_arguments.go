package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// typedArguments makes an object of name=value words, with the types that a
// schema has for them.
func typedArguments(words []string, schema jsonrpc.Raw) (jsonrpc.Raw, error) {
	var root map[string]any
	if err := jsonv2.Unmarshal(schema, &root); err != nil {
		root = nil
	}
	properties, _ := root["properties"].(map[string]any)
	raw := jsonrpc.Raw{'{'}
	seen := map[string]bool{}
	for _, word := range words {
		m := namedParam.FindStringSubmatch(word)
		name, text := m[1], m[3]
		if seen[name] {
			return nil, usagef("Several values are written as JSON: "+name+`='["a","b"]'.`, "the argument %q is given twice", name)
		}
		seen[name] = true
		if len(raw) > 1 {
			raw = append(raw, ',')
		}
		raw = append(jsonrpc.AppendString(raw, name), ':')
		if m[2] == ":=" {
			if err := jsonrpc.Valid([]byte(text)); err != nil {
				return nil, usagef("name:=value takes JSON, name=value takes text.", "the value of %q is not JSON: %w", name, err)
			}
			raw = append(raw, text...)
			continue
		}
		value, err := typedValue(name, text, schemaKinds(root, properties[name], 0))
		if err != nil {
			return nil, err
		}
		raw = append(raw, value...)
	}
	return append(raw, '}'), nil
}

// typedValue makes a value of a word. kinds are the types that it may have; none
// means any.
func typedValue(name, text string, kinds []string) (jsonrpc.Raw, error) {
	if len(kinds) == 0 {
		return appendWord(nil, text), nil
	}
	raw := jsonrpc.Raw(strings.TrimSpace(text))
	if jsonrpc.Valid(raw) == nil {
		if kind := jsonKind(raw); kind != "string" && (slices.Contains(kinds, kind) || kind == "number" && slices.Contains(kinds, "integer")) {
			return raw, nil
		}
	}
	if slices.Contains(kinds, "string") {
		return jsonrpc.AppendString(nil, text), nil
	}
	example := map[string]string{"number": name + "=1.5", "integer": name + "=3", "boolean": name + "=true", "array": name + `='["a","b"]'`, "object": name + `='{"a":1}'`, "null": name + "=null"}
	return nil, usagef(
		fmt.Sprintf("For example %s. To send it all the same: %s:='%s'.", example[kinds[0]], name, jsonrpc.AppendString(nil, text)),
		"the argument %q must be of type %s, and %s is not", name, strings.Join(kinds, " or "), excerpt([]byte(text)),
	)
}

// jsonKind is the type of a JSON value.
func jsonKind(raw jsonrpc.Raw) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

const maxSchemaDepth = 16

// schemaKinds are the types that a schema allows, as far as it says so.
func schemaKinds(root map[string]any, schema any, depth int) []string {
	s, ok := schema.(map[string]any)
	if !ok || depth > maxSchemaDepth {
		return nil
	}
	var kinds []string
	add := func(more ...string) {
		for _, k := range more {
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	switch kind := s["type"].(type) {
	case string:
		return []string{kind}
	case []any:
		for _, k := range kind {
			if k, ok := k.(string); ok {
				add(k)
			}
		}
		return kinds
	}
	if ref, ok := s["$ref"].(string); ok {
		return schemaKinds(root, pointed(root, ref), depth+1)
	}
	if values, ok := s["enum"].([]any); ok {
		for _, v := range values {
			add(jsonKind(jsonrpc.Raw(literal(v))))
		}
		return kinds
	}
	if v, ok := s["const"]; ok {
		return []string{jsonKind(jsonrpc.Raw(literal(v)))}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		choices, _ := s[key].([]any)
		for _, choice := range choices {
			of := schemaKinds(root, choice, depth+1)
			if of == nil {
				return nil // anything
			}
			add(of...)
		}
	}
	return kinds
}

// pointed is what a reference within a schema refers to.
func pointed(root map[string]any, ref string) any {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	var at any = root
	for part := range strings.SplitSeq(path, "/") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}
