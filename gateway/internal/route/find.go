package route

import (
	"context"
	"slices"
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
	p.Items = slices.Grow(p.Items, min(pageSize, len(g.items)-i))
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
// waits only for sources that were not asked yet and that may have the name: all
// of them, or when one is known to have it, those that may have it, too. When
// the name is not known it asks all of them again, once. Without a result the error is nil, or an
// *AmbiguousError, or an *UnknownError when a source could not be asked, or that of the ctx.
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
	if t, ok, err := v.owner(g, kind, shown); ok || err != nil && len(absent(g.missing)) == 0 {
		return t, ok, err
	}
	if g, err = v.gather(ctx, k, notNewer); err != nil {
		return Target{}, false, err
	}
	if i, ok := g.find(v.sources, shown); ok {
		return g.target(v.sources, i), true, nil
	}
	if t, ok, err := v.owner(g, kind, shown); ok || err != nil {
		return t, ok, err
	}
	return Target{}, false, unknown(kind, shown, g.missing)
}

// owner returns the only item that a name without a qualifier stands for. A source that cannot be
// asked may have it, too.
func (v *View) owner(g *gathered, kind, name string) (Target, bool, error) {
	all := g.owners(v.sources, name)
	switch len(all) {
	case 0:
		return Target{}, false, nil
	case 1:
		if err := unknown(kind, name, g.missing); err != nil {
			return Target{}, false, err
		}
		return g.target(v.sources, all[0]), true, nil
	}
	e := &AmbiguousError{Kind: kind, Name: name}
	for _, i := range all {
		e.Candidates = append(e.Candidates,
			v.candidate(g.target(v.sources, i), g.kind, g.items[i].entry.plain))
	}
	return Target{}, false, e
}

// candidate returns an entry with the name that leads to it whatever other sources have.
func (v *View) candidate(t Target, k kind, plain string) Entry {
	for _, s := range v.sources {
		if s.Name == t.Source {
			all := source{Source: s.Source}
			all.Refs.Web = true // bare, one of the web leads nowhere
			return Entry{Target: t, Shown: all.long(k, plain)}
		}
	}
	return Entry{Target: t, Shown: plain}
}

// early asks the sources that were not asked yet, and waits until one of them
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
		if i, ok := g.find(v.sources, shown); ok && !v.contested(k, &g.items[i], shown, pending) {
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

// contested reports whether the name of an item may lead to one of the pending sources, or nowhere,
// if that has it, too. The long form says which source it is of. With NamespaceAuto only the
// sources before it are waited for: one that hangs must not hold up those that clients know by
// plain names.
func (v *View) contested(k kind, it *item, shown string, pending []bool) bool {
	own := v.sources[it.source]
	if _, long := own.cutLong(k, shown); long || it.entry.plain != shown {
		return false
	}
	_, must := own.plain(k)
	for i, s := range v.sources {
		would, musts := s.plain(k)
		switch {
		case !pending[i]:
		case layouts[k].uri && own.uris:
			return true // of the web
		case musts && !must, would && must == musts && i < it.source:
			return true
		}
	}
	return false
}

// changed wants the list of one source if it has changed.
func changed(source int) want {
	return func(i int, r *record) bool {
		return i == source && r != nil && r.invalid && r.failed == nil
	}
}

func unknown(kind, name string, missing []Missing) error {
	if missing = absent(missing); len(missing) > 0 {
		return &UnknownError{Kind: kind, Name: name, Missing: missing}
	}
	return nil
}

// findUnlisted finds the source of a resource that is not listed under this name, as far as is
// known.
func (v *View) findUnlisted(ctx context.Context, uri string) (t Target, ok bool, err error) {
	var list, patterns *gathered
	var unclear error
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
		if i, rest := v.qualified(uri); i >= 0 {
			if v.expands(patterns, i, rest) {
				return Target{Source: v.sources[i].Name, Name: rest}, true, nil
			}
			continue
		}
		if t, ok, unclear = v.owner(list, Resources, uri); !ok && unclear == nil {
			t, ok, unclear = v.byTemplate(patterns, uri)
		}
		if ok {
			return t, true, nil
		}
	}
	if unclear != nil {
		return t, false, unclear
	}
	if t, ok = v.byGuess(list, patterns, uri); ok {
		return t, true, nil
	}
	return t, false, unknown(Resources, uri, list.missing)
}

// qualified returns the number of the source that a URI is qualified for, and the URI without the
// qualifier; -1 when it has none. The only source of a View that shows its own URIs may have any.
func (v *View) qualified(uri string) (source int, rest string) {
	for i, s := range v.sources {
		if rest, ok := s.cutLong(resources, uri); ok && (s.uris || len(v.sources) > 1) {
			return i, rest
		}
	}
	return -1, uri
}

// Qualified returns the source that a URI is qualified for, and the source's own form of the URI.
// It reports false for one that the rules of the source do not show, too.
func (v *View) Qualified(uri string) (source, own string, ok bool) {
	i, own := v.qualified(uri)
	if i < 0 || !v.sources[i].filters[resources].opens(own, false) {
		return "", uri, false
	}
	return v.sources[i].Name, own, true
}

// byTemplate finds the only source that has a template for a URI without a qualifier.
func (v *View) byTemplate(g *gathered, uri string) (Target, bool, error) {
	e := &AmbiguousError{Kind: Resources, Name: uri}
	for i := range v.sources {
		if v.expands(g, i, uri) {
			e.Candidates = append(e.Candidates,
				v.candidate(Target{Source: v.sources[i].Name, Name: uri}, resources, uri))
		}
	}
	switch len(e.Candidates) {
	case 0:
		return Target{}, false, nil
	case 1:
		if err := unknown(Resources, uri, g.missing); err != nil {
			return Target{}, false, err
		}
		return e.Candidates[0].Target, true, nil
	}
	return Target{}, false, e
}

// expands reports whether a template of a source has a URI that may be read.
func (v *View) expands(g *gathered, source int, uri string) bool {
	d := g.parts[source]
	if d == nil {
		return false
	}
	f := v.sources[source].filters[resources]
	return slices.ContainsFunc(d.patterns, func(p pattern) bool {
		return f.opens(uri, p.listed) && p.match(uri)
	})
}

// byGuess finds the only source that can have a URI which no list and no
// template has.
func (v *View) byGuess(list, patterns *gathered, uri string) (Target, bool) {
	if i, rest := v.qualified(uri); i >= 0 {
		s := v.sources[i]
		return Target{Source: s.Name, Name: rest, Guessed: true},
			has(list, patterns, i) && s.filters[resources].opens(rest, false)
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

// Entries returns all that the sources have last said they have, no matter who asked. It
// asks no source.
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

// newest returns the list of each source that came last, for any owner.
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
