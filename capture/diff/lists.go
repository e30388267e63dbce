package diff

import (
	"errors"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A list is one of MCP: its entries are known by a member.
type list struct {
	method, member, key, what string
}

var lists = [...]list{
	{"tools/list", "tools", "name", "tool"},
	{"prompts/list", "prompts", "name", "prompt"},
	{"resources/list", "resources", "uri", "resource"},
	{"resources/templates/list", "resourceTemplates", "uriTemplate", "template"},
}

// list compares two lists. Their order does not count.
func (f *findings) list(l list, was, is []byte, path []string) {
	a, b := byKey(was, l.key), byKey(is, l.key)
	for _, name := range union(a, b) {
		at := append(slices.Clip(path), name)
		switch {
		case f.c.ignored(at[1:]):
		case b[name] == nil:
			f.add(l.what+"-removed", Breaking, at, a[name], nil)
		case a[name] == nil:
			f.add(l.what+"-added", Compatible, at, nil, b[name])
		case l.what == "tool":
			f.tool(a[name], b[name], at)
		case l.what == "prompt":
			f.prompt(a[name], b[name], at)
		}
	}
}

// byKey returns the entries of a list by their name.
func byKey(array []byte, key string) map[string][]byte {
	all := map[string][]byte{}
	for _, entry := range elements(array) {
		if name := member(entry, key); name != "" {
			all[name] = entry
		}
	}
	return all
}

// member returns a member that is a string; "" when there is none.
func member(object []byte, name string) string {
	if !isObject(object) {
		return ""
	}
	if value := scan.Member(object, name); len(value) > 0 && value[0] == '"' {
		return string(scan.Unquote(value))
	}
	return ""
}

// hints are what annotations of a tool say, the promise that breaks a client when it is taken back,
// and the default of the specification (2025-03-26, ToolAnnotations).
var hints = [...]struct{ name, promise, otherwise string }{
	{"readOnlyHint", "true", "false"},
	{"destructiveHint", "false", "true"},
	{"idempotentHint", "true", "false"},
	{"openWorldHint", "false", "true"},
}

// tool compares two definitions of a tool.
func (f *findings) tool(was, is []byte, path []string) {
	a, b := members(was), members(is)
	if !equal(a["description"], b["description"]) {
		f.add("description-changed", Compatible, append(slices.Clip(path), "description"),
			a["description"], b["description"])
	}
	wasHints, isHints := members(a["annotations"]), members(b["annotations"])
	for _, hint := range hints {
		x, y := string(wasHints[hint.name]), string(isHints[hint.name])
		if or(x, hint.otherwise) == or(y, hint.otherwise) {
			continue
		}
		level := Compatible
		if or(x, hint.otherwise) == hint.promise {
			level = Breaking
		}
		f.add("annotation-changed", level, append(slices.Clip(path), "annotations", hint.name),
			[]byte(x), []byte(y))
	}
	f.schema(input, a["inputSchema"], b["inputSchema"], a["inputSchema"], b["inputSchema"],
		append(slices.Clip(path), "inputSchema"))
	at := append(slices.Clip(path), "outputSchema")
	switch {
	case a["outputSchema"] == nil && b["outputSchema"] == nil:
	case b["outputSchema"] == nil:
		f.add("output-removed", Breaking, at, a["outputSchema"], nil)
	case a["outputSchema"] == nil:
		f.add("output-added", Compatible, at, nil, b["outputSchema"])
	default:
		f.schema(output, a["outputSchema"], b["outputSchema"], a["outputSchema"], b["outputSchema"], at)
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// prompt compares the arguments of two prompts.
func (f *findings) prompt(was, is []byte, path []string) {
	a, b := byKey(scan.Member(was, "arguments"), "name"), byKey(scan.Member(is, "arguments"), "name")
	for _, name := range union(a, b) {
		at := append(slices.Clip(path), "arguments", name)
		required := isObject(b[name]) && isTrue(scan.Member(b[name], "required"))
		switch {
		case b[name] == nil:
			f.add("input-property-removed", Breaking, at, a[name], nil)
		case required && (a[name] == nil || !isTrue(scan.Member(a[name], "required"))):
			f.add("input-required-added", Breaking, at, a[name], b[name])
		case a[name] == nil:
			f.add("input-property-added", Compatible, at, nil, b[name])
		}
	}
}

// openRPC compares two OpenRPC documents.
func (f *findings) openRPC(was, is []byte) {
	a, b := byKey(scan.Member(was, "methods"), "name"), byKey(scan.Member(is, "methods"), "name")
	for _, name := range union(a, b) {
		at := []string{"methods", name}
		switch {
		case b[name] == nil:
			f.add("method-removed", Breaking, at, a[name], nil)
		case a[name] == nil:
			f.add("method-added", Compatible, at, nil, b[name])
		default:
			f.method(a[name], b[name], was, is, at)
		}
	}
}

// method compares two descriptions of a method.
func (f *findings) method(was, is, wasDoc, isDoc []byte, path []string) {
	before, after := elements(scan.Member(was, "params")), elements(scan.Member(is, "params"))
	byName := member(is, "paramStructure") == "by-name"
	places := map[string]int{}
	for i, param := range after {
		param, _ = resolve(isDoc, param)
		places[member(param, "name")] = i
	}
	known := map[string]bool{}
	for i, param := range before {
		param, _ = resolve(wasDoc, param)
		name := member(param, "name")
		known[name] = true
		at := append(slices.Clip(path), "params", name)
		place, ok := places[name]
		if !ok {
			f.add("input-property-removed", Breaking, at, param, nil)
			continue
		}
		now, _ := resolve(isDoc, after[place])
		if place != i && !byName {
			f.add("param-moved", Breaking, at, count(before[:i]), count(after[:place]))
		}
		if isTrue(scan.Member(now, "required")) && !isTrue(scan.Member(param, "required")) {
			f.add("input-required-added", Breaking, at, param, now)
		}
		f.schema(input, scan.Member(param, "schema"), scan.Member(now, "schema"), wasDoc, isDoc,
			append(at, "schema"))
	}
	for _, param := range after {
		param, _ = resolve(isDoc, param)
		name := member(param, "name")
		at := append(slices.Clip(path), "params", name)
		switch {
		case known[name]:
		case isObject(param) && isTrue(scan.Member(param, "required")):
			f.add("input-required-added", Breaking, at, nil, param)
		default:
			f.add("input-property-added", Compatible, at, nil, param)
		}
	}
	a, _ := resolve(wasDoc, scan.Member(was, "result"))
	b, _ := resolve(isDoc, scan.Member(is, "result"))
	if isObject(a) && isObject(b) {
		f.schema(output, scan.Member(a, "schema"), scan.Member(b, "schema"), wasDoc, isDoc,
			append(slices.Clip(path), "result", "schema"))
	}
}

// Documents compares two lists of tools (an array, or an object with the member tools, also as the
// result of an answer) or two OpenRPC documents. Both have to be valid JSON.
func (c *Comparer) Documents(was, is []byte) ([]Finding, error) {
	f := &findings{c: c}
	if isRPC(was) && isRPC(is) {
		f.openRPC(was, is)
		return f.all, nil
	}
	a, b := toolsIn(was), toolsIn(is)
	if a == nil || b == nil {
		return nil, errors.New("both have to be captures, lists of tools, or OpenRPC documents")
	}
	f.list(lists[0], a, b, []string{"tools"})
	return f.all, nil
}

func isRPC(document []byte) bool {
	return isObject(document) && scan.Member(document, "openrpc") != nil
}

// toolsIn returns the array of tools in a document; nil: it has none.
func toolsIn(document []byte) []byte {
	for range 2 {
		switch {
		case len(document) > 0 && document[0] == '[':
			return document
		case !isObject(document):
			return nil
		}
		if tools := scan.Member(document, "tools"); len(tools) > 0 && tools[0] == '[' {
			return tools
		}
		document = scan.Member(document, "result")
	}
	return nil
}
