package upstream

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The lifetimes that are not "auto".
const (
	lifetimeShared    = "shared"
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
	conns    [closed + 1]int // how many connections are in each state
	singles  int             // of those that are not closed, those of one call
	known    bool            // a connection was up once, and so modern says something
	modern   bool
	asks     bool // the server has asked what does not say which call it is about
	// Servers asked for roots during one of several calls that stand alone.
	mixedRoots bool
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
		if l.state == ready && l.serves(pc) && l.free(pc) && (best == nil || l.better(best, pc)) {
			best = l
		}
	}
	return best
}

// expected reports whether a connection that is being started may come to be pc's. As
// long as it is unknown what the server speaks, one is started for all.
func (u *Upstream) expected(l *conn, pc *pendingCall) bool {
	return l.state == dialing && (l.serves(pc) || !u.known || u.modern)
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
	return !u.known && u.conns[dialing] > 0
}

// assign gives a connection to a pending call.
func (u *Upstream) assign(pc *pendingCall, l *conn) {
	pc.conn, pc.over, pc.age = l, false, u.breaker.age
	pc.level, pc.sent = "", false
	u.started(pc)
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
	l.bind(pc)
}

// leave takes a pending call from its connection, after an attempt with that outcome. It
// reports whether the call can be made again. It returns when nothing is passed on
// any more.
func (u *Upstream) leave(pc *pendingCall, in *era.Revision, err error, first bool) (again bool) {
	u.mu.Lock()
	again = u.partLocked(pc, in, err, first)
	u.dispatch() // the connection may serve another call already: a slow reader must not block it
	if pc.open > 0 {
		u.mu.Unlock()
		pc.waitDelivered()
		u.mu.Lock()
	}
	defer u.mu.Unlock()
	u.finished(pc)
	u.dispatch()
	u.drained()
	return again
}

// partLocked takes a pending call from its connection.
func (u *Upstream) partLocked(pc *pendingCall, in *era.Revision, err error, first bool) (again bool) {
	now := time.Now()
	outcome := outcomeOf(pc, err)
	l := pc.conn
	pc.over = true
	l.part(pc, now)
	switch outcome {
	case answered:
		if u.breaker.succeeded() {
			u.turn()
		}
		u.latency.add(now.Sub(pc.begun))
	case unreachable, unknown:
		u.lost(l, pc.age, err, now)
	case busy:
		if !errors.As(err, new(*jsonrpc.Error)) { // or it has taken the request itself
			u.breaker.fail(now, pc.age, comeBack(err))
		}
		u.failed(err)
		u.turn()
	case late, given:
		u.unanswered(l, pc)
	}
	u.attribute(l) // it may be known now which call a question is about
	if pc.trial && outcome != answered {
		u.breaker.forgo()
	}
	pc.trial, pc.conn = false, nil
	again = first && pc.Err() == nil && !u.over && pc.repeatable(outcome, err)
	u.count(pc, outcome, again)
	if l.state == draining || in != nil && in.RequestMeta != l.modern || l.holder.single {
		u.retire(l)
	}
	u.trim(l)
	return again
}

// repeatable reports whether a call may be made again after an attempt with that outcome.
func (pc *pendingCall) repeatable(o outcome, err error) bool {
	switch o {
	case unreachable:
		return true
	case unknown:
		return pc.call.Idempotent
	case busy:
		return comeBack(err) <= maxComeBack
	}
	return false
}

// part takes a pending call that ends from its connection.
func (l *conn) part(pc *pendingCall, now time.Time) {
	l.pending.remove(pc)
	l.used = now
	if pc.light() {
		return
	}
	l.asking--
	if len(pc.asks) > 0 {
		l.suspended--
	}
}

// lost notes that a connection has failed. Over HTTP the next call may get through
// all the same.
func (u *Upstream) lost(l *conn, age uint64, err error, now time.Time) {
	u.breaker.fail(now, age, 0)
	u.stale = true
	u.failed(err)
	if u.opts.Exclusive {
		u.retire(l)
	}
	u.turn()
}

// unanswered notes that a call has ended, but not for the server, which may still
// ask about it. No other client must be asked that.
func (u *Upstream) unanswered(l *conn, pc *pendingCall) {
	switch {
	case l.modern || l.abilities == 0 || pc.light() || !pc.sent || l.holder.session != "":
	case l.holder.pooled() && l.serial():
		u.retire(l)
	default: // the cancellation is sent over the connection, which stays for that
		l.lateQuestions = true
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
	coming := u.conns[draining] + u.conns[closing] // places that will be free
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
	} else if u.places() >= u.opts.MaxConnections && u.answersAwaited() {
		u.refuse(pc, u.refusal(jsonrpc.Overloaded,
			"Overloaded: each connection that %s may have (max connections: %d) waits for the answer of a client to a question; try again later",
			u.opts.Name, u.opts.MaxConnections))
	}
}

// answersAwaited reports whether all connections wait for answers of clients, which may take as long as
// they like: a call that needs another one is refused at once then.
func (u *Upstream) answersAwaited() bool {
	for _, h := range u.holders {
		for _, l := range h.conns {
			if !l.waits() {
				return false
			}
		}
	}
	return u.live() == u.places()
}

// mayStart reports whether a connection can be started for pc. It makes room for one if
// it has to.
func (u *Upstream) mayStart(pc *pendingCall, coming *int) bool {
	if u.over || !u.known && u.conns[dialing] > 0 || u.hopeful(pc) && time.Now().Before(u.cool) || !u.pooled(pc) {
		return false
	}
	switch {
	case u.places() < u.opts.MaxConnections:
		return true
	case *coming > 0:
		*coming--
	default:
		var all []*conn
		for _, h := range u.holders {
			if h.session == "" || h.ended { // a session's state is not lost before its end
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
	case h.pooled():
		return u.fits(h)
	default: // one for all calls of the owner that can be asked the same
		return !slices.ContainsFunc(h.conns, func(l *conn) bool { return l.serves(pc) })
	}
}

// fits reports whether there is room in the pool for one more connection of an owner whose requests
// have no session. It makes room if it has to: what is idle goes. A connection that waits for the
// answer of a client takes no room.
func (u *Upstream) fits(h *holder) bool {
	own, working := u.connsOfClient(h.key)
	return working < u.opts.Pool || u.evict(own)
}

// connsOfClient returns the connections of the client that a key names, and how many do not wait for an
// answer of it.
func (u *Upstream) connsOfClient(key ownerKey) (own []*conn, working int) {
	for _, h := range u.holders {
		if h.key.group != key.group || h.key.client != key.client {
			continue
		}
		own = append(own, h.conns...)
		for _, l := range h.conns {
			if !l.waits() {
				working++
			}
		}
	}
	return own, working
}

// trim retires a connection that is idle, when its owner has more than the pool: it has waited for an
// answer.
func (u *Upstream) trim(l *conn) {
	if l.holder.pooled() && l.idle() {
		if own, _ := u.connsOfClient(l.holder.key); len(own) > u.opts.Pool {
			u.retire(l)
		}
	}
}

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
	l := &conn{u: u, holder: h, abilities: a, age: u.breaker.age, begun: time.Now()}
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
	u.conns[dialing]++
	u.tasks.Go(l.run)
	u.sweep()
	u.turn()
	return l
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
		if l.state == ready && (l.modern || l.abilities&a == a) {
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
	a := u.abilitiesOf(who)
	key, lasting := u.keyOf(who, a, useLight)
	h := u.holders[key]
	if h == nil || !lasting {
		return nil
	}
	for _, l := range h.conns {
		if l.state == ready && !l.modern && l.abilities == a {
			conns = append(conns, l)
		}
	}
	return conns
}

// Holds reports whether a session has connections or subscriptions of its own here.
func (u *Upstream) Holds(session string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := owner.Session(session, "")
	for k := range u.watching {
		if k.owner.group == own || k.owner.client == own {
			return true
		}
	}
	for k, h := range u.holders {
		if (k.group == own || k.client == own) && len(h.conns) > 0 {
			return true
		}
	}
	return false
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
	u.departed.add(session)
	for _, h := range u.holders {
		if h.key.belongs(session) {
			h.ended = true
			u.release(h)
			continue
		}
		for _, l := range h.conns {
			delete(l.sessions, session)
		}
	}
	u.dispatch()
}
