package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/farcall-dev/farcall/internal/replace"
)

// AmendGuard appends an entry to guard.keys or guard.signatures of a configuration in YAML,
// which it makes when there is none. The entry is a map in one line: {id: ci, hash: "…"}.
// Comments and the order of what is there stay; the file is replaced in one step, with its
// mode. It refuses an entry with the id or hash of another one, and a file that it could not
// change without touching anything else.
func AmendGuard(path, list, entry string) error {
	if strings.EqualFold(filepath.Ext(path), ".json") {
		return fmt.Errorf("%s is JSON: add the entry to guard.%s by hand", path, list)
	}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		path = file
	}
	old, err := readBounded(path, maxYAML)
	mode := fs.FileMode(0o600)
	switch info, statErr := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("cannot read the configuration: %w", err)
	case statErr == nil:
		mode = info.Mode().Perm()
	}
	text, err := amend(old, list, entry)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := replace.File(path, old, text, mode, nil); err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	return nil
}

// amend returns the text with the entry in it.
func amend(old []byte, list, entry string) ([]byte, error) {
	e := amendment{list: list, entry: entry, newline: "\n"}
	if bytes.Contains(old, []byte("\r\n")) {
		e.newline = "\r\n"
	}
	was, err := decodeYAML(old)
	if err != nil {
		return nil, err
	}
	if err := e.refuseTwice(was); err != nil {
		return nil, err
	}
	e.lines = strings.SplitAfter(string(old), "\n")
	if last := len(e.lines) - 1; e.lines[last] == "" {
		e.lines = e.lines[:last]
	} else {
		e.lines[last] += e.newline
	}
	text, err := e.insert(old, was)
	if err != nil {
		return nil, err
	}
	if err := e.check(was, text); err != nil {
		return nil, err
	}
	return text, nil
}

// decodeYAML returns the values of a document without what they refer to.
func decodeYAML(text []byte) (top map[string]any, err error) {
	defer func() {
		if recover() != nil { // what the parser does with some texts that are not YAML
			err = errors.New("this cannot be read as YAML: correct it first, with 'farcall check'")
		}
	}()
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if err := yaml.Unmarshal(text, &top); err != nil { // its words may have a secret
		return nil, errors.New(
			"this cannot be read as a map in YAML: correct it first, with 'farcall check'")
	}
	return top, nil
}

// An amendment is an entry on its way into a configuration.
type amendment struct {
	list, entry string
	newline     string
	lines       []string // of the file, each with its end
}

func (e *amendment) entries(top map[string]any) []any {
	guard, _ := top["guard"].(map[string]any)
	list, _ := guard[e.list].([]any)
	return list
}

func (e *amendment) refuseTwice(was map[string]any) error {
	entry, err := decodeYAML([]byte(e.entry))
	if err != nil {
		return err
	}
	for i, other := range e.entries(was) {
		other, _ := other.(map[string]any)
		for _, key := range []string{"id", "hash", "public"} {
			if value := entry[key]; value != nil && reflect.DeepEqual(value, other[key]) {
				return fmt.Errorf("guard.%s[%d] has the %s %v already: use another, or remove that entry first",
					e.list, i, key, value)
			}
		}
	}
	return nil
}

// check makes sure that the entry is what has changed, and all that has.
func (e *amendment) check(was map[string]any, text []byte) error {
	now, err := decodeYAML(text)
	entry, _ := decodeYAML([]byte(e.entry))
	list := e.entries(now)
	if err != nil || len(list) != len(e.entries(was))+1 ||
		!reflect.DeepEqual(list[len(list)-1], any(entry)) {
		return e.byHand()
	}
	guard, _ := now["guard"].(map[string]any)
	if guard[e.list] = list[:len(list)-1]; len(list) == 1 {
		delete(guard, e.list)
	}
	for _, top := range []map[string]any{now, was} {
		if guard, ok := top["guard"].(map[string]any); ok && len(e.entries(top)) == 0 {
			delete(guard, e.list)
		}
		if guard, ok := top["guard"].(map[string]any); ok && len(guard) == 0 || top["guard"] == nil {
			delete(top, "guard")
		}
	}
	if len(was)+len(now) > 0 && !reflect.DeepEqual(was, now) {
		return e.byHand()
	}
	return nil
}

func (e *amendment) byHand() error {
	return fmt.Errorf(
		"guard.%s is not written in a form that can be extended: add the entry by hand:\n  - %s",
		e.list, e.entry)
}

// insert finds the place of the entry.
func (e *amendment) insert(old []byte, was map[string]any) ([]byte, error) {
	// The parser counts a CR as the end of a line, and behind a comment CR LF as two.
	plain := bytes.ReplaceAll(old, []byte("\r\n"), []byte("\n"))
	file, err := parser.ParseBytes(plain, parser.ParseComments)
	if err != nil || len(file.Docs) > 1 || bytes.ContainsRune(plain, '\r') {
		return nil, e.byHand()
	}
	var top ast.Node
	if len(file.Docs) == 1 {
		top = file.Docs[0].Body
	}
	guard := valueOf(top, "guard")
	if guard == nil {
		if len(was) > 0 && !isBlockMap(top) {
			return nil, e.byHand()
		}
		return e.at(len(e.lines), "guard:", "  "+e.list+":", "    - "+e.entry), nil
	}
	list := valueOf(guard.Value, e.list)
	switch {
	case list == nil && guard.Value.Type() == ast.NullType:
		return e.at(lineOf(guard.Key), "  "+e.list+":", "    - "+e.entry), nil
	case list == nil && !isBlockMap(guard.Value):
		return nil, e.byHand()
	case list == nil:
		first := pairsOf(guard.Value)[0].Key.GetToken().Position
		indent := strings.Repeat(" ", first.Column-1)
		return e.at(first.Line-1, indent+e.list+":", indent+"  - "+e.entry), nil
	}
	return e.extend(list)
}

// extend appends the entry to a list that is there.
func (e *amendment) extend(list *ast.MappingValueNode) ([]byte, error) {
	indent := strings.Repeat(" ", list.Key.GetToken().Position.Column-1)
	switch v := list.Value.(type) {
	case *ast.NullNode:
		return e.at(lineOf(list.Key), indent+"  - "+e.entry), nil
	case *ast.SequenceNode:
		if !v.IsFlowStyle {
			dash := v.Start.Position.Column
			return e.at(e.endOf(v.Start.Position.Line, dash), strings.Repeat(" ", dash-1)+"- "+e.entry), nil
		}
		at := v.End.Position
		line, before := e.lines[at.Line-1], ", "
		if len(v.Values) == 0 {
			before = ""
		}
		cut := at.Column - 1
		if cut >= len(line) || line[cut] != ']' { // columns count characters
			return nil, e.byHand()
		}
		e.lines[at.Line-1] = line[:cut] + before + e.entry + line[cut:]
		return e.at(0), nil
	}
	return nil, e.byHand()
}

// endOf returns the last line of a block sequence with a first dash that is on a line, in a column.
func (e *amendment) endOf(first, dash int) int {
	end := first
	for n := first + 1; n <= len(e.lines); n++ {
		text := strings.TrimLeft(e.lines[n-1], " ")
		indent := len(e.lines[n-1]) - len(text)
		switch text = strings.TrimSpace(text); {
		case text == "" || strings.HasPrefix(text, "#"):
		case indent > dash-1, indent == dash-1 && (text == "-" || strings.HasPrefix(text, "- ")):
			end = n
		default:
			return end
		}
	}
	return end
}

// at returns the text with lines after line n.
func (e *amendment) at(n int, lines ...string) []byte {
	var b bytes.Buffer
	for _, line := range e.lines[:n] {
		b.WriteString(line)
	}
	for _, line := range lines {
		b.WriteString(line + e.newline)
	}
	for _, line := range e.lines[n:] {
		b.WriteString(line)
	}
	return b.Bytes()
}

func lineOf(n ast.Node) int { return n.GetToken().Position.Line }

func pairsOf(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func isBlockMap(n ast.Node) bool {
	m, ok := n.(*ast.MappingNode)
	return len(pairsOf(n)) > 0 && (!ok || !m.IsFlowStyle)
}

// valueOf returns a key of a map with its value, or nil.
func valueOf(n ast.Node, key string) *ast.MappingValueNode {
	for _, pair := range pairsOf(n) {
		if pair.Key.GetToken().Value == key {
			return pair
		}
	}
	return nil
}
