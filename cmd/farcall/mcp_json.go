package main

import (
	"iter"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// members are those of a JSON object, in its order. Anything else has none.
func members(raw jsonrpc.Raw) iter.Seq2[string, jsonrpc.Raw] {
	return func(yield func(string, jsonrpc.Raw) bool) {
		depth, name := 0, ""
		var value jsonrpc.Raw
		for t := range tokens(raw) {
			if depth == 0 && t[0] != '{' {
				return
			}
			end := t[0] == '}' || t[0] == ']'
			if end {
				depth--
			}
			switch {
			case depth == 1 && (t[0] == ',' || t[0] == ':'):
				if t[0] == ':' {
					name, _ = unquote(value)
				} else if !yield(name, value) {
					return
				}
				value = nil
			case depth > 0:
				value = append(value, t...)
			}
			if !end && (t[0] == '{' || t[0] == '[') {
				depth++
			}
		}
		if value != nil {
			yield(name, value)
		}
	}
}

// member is one member of an object, or nil.
func member(raw jsonrpc.Raw, name string) jsonrpc.Raw {
	for n, value := range members(raw) {
		if n == name {
			return value
		}
	}
	return nil
}

// elements are those of a JSON array. Anything else has none.
func elements(raw jsonrpc.Raw) []jsonrpc.Raw {
	var all []jsonrpc.Raw
	if jsonv2.Unmarshal(raw, &all) != nil {
		return nil
	}
	return all
}

// unquote is the text of a JSON string.
func unquote(raw jsonrpc.Raw) (text string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return text, jsonv2.Unmarshal(raw, &text) == nil
}
