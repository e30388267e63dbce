package gateway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A node is a value of a file, of YAML or of JSON.
type node struct {
	kind    nodeKind
	text    string   // of a scalar, as it was written: 8080, true
	list    []*node  // of a list
	members []member // of a map, in the order of the file
	bare    bool     // a number, true or false, and no text
	at      spot
}

type nodeKind int

const (
	nullNode nodeKind = iota
	scalarNode
	listNode
	mapNode
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "one value", "a list", "a map"}[k]
}

type member struct {
	key   string
	at    spot
	value *node
}

// A spot is a place in a file, from 1.
type spot struct{ line, column int }

// maxNesting is more than any configuration needs.
const maxNesting = 32

// get returns the value of a key, or nil.
func (n *node) get(key string) *node {
	for _, m := range n.members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// digest is a code of what a node says, wherever it stands and in whatever order. The keys of but
// are left out of its members. seen has the digests of nodes below, which may be shared.
func (n *node) digest(seen map[*node][]byte, but ...string) []byte {
	if d := seen[n]; d != nil {
		return d
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d %q %t", n.kind, n.text, n.bare)
	for _, one := range n.list {
		h.Write(one.digest(seen))
	}
	byKey := func(a, b member) int { return cmp.Compare(a.key, b.key) }
	for _, m := range slices.SortedStableFunc(slices.Values(n.members), byKey) {
		if !slices.Contains(but, m.key) {
			fmt.Fprintf(h, " %q ", m.key)
			h.Write(m.value.digest(seen))
		}
	}
	seen[n] = h.Sum(nil)
	return seen[n]
}

// A syntaxError says why a file cannot be read at all.
type syntaxError struct {
	at      spot
	message string
	hint    string
}

func (e *syntaxError) Error() string { return e.message }

// readYAML makes a node of a document. Anchors, aliases and merge keys are
// resolved; a node that has an alias is shared, so that aliases of aliases cost
// nothing.
func readYAML(data []byte) (n *node, err error) {
	defer func() {
		if recover() != nil { // what the parser does with some texts that are no YAML
			n, err = nil, &syntaxError{message: "this cannot be read as YAML"}
		}
	}()
	// A line may end with CR LF (YAML 1.2.2, section 5.4). Behind a comment the parser counts that as
	// two.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		// Its Error would quote the file, and so what is secret in it.
		var bad *yaml.SyntaxError
		if errors.As(err, &bad) && bad.Token != nil && bad.Token.Position != nil {
			return nil, &syntaxError{
				at:      spot{bad.Token.Position.Line, bad.Token.Position.Column},
				message: "this is not YAML: " + bad.Message,
			}
		}
		return nil, &syntaxError{message: "this cannot be read as YAML"}
	}
	y := yamlReader{anchors: map[string]*node{}}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		next, err := y.read(doc.Body, 0)
		if err != nil {
			return nil, err
		}
		if n != nil {
			return nil, &syntaxError{
				at: next.at, message: "there is a second document (---) in the file",
				hint: "remove it; a file is one configuration",
			}
		}
		n = next
	}
	return cmp.Or(n, &node{at: spot{1, 1}}), nil
}

func spotOf(a ast.Node) spot {
	if t := a.GetToken(); t != nil && t.Position != nil {
		return spot{t.Position.Line, t.Position.Column}
	}
	return spot{1, 1}
}

type yamlReader struct {
	anchors map[string]*node
}

func (y *yamlReader) read(a ast.Node, depth int) (*node, error) {
	if depth > maxNesting {
		return nil, &syntaxError{
			at: spotOf(a), message: fmt.Sprintf("values are nested more than %d deep", maxNesting),
		}
	}
	switch a := a.(type) {
	case *ast.MappingNode:
		return y.mapping(a.Values, spotOf(a), depth)
	case *ast.MappingValueNode:
		return y.mapping([]*ast.MappingValueNode{a}, spotOf(a), depth)
	case *ast.SequenceNode:
		n := &node{kind: listNode, at: spotOf(a)}
		for _, v := range a.Values {
			item, err := y.read(v, depth+1)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, item)
		}
		return n, nil
	case *ast.AnchorNode:
		n, err := y.read(a.Value, depth+1)
		if err == nil {
			y.anchors[a.Name.GetToken().Value] = n
		}
		return n, err
	case *ast.AliasNode:
		name := a.Value.GetToken().Value
		n, ok := y.anchors[name]
		if !ok {
			return nil, &syntaxError{
				at: spotOf(a), message: fmt.Sprintf("there is no anchor &%s before this", name),
			}
		}
		return n, nil
	case *ast.TagNode:
		return nil, &syntaxError{
			at:      spotOf(a),
			message: fmt.Sprintf("tags such as %s are not used here", a.GetToken().Value), hint: "remove it",
		}
	case *ast.NullNode:
		return &node{at: spotOf(a)}, nil
	case *ast.StringNode:
		return &node{kind: scalarNode, text: a.Value, at: spotOf(a)}, nil
	case *ast.LiteralNode:
		return &node{kind: scalarNode, text: a.Value.Value, at: spotOf(a)}, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return &node{kind: scalarNode, text: a.GetToken().Value, bare: true, at: spotOf(a)}, nil
	default:
		return nil, &syntaxError{at: spotOf(a), message: "this is no value, list or map"}
	}
}

func (y *yamlReader) mapping(values []*ast.MappingValueNode, at spot, depth int) (*node, error) {
	n := &node{kind: mapNode, at: at}
	if len(values) > 0 {
		n.at = spotOf(values[0].Key)
	}
	var merged []*node
	for _, v := range values {
		value, err := y.read(v.Value, depth+1)
		if err != nil {
			return nil, err
		}
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			from, err := mergeable(value, spotOf(v.Key))
			if err != nil {
				return nil, err
			}
			merged = append(merged, from...)
			continue
		}
		key, err := y.read(v.Key, depth+1)
		if err != nil {
			return nil, err
		}
		if key.kind != scalarNode {
			return nil, &syntaxError{
				at: key.at, message: "a key must be a word, and this is " + key.kind.String(),
			}
		}
		n.members = append(n.members, member{key.text, key.at, value})
	}
	return n, n.merge(merged)
}

// mergeable returns the maps that a merge key names.
func mergeable(n *node, at spot) ([]*node, error) {
	from := []*node{n}
	if n.kind == listNode {
		from = n.list
	}
	for _, f := range from {
		if f.kind != mapNode {
			return nil, &syntaxError{at: at, message: "<< takes a map, or a list of maps"}
		}
	}
	return from, nil
}

// maxMembers bounds what merge keys can make of a small file.
const maxMembers = 10_000

// merge adds what is missing.
func (n *node) merge(from []*node) error {
	if len(from) == 0 {
		return nil
	}
	have := map[string]bool{}
	for _, m := range n.members {
		have[m.key] = true
	}
	for _, f := range from {
		for _, m := range f.members {
			if have[m.key] {
				continue
			}
			if len(n.members) >= maxMembers {
				return &syntaxError{
					at: n.at, message: fmt.Sprintf("this map has more than %d keys", maxMembers),
				}
			}
			have[m.key] = true
			n.members = append(n.members, m)
		}
	}
	return nil
}
