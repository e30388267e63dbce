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

// A question belongs to the call with the exchange that it comes in. One that comes without such,
// over a connection for example, belongs to the only call under way on its connection that can have
// raised it. Where there are several it is held until the others have ended, and it is refused when
// that cannot tell any more. On the connection of one session any of the calls will do: the client
// is the same.

// question is one that waits for its answer.
type question struct {
	cancel context.CancelFunc
	found  chan *pendingCall // gets the call that it belongs to, or nil
	// The call is one of several of the same session.
	guessed bool
}

// ask answers what the server asks on a connection.
func (u *Upstream) ask(
	ctx context.Context, l *connection, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, error) {
	if method == spec.MethodRootsList && u.declaresRoots(l) {
		return u.askRoots(ctx, l, params)
	}
	for {
		answer, again, err := u.askOnce(ctx, l, method, params)
		if !again {
			return answer, err
		}
	}
}

// askOnce asks the client of the call that a question belongs to. It reports whether that call is
// over, and the question may belong to another one.
func (u *Upstream) askOnce(
	ctx context.Context, l *connection, method string, params jsonrpc.Raw,
) (answer jsonrpc.Raw, again bool, err error) {
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &question{cancel: cancel, found: make(chan *pendingCall, 1)}
	if err := u.asked(ctx, l, q); err != nil {
		return nil, false, err
	}
	var pc *pendingCall
	select {
	case pc = <-q.found:
	case <-ctx.Done():
		if pc = u.unhold(l, q); pc == nil {
			return nil, false, ctx.Err()
		}
	}
	if pc == nil {
		return nil, false, jsonrpc.Errorf(jsonrpc.InternalError,
			"it is not clear which call this belongs to: several are under way, or were given up, that "+
				"may be asked; "+
				"from now on each new session has its own connection: connect again and repeat the call")
	}
	if pc.call.Ask == nil {
		err = jsonrpc.Errorf(jsonrpc.MethodNotFound, "the caller cannot be asked %q", method)
	} else {
		answer, err = pc.call.Ask(asked, method, params)
	}
	over := u.replied(pc, q)
	return answer, err != nil && over && q.guessed && ctx.Err() == nil, err
}

// asked finds the pending call that a question belongs to, which waits for the answer from now on,
// or holds the question.
func (u *Upstream) asked(ctx context.Context, l *connection, q *question) error {
	pc, _ := ctx.Value(pendingKey{}).(*pendingCall)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case pc != nil && pc.conn == l && !pc.over:
		u.putLocked(pc, q)
		q.found <- pc
	case pc != nil:
		u.dropped++
		return jsonrpc.Errorf(jsonrpc.InternalError, "the call during which this was asked is over")
	case l.abilities == 0:
		u.dropped++
		return jsonrpc.Errorf(jsonrpc.MethodNotFound,
			"this connection declares nothing that it could be asked")
	default:
		u.apartFromNowOnLocked()
		l.held = append(l.held, q)
		u.attributeLocked(l)
	}
	u.dispatchLocked() // a call that waits for its client lets others go on
	return nil
}

// apartFromNowOnLocked notes that the server's questions do not say which call they are about.
func (u *Upstream) apartFromNowOnLocked() {
	if u.pool.asks {
		return
	}
	u.pool.asks = true
	u.rekeyQueueLocked()
	for _, h := range u.pool.holders {
		for _, l := range slices.Clone(h.conns) {
			if h.pooled() && l.lateQuestions {
				u.pool.retire(l) // another one takes its calls
			}
		}
	}
	if u.opts.OnAsks != nil {
		u.spawnLocked(u.opts.OnAsks)
	}
}

// attributeLocked gives the held questions of a connection to the calls that they belong to, as far
// as that is clear, and refuses them when it will not be.
func (u *Upstream) attributeLocked(l *connection) {
	for len(l.held) > 0 {
		pc, wait := l.candidate()
		if wait {
			return
		}
		q := l.held[0]
		l.held = l.held[1:]
		if q.guessed = l.asking > 1 && l.holder.session != ""; pc != nil {
			u.putLocked(pc, q)
		} else {
			u.dropped++
		}
		q.found <- pc
	}
}

// unhold takes back a question that the server has given up. It returns the call that it was given
// to at the same moment, or nil.
func (u *Upstream) unhold(l *connection, q *question) *pendingCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(l.held, q); i >= 0 {
		l.held = slices.Delete(l.held, i, i+1)
		return nil
	}
	return <-q.found
}

// putLocked has a call wait for the answer to a question. Its connection may be free for another
// call then: dispatchLocked has to follow.
func (u *Upstream) putLocked(pc *pendingCall, q *question) {
	if len(pc.asks) == 0 && !pc.light() {
		pc.conn.suspended++
	}
	pc.open++
	pc.asks = append(pc.asks, q)
}

// replied notes that a question has its answer. It reports whether the call is over.
func (u *Upstream) replied(pc *pendingCall, q *question) (over bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pc.asks = slices.DeleteFunc(pc.asks, func(o *question) bool { return o == q })
	if l := pc.conn; l != nil && len(pc.asks) == 0 && !pc.light() && !pc.over {
		l.suspended--
	}
	over = pc.over
	u.doneLocked(pc)
	return over
}

// doneLocked ends a question or a delivery of a pending call.
func (u *Upstream) doneLocked(pc *pendingCall) {
	if pc.open--; pc.open == 0 && pc.quiet != nil {
		close(pc.quiet)
		pc.quiet = nil
	}
}

// notice takes the notifications of the server that belong to no call.
func (u *Upstream) notice(
	ctx context.Context, l *connection, method string, params jsonrpc.Raw,
) (taken bool) {
	switch method {
	case spec.NotificationToolsListChanged:
		u.listChanged("tools")
	case spec.NotificationPromptsListChanged:
		u.listChanged("prompts")
	case spec.NotificationResourcesListChanged:
		u.listChanged("resources")
	case spec.NotificationResourcesUpdated:
		var p spec.ResourceUpdatedNotificationParams
		if jsonv2.Unmarshal(params, &p) == nil {
			u.updated(l, p.URI)
		}
	case spec.NotificationSubscriptionsAcknowledged, spec.NotificationCancelled,
		spec.NotificationTasks, spec.NotificationTasksStatus:
		return false
	default:
		u.noticed(ctx, l, method, params)
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
func (u *Upstream) noticed(ctx context.Context, l *connection, method string, params jsonrpc.Raw) {
	pc, _ := ctx.Value(pendingKey{}).(*pendingCall)
	u.mu.Lock()
	defer u.mu.Unlock()
	if pc == nil {
		pc = l.listener()
	}
	if pc == nil || pc.conn != l || pc.over {
		u.dropped++
		return
	}
	if pc.call.Notice != nil {
		u.noteLocked(pc, note{method, bytes.Clone(params)})
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
	pc.u.noteLocked(pc, note{params: params})
}

// noteLocked has something passed on.
func (u *Upstream) noteLocked(pc *pendingCall, n note) {
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
	if q.running = u.spawnLocked(pc.deliver); q.running {
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
			pc.call.Progress(pc.ctx, n.params)
		default:
			pc.call.Notice(pc.ctx, n.method, n.params)
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
		u.doneLocked(pc)
		return n, false
	}
	n, q.all[0] = q.all[0], note{}
	q.all = q.all[1:]
	q.bytes -= len(n.params)
	return n, true
}

// abandonLocked gives up what is to be passed on for a pending call.
func (u *Upstream) abandonLocked(pc *pendingCall) {
	q := &pc.notes
	u.dropped += uint64(len(q.all)) + 1 // and the one that does not come to its end
	q.lost, q.running, q.all, q.bytes = true, false, nil, 0
	u.doneLocked(pc)
}

// waitDelivered waits until nothing is passed on to the client of a pending call any more, or the
// client does not read.
func (pc *pendingCall) waitDelivered() {
	quiet, told := pc.u.stopAsking(pc)
	if quiet == nil {
		return
	}
	deaf := time.NewTicker(maxDeaf)
	defer deaf.Stop()
	for {
		select {
		case <-quiet:
			return
		case <-deaf.C:
			told = pc.u.abandonUnread(pc, told)
		}
	}
}

// stopAsking cancels the questions of a pending call. It returns a channel that is closed when no
// question and no delivery goes on any more, and how many notes have been delivered. Nil: none goes
// on.
func (u *Upstream) stopAsking(pc *pendingCall) (quiet <-chan struct{}, told int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pc.over = true
	if pc.open == 0 {
		return nil, 0
	}
	for _, q := range pc.asks {
		q.cancel()
	}
	pc.quiet = make(chan struct{})
	return pc.quiet, pc.notes.told
}

// abandonUnread abandons the notes of a pending call when its client has taken none since told of
// them were delivered. It returns how many are now.
func (u *Upstream) abandonUnread(pc *pendingCall, told int) (now int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if pc.notes.running && pc.notes.told == told {
		u.abandonLocked(pc)
	}
	return pc.notes.told
}
