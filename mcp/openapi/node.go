package openapi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/yamljson"
)

const (
	maxNesting  = yamljson.MaxNesting // containers inside each other, in a document
	maxRefChain = 64                  // references to references
)

// errForeign is behind the error of a reference that leads out of the document: the
// whole document is refused.
var errForeign = errors.New("references to other documents are not followed")

// A document is the text of an OpenAPI document, and of the files that it refers to.
type document struct {
	files    map[string]*file
	resolved map[string]target                 // by the file and the reference in it
	read     func(name string) ([]byte, error) // a file below the folder; nil: none may be read
}

func newDocument() *document {
	return &document{files: map[string]*file{}, resolved: map[string]target{}}
}

// A file is one JSON text. Containers that references have passed through are indexed.
type file struct {
	name  string // within the folder; "" is the document itself
	root  node
	index map[string]map[string]node // by the JSON Pointer of the container
}

// A node is a JSON value of a file, which is valid. The zero node is an absent value.
type node struct {
	f   *file
	raw []byte
}

func (d *document) add(name string, raw []byte) *file {
	f := &file{name: name, index: map[string]map[string]node{}}
	f.root = node{f, raw[scan.Space(raw, 0):]}
	d.files[name] = f
	return f
}

// digest is a hash of all files.
func (d *document) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		raw := d.files[name].root.raw
		fmt.Fprintf(h, "%d %s %d ", len(name), name, len(raw))
		h.Write(raw)
	}
	return string(h.Sum(nil))
}

func (n node) there() bool { return len(n.raw) > 0 }

func (n node) is(first byte) bool { return len(n.raw) > 0 && n.raw[0] == first }

// get returns a member.
func (n node) get(name string) node { return node{n.f, scan.Member(n.raw, name)} }

// each calls yield with the members, in order, until it returns false.
func (n node) each(yield func(name string, value node) bool) {
	for name, value := range scan.Members(n.raw) {
		if !yield(string(name), node{n.f, value}) {
			return
		}
	}
}

// items returns the elements of an array.
func (n node) items() (all []node) {
	for value := range scan.Elements(n.raw) {
		all = append(all, node{n.f, value})
	}
	return all
}

// text returns the characters of a string, and "" of anything else.
func (n node) text() string {
	if !n.is('"') {
		return ""
	}
	return string(scan.Unquote(n.raw))
}

func (n node) yes() bool { return string(n.raw) == "true" }

// texts returns the strings of an array.
func (n node) texts() (all []string) {
	for _, item := range n.items() {
		if item.is('"') {
			all = append(all, item.text())
		}
	}
	return all
}

// ref returns the $ref of an object.
func (n node) ref() (to string, ok bool) {
	if !n.is('{') {
		return "", false
	}
	r := n.get("$ref")
	return r.text(), r.is('"')
}

// A target is where a reference leads to.
type target struct {
	node
	pointer string // within the file
}

// key is the same for all references to the target.
func (t target) key() string { return t.f.name + "#" + t.pointer }

// resolve finds what a reference leads to, through references that lead there alone.
func (d *document) resolve(from *file, to string) (target, error) {
	key, first := from.name+"#"+to, to
	if t, ok := d.resolved[key]; ok {
		return t, nil
	}
	for range maxRefChain {
		t, err := d.step(from, to)
		if err != nil {
			return target{}, err
		}
		next, ok := t.ref()
		if !ok {
			d.resolved[key] = t
			return t, nil
		}
		from, to = t.f, next
	}
	return target{}, fmt.Errorf("the reference %s leads to more than %d references, or to itself",
		clip(first), maxRefChain)
}

// deref follows the reference of a node, if it is one.
func (d *document) deref(n node) (node, error) {
	to, ok := n.ref()
	if !ok {
		return n, nil
	}
	t, err := d.resolve(n.f, to)
	return t.node, err
}

// step follows one reference.
func (d *document) step(from *file, to string) (target, error) {
	name, fragment, _ := strings.Cut(to, "#")
	f := from
	if name != "" {
		var err error
		if f, err = d.open(from, name); err != nil {
			return target{}, err
		}
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil || pointer != "" && pointer[0] != '/' {
		return target{}, fmt.Errorf("the reference %s is no JSON Pointer", clip(to))
	}
	n := f.find(pointer)
	if !n.there() {
		return target{}, fmt.Errorf("there is nothing at the reference %s", clip(to))
	}
	return target{n, pointer}, nil
}

// open returns another file. Only files below the folder of the document are read.
func (d *document) open(from *file, name string) (*file, error) {
	if d.read == nil || strings.Contains(name, ":") || strings.HasPrefix(name, "/") ||
		strings.ContainsAny(name, "\\?") {
		return nil, fmt.Errorf("the reference %s: %w; bundle the document into one file", clip(name),
			errForeign)
	}
	if unescaped, err := url.PathUnescape(name); err == nil {
		name = unescaped
	}
	name = path.Join(path.Dir(from.name), name)
	if f := d.files[name]; f != nil {
		return f, nil
	}
	if len(d.files) >= maxFiles {
		return nil, fmt.Errorf("the document refers to more than %d files: %w", maxFiles, errForeign)
	}
	raw, err := d.read(name)
	if err != nil {
		return nil, fmt.Errorf("the reference %s: %w: %w", clip(name), errForeign, err)
	}
	return d.add(name, raw), nil
}

// find returns what is at a JSON Pointer (RFC 6901), or the zero node.
func (f *file) find(pointer string) node {
	if pointer == "" {
		return f.root
	}
	at := strings.LastIndexByte(pointer, '/')
	members, ok := f.index[pointer[:at]]
	if !ok {
		members = map[string]node{}
		switch in := f.find(pointer[:at]); {
		case in.is('{'):
			for name, value := range in.each {
				if _, twice := members[name]; !twice {
					members[name] = value
				}
			}
		case in.is('['):
			for i, item := range in.items() {
				members[strconv.Itoa(i)] = item
			}
		}
		f.index[pointer[:at]] = members
	}
	name := pointer[at+1:]
	if strings.Contains(name, "~") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	return members[name]
}

// clip shortens what a document says, for an error.
func clip(s string) string {
	s = clean(s)
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

const (
	maxInlined  = 4 << 10 // bytes of a component that is copied into its place
	inlineDepth = 2       // how often a component is inside itself
)

// An inliner copies components into their places, for hosts that do not follow references.
type inliner struct {
	components map[string]*component // by their reference
	within     []string
	failed     bool // it becomes too large
}

// inline returns the schema of a tool without references, or nil where that would be too large.
// Where a component is inside itself for the third time, anything is taken.
func (s *shaper) inline(schema []byte) []byte {
	in := inliner{components: map[string]*component{}}
	for _, c := range s.components {
		in.components["#/$defs/"+c.name] = c
	}
	out := in.schema(nil, schema, true)
	if in.failed || len(out) > maxToolSchema {
		return nil
	}
	return out
}

func (in *inliner) schema(out, raw []byte, schema bool) []byte {
	if in.failed = in.failed || len(out) > maxToolSchema; in.failed {
		return out
	}
	if schema && raw[0] == '{' {
		ref := scan.Member(raw, "$ref")
		if c := in.components[scalar(orNull(ref))]; c != nil {
			return in.component(out, raw, c)
		}
	}
	return rewrite(out, raw, schema, in.schema, isReference)
}

// isReference selects references and definitions.
func isReference(name, _ []byte) bool { return string(name) == "$ref" || string(name) == "$defs" }

// component writes a component in the place of a reference to it. What stands beside the reference
// holds, too.
func (in *inliner) component(out, raw []byte, c *component) []byte {
	times := 0
	for _, name := range in.within {
		if name == c.name {
			times++
		}
	}
	// one that was left out is not even made
	in.failed = in.failed || len(c.shape.raw) > maxInlined || !c.done
	if times >= inlineDepth || in.failed {
		return append(scan.AppendQuoted(append(out, `{"description":`...), "as "+c.name+" above"), '}')
	}
	in.within = append(in.within, c.name)
	beside := rewriteMembers([]byte{'{'}, raw, true, in.schema, isReference)
	alone := len(beside) == 1
	if !alone {
		out = append(append(out, beside...), `,"allOf":[`...)
	}
	out = in.schema(out, c.shape.raw, true)
	if !alone {
		out = append(out, "]}"...)
	}
	in.within = in.within[:len(in.within)-1]
	return out
}

// inlined returns the schema with its components inlined, where the options want that.
func (b *builder) inlined(o *operation, schema []byte) []byte {
	if !b.o.InlineRefs || !strings.Contains(string(schema), `"$defs"`) {
		return schema
	}
	if out := b.shaper.inline(schema); out != nil {
		return out
	}
	b.warn(o,
		"its schema keeps references: without them it would be larger than %d bytes, or hold a "+
			"component larger than %d", maxToolSchema, maxInlined)
	return schema
}
