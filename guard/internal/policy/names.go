package policy

import (
	"fmt"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Names are the names that policies look up in the arguments of calls. A nil *Names means that no
// policy looks at arguments.
type Names struct {
	spellings map[string][]string // by the folded name
	longest   int                 // bytes of a folded name
}

// maxGrowth is how many times longer a name can become by folding, or shorter: the Kelvin sign has
// three bytes and folds to K.
const maxGrowth = 3

// Mistaken returns the name that policies look up and that a server which ignores case takes key
// for, although they differ; "" for none. It allocates only when key is long.
func (n *Names) Mistaken(key []byte) string {
	if n == nil || len(key) > maxGrowth*n.longest {
		return ""
	}
	var small [64]byte
	for _, name := range n.spellings[string(AppendFolded(small[:0], key))] {
		if name != string(key) {
			return name
		}
	}
	return ""
}

// add adds a name, and returns another spelling of it that is there already, or "".
func (n *Names) add(name string) (other string) {
	folded := AppendFolded(nil, []byte(name))
	list := n.spellings[string(folded)]
	if slices.Contains(list, name) {
		return ""
	}
	n.spellings[string(folded)] = append(list, name)
	n.longest = max(n.longest, len(folded))
	if len(list) > 0 {
		other = list[0]
	}
	return other
}

// collect finds the names that policies look up in arguments. It warns of those that differ in case
// only.
func (s *Set) collect(list *problems) {
	if !s.use.inContext("arguments") {
		return
	}
	s.names = &Names{spellings: map[string][]string{}}
	for _, c := range s.list {
		for _, name := range slices.Sorted(maps.Keys(c.use.members)) {
			other := s.names.add(string(name))
			if other == "" {
				continue
			}
			at := c.policy.Position()
			*list = append(*list, Problem{
				Path: at.Filename, Line: at.Line, Column: at.Column, Warning: true,
				Message: fmt.Sprintf("policies look up both %s and %s, which servers may take for the same: calls with either are refused", show(other), show(string(name))),
				Hint:    "use one of them: calls with another spelling of it are refused anyway",
			})
		}
	}
}

// Names returns the names that policies look up in arguments, nil when none looks at them.
func (s *Set) Names() *Names {
	if s == nil {
		return nil
	}
	return s.names
}

// AppendFolded appends a name as readers that ignore case compare it: under the simple case folding
// of Unicode, as encoding/json and [strings.EqualFold] do. Two names fold to the same bytes exactly
// when they are equal under it.
func AppendFolded(dst, name []byte) []byte {
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(name[i:])
		dst = utf8.AppendRune(dst, folded(r))
		i += size
	}
	return dst
}

// folded is the smallest of the characters that fold to each other.
func folded(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}
