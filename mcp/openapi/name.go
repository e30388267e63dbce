package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// reservedNames are those of tools that find and call others.
var reservedNames = map[string]bool{"search_tools": true, "describe_tools": true, "call_tool": true}

// nameTools names the tools of operations. A name depends on the operation alone, not on
// the order, so an added operation renames only those that it collides with: all of these
// get a suffix from their method and path.
func nameTools(all []*operation, limit int) {
	same := map[string][]*operation{}
	for _, o := range all {
		o.name, o.renamed = toolName(o, limit)
		key := foldName(o.name)
		same[key] = append(same[key], o)
	}
	for _, group := range same {
		for _, o := range group {
			switch {
			case len(group) > 1:
				o.name, o.renamed = suffixed(o.name, o, limit), "other operations have this name"
			case reservedNames[foldName(o.name)]:
				o.name, o.renamed = suffixed(o.name, o, limit), "the name is reserved"
			}
		}
	}
}

// foldName is what hosts take for the same name.
func foldName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

func toolName(o *operation, limit int) (name, renamed string) {
	source := o.extension("name")
	if source == "" {
		source = o.id
	}
	if source == "" {
		source, renamed = o.method+pathWords(o.path), "there is no operationId"
		source = strings.ToLower(source[:len(o.method)]) + source[len(o.method):]
	}
	name = slug(source)
	if name == "" {
		name = slug(strings.ToLower(o.method) + pathWords(o.path))
	}
	if name[0] >= '0' && name[0] <= '9' {
		name = "op_" + name
	}
	if len(name) > limit {
		return suffixed(name, o, limit), "longer than the limit"
	}
	if name != source && renamed == "" {
		renamed = "characters that are not allowed"
	}
	return name, renamed
}

// pathWords writes /pets/{id} as _pets_by_id.
func pathWords(path string) string {
	return "_" + strings.NewReplacer("{", "by_", "}", "").Replace(path)
}

// slug keeps letters and digits, with one underscore between words.
func slug(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	return strings.TrimRight(b.String(), "_")
}

// suffixed adds eight digits of the operation's hash, for which it makes room at the end
// of a word.
func suffixed(name string, o *operation, limit int) string {
	if room := limit - 9; len(name) > room {
		whole := name[room] == '_'
		name = name[:room]
		if at := strings.LastIndexByte(name, '_'); at > room/2 && !whole {
			name = name[:at]
		}
	}
	return strings.TrimRight(name, "_") + "_" + hash8(o.key())
}

func hash8(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// argumentName makes of a parameter's name one that every host accepts as a property.
func argumentName(wire string) string {
	name := strings.NewReplacer("<", "_lt", ">", "_gt", "[]", "").Replace(wire)
	var b strings.Builder
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	name = b.String()
	if trimmed := strings.Trim(name, "_"); trimmed != "" && name != wire {
		name = trimmed
	}
	if len(name) > 64 {
		name = name[:55] + "_" + hash8(wire)
	}
	if name == "" || name == "_" {
		name = "arg_" + hash8(wire)
	}
	return name
}

// nameArguments gives each argument its own name: the first keeps its name, and those
// after it are prefixed with where they belong. Path parameters come first.
func nameArguments(args []*argument) {
	taken := map[string]bool{}
	for _, a := range args {
		name := argumentName(a.wire)
		if a.in == inWhole {
			name = a.wire
			if taken[name] {
				name = "request_body"
			}
		}
		if taken[name] {
			name = a.in.String() + "_" + name
		}
		if taken[name] {
			name = name[:min(len(name), 55)] + "_" + hash8(a.in.String()+a.wire)
		}
		taken[name] = true
		a.name = name
	}
}
