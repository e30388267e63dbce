package route

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// gathered is what is known of a kind for a caller.
type gathered struct {
	*merged

	hidden  []bool // by source: what it has is too old to be shown
	missing []Missing
	ttl     time.Duration
	public  bool
}

// want says whether a list is to be asked for; r is nil when nothing is known of
// it.
type want func(source int, r *record) bool

func untried(_ int, r *record) bool { return r == nil || r.untried() }

func notFresh(_ int, r *record) bool { return r == nil || !r.fresh(time.Now()) }

// notNewer wants what was not asked for a moment ago.
func notNewer(_ int, r *record) bool {
	return r == nil || r.fetch != nil || time.Since(r.asked) >= missAfter
}

// notRecent wants what is too old to be shown and was not asked for a moment ago.
func notRecent(i int, r *record) bool { return notFresh(i, r) && notNewer(i, r) }

// scopes appends those of the caller to dst, by source.
func (v *View) scopes(ctx context.Context, dst []string) []string {
	for _, s := range v.sources {
		scope := ""
		if s.Scope != nil {
			scope = s.Scope(ctx)
		}
		dst = append(dst, scope)
	}
	return dst
}

// gather asks for the lists that are wanted, all at once, waits for them, and
// merges what is known then. It fails only when the ctx ends.
func (v *View) gather(ctx context.Context, k kind, wanted want) (*gathered, error) {
	scopes := v.scopes(ctx, make([]string, 0, len(v.sources)))
	came := make([]*digest, len(v.sources)) // to be used if nothing newer is kept
	// What was under way may be older than the last change of the list, and what
	// was thought to be for all callers may be for the one only who asked first.
	for range 3 {
		started := v.beginAll(ctx, k, scopes, wanted, came)
		again := make([]bool, len(started))
		for i, w := range started {
			if w.fetch == nil {
				continue
			}
			if err := v.wait(ctx, w.fetch); err != nil {
				return nil, err
			}
			if !w.ended() {
				continue
			}
			if w.shared(scopes[i]) {
				came[i] = w.list
			}
			again[i] = w.list != nil && (w.late || !w.shared(scopes[i]))
		}
		if !slices.Contains(again, true) {
			break
		}
		wanted = func(i int, r *record) bool { return again[i] && (r == nil || r.untried() || r.invalid) }
	}
	return v.known(k, scopes, came), nil
}

// A waiting is a fetch with a waiting caller.
type waiting struct {
	*fetch

	late bool // it had begun before the list changed
}

// beginAll asks for the lists that are wanted, and notes the others: what is kept
// may be dropped at any time.
func (v *View) beginAll(
	ctx context.Context, k kind, scopes []string, wanted want, have []*digest,
) []waiting {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]waiting, len(v.sources))
	for i, scope := range scopes {
		r := v.lookup(i, k, scope)
		if r != nil && r.list != nil {
			have[i] = r.list
		}
		if wanted(i, r) {
			if f := v.begin(ctx, i, k, scope); f != nil {
				all[i] = waiting{f, f.outdated}
			}
		}
	}
	return all
}

// known merges what is there, or what came, where that is newer.
func (v *View) known(k kind, scopes []string, came []*digest) *gathered {
	g := &gathered{hidden: make([]bool, len(v.sources)), ttl: -1, public: true}
	parts := make([]*digest, len(v.sources))
	v.mu.Lock()
	for i := range v.sources {
		parts[i] = g.take(v, v.lookup(i, k, scopes[i]), i, came[i])
	}
	v.mu.Unlock()
	g.ttl = max(0, g.ttl)
	g.merged = v.mergedOf(k, parts)
	for i, d := range parts {
		if d == nil || g.hidden[i] {
			continue
		}
		for _, note := range d.notes {
			g.missing = append(g.missing, Missing{v.sources[i].Name, Partial, note})
		}
		if n := g.left[i]; n > 0 {
			g.missing = append(g.missing,
				Missing{
					v.sources[i].Name, Partial,
					strconv.Itoa(n) +
						" are left out: another source has their names, or would be taken for having them",
				})
		}
	}
	return g
}

// take returns the list of a source that counts, and notes what is to be logged
// about it.
func (g *gathered) take(v *View, r *record, source int, came *digest) (d *digest) {
	failed, now := errPending, time.Now()
	if r != nil {
		d, failed = r.list, r.failed
		g.hidden[source] = d != nil && r.gone(now)
	}
	if came != nil && (d == nil || d.serial < came.serial) {
		d, failed, g.hidden[source] = came, nil, false
	}
	name := v.sources[source].Name
	switch {
	case d == nil && failed == nil:
		g.missing = append(g.missing, Missing{name, Absent, errPending.Error()})
	case d == nil || g.hidden[source]:
		g.missing = append(g.missing, Missing{name, Absent, reasonOf(failed)})
	case failed != nil:
		g.missing = append(g.missing, Missing{name, Stale, reasonOf(failed)})
	}
	whole := d != nil && failed == nil
	left := time.Duration(0)
	if whole && d.ttl > 0 {
		left = max(0, d.ttl-now.Sub(d.got))
	}
	if g.ttl < 0 || left < g.ttl {
		g.ttl = left
	}
	g.public = g.public && whole && d.public
	return d
}

// reasonOf returns the text of an error for a message about a source. The code of an error about
// the way to it says nothing there: its own error has another one.
func reasonOf(err error) string {
	if wire, ok := err.(*jsonrpc.Error); ok && wire.Cause != nil { //nolint:errorlint // not a wrapped one
		return tidy(wire.Message)
	}
	return tidy(err.Error())
}

// mergedOf returns the merged list of the parts, and keeps it.
func (v *View) mergedOf(k kind, parts []*digest) *merged {
	key := append(make([]byte, 0, 8*len(parts)+1), byte(k))
	for _, d := range parts {
		key = appendSerial(key, d)
	}
	v.mu.Lock()
	m := v.merged[string(key)]
	if m != nil {
		v.recent.MoveToFront(m.place)
	}
	v.mu.Unlock()
	if m != nil {
		return m
	}
	m = merge(k, v.sources, parts)
	m.key = string(key)
	v.mu.Lock()
	defer v.mu.Unlock()
	if other := v.merged[m.key]; other != nil {
		return other
	}
	for _, d := range parts {
		if d != nil && !d.kept {
			return m // one of them is not kept any more
		}
	}
	v.merged[m.key] = m
	m.place = v.recent.PushFront(m)
	v.bytes += m.bytes
	for _, d := range parts {
		if d == nil {
			continue
		}
		if d.in == nil {
			d.in = map[*merged]struct{}{}
		}
		d.in[m] = struct{}{}
	}
	v.shrink()
	return m
}

func appendSerial(key []byte, d *digest) []byte {
	if d == nil {
		return binary.LittleEndian.AppendUint64(key, 0)
	}
	return binary.LittleEndian.AppendUint64(key, d.serial)
}

// quick returns what has a name when that is known without asking anybody.
func (v *View) quick(ctx context.Context, k kind, name string) (t Target, ok bool) {
	var scopeRoom [16]string
	var keyRoom [16*8 + 1]byte
	scopes := v.scopes(ctx, scopeRoom[:0])
	key := append(keyRoom[:0], byte(k))
	v.mu.Lock()
	defer v.mu.Unlock()
	whole := true
	for i, scope := range scopes {
		r := v.lookup(i, k, scope)
		if untried(i, r) {
			return t, false
		}
		whole = whole && r.list != nil
		key = appendSerial(key, r.list)
	}
	m := v.merged[string(key)]
	if m == nil {
		return t, false
	}
	v.recent.MoveToFront(m.place)
	i, ok := m.find(v.sources, name)
	if !ok && whole {
		if all := m.owners(v.sources, name); len(all) == 1 {
			i, ok = all[0], true
		}
	}
	if !ok {
		return t, false
	}
	source := m.items[i].source
	if r := v.lookup(source, k, scopes[source]); r.invalid && r.failed == nil {
		return t, false
	}
	return m.target(v.sources, i), true
}

func absent(missing []Missing) []Missing {
	return slices.DeleteFunc(slices.Clone(missing), func(m Missing) bool { return m.State != Absent })
}

// What one list of a source may have. What is beyond is left out, and a Note says
// so.
const (
	maxPages = 1000
	maxItems = 100_000
	maxBytes = 64 << 20
	maxTTL   = 24 * time.Hour // whatever the source says
)

// Collect reads a list page by page. ask makes the call of the list's method with
// a cursor, "" for the first page, and returns the canonical result, which is
// kept. A list that is larger than a View takes is cut.
func Collect(kind string, ask func(cursor string) (jsonrpc.Raw, error)) (List, error) {
	k, err := kindOf(kind)
	if err != nil {
		return List{}, err
	}
	all := List{Public: true}
	cursor, size := "", 0
	for page := 1; ; page++ {
		result, err := ask(cursor)
		if err != nil {
			return List{}, err
		}
		ttl, public, next, items := pageOf(result, layouts[k].member)
		if page == 1 || ttl < all.TTL {
			all.TTL = ttl
		}
		all.Public = all.Public && public
		if items == nil {
			return List{}, fmt.Errorf("the list of %s has no member %q", kind, layouts[k].member)
		}
		for item := range scan.Elements(items) {
			if size += len(item); size > maxBytes || len(all.Items) >= maxItems {
				all.Note = fmt.Sprintf("the list is cut after %d items: it has too many, or they are too large",
					len(all.Items))
				break
			}
			all.Items = append(all.Items, item)
		}
		switch {
		case next == "" || all.Note != "":
			return all, nil
		case next == cursor:
			return List{}, errors.New(
				"the list has no end: the cursor of its next page is that of the page itself")
		case page == maxPages:
			all.Note = fmt.Sprintf("the list is cut after %d pages", page)
			return all, nil
		}
		cursor = next
	}
}

// pageOf reads a result: its items, nil when there are none, and what it says
// about itself.
func pageOf(
	result jsonrpc.Raw, member string,
) (ttl time.Duration, public bool, next string, items []byte) {
	for key, value := range scan.Members(result) {
		switch string(key) {
		case member:
			items = value
		case "ttlMs":
			if ms, err := strconv.ParseFloat(string(value), 64); err == nil && ms > 0 {
				ttl = time.Duration(min(ms, float64(maxTTL/time.Millisecond))) * time.Millisecond
			}
		case "cacheScope":
			public = string(value) == `"public"`
		case "nextCursor":
			if value[0] == '"' {
				next = string(scan.Unquote(value))
			}
		}
	}
	return ttl, public, next, items
}

// A Whole is a merged list at one moment, without pages.
type Whole struct {
	Missing []Missing

	v *View
	g *gathered
}

// Whole returns the merged list of a kind as the caller in the ctx may see it. It asks sources as
// Page does for the first page, but no source that was asked less than a second ago and has not
// said since that its list has changed: callers that read a list again and again do not wait for
// sources that give no time for which it may be kept. The error is that of the ctx.
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
