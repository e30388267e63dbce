package route

import (
	"container/list"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A merged list is made of one list of each source. It does not change.
type merged struct {
	kind  kind
	parts []*digest // nil: the source has none
	items []item    // in the order of the sources
	start []int     // of each source in items, and their end
	index map[string]int
	left  []int // by source: how many are left out

	bytes int
	key   string
	place *list.Element // under the View's lock

	deriving sync.Once // see Whole.Derived
	derived  any
}

type item struct {
	source int
	entry  *entry
	shown  string // "": it is left out, or shown already
	raw    jsonrpc.Raw
}

// ambiguous is the number in the index of a name that several sources have.
const ambiguous = -1

// A claim counts the sources that would show a plain name, and those of them that must.
type claim struct{ all, must int }

const maxPrefixes = 4

// merge makes the list and gives names.
func merge(k kind, sources []*source, parts []*digest) *merged {
	m := &merged{
		kind: k, parts: parts, start: make([]int, 0, len(sources)+1),
		left: make([]int, len(sources)),
	}
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
	claims := map[string]claim{}
	for s, d := range parts {
		if d == nil {
			continue
		}
		plain, must := sources[s].plain(k)
		for i := range d.entries {
			e := &d.entries[i]
			m.items = append(m.items, item{source: s, entry: e, raw: e.shown})
			if c := claims[e.plain]; plain {
				c.all++
				if must {
					c.must++
				}
				claims[e.plain] = c
			}
		}
	}
	for i := range m.items {
		it := &m.items[i]
		plain, must := sources[it.source].plain(k)
		c := claims[it.entry.plain]
		if plain && (c.all == 1 || must && c.must == 1) &&
			!posing(k, sources, it.source, it.entry.plain) {
			m.name(i, it.entry.plain)
			if !must && sources[it.source].uris {
				m.qualify(it, sources[it.source], it.entry.plain)
			}
		}
	}
	for i := range m.items {
		it := &m.items[i]
		if it.shown != "" {
			continue
		}
		m.prefix(i, sources[it.source])
	}
	m.bytes += entryBytes * n
	return m
}

// prefix shows an item by its long name, or leaves it out.
func (m *merged) prefix(i int, s *source) {
	it := &m.items[i]
	if s.Rules.Namespace == NamespaceNever {
		m.left[it.source]++
		return
	}
	name := s.long(m.kind, it.entry.plain)
	if layouts[m.kind].uri && name == it.entry.plain { // of the web: it is listed once
		if _, taken := m.index[name]; taken {
			m.index[name] = ambiguous
			return
		}
	}
	for tries := 1; tries < maxPrefixes; tries++ { // with NamespaceAuto another item may be called so
		if _, taken := m.index[name]; !taken {
			break
		}
		name = s.long(m.kind, name)
	}
	if _, taken := m.index[name]; taken {
		m.left[it.source]++
		return
	}
	m.name(i, name)
	m.qualify(it, s, name)
}

// qualify writes the references in an item, and its name, as they are shown.
func (m *merged) qualify(it *item, s *source, name string) {
	if s.uris {
		it.raw = s.Refs.DownItem(methods[m.kind], it.raw)
	}
	it.raw = setMember(it.raw, layouts[m.kind].key, name)
	m.bytes += len(it.raw)
}

// methods has those of the lists, by kind.
var methods = [kinds]string{
	"tools/list", "resources/list", "resources/templates/list",
	"prompts/list",
}

// plain reports whether a source would show its own names of a kind, and whether it can show no
// others.
func (s *source) plain(k kind) (would, must bool) {
	if layouts[k].uri {
		return !s.uris, !s.uris
	}
	must = s.Rules.Namespace == NamespaceNever
	return must || s.Rules.Namespace == NamespaceAuto, must
}

// posing reports whether the plain name of a source's item looks like the long one
// of another source, to which it would lead a caller.
func posing(k kind, sources []*source, own int, plain string) bool {
	return slices.ContainsFunc(sources, func(o *source) bool {
		_, ok := o.cutLong(k, plain)
		return ok && o != sources[own]
	})
}

func (m *merged) name(i int, name string) {
	m.items[i].shown = name
	m.index[name] = i
}

// find returns the number of an item by the name that is shown, or by its long
// form.
func (m *merged) find(sources []*source, name string) (int, bool) {
	if i, ok := m.index[name]; ok {
		return i, i != ambiguous
	}
	for s, d := range m.parts {
		if d == nil {
			continue
		}
		rest, ok := sources[s].cutLong(m.kind, name)
		if !ok {
			continue
		}
		if i, ok := d.find(m.kind, rest); ok {
			return m.start[s] + i, true
		}
	}
	return 0, false
}

// find returns the number of an entry by the name that is shown without a qualifier. What is known
// by URI may be called by its own one, too: results refer to it.
func (d *digest) find(k kind, plain string) (int, bool) {
	i, ok := d.plains[plain]
	if !ok && layouts[k].uri {
		i, ok = d.names[plain]
	}
	return i, ok
}

// owners returns the items of all sources that are called by a name without a qualifier. What has
// the qualifier of a source is of that one.
func (m *merged) owners(sources []*source, name string) (all []int) {
	for s, d := range m.parts {
		if _, ok := sources[s].cutLong(m.kind, name); ok {
			return nil
		}
		if d == nil {
			continue
		}
		if i, ok := d.find(m.kind, name); ok {
			all = append(all, m.start[s]+i)
		}
	}
	return all
}

func (m *merged) target(sources []*source, i int) Target {
	it := &m.items[i]
	return Target{
		Source: sources[it.source].Name, Name: it.entry.name, Item: it.entry.raw,
		Tool: it.entry.tool,
	}
}
