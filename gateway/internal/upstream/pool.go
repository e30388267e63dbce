package upstream

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The lifetimes that are not "shared".
const (
	lifetimePrincipal = "principal"
	lifetimeSession   = "session"
	lifetimeCall      = "call"
)

// state is all that changes in an upstream, under one lock. The functions that
// change it are called with the lock held, and do no I/O.
type state struct {
	holders  map[ownerKey]*holder
	queue    share.Queue[*pendingCall] // that have no connection yet
	inFlight *share.Places
	places   int  // connections that are being started, used or closed
	singles  int  // of these, those of one call
	live     int  // of these, connections that take calls or will
	starts   int  // and connections that are being started
	known    bool // a connection was up once, and so modern says something
	modern   bool
	serial   bool // questions do not say which call they are about
	// The server has asked for roots, so connections with other roots get the time for it; and it
	// has done so outside of calls, so they must be known before one.
	asksRoots, rootsFirst bool
	breaker               breaker
	cool                  time.Time // until then no connection is started for calls that can do without
	stale                 bool      // a connection was lost: lists may have changed
	info                  *mcp.ServerInfo
	watching              map[watchKey]*watch
	departed              departed // sessions that have ended
	sweeping              bool
	closing               bool          // no new calls
	over                  bool          // nothing is started any more
	idle                  chan struct{} // closed when closing and nothing is under way

	mood  string
	since time.Time
	stats
}

// coolTime is how long calls that can wait for another connection do so after a start
// has failed.
const coolTime = time.Second

// find returns the best connection that pc can have now, or nil.
func (u *Upstream) find(pc *pendingCall) (best *conn) {
	for _, l := range pc.holder.conns {
		if l.up && l.serves(pc) && l.free(pc) && (best == nil || l.better(best, pc)) {
			best = l
		}
	}
	return best
}

// shareable returns a connection that pc can use along with a call that may be asked. That
// is for calls that raise no questions, when there is no other connection to be had.
func (u *Upstream) shareable(pc *pendingCall) *conn {
	for _, l := range pc.holder.conns {
		if pc.light() && l.up && l.serves(pc) {
			return l
		}
	}
	return nil
}

// expected reports whether a connection that is being started may come to be pc's. As
// long as it is unknown what the server speaks, one is started for all.
func (u *Upstream) expected(l *conn, pc *pendingCall) bool {
	return !l.up && !l.gone && (l.serves(pc) || !u.known || u.modern)
}

// stateless reports whether the server is known to ask nothing outside of calls.
func (u *Upstream) stateless() bool { return u.known && u.modern }

// promise reports whether a connection that is being started is enough for pc, too.
func (u *Upstream) promise(pc *pendingCall) bool {
	for _, l := range pc.holder.conns {
		switch {
		case !u.expected(l, pc):
		case pc.light(), !l.serial(), u.stateless():
			return true
		case l.promised == 0:
			l.promised++
			return true
		}
	}
	return false
}

// hopeful reports whether a waiting call may get a connection without a start of its
// own.
func (u *Upstream) hopeful(pc *pendingCall) bool {
	for _, l := range pc.holder.conns {
		if l.serves(pc) || u.expected(l, pc) {
			return true
		}
	}
	return !u.known && u.starts > 0
}

// assign gives a connection to a pending call.
func (u *Upstream) assign(pc *pendingCall, l *conn) {
	pc.conn, pc.over, pc.age = l, false, u.breaker.age
	pc.level, pc.sent = "", false
	u.started(pc)
	l.calls++
	l.pending.add(pc)
	l.identify(pc)
	if !pc.light() {
		l.asking++
	}
	if l.roots.called != nil {
		close(l.roots.called)
		l.roots.called = nil
	}
	if pc.call.Method == describing {
		return
	}
	if severity := spec.LogSeverity(pc.call.LogLevel); severity >= 0 && !l.modern && l.info.Capabilities.Logging != nil &&
		(l.level < 0 || severity < l.level) {
		pc.level, l.level = pc.call.LogLevel, severity
	}
	if l.serial() && !pc.light() {
		l.session = pc.who.Session
	}
}

// leave takes a pending call from its connection, after an attempt with that outcome. It
// reports whether the call can be made again. It returns when nothing is passed on
// any more.
func (u *Upstream) leave(pc *pendingCall, in *era.Revision, err error, first bool) (again bool) {
	now := time.Now()
	outcome := outcomeOf(pc, err)
	u.mu.Lock()
	defer u.mu.Unlock()
	l := pc.conn
	pc.over = true
	l.pending.remove(pc)
	if !pc.light() {
		l.asking--
	}
	l.used = now
	switch outcome {
	case answered:
		if u.breaker.succeeded() {
			u.turn()
		}
		u.latency.add(now.Sub(pc.begun))
	case unreachable, unknown:
		u.lost(l, pc.age, err, now)
	case late, given:
		u.unanswered(l, pc)
	}
	if pc.trial && outcome != answered {
		u.breaker.forgo()
	}
	pc.trial, pc.conn = false, nil
	again = first && pc.Err() == nil && !u.over && (outcome == unreachable || outcome == unknown && pc.call.Idempotent)
	u.count(pc, outcome, again)
	if in != nil && in.Modern != l.modern || l.holder.single {
		u.retire(l)
	}
	if l.gone && l.pending.n == 0 {
		l.cancel()
	}
	u.dispatch()
	u.waitDelivered(pc) // the connection may already serve another call: a slow reader must not block it
	u.finished(pc)
	u.dispatch()
	u.drained()
	return again
}

// waitDelivered waits until nothing is passed on to the client of a pending call any more, or the client
// does not read.
func (u *Upstream) waitDelivered(pc *pendingCall) {
	pc.over = true
	if pc.open == 0 {
		return
	}
	for _, a := range pc.asks {
		a.cancel()
	}
	quiet := make(chan struct{})
	pc.quiet = quiet
	timer := time.NewTimer(maxDeaf)
	defer timer.Stop()
	for pc.quiet == quiet {
		told, late := pc.notes.told, false
		u.mu.Unlock()
		select {
		case <-quiet:
		case <-timer.C:
			late = true
			timer.Reset(maxDeaf)
		}
		u.mu.Lock()
		if late && pc.notes.running && pc.notes.told == told {
			u.abandon(pc)
		}
	}
}

// lost notes that a connection has failed. Over HTTP the next call may get through
// all the same.
func (u *Upstream) lost(l *conn, age uint64, err error, now time.Time) {
	u.breaker.fail(now, age)
	u.stale = true
	u.failed(err)
	if u.opts.Exclusive {
		u.retire(l)
	}
	u.turn()
}

// unanswered notes that a call has ended, but not for the server, which may still
// ask about it. No other caller must be asked that.
func (u *Upstream) unanswered(l *conn, pc *pendingCall) {
	switch {
	case l.modern || l.abilities == 0 || pc.light() || !pc.sent:
	case l.serial() && pc.who.Session == "":
		u.replace(l) // no session could have what the server still says
	case l.lateQuestions && l.lateSession != pc.who.Session:
		l.lateSession = ""
	default:
		l.lateQuestions, l.lateSession = true, pc.who.Session
	}
}

// dispatch gives connections to those who wait, in the order of the queue, and has connections
// started for them.
func (u *Upstream) dispatch() {
	if u.queue.Len() == 0 {
		return
	}
	for item := range u.queue.All() {
		for _, l := range item.Value.holder.conns {
			l.promised = 0
		}
	}
	coming := u.places - u.live // places that will be free
	for item := range u.queue.All() {
		if u.inFlight.Used() >= u.opts.MaxInFlight {
			break
		}
		if u.room(item.Value) {
			u.serve(item.Value, &coming)
		}
	}
}

// serve does for a waiting call what can be done.
func (u *Upstream) serve(pc *pendingCall, coming *int) {
	if l := u.find(pc); l != nil {
		u.grant(pc, l)
		return
	}
	if u.promise(pc) {
		return
	}
	if u.breaker.open() && !pc.trial {
		if !u.hopeful(pc) {
			_, _, wait := u.breaker.peek(time.Now())
			u.refuse(pc, u.broken(wait))
		}
	} else if u.mayStart(pc, coming) {
		l := u.start(pc.holder, pc.abilities, pc)
		if !pc.light() {
			l.promised++
		}
		return
	}
	if l := u.shareable(pc); l != nil && pc.conn == nil {
		u.grant(pc, l)
	}
}

// mayStart reports whether a connection can be started for pc. It makes room for one if
// it has to.
func (u *Upstream) mayStart(pc *pendingCall, coming *int) bool {
	if u.over || !u.known && u.starts > 0 || u.hopeful(pc) && time.Now().Before(u.cool) || !u.pooled(pc) {
		return false
	}
	switch {
	case u.places < u.opts.MaxConnections:
		return true
	case *coming > 0:
		*coming--
	default:
		var all []*conn
		for _, h := range u.holders {
			// What is there for a session is not lost before its end.
			if u.opts.Lifetime != lifetimeSession || h.ended || !h.ofSession {
				all = append(all, h.conns...)
			}
		}
		u.evict(all) // whose place is free when it is closed
	}
	return false
}

// pooled reports whether the pool has room for a connection for pc.
func (u *Upstream) pooled(pc *pendingCall) bool {
	switch h := pc.holder; {
	case h.single:
		return !u.opts.Exclusive || u.singles < u.opts.Pool
	case h.key.roots == listRoots:
		return len(h.conns) < u.opts.Pool || u.evict(h.conns)
	case u.serial && !u.stateless() && pc.abilities != 0:
		return u.fits(h)
	}
	return true
}

// fits reports whether there is room in the pool for one more connection of an owner that
// carries one call at a time. It makes room if it has to: what is idle goes. The
// pool is that of all owners of a group, and a client with roots of its own has no
// more of it than it leaves to others.
func (u *Upstream) fits(h *holder) bool {
	var all []*conn
	mine := 0
	for _, o := range u.holders {
		if o.key.group != h.key.group {
			continue
		}
		for _, l := range o.conns {
			if l.serial() {
				all = append(all, l)
				if o == h {
					mine++
				}
			}
		}
	}
	switch free := u.opts.Pool - len(all); {
	case free > 0 && (mine == 0 || mine < free || h.key.client.IsZero()):
		return true
	case free > 0 || mine > 0 && !h.key.client.IsZero():
		return u.evict(h.conns)
	}
	// One whose owner has calls in the queue gets some of them first: starting a process for each
	// call takes longer.
	return u.evict(slices.DeleteFunc(all, func(l *conn) bool {
		return l.holder != h && l.holder.waiting > 0 && l.calls < minCalls
	}))
}

// minCalls is how many calls a connection carries before it makes room for another owner, if its own has
// so many.
const minCalls = 8

// evict closes the connection that has been unused for the longest time.
func (u *Upstream) evict(conns []*conn) bool {
	var oldest *conn
	for _, l := range conns {
		if l.idle() && (oldest == nil || l.used.Before(oldest.used)) {
			oldest = l
		}
	}
	if oldest == nil {
		return false
	}
	u.retire(oldest)
	return true
}

// start starts a connection, for a pending call or, with nil, for none.
func (u *Upstream) start(h *holder, a abilities, pc *pendingCall) *conn {
	l := &conn{u: u, holder: h, abilities: a, age: u.breaker.age}
	l.ctx, l.cancel = context.WithCancel(&connContext{u.ctx, l})
	if pc != nil {
		l.identify(pc)
		if h.single || h.key.roots == knownRoots {
			l.roots.known = bytes.Clone(pc.who.Roots)
		}
	}
	h.conns = append(h.conns, l)
	if h.single {
		u.singles++
	}
	u.places++
	u.live++
	u.starts++
	u.tasks.Go(l.run)
	u.sweep()
	u.turn()
	return l
}

// retire gives no more calls to a connection, and closes it when it has none.
func (u *Upstream) retire(l *conn) {
	if !l.gone {
		l.gone = true
		u.live--
		if l.up {
			u.dropped += l.client.Dropped()
		}
		l.holder.conns = slices.DeleteFunc(l.holder.conns, func(o *conn) bool { return o == l })
		u.tidy(l.holder)
		u.turn()
	}
	if l.pending.n == 0 {
		l.cancel()
	}
}

// replace retires a connection that may not be used any more. When all callers have none
// but that, another one takes its place: somebody may want to be told of changes.
func (u *Upstream) replace(l *conn) {
	if l.holder.key == (ownerKey{}) && !l.holder.single && l.up && !l.gone && len(l.holder.conns) == 1 && !u.closing && !u.breaker.open() {
		u.stale = true                      // what happens meanwhile is not reported
		u.start(l.holder, l.abilities, nil) // it has no owner: connections of owners are not replaced
	}
	u.retire(l)
}

// release closes all connections of an owner, as soon as they have no calls.
func (u *Upstream) release(h *holder) {
	for _, l := range slices.Clone(h.conns) {
		u.retire(l)
	}
}

// described returns what is known of the server by a connection that shows at least what
// a client with these abilities may see.
func (u *Upstream) described(who *Caller, a abilities) *mcp.ServerInfo {
	key, lasting := u.keyOf(who, a, useLight)
	if !lasting {
		return u.info
	}
	h := u.holders[key]
	if h == nil {
		return nil
	}
	for _, l := range h.conns {
		if l.up && (l.modern || l.abilities&a == a) {
			return l.info
		}
	}
	return nil
}

// connsOf returns the connections that are to hear what a caller notifies.
func (u *Upstream) connsOf(who *Caller, method string) (conns []*conn) {
	if method == spec.NotificationRootsListChanged {
		return u.rootsChanged(who)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := abilitiesOf(who.Capabilities)
	key, lasting := u.keyOf(who, a, useLight)
	h := u.holders[key]
	if h == nil || !lasting {
		return nil
	}
	for _, l := range h.conns {
		if l.up && !l.modern && (l.serial() && l.session != "" && l.session == who.Session || !l.serial() && l.abilities == a) {
			conns = append(conns, l)
		}
	}
	return conns
}

// Forget ends what belongs to a session that has ended, or to a client's connection, given by the
// text of its owner.
func (u *Upstream) Forget(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if session == "" {
		return
	}
	for k, w := range u.watching {
		if k.owner.belongs(session) {
			w.cancel()
		}
	}
	if u.opts.Lifetime == lifetimeSession {
		u.departed.add(session)
	}
	for _, h := range u.holders {
		if h.key.belongs(session) {
			h.ended = true
			u.release(h)
			continue
		}
		for _, l := range slices.Clone(h.conns) {
			if l.session == session {
				l.session = ""
			}
			if l.lateQuestions && l.lateSession == session && l.serial() {
				u.replace(l)
			}
		}
	}
	u.dispatch()
}
