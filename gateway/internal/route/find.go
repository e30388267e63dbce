package route

import (
	"context"
	"time"
)

// maxPageBytes ends a page early when its items are large.
const maxPageBytes = 8 << 20

// Page returns a page of the merged list of a kind, as the caller in the ctx may
// see it: the first for the cursor "". A source that cannot be asked takes
// nothing else with it, see Page.Missing. The error is ErrCursor, or that of the
// ctx.
func (v *View) Page(ctx context.Context, kind, cursor string) (Page, error) {
	k, err := kindOf(kind)
	if err != nil {
		return Page{}, err
	}
	var at position
	wanted := notFresh
	if cursor != "" {
		if at, err = readCursor(k, cursor); err != nil {
			return Page{}, err
		}
		wanted = untried // the pages of a list belong together
	}
	g, err := v.gather(ctx, k, wanted)
	if err != nil {
		return Page{}, err
	}
	i := 0
	if cursor != "" {
		i = g.after(v.sources, at)
	}
	p := Page{TTL: g.ttl, Public: g.public, Missing: g.missing}
	last, size, pageSize := -1, 0, int(v.size.Load())
	for ; i < len(g.items); i++ {
		it := &g.items[i]
		if it.shown == "" || g.hidden[it.source] {
			continue
		}
		size += len(it.raw)
		if len(p.Items) == pageSize || size > maxPageBytes && len(p.Items) > 0 {
			p.Next = g.position(v.sources, last).cursor(k)
			break
		}
		p.Items = append(p.Items, it.raw)
		last = i
	}
	return p, nil
}

// Find returns what a name stands for that the caller in the ctx has used. It
// waits for sources only that nobody has asked yet and that may have the name: all
// of them, or when one is known to have it, those to which it would go first. When
// the name is not known it asks all of them anew, once. Without a result the error is nil, or an
// *UnknownError when a source could not be asked, or that of the ctx.
//
// For Resources the name is a URI: one that is listed, or else one that a
// template has, or else one of the only source that has resources at all.
func (v *View) Find(ctx context.Context, kind, shown string) (Target, bool, error) {
	k, err := kindOf(kind)
	if err != nil {
		return Target{}, false, err
	}
	if t, ok := v.quick(ctx, k, shown); ok {
		return t, true, nil
	}
	if len(shown) > layouts[k].longest+256 || shown == "" {
		return Target{}, false, nil
	}
	g, err := v.early(ctx, k, shown)
	if err != nil {
		return Target{}, false, err
	}
	if i, ok := g.find(v.sources, shown); ok {
		source := g.items[i].source
		if g, err = v.gather(ctx, k, changed(source)); err != nil {
			return Target{}, false, err
		}
		if i, ok := g.find(v.sources, shown); ok {
			return g.target(v.sources, i), true, nil
		}
	}
	if k == resources {
		return v.findUnlisted(ctx, shown)
	}
	if g, err = v.gather(ctx, k, notNewer); err != nil {
		return Target{}, false, err
	}
	if i, ok := g.find(v.sources, shown); ok {
		return g.target(v.sources, i), true, nil
	}
	return Target{}, false, unknown(kind, shown, g.missing)
}

// early asks the sources that nobody has asked yet, and waits until one of them
// has the name and none of the others can have it instead, or for all: one that is
// slow does not hold up those before it.
func (v *View) early(ctx context.Context, k kind, shown string) (*gathered, error) {
	scopes := v.scopes(ctx, nil)
	came := make([]*digest, len(v.sources))
	started := v.beginAll(ctx, k, scopes, untried, came)
	pending := make([]bool, len(v.sources))
	for {
		v.mu.Lock()
		news := v.news
		v.mu.Unlock()
		var until time.Time // the first of those that are waited for is given up
		now := time.Now()
		for i, w := range started {
			pending[i] = w.fetch != nil && !w.ended() && now.Before(w.until)
			switch {
			case w.fetch == nil:
			case pending[i]:
				if until.IsZero() || w.until.Before(until) {
					until = w.until
				}
			case w.shared(scopes[i]): // has ended
				came[i] = w.list
			}
		}
		if until.IsZero() {
			return v.gather(ctx, k, untried)
		}
		g := v.known(k, scopes, came)
		if i, ok := g.find(v.sources, shown); ok && !v.contested(&g.items[i], shown, pending) {
			return g, nil
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-news:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		t.Stop()
	}
}

// contested reports whether the name of an item goes to one of the pending sources
// if that has it too, by the order of the sources. The long form says whose it is.
func (v *View) contested(it *item, shown string, pending []bool) bool {
	if it.entry.plain != shown {
		return false
	}
	never := v.sources[it.source].Rules.Namespace == NamespaceNever
	for i, s := range v.sources {
		if !pending[i] {
			continue
		}
		switch s.Rules.Namespace {
		case NamespaceAlways:
		case NamespaceNever:
			if !never || i < it.source {
				return true
			}
		default:
			if !never && i < it.source {
				return true
			}
		}
	}
	return false
}

// changed wants the list of one source if it has changed.
func changed(source int) want {
	return func(i int, r *record) bool { return i == source && r != nil && r.invalid && r.failed == nil }
}

func unknown(kind, name string, missing []Missing) error {
	if missing = absent(missing); len(missing) > 0 {
		return &UnknownError{Kind: kind, Name: name, Missing: missing}
	}
	return nil
}

// findUnlisted finds who has a resource that is not listed, as far as is known.
func (v *View) findUnlisted(ctx context.Context, uri string) (t Target, ok bool, err error) {
	var list, patterns *gathered
	for _, wanted := range []want{untried, notNewer} {
		if list, err = v.gather(ctx, resources, wanted); err != nil {
			return t, false, err
		}
		if i, ok := list.find(v.sources, uri); ok {
			return list.target(v.sources, i), true, nil
		}
		if patterns, err = v.gather(ctx, templates, wanted); err != nil {
			return t, false, err
		}
		if t, ok = v.byTemplate(patterns, uri); ok {
			return t, true, nil
		}
	}
	if t, ok = v.byGuess(list, patterns, uri); ok {
		return t, true, nil
	}
	return t, false, unknown(Resources, uri, list.missing)
}

// byTemplate finds the source that has a template for a URI. That which the URI
// names goes first.
func (v *View) byTemplate(g *gathered, uri string) (Target, bool) {
	for i := range v.sources {
		if rest, ok := cutLong(resources, v.sources[i].Name, uri); ok && v.expands(g, i, rest) {
			return Target{Source: v.sources[i].Name, Name: rest}, true
		}
	}
	for i := range v.sources {
		if v.expands(g, i, uri) {
			return Target{Source: v.sources[i].Name, Name: uri}, true
		}
	}
	return Target{}, false
}

// expands reports whether a template of a source has a URI that may be read.
func (v *View) expands(g *gathered, source int, uri string) bool {
	d := g.parts[source]
	if d == nil {
		return false
	}
	f := v.sources[source].filters[resources]
	for _, p := range d.patterns {
		if f.opens(uri, p.listed) && p.match(uri) {
			return true
		}
	}
	return false
}

// byGuess finds the only source that can have a URI which no list and no
// template has.
func (v *View) byGuess(list, patterns *gathered, uri string) (Target, bool) {
	for i, s := range v.sources {
		if rest, ok := cutLong(resources, s.Name, uri); ok && has(list, patterns, i) {
			return Target{Source: s.Name, Name: rest, Guessed: true}, s.filters[resources].opens(rest, false)
		}
	}
	one, some, oneOpaque, opaque := 0, 0, 0, 0
	for i := range v.sources {
		if has(list, patterns, i) {
			one, some = i, some+1
		}
		if d := patterns.parts[i]; d != nil && d.opaque {
			oneOpaque, opaque = i, opaque+1
		}
	}
	switch {
	case some == 1:
	case opaque == 1:
		one = oneOpaque
	default:
		return Target{}, false
	}
	s := v.sources[one]
	return Target{Source: s.Name, Name: uri, Guessed: true}, s.filters[resources].opens(uri, false)
}

// has reports whether a source has resources, or may have them.
func has(list, patterns *gathered, source int) bool {
	l, p := list.parts[source], patterns.parts[source]
	return l == nil || l.some || p == nil || p.some
}

// Shown returns the name under which the caller in the ctx knows what a source
// calls name, and "" when he must not. It asks nobody.
func (v *View) Shown(ctx context.Context, source, kind, name string) string {
	k, err := kindOf(kind)
	if err != nil {
		return ""
	}
	at := -1
	for i, s := range v.sources {
		if s.Name == source {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	g := v.look(ctx, k)
	if d := g.parts[at]; d != nil {
		if i, ok := d.names[name]; ok {
			return g.items[g.start[at]+i].shown
		}
	}
	if k != resources {
		return ""
	}
	patterns := v.look(ctx, templates)
	if !v.expands(patterns, at, name) && !v.sources[at].filters[resources].opens(name, false) {
		return ""
	}
	if _, taken := g.find(v.sources, name); taken {
		return long(k, source, name)
	}
	t, ok := v.byTemplate(patterns, name)
	if !ok {
		t, ok = v.byGuess(g, patterns, name)
	}
	if ok && t.Source == source && t.Name == name {
		return name
	}
	return long(k, source, name)
}

// look returns what is known, and asks nobody.
func (v *View) look(ctx context.Context, k kind) *gathered {
	return v.known(k, v.scopes(ctx, nil), make([]*digest, len(v.sources)))
}

// Entries returns all that the sources have last said they have, whoever asked. It
// asks nobody.
func (v *View) Entries(kind string) []Entry {
	k, err := kindOf(kind)
	if err != nil {
		return nil
	}
	g := v.known(k, make([]string, len(v.sources)), v.newest(k))
	var all []Entry
	for i := range g.items {
		it := &g.items[i]
		if it.shown != "" && !g.hidden[it.source] {
			all = append(all, Entry{g.target(v.sources, i), it.shown, it.raw})
		}
	}
	return all
}

// newest returns the list of each source that came last, for whomever.
func (v *View) newest(k kind) []*digest {
	v.mu.Lock()
	defer v.mu.Unlock()
	lists := make([]*digest, len(v.sources))
	for i := range v.sources {
		for _, r := range v.sources[i].states[k].own {
			if r.list != nil && (lists[i] == nil || lists[i].serial < r.list.serial) {
				lists[i] = r.list
			}
		}
	}
	return lists
}
