package diff

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A side says who makes the values of a schema: the client those of an input, the server those of
// an output.
type side string

const (
	input  side = "input"
	output side = "output"
)

// How a schema takes other values than before.
type change int

const (
	narrower change = iota // it takes fewer values
	wider                  // it takes more
	other                  // it is not known which
)

// level returns what a change means for a client: one that sends values needs all that were taken,
// one that reads them relies on it that there are no others.
func (s side) level(c change) Level {
	switch {
	case c == other:
		return Unclear
	case (c == narrower) == (s == input):
		return Breaking
	}
	return Compatible
}

// schemas compares two JSON schemas.
type schemas struct {
	f       *findings
	side    side
	was, is []byte // the documents in which references are looked up
	seen    map[[2]string]bool
}

func (f *findings) schema(s side, was, is, wasDoc, isDoc []byte, path []string) {
	x := &schemas{f, s, wasDoc, isDoc, map[[2]string]bool{}}
	x.compare(was, is, path, 0)
}

func (x *schemas) note(rule string, c change, path []string, was, is []byte) {
	x.f.add(string(x.side)+"-"+rule, x.side.level(c), path, was, is)
}

// compare compares two schemas at one place.
func (x *schemas) compare(was, is []byte, path []string, depth int) {
	if depth > maxDepth || len(x.f.all) >= maxFindings {
		return
	}
	was, wasRef := resolve(x.was, was)
	is, isRef := resolve(x.is, is)
	if wasRef != "" && isRef != "" {
		pair := [2]string{wasRef, isRef}
		if x.seen[pair] {
			return // it was compared where it was met first
		}
		x.seen[pair] = true
	}
	if !bytes.Contains(was, []byte(`"$ref"`)) && equal(was, is) {
		return
	}
	a, b := members(was), members(is)
	x.types(a, b, path)
	x.choices(a, b, path)
	x.required(a, b, path)
	x.properties(a, b, path, depth)
	x.bounds(a, b, path)
	for _, name := range []string{"items", "additionalProperties"} {
		if isObject(a[name]) && isObject(b[name]) {
			x.compare(a[name], b[name], append(slices.Clip(path), name), depth+1)
		}
	}
	for _, name := range union(a, b) {
		if !x.known(name, a, b) && !equal(a[name], b[name]) {
			x.note("schema-changed", other, append(slices.Clip(path), name), a[name], b[name])
		}
	}
}

func isObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// known tells whether a keyword has been compared, or says nothing about values.
func (x *schemas) known(name string, a, b map[string][]byte) bool {
	switch name {
	case "type", "enum", "const", "required", "properties",
		"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
		"title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs",
		"definitions", "deprecated", "readOnly", "writeOnly", "additionalProperties":
		return true
	case "items":
		return isObject(a[name]) && isObject(b[name])
	}
	return strings.HasPrefix(name, "x-")
}

// types compares the types. A schema without one takes all.
func (x *schemas) types(a, b map[string][]byte, path []string) {
	was, is := typesOf(a["type"]), typesOf(b["type"])
	fewer, more := missing(was, is), missing(is, was)
	if len(was) == 0 && len(is) > 0 {
		fewer, more = true, false
	}
	if len(is) == 0 && len(was) > 0 {
		fewer, more = false, true
	}
	path = append(slices.Clip(path), "type")
	if fewer {
		x.note("type-narrowed", narrower, path, a["type"], b["type"])
	}
	if more {
		x.note("type-widened", wider, path, a["type"], b["type"])
	}
}

func typesOf(value []byte) []string {
	all := texts(value)
	if len(value) > 0 && value[0] == '"' {
		all = []string{string(scan.Unquote(value))}
	}
	if slices.Contains(all, "number") {
		all = append(all, "integer") // each integer is a number
	}
	return all
}

// texts returns the strings of an array.
func texts(array []byte) (all []string) {
	for value := range scan.Elements(array) {
		if value[0] == '"' {
			all = append(all, string(scan.Unquote(value)))
		}
	}
	return all
}

// missing reports whether one of the texts is not in others.
func missing(texts, others []string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return !slices.Contains(others, s) })
}

// choices compares enum and const.
func (x *schemas) choices(a, b map[string][]byte, path []string) {
	was, is := choicesOf(a), choicesOf(b)
	path = append(slices.Clip(path), "enum")
	switch {
	case was == nil && is == nil:
	case was == nil:
		x.note("enum-narrowed", narrower, path, nil, b["enum"])
	case is == nil:
		x.note("enum-widened", wider, path, a["enum"], nil)
	default:
		if missing(was, is) {
			x.note("enum-narrowed", narrower, path, a["enum"], b["enum"])
		}
		if missing(is, was) {
			x.note("enum-widened", wider, path, a["enum"], b["enum"])
		}
	}
}

func choicesOf(schema map[string][]byte) (all []string) {
	if value, ok := schema["const"]; ok {
		return []string{string(AppendCanonical(nil, value, nil))}
	}
	if _, ok := schema["enum"]; !ok {
		return nil
	}
	all = []string{}
	for value := range scan.Elements(schema["enum"]) {
		all = append(all, string(AppendCanonical(nil, value, nil)))
	}
	return all
}

// required compares which properties have to be there.
func (x *schemas) required(a, b map[string][]byte, path []string) {
	was, is := texts(a["required"]), texts(b["required"])
	path = append(slices.Clip(path), "required")
	for _, name := range is {
		if !slices.Contains(was, name) {
			x.note("required-added", narrower, path, nil, scan.AppendQuoted(nil, name))
		}
	}
	for _, name := range was {
		if !slices.Contains(is, name) {
			x.note("required-removed", wider, path, scan.AppendQuoted(nil, name), nil)
		}
	}
}

// properties compares the properties by their names.
func (x *schemas) properties(a, b map[string][]byte, path []string, depth int) {
	was, is := members(a["properties"]), members(b["properties"])
	for _, name := range union(was, is) {
		at := append(slices.Clip(path), "properties", name)
		switch {
		case is[name] == nil:
			x.f.add(string(x.side)+"-property-removed", Breaking, at, was[name], nil)
		case was[name] == nil:
			x.f.add(string(x.side)+"-property-added", Compatible, at, nil, is[name])
		default:
			x.compare(was[name], is[name], at, depth+1)
		}
	}
	at := append(slices.Clip(path), "additionalProperties")
	switch closed, now := isFalse(a), isFalse(b); {
	case now && !closed:
		x.note("closed", narrower, at, a["additionalProperties"], b["additionalProperties"])
	case closed && !now:
		x.note("opened", wider, at, a["additionalProperties"], b["additionalProperties"])
	}
}

func isFalse(schema map[string][]byte) bool {
	return string(schema["additionalProperties"]) == "false"
}

// bounds compares the keywords that bound numbers and lengths.
func (x *schemas) bounds(a, b map[string][]byte, path []string) {
	for _, name := range []string{
		"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
	} {
		was, wasSet := numberOf(a[name])
		is, isSet := numberOf(b[name])
		higher := is > was
		switch {
		case wasSet == isSet && was == is:
			continue
		case !wasSet:
			higher = name[:3] == "min"
		case !isSet:
			higher = name[:3] == "max"
		}
		at := append(slices.Clip(path), name)
		if higher == (name[:3] == "min") {
			x.note("bound-tightened", narrower, at, a[name], b[name])
		} else {
			x.note("bound-loosened", wider, at, a[name], b[name])
		}
	}
}

func numberOf(value []byte) (float64, bool) {
	n, err := strconv.ParseFloat(string(value), 64)
	return n, err == nil
}

// resolve follows a reference within the document. It returns the schema itself when it is not a
// reference, or cannot be followed.
func resolve(document, schema []byte) (value []byte, ref string) {
	value = schema
	for range 16 { // references to references
		pointer, ok := strings.CutPrefix(scan.StringMember(value, "$ref"), "#")
		if !ok {
			break
		}
		target := document
		for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
			if name != "" {
				target = scan.Member(target, name)
			}
		}
		if target == nil {
			break
		}
		value, ref = target, pointer
	}
	return value, ref
}
