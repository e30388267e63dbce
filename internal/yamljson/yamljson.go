// Package yamljson answers one question: how does foreign YAML become JSON?
//
// Numbers keep their text, keys are strings, and aliases and merge keys are expanded. The text is
// untrusted: its size, its nesting and the work that it makes are bounded.
package yamljson

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/farcall-dev/farcall/internal/scan"
)

// The bounds of a document.
const (
	MaxNesting = 128     // containers inside each other
	MaxBytes   = 8 << 20 // of YAML: its reader needs much more memory than that of JSON
)

const (
	maxBrackets = 200_000  // brackets and braces in it, and commas in these
	maxKeyWork  = 50 << 20 // of keys, each times those before it beside it: 10,000 keys in one map
	maxExpanded = 32 << 20 // bytes of it as JSON, with its aliases expanded
)

// JSON returns the one YAML document in a text as JSON. The errors say the line, and have no more
// than a piece of the text.
func JSON(raw []byte) (out []byte, err error) {
	if len(raw) > MaxBytes {
		return nil, fmt.Errorf("the document has %d bytes; %d are allowed in YAML, and more in JSON",
			len(raw), MaxBytes)
	}
	if n := bytes.Count(raw, []byte("[")) + bytes.Count(raw, []byte("{")); n > maxBrackets {
		return nil,
			fmt.Errorf("the document has %d brackets and braces; %d are allowed in YAML, and more in JSON",
				n, maxBrackets)
	}
	defer func() {
		if recover() != nil { // what the parser does with some texts that are no YAML
			out, err = nil, errors.New("it cannot be read as YAML")
		}
	}()
	tokens := lexer.Tokenize(string(raw))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var bad *yaml.SyntaxError
		if errors.As(err, &bad) && bad.Token != nil && bad.Token.Position != nil {
			return nil, fmt.Errorf("line %d, column %d: it is no YAML: %s", bad.Token.Position.Line,
				bad.Token.Position.Column, bad.Message)
		}
		return nil, errors.New("it cannot be read as YAML")
	}
	y := writer{anchors: map[string][2]int{}}
	for _, doc := range parsed.Docs {
		if doc.Body == nil {
			continue
		}
		if len(y.out) > 0 {
			return nil, errors.New("there is a second document (---) in the file")
		}
		if err := y.write(doc.Body, 0); err != nil {
			return nil, err
		}
	}
	return y.out, nil
}

// checkTokens refuses what the parser would recurse into too deeply, or take too long for.
func checkTokens(tokens token.Tokens) error {
	depth, run, commas := 0, 0, 0
	var keys siblings
	for i, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			run++
		default:
			run = 0
		}
		if depth > MaxNesting || run > MaxNesting {
			return fmt.Errorf("line %d: values are nested more than %d deep", t.Position.Line, MaxNesting)
		}
		if depth > 0 {
			if t.Type == token.CollectEntryType {
				commas++
			}
			if commas > maxBrackets {
				return fmt.Errorf(
					"line %d: there are more than %d values in brackets and braces; write the document as JSON",
					t.Position.Line, maxBrackets)
			}
			continue
		}
		switch t.Type {
		case token.SequenceEntryType:
			keys.end(t.Position.Column)
		case token.MappingKeyType:
			keys.add(t.Position.Column)
		case token.MappingValueType:
			keys.add(tokens[max(i-1, 0)].Position.Column)
		}
		if keys.work > maxKeyWork {
			return fmt.Errorf(
				"line %d: there are too many keys beside each other for YAML; write the document as JSON",
				t.Position.Line)
		}
	}
	return nil
}

// siblings counts the keys of the maps that a place is in, by their columns. The parser recurses
// for each key beside another, and takes time with the square of their number.
type siblings struct {
	columns, counts []int
	work            int
}

func (s *siblings) add(column int) {
	s.end(column)
	if n := len(s.columns); n == 0 || s.columns[n-1] < column {
		s.columns, s.counts = append(s.columns, column), append(s.counts, 0)
	}
	n := len(s.counts) - 1
	s.counts[n]++
	s.work += s.counts[n]
}

// end leaves the maps that are further inside than a column.
func (s *siblings) end(column int) {
	for n := len(s.columns); n > 0 && s.columns[n-1] > column; n-- {
		s.columns, s.counts = s.columns[:n-1], s.counts[:n-1]
	}
}

// A writer writes YAML as JSON.
type writer struct {
	out     []byte
	anchors map[string][2]int // where in out the value of an anchor is
}

func (y *writer) write(a ast.Node, depth int) error {
	if depth > MaxNesting {
		return fmt.Errorf("line %d: values are nested more than %d deep", lineOf(a), MaxNesting)
	}
	if len(y.out) > maxExpanded {
		return fmt.Errorf("the document has more than %d bytes when its aliases are expanded",
			maxExpanded)
	}
	switch a := a.(type) {
	case *ast.MappingNode:
		return y.mapping(a.Values, depth)
	case *ast.MappingValueNode:
		return y.mapping([]*ast.MappingValueNode{a}, depth)
	case *ast.SequenceNode:
		return y.sequence(a, depth)
	case *ast.AnchorNode:
		start := len(y.out)
		if err := y.write(a.Value, depth+1); err != nil {
			return err
		}
		y.anchors[a.Name.GetToken().Value] = [2]int{start, len(y.out)}
	case *ast.AliasNode:
		at, ok := y.anchors[a.Value.GetToken().Value]
		if !ok {
			return fmt.Errorf("line %d: there is no anchor %s before this alias", lineOf(a),
				quote(a.Value.GetToken().Value))
		}
		y.out = append(y.out, y.out[at[0]:at[1]]...)
	case *ast.TagNode:
		return y.tagged(a, depth)
	default:
		return y.scalar(a)
	}
	return nil
}

func (y *writer) sequence(a *ast.SequenceNode, depth int) error {
	y.out = append(y.out, '[')
	for i, v := range a.Values {
		if i > 0 {
			y.out = append(y.out, ',')
		}
		if err := y.write(v, depth+1); err != nil {
			return err
		}
	}
	y.out = append(y.out, ']')
	return nil
}

// tagged writes what has a tag: !!str makes a text of it, others say nothing new.
func (y *writer) tagged(a *ast.TagNode, depth int) error {
	if _, plain := a.Value.(ast.ScalarNode); plain && a.Start.Value == "!!str" {
		y.out = scan.AppendQuoted(y.out, a.Value.GetToken().Value)
		return nil
	}
	return y.write(a.Value, depth+1)
}

func (y *writer) scalar(a ast.Node) error {
	switch a := a.(type) {
	case *ast.NullNode:
		y.out = append(y.out, "null"...)
	case *ast.BoolNode:
		y.out = strconv.AppendBool(y.out, a.Value)
	case *ast.StringNode:
		y.out = scan.AppendQuoted(y.out, a.Value)
	case *ast.LiteralNode:
		y.out = scan.AppendQuoted(y.out, a.Value.Value)
	case *ast.IntegerNode:
		y.number(a.GetToken().Value, fmt.Sprint(a.Value))
	case *ast.FloatNode:
		y.number(a.GetToken().Value, strconv.FormatFloat(a.Value, 'g', -1, 64))
	case *ast.InfinityNode, *ast.NanNode:
		y.out = scan.AppendQuoted(y.out, a.GetToken().Value)
	default:
		return fmt.Errorf("line %d: there is no value, list or map", lineOf(a))
	}
	return nil
}

// number writes a number as it is written, where JSON has that spelling.
func (y *writer) number(text, value string) {
	for _, s := range []string{text, value} {
		if _, fault := scan.Text([]byte(s), 0); fault == scan.OK {
			y.out = append(y.out, s...)
			return
		}
	}
	y.out = scan.AppendQuoted(y.out, text)
}

func (y *writer) mapping(values []*ast.MappingValueNode, depth int) error {
	seen := map[string]bool{}
	var merges []ast.Node
	y.out = append(y.out, '{')
	for _, v := range values {
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			merges = append(merges, v.Value)
			continue
		}
		key, err := keyOf(v.Key)
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("line %d: the key %s is there twice", lineOf(v.Key), quote(key))
		}
		y.begin(key, seen)
		if err := y.write(v.Value, depth+1); err != nil {
			return err
		}
	}
	for _, m := range merges {
		if err := y.merge(m, seen, depth); err != nil {
			return err
		}
	}
	y.out = append(y.out, '}')
	return nil
}

// begin writes the name of a member.
func (y *writer) begin(key string, seen map[string]bool) {
	if len(seen) > 0 {
		y.out = append(y.out, ',')
	}
	seen[key] = true
	y.out = append(scan.AppendQuoted(y.out, key), ':')
}

// merge adds the members of a merge key that are not there yet.
func (y *writer) merge(a ast.Node, seen map[string]bool, depth int) error {
	start := len(y.out)
	if err := y.write(a, depth+1); err != nil {
		return err
	}
	from := bytes.Clone(y.out[start:])
	y.out = y.out[:start]
	for _, object := range append([][]byte{from}, slices.Collect(scan.Elements(from))...) {
		for name, value := range scan.Members(object) {
			if !seen[string(name)] {
				y.begin(string(name), seen)
				y.out = append(y.out, value...)
			}
		}
	}
	return nil
}

func keyOf(a ast.Node) (string, error) {
	switch a := a.(type) {
	case *ast.StringNode:
		return a.Value, nil
	case *ast.LiteralNode:
		return a.Value.Value, nil
	case *ast.MappingKeyNode:
		return keyOf(a.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode,
		*ast.NanNode:
		return a.GetToken().Value, nil
	default:
		return "", fmt.Errorf("line %d: a key must be a word", lineOf(a))
	}
}

func lineOf(a ast.Node) int {
	if t := a.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// quote returns the beginning of a text for a message, without control characters.
func quote(s string) string { return fmt.Sprintf("%.60q", s) }
