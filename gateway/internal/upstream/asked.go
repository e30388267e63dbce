package upstream

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A question belongs to the call in whose exchange it comes. One that comes without
// such, over a connection for example, belongs to the only call under way on its
// connection that can have raised it, and to nobody when there are several, or when a
// call has ended of which the server may not know.

// asking is a question that waits for its answer.
type asking struct{ cancel context.CancelFunc }

// ask answers what the server asks on a connection.
func (l *conn) ask(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
	if method == spec.MethodRootsList && l.u.declaresRoots(l) {
		return l.askRoots(ctx, params)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &asking{cancel: cancel}
	f, err := l.u.asked(ctx, l, a)
	if err != nil {
		return nil, err
	}
	defer l.u.replied(f, a)
	if f.call.Ask == nil {
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "the caller cannot be asked %q", method)
	}
	return f.call.Ask(ctx, method, params)
}

// asked finds the flight that a question belongs to, which waits for the answer
// from now on.
func (u *Upstream) asked(ctx context.Context, l *conn, a *asking) (*flight, error) {
	f, _ := ctx.Value(flightKey{}).(*flight)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case f != nil && f.conn == l && !f.over:
	case f != nil:
		u.dropped++
		return nil, jsonrpc.Errorf(jsonrpc.InternalError, "the call during which this was asked is over")
	default:
		u.serial = true // from now on one at a time, so that the next question is clear
		if f = l.sole(); f == nil {
			u.dropped++
			return nil, jsonrpc.Errorf(jsonrpc.InternalError, "it is not clear which call this belongs to: %d are under way that may be asked", l.asking)
		}
	}
	f.pending++
	f.asks = append(f.asks, a)
	return f, nil
}

// sole returns the only flight that can have raised what the server asks by itself,
// or nil.
func (l *conn) sole() *flight {
	if l.asking != 1 {
		return nil
	}
	for f := l.flights.first; f != nil; f = f.next {
		if !f.light() {
			return l.own(f)
		}
	}
	return nil
}

// own returns f unless it could be taken for one that the server still knows of.
func (l *conn) own(f *flight) *flight {
	if f.over || l.lateQuestions && (l.lateSession == "" || l.lateSession != f.who.Session) {
		return nil
	}
	return f
}

// replied notes that a question has its answer.
func (u *Upstream) replied(f *flight, a *asking) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f.asks = slices.DeleteFunc(f.asks, func(o *asking) bool { return o == a })
	u.done(f)
}

// done ends a question or a delivery of a flight.
func (u *Upstream) done(f *flight) {
	if f.pending--; f.pending == 0 && f.quiet != nil {
		close(f.quiet)
		f.quiet = nil
	}
}

// notice takes what the server tells by itself.
func (l *conn) notice(ctx context.Context, method string, params jsonrpc.Raw) (taken bool) {
	switch method {
	case spec.NotificationToolsListChanged:
		l.u.listChanged("tools")
	case spec.NotificationPromptsListChanged:
		l.u.listChanged("prompts")
	case spec.NotificationResourcesListChanged:
		l.u.listChanged("resources")
	case spec.NotificationResourcesUpdated:
		var p spec.ResourceUpdatedNotificationParams
		if jsonv2.Unmarshal(params, &p) == nil {
			l.u.updated(l, p.URI)
		}
	case spec.NotificationSubscriptionsAcknowledged, spec.NotificationCancelled, spec.NotificationTasks, spec.NotificationTasksStatus:
		return false
	default:
		l.u.noticed(ctx, l, method, params)
	}
	return true
}

func (u *Upstream) listChanged(kind string) {
	if u.opts.OnListChanged != nil {
		u.opts.OnListChanged(kind)
	}
}

// listsChanged says so of all lists: nobody knows what happened.
func (u *Upstream) listsChanged() {
	u.listChanged("tools")
	u.listChanged("resources")
	u.listChanged("prompts")
}

// What waits to be passed on to one call, at most. The oldest is dropped first.
const (
	maxNotes     = 1000
	maxNoteBytes = 1 << 20
)

// maxDeaf is how long a call that has ended waits for the next of its notes to be
// passed on.
const maxDeaf = 30 * time.Second

type note struct {
	method string // "": progress
	params jsonrpc.Raw
}

// notes is what waits to be passed on to a call.
type notes struct {
	all     []note
	bytes   int
	told    int  // how many were passed on
	running bool // a goroutine does it
	lost    bool // it is not waited for any more, and nothing more is passed on
}

// noticed takes a notification that belongs to a call.
func (u *Upstream) noticed(ctx context.Context, l *conn, method string, params jsonrpc.Raw) {
	f, _ := ctx.Value(flightKey{}).(*flight)
	u.mu.Lock()
	defer u.mu.Unlock()
	if f == nil && l.flights.n == 1 {
		if f = l.flights.first; l.holder.key.client.IsZero() {
			f = l.own(f) // on a connection of one client, what is late is that client's, too
		}
	}
	if f == nil || f.conn != l || f.over {
		u.dropped++
		return
	}
	if f.call.Notice != nil {
		u.note(f, note{method, bytes.Clone(params)})
	}
}

// progressed takes the progress of a flight.
func (f *flight) progressed(params jsonrpc.Raw) {
	params = bytes.Clone(params)
	f.u.mu.Lock()
	defer f.u.mu.Unlock()
	if f.over {
		f.u.dropped++
		return
	}
	f.u.note(f, note{params: params})
}

// note has something passed on.
func (u *Upstream) note(f *flight, n note) {
	q := &f.notes
	if q.lost {
		u.dropped++
		return
	}
	q.all = append(q.all, n)
	q.bytes += len(n.params)
	for len(q.all) > maxNotes || q.bytes > maxNoteBytes && len(q.all) > 1 {
		q.bytes -= len(q.all[0].params)
		q.all[0] = note{}
		q.all = q.all[1:]
		u.dropped++
	}
	if q.running {
		return
	}
	if q.running = u.spawn(f.deliver); q.running {
		f.pending++
	}
}

// deliver passes on what waits.
func (f *flight) deliver() {
	for {
		n, ok := f.u.nextNote(f)
		switch {
		case !ok:
			return
		case n.method == "":
			f.call.Progress(n.params)
		default:
			f.call.Notice(n.method, n.params)
		}
	}
}

func (u *Upstream) nextNote(f *flight) (n note, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	q := &f.notes
	q.told++
	if q.lost {
		return n, false
	}
	if len(q.all) == 0 {
		q.running = false
		q.all = nil
		u.done(f)
		return n, false
	}
	n, q.all[0] = q.all[0], note{}
	q.all = q.all[1:]
	q.bytes -= len(n.params)
	return n, true
}

// abandon gives up what is to be passed on for a flight.
func (u *Upstream) abandon(f *flight) {
	q := &f.notes
	u.dropped += uint64(len(q.all)) + 1 // and the one that does not come to its end
	q.lost, q.running, q.all, q.bytes = true, false, nil, 0
	u.done(f)
}
