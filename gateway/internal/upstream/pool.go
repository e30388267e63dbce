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
	queue    share.Queue[*flight] // for whom there is no connection yet
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

// find returns the best connection that f can have now, or nil.
func (u *Upstream) find(f *flight) (best *conn) {
	for _, l := range f.holder.conns {
		if l.up && l.serves(f) && l.free(f) && (best == nil || l.better(best, f)) {
			best = l
		}
	}
	return best
}

// crowded returns a connection that f can use along with somebody who may be asked. That
// is for calls that raise no questions, when there is no other connection to be had.
func (u *Upstream) crowded(f *flight) *conn {
	for _, l := range f.holder.conns {
		if f.light() && l.up && l.serves(f) {
			return l
		}
	}
	return nil
}

// expected reports whether a connection that is being started may come to be f's. As
// long as nobody knows what the server speaks, one is started for all.
func (u *Upstream) expected(l *conn, f *flight) bool {
	return !l.up && !l.gone && (l.serves(f) || !u.known || u.modern)
}

// stateless reports whether the server is known to ask nothing by itself.
func (u *Upstream) stateless() bool { return u.known && u.modern }

// promise reports whether a connection that is being started is enough for f, too.
func (u *Upstream) promise(f *flight) bool {
	for _, l := range f.holder.conns {
		switch {
		case !u.expected(l, f):
		case f.light(), !l.serial(), u.stateless():
			return true
		case l.promised == 0:
			l.promised++
			return true
		}
	}
	return false
}

// hopeful reports whether a waiting flight may get a connection without a start of its
// own.
func (u *Upstream) hopeful(f *flight) bool {
	for _, l := range f.holder.conns {
		if l.serves(f) || u.expected(l, f) {
			return true
		}
	}
	return !u.known && u.starts > 0
}

// board puts a flight on a connection.
func (u *Upstream) board(f *flight, l *conn) {
	f.conn, f.over, f.age = l, false, u.breaker.age
	f.level, f.sent = "", false
	u.started(f)
	l.calls++
	l.flights.add(f)
	l.identify(f)
	if !f.light() {
		l.asking++
	}
	if l.roots.boarded != nil {
		close(l.roots.boarded)
		l.roots.boarded = nil
	}
	if f.call.Method == describing {
		return
	}
	if severity := spec.LogSeverity(f.call.LogLevel); severity >= 0 && !l.modern && l.info.Capabilities.Logging != nil &&
		(l.level < 0 || severity < l.level) {
		f.level, l.level = f.call.LogLevel, severity
	}
	if l.serial() && !f.light() {
		l.session = f.who.Session
	}
}

// leave takes a flight from its connection, after an attempt with that outcome. It
// reports whether the call can be made again. It returns when nothing is passed on
// any more.
func (u *Upstream) leave(f *flight, in *era.Revision, err error, first bool) (again bool) {
	now := time.Now()
	outcome := outcomeOf(f, err)
	u.mu.Lock()
	defer u.mu.Unlock()
	l := f.conn
	f.over = true
	l.flights.remove(f)
	if !f.light() {
		l.asking--
	}
	l.used = now
	switch outcome {
	case answered:
		if u.breaker.succeeded() {
			u.turn()
		}
		u.latency.add(now.Sub(f.begun))
	case unreachable, unknown:
		u.lost(l, f.age, err, now)
	case late, given:
		u.unanswered(l, f)
	}
	if f.trial && outcome != answered {
		u.breaker.forgo()
	}
	f.trial, f.conn = false, nil
	again = first && f.Err() == nil && !u.over && (outcome == unreachable || outcome == unknown && f.call.Idempotent)
	u.count(f, outcome, again)
	if in != nil && in.Modern != l.modern || l.holder.single {
		u.retire(l)
	}
	if l.gone && l.flights.n == 0 {
		l.cancel()
	}
	u.dispatch()
	u.hush(f) // the connection is another's by now: who does not read what he is told does not keep it
	u.landed(f)
	u.dispatch()
	u.drained()
	return again
}

// hush waits until nothing is passed on any more for a flight, or its client does
// not take it.
func (u *Upstream) hush(f *flight) {
	f.over = true
	if f.pending == 0 {
		return
	}
	for _, a := range f.asks {
		a.cancel()
	}
	quiet := make(chan struct{})
	f.quiet = quiet
	timer := time.NewTimer(maxDeaf)
	defer timer.Stop()
	for f.quiet == quiet {
		told, late := f.notes.told, false
		u.mu.Unlock()
		select {
		case <-quiet:
		case <-timer.C:
			late = true
			timer.Reset(maxDeaf)
		}
		u.mu.Lock()
		if late && f.notes.running && f.notes.told == told {
			u.abandon(f)
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
func (u *Upstream) unanswered(l *conn, f *flight) {
	switch {
	case l.modern || l.abilities == 0 || f.light() || !f.sent:
	case l.serial() && f.who.Session == "":
		u.replace(l) // no session could have what the server still says
	case l.lateQuestions && l.lateSession != f.who.Session:
		l.lateSession = ""
	default:
		l.lateQuestions, l.lateSession = true, f.who.Session
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

// serve does for a waiting flight what can be done.
func (u *Upstream) serve(f *flight, coming *int) {
	if l := u.find(f); l != nil {
		u.grant(f, l)
		return
	}
	if u.promise(f) {
		return
	}
	if u.breaker.open() && !f.trial {
		if !u.hopeful(f) {
			_, _, wait := u.breaker.peek(time.Now())
			u.refuse(f, u.broken(wait))
		}
	} else if u.mayStart(f, coming) {
		l := u.start(f.holder, f.abilities, f)
		if !f.light() {
			l.promised++
		}
		return
	}
	if l := u.crowded(f); l != nil && f.conn == nil {
		u.grant(f, l)
	}
}

// mayStart reports whether a connection can be started for f. It makes room for one if
// it has to.
func (u *Upstream) mayStart(f *flight, coming *int) bool {
	if u.over || !u.known && u.starts > 0 || u.hopeful(f) && time.Now().Before(u.cool) || !u.pooled(f) {
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

// pooled reports whether the pool has room for a connection for f.
func (u *Upstream) pooled(f *flight) bool {
	switch h := f.holder; {
	case h.single:
		return !u.opts.Exclusive || u.singles < u.opts.Pool
	case h.key.roots == listRoots:
		return len(h.conns) < u.opts.Pool || u.evict(h.conns)
	case u.serial && !u.stateless() && f.abilities != 0:
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

// evict closes the connection that nobody has needed for the longest time.
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

// start starts a connection, for a flight; nil: for nobody.
func (u *Upstream) start(h *holder, a abilities, f *flight) *conn {
	l := &conn{u: u, holder: h, abilities: a, age: u.breaker.age}
	l.ctx, l.cancel = context.WithCancel(&connContext{u.ctx, l})
	if f != nil {
		l.identify(f)
		if h.single || h.key.roots == knownRoots {
			l.roots.known = bytes.Clone(f.who.Roots)
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
	if l.flights.n == 0 {
		l.cancel()
	}
}

// replace retires a connection that nobody may use any more. When all callers have none
// but that, another one takes its place: somebody may want to be told of changes.
func (u *Upstream) replace(l *conn) {
	if l.holder.key == (ownerKey{}) && !l.holder.single && l.up && !l.gone && len(l.holder.conns) == 1 && !u.closing && !u.breaker.open() {
		u.stale = true                      // nobody tells what happens meanwhile
		u.start(l.holder, l.abilities, nil) // it is nobody's: connections of the others are not replaced
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
