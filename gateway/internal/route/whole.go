package route

import "context"

// A Whole is a merged list at one moment, without pages.
type Whole struct {
	Missing []Missing

	v *View
	g *gathered
}

// Whole returns the merged list of a kind as the caller in the ctx may see it. It asks sources as
// Page does for the first page, but no source that was asked less than a second ago and has not said
// since that its list has changed: callers that read a list again and again do not wait for sources
// that give no time for which it may be kept. The error is that of the ctx.
func (v *View) Whole(ctx context.Context, kind string) (*Whole, error) {
	k, err := kindOf(kind)
	if err != nil {
		return nil, err
	}
	g, err := v.gather(ctx, k, notRecent)
	if err != nil {
		return nil, err
	}
	return &Whole{Missing: g.missing, v: v, g: g}, nil
}

// Entries returns what is shown, in order.
func (w *Whole) Entries() []Entry {
	all := make([]Entry, 0, len(w.g.items))
	for i := range w.g.items {
		if it := &w.g.items[i]; it.shown != "" && !w.g.hidden[it.source] {
			all = append(all, Entry{w.g.target(w.v.sources, i), it.shown, it.raw})
		}
	}
	return all
}

// Hidden returns the sources with items that are too old to be shown; nil: there are none.
func (w *Whole) Hidden() map[string]bool {
	var names map[string]bool
	for i, hidden := range w.g.hidden {
		if hidden {
			if names == nil {
				names = map[string]bool{}
			}
			names[w.v.sources[i].Name] = true
		}
	}
	return names
}

// Derived returns what derive makes of all the items of the list, also of those that are too old to
// be shown. It is called once for a list, whichever callers have it, and its value is kept as long
// as the list, within Options.MaxBytes.
func (w *Whole) Derived(derive func(all []Entry) (value any, bytes int)) any {
	m, v := w.g.merged, w.v
	m.deriving.Do(func() {
		all := make([]Entry, 0, len(m.items))
		for i := range m.items {
			if it := &m.items[i]; it.shown != "" {
				all = append(all, Entry{m.target(v.sources, i), it.shown, it.raw})
			}
		}
		value, bytes := derive(all)
		m.derived = value
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.merged[m.key] == m {
			m.bytes += bytes
			v.bytes += bytes
			v.shrink()
		}
	})
	return m.derived
}
