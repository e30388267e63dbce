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
// connection that can have raised it, and to none when there are several, or when a
// call has ended and the server may not know that.

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
	pc, err := l.u.asked(ctx, l, a)
	if err != nil {
		return nil, err
	}
	defer l.u.replied(pc, a)
	if pc.call.Ask == nil {
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "the caller cannot be asked %q", method)
	}
	return pc.call.Ask(ctx, method, params)
}

// asked finds the pending call that a question belongs to, which waits for the answer
// from now on.
func (u *Upstream) asked(ctx context.Context, l *conn, a *asking) (*pendingCall, error) {
	pc, _ := ctx.Value(pendingKey{}).(*pendingCall)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case pc != nil && pc.conn == l && !pc.over:
	case pc != nil:
		u.dropped++
		return nil, jsonrpc.Errorf(jsonrpc.InternalError, "the call during which this was asked is over")
	default:
		u.serial = true // from now on one at a time, so that the next question is clear
		if pc = l.sole(); pc == nil {
			u.dropped++
			return nil, jsonrpc.Errorf(jsonrpc.InternalError, "it is not clear which call this belongs to: %d are under way that may be asked", l.asking)
		}
	}
	pc.open++
	pc.asks = append(pc.asks, a)
	return pc, nil
}

// sole returns the only pending call that can have raised what the server asks outside of calls,
// or nil.
func (l *conn) sole() *pendingCall {
	if l.asking != 1 {
		return nil
	}
	for pc := l.pending.first; pc != nil; pc = pc.next {
		if !pc.light() {
			return l.own(pc)
		}
	}
	return nil
}

// own returns pc unless it could be taken for one that the server still knows of.
func (l *conn) own(pc *pendingCall) *pendingCall {
	if pc.over || l.lateQuestions && (l.lateSession == "" || l.lateSession != pc.who.Session) {
		return nil
	}
	return pc
}

// replied notes that a question has its answer.
func (u *Upstream) replied(pc *pendingCall, a *asking) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pc.asks = slices.DeleteFunc(pc.asks, func(o *asking) bool { return o == a })
	u.done(pc)
}

// done ends a question or a delivery of a pending call.
func (u *Upstream) done(pc *pendingCall) {
	if pc.open--; pc.open == 0 && pc.quiet != nil {
		close(pc.quiet)
		pc.quiet = nil
	}
}

// notice takes the notifications of the server that belong to no call.
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

// listsChanged reports a change of all lists: it is unknown what happened.
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
	pc, _ := ctx.Value(pendingKey{}).(*pendingCall)
	u.mu.Lock()
	defer u.mu.Unlock()
	if pc == nil && l.pending.n == 1 {
		if pc = l.pending.first; l.holder.key.client.IsZero() {
			pc = l.own(pc) // on a connection of one client, what is late is that client's, too
		}
	}
	if pc == nil || pc.conn != l || pc.over {
		u.dropped++
		return
	}
	if pc.call.Notice != nil {
		u.note(pc, note{method, bytes.Clone(params)})
	}
}

// progressed takes the progress of a pending call.
func (pc *pendingCall) progressed(params jsonrpc.Raw) {
	params = bytes.Clone(params)
	pc.u.mu.Lock()
	defer pc.u.mu.Unlock()
	if pc.over {
		pc.u.dropped++
		return
	}
	pc.u.note(pc, note{params: params})
}

// note has something passed on.
func (u *Upstream) note(pc *pendingCall, n note) {
	q := &pc.notes
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
	if q.running = u.spawn(pc.deliver); q.running {
		pc.open++
	}
}

// deliver passes on what waits.
func (pc *pendingCall) deliver() {
	for {
		n, ok := pc.u.nextNote(pc)
		switch {
		case !ok:
			return
		case n.method == "":
			pc.call.Progress(n.params)
		default:
			pc.call.Notice(n.method, n.params)
		}
	}
}

func (u *Upstream) nextNote(pc *pendingCall) (n note, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	q := &pc.notes
	q.told++
	if q.lost {
		return n, false
	}
	if len(q.all) == 0 {
		q.running = false
		q.all = nil
		u.done(pc)
		return n, false
	}
	n, q.all[0] = q.all[0], note{}
	q.all = q.all[1:]
	q.bytes -= len(n.params)
	return n, true
}

// abandon gives up what is to be passed on for a pending call.
func (u *Upstream) abandon(pc *pendingCall) {
	q := &pc.notes
	u.dropped += uint64(len(q.all)) + 1 // and the one that does not come to its end
	q.lost, q.running, q.all, q.bytes = true, false, nil, 0
	u.done(pc)
}
