package gateway

import (
	"fmt"
	"sort"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/jsonc"
	"github.com/farcall-dev/farcall/internal/scan"
)

// readJSON makes a node of JSON. Comments, and a comma behind the last member or
// element, are passed over: editors write them into their settings.
func readJSON(data []byte) (*node, error) {
	j := jsonReader{b: jsonc.Plain(data), lines: []int{0}}
	for i, c := range data {
		if c == '\n' {
			j.lines = append(j.lines, i+1)
		}
	}
	if i, f := scan.Text(j.b, maxNesting); f != scan.OK {
		return nil, &syntaxError{at: j.at(i), message: fmt.Sprintf("this is not JSON: %v", f)}
	}
	n, _ := j.read(scan.Space(j.b, 0))
	return n, nil
}

// jsonReader reads what scan has found to be valid.
type jsonReader struct {
	b     []byte
	lines []int // where they begin
}

func (j *jsonReader) at(i int) spot {
	line := sort.SearchInts(j.lines, i+1) - 1
	return spot{line + 1, utf8.RuneCount(j.b[j.lines[line]:min(i, len(j.b))]) + 1}
}

// read returns the value at i, and where it ends.
func (j *jsonReader) read(i int) (*node, int) {
	n := &node{at: j.at(i)}
	end, _ := scan.Value(j.b, i, -1)
	switch j.b[i] {
	case '{':
		n.kind = mapNode
		for i = scan.Space(j.b, i+1); j.b[i] != '}'; {
			keyEnd, _, _ := scan.String(j.b, i)
			m := member{key: string(scan.Unquote(j.b[i:keyEnd])), at: j.at(i)}
			i = scan.Space(j.b, scan.Space(j.b, keyEnd)+1) // the colon
			m.value, i = j.read(i)
			n.members = append(n.members, m)
			i = j.next(i)
		}
	case '[':
		n.kind = listNode
		for i = scan.Space(j.b, i+1); j.b[i] != ']'; {
			var item *node
			item, i = j.read(i)
			n.list = append(n.list, item)
			i = j.next(i)
		}
	case '"':
		n.kind, n.text = scalarNode, string(scan.Unquote(j.b[i:end]))
	case 'n':
	default:
		n.kind, n.text, n.bare = scalarNode, string(j.b[i:end]), true
	}
	return n, end
}

// next passes the comma behind a member or element, if there is one.
func (j *jsonReader) next(i int) int {
	if i = scan.Space(j.b, i); j.b[i] == ',' {
		i = scan.Space(j.b, i+1)
	}
	return i
}
