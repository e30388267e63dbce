package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

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
	"additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties",
	"unevaluatedItems", "additionalItems", "contentSchema", "allOf", "anyOf", "oneOf", "prefixItems", "patternProperties",
	"$defs", "definitions", "dependentSchemas", "dependencies",
}

// byName are those of the parts with members that are schemas.
var byName = []string{"patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}

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
	at := strings.Join(path, ".")
	if at == "" {
		at = "the root"
	}
	name, ok := mark.(string)
	switch {
	case astray != "":
		return fmt.Errorf("%s below %q, in %s: it may only be in a property that is reached from the root by properties alone", HeaderKeyword, astray, at)
	case len(path) == 0:
		return fmt.Errorf("%s in the root of the schema: it may only be in a property", HeaderKeyword)
	case !ok || !token(name):
		return fmt.Errorf("%s of %s: %.100q is no name of a header: it must be letters, digits and !#$%%&'*+-.^_`|~", HeaderKeyword, at, fmt.Sprint(mark))
	}
	kind, _ := typ.(string)
	if kind != "integer" && kind != "string" && kind != "boolean" {
		return fmt.Errorf("%s of %s: the type of the property must be integer, string or boolean", HeaderKeyword, at)
	}
	lower := strings.ToLower(name)
	if other, taken := h.taken[lower]; taken {
		return fmt.Errorf("%s of %s: %s has the name %q already; case makes no difference", HeaderKeyword, at, other, name)
	}
	h.taken[lower] = at
	h.found = append(h.found, Header{name, path, kind})
	return nil
}

// token reports whether s is a token of RFC 9110 §5.6.2.
func token(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}
