package route

import (
	"container/list"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A merged list is made of one list of each source. It does not change.
type merged struct {
	kind  kind
	parts []*digest // nil: the source has none
	items []item    // in the order of the sources
	start []int     // of each source in items, and their end
	index map[string]int
	left  []int // by source: how many have no name

	bytes int
	key   string
	place *list.Element // under the View's lock
}

type item struct {
	source int
	entry  *entry
	shown  string // "": another source has the name
	raw    jsonrpc.Raw
}

// A claim says who wants a plain name: the number of the first source that must
// have it, or -1, and of the first that would like to.
type claim struct{ must, first, count int }

const maxPrefixes = 4

// merge makes the list and gives names.
func merge(k kind, sources []*source, parts []*digest) *merged {
	m := &merged{kind: k, parts: parts, start: make([]int, 0, len(sources)+1), left: make([]int, len(sources))}
	n := 0
	for _, d := range parts {
		m.start = append(m.start, n)
		if d != nil {
			n += len(d.entries)
		}
	}
	m.start = append(m.start, n)
	m.items = make([]item, 0, n)
	m.index = make(map[string]int, n)
	claims := make(map[string]claim, n)
	for s, d := range parts {
		if d == nil {
			continue
		}
		for i := range d.entries {
			e := &d.entries[i]
			m.items = append(m.items, item{source: s, entry: e, raw: e.shown})
			if !posing(k, sources, s, e.plain) {
				stake(claims, e.plain, s, sources[s].Rules.Namespace)
			}
		}
	}
	for i := range m.items {
		it := &m.items[i]
		if claims[it.entry.plain].owner(k) == it.source {
			m.name(i, it.entry.plain)
		}
	}
	for i := range m.items {
		it := &m.items[i]
		if it.shown != "" {
			continue
		}
		s := sources[it.source]
		if s.Rules.Namespace == NamespaceNever {
			m.left[it.source]++
			continue
		}
		name, tries := long(k, s.Name, it.entry.plain), 1
		for ; tries < maxPrefixes; tries++ {
			if _, taken := m.index[name]; !taken {
				break
			}
			name = long(k, s.Name, name)
		}
		if _, taken := m.index[name]; taken {
			m.left[it.source]++
			continue
		}
		m.name(i, name)
		it.raw = setMember(it.raw, layouts[k].key, name)
		m.bytes += len(it.raw)
	}
	m.bytes += entryBytes * n
	return m
}

// posing reports whether the plain name of a source's item looks like the long one
// of another source, which a caller would take for that one's.
func posing(k kind, sources []*source, own int, plain string) bool {
	if sources[own].Rules.Namespace == NamespaceNever {
		return false
	}
	return slices.ContainsFunc(sources, func(o *source) bool {
		_, ok := cutLong(k, o.Name, plain)
		return ok && o != sources[own]
	})
}

func (m *merged) name(i int, name string) {
	m.items[i].shown = name
	m.index[name] = i
}

func stake(claims map[string]claim, name string, source int, namespace string) {
	if namespace == NamespaceAlways {
		return
	}
	c, ok := claims[name]
	if !ok {
		c = claim{must: -1, first: -1}
	}
	switch {
	case namespace == NamespaceNever && c.must < 0:
		c.must = source
	case namespace != NamespaceNever && c.first < 0:
		c.first = source
	}
	c.count++
	claims[name] = c
}

// owner returns the number of the source that has a plain name, or -1.
func (c claim) owner(k kind) int {
	switch {
	case c.count == 0: // all of them always have a prefix
		return -1
	case c.must >= 0:
		return c.must
	case c.count == 1 || layouts[k].uri:
		return c.first
	}
	return -1
}

// find returns the number of an item by the name that is shown, or by its long
// form.
func (m *merged) find(sources []*source, name string) (int, bool) {
	if i, ok := m.index[name]; ok {
		return i, true
	}
	for s, d := range m.parts {
		if d == nil {
			continue
		}
		rest, ok := cutLong(m.kind, sources[s].Name, name)
		if !ok {
			continue
		}
		if i, ok := d.plains[rest]; ok {
			return m.start[s] + i, true
		}
	}
	return 0, false
}

// cutLong returns what follows the prefix of a source.
func cutLong(k kind, source, name string) (string, bool) {
	prefix := long(k, source, "")
	if len(name) <= len(prefix) || !strings.HasPrefix(name, prefix) {
		return "", false
	}
	return name[len(prefix):], true
}

func (m *merged) target(sources []*source, i int) Target {
	it := &m.items[i]
	return Target{Source: sources[it.source].Name, Name: it.entry.name, Item: it.entry.raw, Tool: it.entry.tool}
}
