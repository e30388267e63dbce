package gateway

import (
	"errors"
	"fmt"
	"sort"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readTOML makes a node of a document. Its tables are in the order in which the file names them
// first.
func readTOML(data []byte) (*node, error) {
	if err := toml.Unmarshal(data, &map[string]any{}); err != nil { // what the parser alone does not see: keys that are given twice
		bad := &syntaxError{message: "this is not TOML"}
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			bad.at.line, bad.at.column = at.Position()
		}
		return nil, bad
	}
	t := tomlReader{root: &node{kind: mapNode, at: spot{1, 1}}, lines: []int{0}, tables: map[*node]map[string]*node{}}
	for i, c := range data {
		if c == '\n' {
			t.lines = append(t.lines, i+1)
		}
	}
	t.p.Reset(data)
	table := t.root
	for t.p.NextExpression() {
		e := t.p.Expression()
		var err error
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, err = t.table(e.Key(), e.Kind == unstable.ArrayTable)
		case unstable.KeyValue:
			err = t.keyValue(table, e, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	if t.p.Error() != nil {
		return nil, &syntaxError{message: "this is not TOML"}
	}
	return t.root, nil
}

type tomlReader struct {
	p      unstable.Parser
	root   *node
	lines  []int                      // where they begin
	tables map[*node]map[string]*node // what is a table, or a list of them, in each
}

// at is where something begins.
func (t *tomlReader) at(r unstable.Range) spot {
	i := int(r.Offset)
	line := sort.SearchInts(t.lines, i+1) - 1
	return spot{line + 1, utf8.RuneCount(t.p.Data()[t.lines[line]:i]) + 1}
}

// add adds a table, or a list of them, to a map.
func (t *tomlReader) add(n, what *node, key *unstable.Node) *node {
	what.at = t.at(key.Raw)
	n.members = append(n.members, member{key: string(key.Data), at: what.at, value: what})
	if t.tables[n] == nil {
		t.tables[n] = map[string]*node{}
	}
	t.tables[n][string(key.Data)] = what
	return what
}

// within returns the map at a key, which it makes, or the last one of a list of tables.
func (t *tomlReader) within(n *node, key *unstable.Node) *node {
	next := t.tables[n][string(key.Data)]
	switch {
	case next == nil:
		return t.add(n, &node{kind: mapNode}, key)
	case next.kind == listNode:
		return next.list[len(next.list)-1]
	}
	return next
}

// table returns the map of a heading: [a.b], or a new one of [[a.b]].
func (t *tomlReader) table(keys unstable.Iterator, list bool) (*node, error) {
	n := t.root
	for depth := 0; keys.Next(); depth++ {
		key := keys.Node()
		if depth > maxNesting {
			return nil, t.tooDeep(key.Raw)
		}
		if list && keys.IsLast() {
			all := t.tables[n][string(key.Data)]
			if all == nil {
				all = t.add(n, &node{kind: listNode}, key)
			}
			all.list = append(all.list, &node{kind: mapNode, at: t.at(key.Raw)})
		}
		n = t.within(n, key)
	}
	return n, nil
}

func (t *tomlReader) tooDeep(r unstable.Range) error {
	return &syntaxError{at: t.at(r), message: fmt.Sprintf("values are nested more than %d deep", maxNesting)}
}

// keyValue adds a.b = value to a map.
func (t *tomlReader) keyValue(n *node, e *unstable.Node, depth int) error {
	for keys := e.Key(); keys.Next(); depth++ {
		key := keys.Node()
		if depth > maxNesting {
			return t.tooDeep(key.Raw)
		}
		if !keys.IsLast() {
			n = t.within(n, key)
			continue
		}
		value, err := t.value(e.Value(), t.at(key.Raw), depth)
		if err != nil {
			return err
		}
		n.members = append(n.members, member{key: string(key.Data), at: t.at(key.Raw), value: value})
	}
	return nil
}

// value makes a node of a value. Lists and tables have no own place: theirs is that of the key.
func (t *tomlReader) value(v *unstable.Node, at spot, depth int) (*node, error) {
	if depth > maxNesting {
		return nil, &syntaxError{at: at, message: fmt.Sprintf("values are nested more than %d deep", maxNesting)}
	}
	n := &node{at: at}
	if v.Raw.Length > 0 {
		n.at = t.at(v.Raw)
	}
	switch v.Kind {
	case unstable.Array:
		n.kind = listNode
		for items := v.Children(); items.Next(); {
			if items.Node().Kind == unstable.Comment {
				continue
			}
			item, err := t.value(items.Node(), n.at, depth+1)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, item)
		}
	case unstable.InlineTable:
		n.kind = mapNode
		for items := v.Children(); items.Next(); {
			if items.Node().Kind != unstable.KeyValue {
				continue
			}
			if err := t.keyValue(n, items.Node(), depth+1); err != nil {
				return nil, err
			}
		}
	default:
		n.kind, n.text, n.bare = scalarNode, string(v.Data), v.Kind != unstable.String
	}
	return n, nil
}
