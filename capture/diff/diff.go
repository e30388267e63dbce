// Package diff answers one question: what has changed between two answers, lists of tools or
// descriptions of a service, and does it break a client that relies on the first?
package diff

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	// maxDepth is how deep values are looked into. What is deeper is compared by its bytes.
	maxDepth = 64
	// maxFindings bounds the findings of one comparison.
	maxFindings = 1000
)

// A Level says what a change means for a client that relies on what was before.
type Level string

// The levels.
const (
	// Breaking: what the client relies on does not hold any more.
	Breaking Level = "breaking"
	// Unclear: it may break the client.
	Unclear Level = "unclear"
	// Compatible: the client does not depend on it.
	Compatible Level = "compatible"
)

// A Finding is one change.
type Finding struct {
	Rule  string `json:"rule"` // its name: docs/capture.md lists them
	Level Level  `json:"level"`
	Path  string `json:"path,omitzero"` // names and indexes with dots between
	Was   string `json:"was,omitzero"`  // the JSON there; "" where there was nothing
	Is    string `json:"is,omitzero"`
}

// Options adjust a comparison. Nil means the defaults.
type Options struct {
	// Exact reports each value that differs as breaking. Otherwise an answer has to have the
	// members and the types of the answer before, and a list its entries.
	Exact bool
	// Ignore are paths of values that do not count: names from the result or error on with dots
	// between, * for any one name or index, ** for any number of them.
	Ignore []string
}

// A Comparer compares what the options say. It is safe for concurrent use.
type Comparer struct {
	exact  bool
	ignore [][]string
}

// New returns a Comparer.
func New(o *Options) *Comparer {
	if o == nil {
		return &Comparer{}
	}
	c := &Comparer{exact: o.Exact}
	for _, pattern := range o.Ignore {
		c.ignore = append(c.ignore, strings.Split(pattern, "."))
	}
	return c
}

func (c *Comparer) ignored(path []string) bool {
	return slices.ContainsFunc(c.ignore, func(pattern []string) bool { return matches(pattern, path) })
}

func matches(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return len(path) == 0
	case pattern[0] == "**":
		for i := range len(path) + 1 {
			if matches(pattern[1:], path[i:]) {
				return true
			}
		}
		return false
	case len(path) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == path[0]) && matches(pattern[1:], path[1:])
}

// findings collects what is found.
type findings struct {
	c   *Comparer
	all []Finding
}

func (f *findings) add(rule string, level Level, path []string, was, is []byte) {
	if len(f.all) < maxFindings {
		f.all = append(f.all, Finding{rule, level, strings.Join(path, "."), string(was), string(is)})
	}
}

// Answers compares two answers to the same request of a method. Ids do not count.
func (c *Comparer) Answers(method string, was, is []byte) []Finding {
	f := &findings{c: c}
	wasResult, isResult := scan.Member(was, "result"), scan.Member(is, "result")
	wasError, isError := scan.Member(was, "error"), scan.Member(is, "error")
	switch {
	case c.exact:
		f.value(wasResult, isResult, []string{"result"})
		f.value(wasError, isError, []string{"error"})
	case (wasError == nil) != (isError == nil):
		f.add("outcome-changed", Breaking, nil, brief(was), brief(is))
	case wasError != nil:
		f.failure(wasError, isError)
	default:
		f.result(method, wasResult, isResult)
	}
	return f.all
}

// brief returns the result or the error of an answer, with its name.
func brief(answer []byte) []byte {
	if failure := scan.Member(answer, "error"); failure != nil {
		return slices.Concat([]byte(`{"error":`), failure, []byte("}"))
	}
	return slices.Concat([]byte(`{"result":`), scan.Member(answer, "result"), []byte("}"))
}

// failure compares two errors: the text of one is for people.
func (f *findings) failure(was, is []byte) {
	path := []string{"error", "code"}
	a, b := scan.Member(was, "code"), scan.Member(is, "code")
	switch {
	case f.c.ignored(path[1:]):
	case !equal(a, b):
		f.add("error-code-changed", Breaking, path, a, b)
	}
	f.shape(scan.Member(was, "data"), scan.Member(is, "data"), []string{"error", "data"})
}

// result compares two results.
func (f *findings) result(method string, was, is []byte) {
	path := []string{"result"}
	for _, list := range lists {
		if list.method == method {
			f.list(list, was, is, path)
			return
		}
	}
	if method == "tools/call" {
		a, b := scan.Member(was, "isError"), scan.Member(is, "isError")
		if isTrue(a) != isTrue(b) && !f.c.ignored([]string{"isError"}) {
			f.add("tool-error-changed", Breaking, append(path, "isError"), a, b)
			return
		}
	}
	f.shape(was, is, path)
}

func isTrue(value []byte) bool { return string(value) == "true" }

// shape compares the members and types of two values. The elements of an array are alike when each
// of the new one has the shape of one of the old.
func (f *findings) shape(was, is []byte, path []string) {
	switch {
	case f.c.ignored(path[1:]) || len(was) == 0 && len(is) == 0 || len(path) > maxDepth:
		return
	case len(is) == 0:
		f.add("member-removed", Breaking, path, was, nil)
		return
	case len(was) == 0:
		f.add("member-added", Compatible, path, nil, is)
		return
	case typeOf(was) != typeOf(is):
		f.add("type-changed", Breaking, path, was, is)
		return
	}
	switch was[0] {
	case '{':
		a, b := members(was), members(is)
		for _, name := range union(a, b) {
			f.shape(a[name], b[name], append(slices.Clip(path), name))
		}
	case '[':
		f.elements(elements(was), elements(is), path)
	default:
		if !equal(was, is) {
			f.add("value-changed", Compatible, path, was, is)
		}
	}
}

// elements compares the elements of two arrays.
func (f *findings) elements(was, is [][]byte, path []string) {
	if len(was) != len(is) {
		level := Compatible
		if len(is) == 0 {
			level = Unclear
		}
		f.add("length-changed", level, path, count(was), count(is))
	}
	if len(was) == 0 {
		return
	}
	for i, element := range is {
		f.shape(was[min(i, len(was)-1)], element, append(slices.Clip(path), strconv.Itoa(i)))
	}
}

func count(all [][]byte) []byte { return strconv.AppendInt(nil, int64(len(all)), 10) }

// value compares the values, and reports each that differs.
func (f *findings) value(was, is []byte, path []string) {
	if f.c.ignored(path[1:]) || len(was) == 0 && len(is) == 0 {
		return
	}
	switch {
	case len(was) == 0:
		f.add("member-added", Breaking, path, nil, is)
	case len(is) == 0:
		f.add("member-removed", Breaking, path, was, nil)
	case typeOf(was) != typeOf(is):
		f.add("type-changed", Breaking, path, was, is)
	case was[0] == '{' && len(path) <= maxDepth:
		a, b := members(was), members(is)
		for _, name := range union(a, b) {
			f.value(a[name], b[name], append(slices.Clip(path), name))
		}
	case was[0] == '[' && len(path) <= maxDepth:
		a, b := elements(was), elements(is)
		for i := range max(len(a), len(b)) {
			f.value(element(a, i), element(b, i), append(slices.Clip(path), strconv.Itoa(i)))
		}
	case !equal(was, is):
		f.add("value-changed", Breaking, path, was, is)
	}
}

func element(all [][]byte, i int) []byte {
	if i < len(all) {
		return all[i]
	}
	return nil
}

// typeOf returns a byte for the type of a JSON value. Integers are numbers.
func typeOf(value []byte) byte {
	switch c := value[0]; {
	case c == '-' || c >= '0' && c <= '9':
		return '0'
	case c == 'f':
		return 't'
	default:
		return c
	}
}

func equal(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(AppendCanonical(nil, a, nil), AppendCanonical(nil, b, nil))
}

func members(object []byte) map[string][]byte {
	all := map[string][]byte{}
	for name, value := range scan.Members(object) {
		all[string(name)] = value
	}
	return all
}

func elements(array []byte) [][]byte { return slices.Collect(scan.Elements(array)) }

// union returns the names of both, in their order.
func union(a, b map[string][]byte) []string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

// AppendCanonical appends JSON in a form that is the same for equal values: without white space,
// members in the order of their names. Members that leave selects, by the names and indexes that
// lead to them, are left out. What is nested deeper than 64 levels is appended as it is.
func AppendCanonical(dst, value []byte, leave func(path []string) bool) []byte {
	return appendCanonical(dst, value, nil, leave)
}

func appendCanonical(dst, value []byte, path []string, leave func([]string) bool) []byte {
	value = bytes.TrimSpace(value)
	switch {
	case len(value) == 0:
		return dst
	case value[0] == '"':
		return scan.AppendQuoted(dst, scan.Unquote(value))
	case len(path) > maxDepth:
	case value[0] == '[':
		dst = append(dst, '[')
		first := true
		for element := range scan.Elements(value) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = appendCanonical(dst, element, append(slices.Clip(path), "*"), leave)
		}
		return append(dst, ']')
	case value[0] == '{':
		type member struct{ name, value []byte }
		var all []member
		for name, value := range scan.Members(value) {
			if leave == nil || !leave(append(slices.Clip(path), string(name))) {
				all = append(all, member{slices.Clone(name), value})
			}
		}
		slices.SortStableFunc(all, func(a, b member) int { return bytes.Compare(a.name, b.name) })
		dst = append(dst, '{')
		for i, m := range all {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(scan.AppendQuoted(dst, m.name), ':')
			dst = appendCanonical(dst, m.value, append(slices.Clip(path), string(m.name)), leave)
		}
		return append(dst, '}')
	}
	return append(dst, value...)
}

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

// list compares two results with a list. Its order does not count. An entry may be on a page that
// nothing has asked for.
func (f *findings) list(l list, was, is []byte, path []string) {
	a, b := byKey(scan.Member(was, l.member), l.key), byKey(scan.Member(is, l.member), l.key)
	removed := Breaking
	if scan.Member(is, "nextCursor") != nil {
		removed = Unclear
	}
	for _, name := range union(a, b) {
		at := append(slices.Clip(path), l.member, name)
		switch {
		case f.c.ignored(at[1:]):
		case b[name] == nil:
			f.add(l.what+"-removed", removed, at, a[name], nil)
		case a[name] == nil && scan.Member(was, "nextCursor") != nil:
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
	for entry := range scan.Elements(array) {
		if name := scan.StringMember(entry, key); name != "" {
			all[name] = entry
		}
	}
	return all
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
		before := cmp.Or(x, hint.otherwise)
		if before == cmp.Or(y, hint.otherwise) {
			continue
		}
		level := Compatible
		if before == hint.promise {
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
	byName := scan.StringMember(is, "paramStructure") == "by-name"
	places := map[string]int{}
	for i, param := range after {
		param, _ = resolve(isDoc, param)
		places[scan.StringMember(param, "name")] = i
	}
	known := map[string]bool{}
	for i, param := range before {
		param, _ = resolve(wasDoc, param)
		name := scan.StringMember(param, "name")
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
		name := scan.StringMember(param, "name")
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
	list := func(tools []byte) []byte { return slices.Concat([]byte(`{"tools":`), tools, []byte("}")) }
	f.list(lists[0], list(a), list(b), nil)
	return f.all, nil
}

func isRPC(document []byte) bool { return scan.Member(document, "openrpc") != nil }

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
