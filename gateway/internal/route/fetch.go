package route

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A record is what is known of one list of a source. All of it is under the
// View's lock.
type record struct {
	source int
	kind   kind
	scope  string
	public bool

	list    *digest // the last that came, or nil
	invalid bool    // it has changed since
	fetch   *fetch  // it is being asked for
	asked   time.Time
	warned  []string
	failed  error // why nothing newer is there; nil when there was no fetch since
	place   *list.Element
}

func (r *record) invalidate() {
	r.asked = time.Time{}
	if r.fetch != nil {
		r.fetch.outdated = true
	}
	if r.list != nil { // otherwise who has nothing to give would be waited for, again and again
		r.invalid, r.failed = true, nil
	}
}

func (r *record) untried() bool { return r.list == nil && r.failed == nil }

func (r *record) fresh(now time.Time) bool {
	return r.list != nil && !r.invalid && (r.list.ttl < 0 || now.Sub(r.list.got) < r.list.ttl)
}

// gone reports whether a list is too old to be shown.
func (r *record) gone(now time.Time) bool {
	return r.failed != nil && now.Sub(r.list.got) >= staleFor
}

// A fetch asks a source for a list, for all who wait for it.
type fetch struct {
	record  *record
	scope   string
	started time.Time
	until   time.Time // the end of all waits
	done    chan struct{}
	list    *digest // when done is closed and there was no error

	outdated bool // the list has changed since it was asked for; under the View's lock
}

func (f *fetch) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// shared reports whether callers of a scope may use what came.
func (f *fetch) shared(scope string) bool {
	return f.list != nil && (f.list.public || f.scope == scope)
}

var (
	errClosed  = errors.New("the view is closed")
	errTooMany = fmt.Errorf("%d lists are being asked for already", maxFetch)
	errPending = errors.New("it was not fetched yet")
)

// lookup returns what is known of a list for callers of a scope, or nil.
func (v *View) lookup(source int, k kind, scope string) *record {
	s := &v.sources[source].states[k]
	r := s.own[scope]
	if s.public != nil && (r == nil || r.list == nil) {
		r = s.public
	}
	if r != nil {
		v.kept.MoveToFront(r.place)
	}
	return r
}

// begin returns the fetch of a list that is under way, or starts one. It returns
// nil when it cannot.
func (v *View) begin(ctx context.Context, source int, k kind, scope string) *fetch {
	r := v.lookup(source, k, scope)
	if r == nil {
		r = v.record(source, k, scope, false)
	}
	switch {
	case r.fetch != nil:
		return r.fetch
	case v.closed:
		r.failed = errClosed
		return nil
	case len(v.ending) >= maxFetch:
		r.failed = errTooMany
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWaits*v.opts.ListTimeout)
	f := &fetch{record: r, scope: scope, started: time.Now(), done: make(chan struct{})}
	f.until = f.started.Add(v.opts.ListTimeout)
	if r.list == nil && r.failed != nil {
		f.until = f.started.Add(v.opts.ListTimeout / 10)
	}
	r.fetch, r.asked = f, f.started
	v.ending[f] = cancel
	v.fetches.Go(func() {
		defer cancel()
		v.run(ctx, f)
	})
	return f
}

// record makes the record of a list.
func (v *View) record(source int, k kind, scope string, public bool) *record {
	r := &record{source: source, kind: k, scope: scope, public: public}
	s := &v.sources[source].states[k]
	switch {
	case public:
		s.public = r
	case s.own == nil:
		s.own = map[string]*record{scope: r}
	default:
		s.own[scope] = r
	}
	r.place = v.kept.PushFront(r)
	v.shrink()
	return r
}

func (v *View) run(ctx context.Context, f *fetch) {
	s, k := v.sources[f.record.source], f.record.kind
	all, err := s.List(ctx, layouts[k].name)
	if errors.Is(err, jsonrpc.MethodNotFound) {
		all, err = List{}, nil // it has nothing of the kind
	}
	var d *digest
	if err == nil {
		if d = v.unchanged(f, &all); d == nil {
			d = digestOf(k, s.filters[k], &all)
		}
	}
	v.warn(f.record, d, err)
	v.mu.Lock()
	defer v.mu.Unlock()
	defer func() {
		close(f.done)
		close(v.news)
		v.news = make(chan struct{})
	}()
	delete(v.ending, f)
	f.record.fetch = nil
	if err != nil {
		f.record.failed = err
		return
	}
	if d.serial == 0 {
		v.serial++
		d.serial = v.serial
	}
	d.got, d.ttl = time.Now(), all.TTL
	f.list = d
	v.keep(f)
}

// unchanged returns the digest that those who asked have, when the list that came is what it was
// made of: then what is made of it, such as an index of all sources, is as good as before. Nil: it
// is another list.
func (v *View) unchanged(f *fetch, l *List) *digest {
	v.mu.Lock()
	var d *digest
	if r := v.lookup(f.record.source, f.record.kind, f.scope); r != nil {
		d = r.list
	}
	v.mu.Unlock()
	if d == nil || !d.same(l) {
		return nil
	}
	return d
}

// warn says what is wrong, unless it was logged the last time.
func (v *View) warn(r *record, d *digest, err error) {
	var notes []string
	if err != nil {
		notes = []string{err.Error()}
	} else {
		notes = slices.Concat(d.notes, d.dead)
	}
	v.mu.Lock()
	said := slices.Equal(r.warned, notes)
	r.warned = notes
	v.mu.Unlock()
	if v.opts.OnWarning == nil || said {
		return
	}
	source, kind := v.sources[r.source].Name, layouts[r.kind].name
	if err != nil {
		v.opts.OnWarning(source, kind, err)
		return
	}
	for _, note := range notes {
		v.opts.OnWarning(source, kind, errors.New(note))
	}
}

// Warnings returns what OnWarning received last about the lists of a source.
func (v *View) Warnings(source string) (all []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for at := v.kept.Front(); at != nil; at = at.Next() {
		if r, _ := at.Value.(*record); v.sources[r.source].Name == source {
			all = append(all, r.warned...)
		}
	}
	return all
}

// keep notes the list that came in the record of those who may share it.
func (v *View) keep(f *fetch) {
	r, d := f.record, f.list
	s := &v.sources[r.source].states[r.kind]
	if r.public != d.public {
		v.drop(r)
	}
	to := s.own[f.scope]
	if d.public {
		to = s.public
	}
	if to == nil {
		to = v.record(r.source, r.kind, f.scope, d.public)
		to.warned = r.warned
	}
	if to.list != d {
		v.forget(to.list)
		d.kept = true
		v.bytes += d.bytes
	}
	to.list, to.invalid, to.failed, to.asked = d, f.outdated, nil, f.started
	v.shrink()
}

// drop removes a record.
func (v *View) drop(r *record) {
	s := &v.sources[r.source].states[r.kind]
	if r.public && s.public == r {
		s.public = nil
	} else if !r.public && s.own[r.scope] == r {
		delete(s.own, r.scope)
	} else {
		return
	}
	v.kept.Remove(r.place)
	v.forget(r.list)
	r.list = nil
}

// forget removes a list, and what was made of it.
func (v *View) forget(d *digest) {
	if d == nil {
		return
	}
	d.kept = false
	v.bytes -= d.bytes
	for m := range d.in {
		v.unmerge(m)
	}
}

// shrink keeps what is kept within its bounds. The newest always stays.
func (v *View) shrink() {
	for v.recent.Len() > 1 && (v.bytes > v.opts.MaxBytes || v.recent.Len() > v.opts.MaxLists) {
		if m, ok := v.recent.Back().Value.(*merged); ok {
			v.unmerge(m)
		}
	}
	for v.kept.Len() > 1 && (v.bytes > v.opts.MaxBytes || v.kept.Len() > v.opts.MaxLists) {
		if r, ok := v.kept.Back().Value.(*record); ok {
			v.drop(r)
		}
	}
}

func (v *View) unmerge(m *merged) {
	if v.merged[m.key] != m {
		return
	}
	delete(v.merged, m.key)
	v.recent.Remove(m.place)
	v.bytes -= m.bytes
	for _, d := range m.parts {
		if d != nil {
			delete(d.in, m)
		}
	}
}

// wait waits for a fetch, but not longer than anybody waits for a source.
func (v *View) wait(ctx context.Context, f *fetch) error {
	if f.ended() {
		return nil
	}
	t := time.NewTimer(time.Until(f.until))
	defer t.Stop()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.record.fetch == f && f.record.failed == nil {
		f.record.failed = fmt.Errorf("it has not answered within %v", f.until.Sub(f.started))
	}
	return nil
}
