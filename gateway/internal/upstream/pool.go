package upstream

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
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

// A pool answers which connection a call may use. It has the connections by their owners, and what
// decides about them: what is known of the server, and whether it can be reached.
//
// The lock of the upstream guards all of it. A pool has no lock and starts nothing: it does no I/O, and
// its methods do not block.
type pool struct {
	opts *Options
	facts
	health
	holders  map[ownerKey]*holder
	counts   [closed + 1]int // how many connections are in each state
	singles  int             // of those that are not closed, those of one call
	lost     uint64          // messages that connections had dropped when they ended
	departed departed        // sessions that have ended
}

// facts are what is known of a server.
type facts struct {
	known  bool // a connection was up once, and so modern and info say something
	modern bool
	info   *mcp.ServerInfo
	asks   bool // the server has asked what does not say which call it is about
	// Servers asked for roots during one of several calls that stand alone.
	mixedRoots bool
	// The server has asked for roots, so connections with other roots get the time for it; and it
	// has done so outside of calls, so they must be known before one.
	asksRoots, rootsFirst bool
}

// health is whether a server can be reached.
type health struct {
	breaker   breaker
	cool      time.Time // until then no connection is started for calls that can do without
	stale     bool      // a connection was lost: lists may have changed
	lastError string
	mood      string // a state of Status
	since     time.Time
}

func newPool(o *Options) pool {
	p := pool{opts: o, holders: map[ownerKey]*holder{}}
	p.breaker = breaker{after: o.BreakAfter, pause: o.BreakFor}
	p.asks, p.mood, p.since = o.Asks, StateIdle, time.Now()
	return p
}

// dropped returns how many messages of the server the connections have dropped.
func (p *pool) dropped() uint64 {
	n := p.lost
	for _, h := range p.holders {
		for _, l := range h.conns {
			if l.state == ready {
				n += l.client.Dropped()
			}
		}
	}
	return n
}

// coolTime is how long calls that can wait for another connection do so after a start
// has failed.
const coolTime = time.Second

// find returns the best connection that pc can have now, or nil.
func (p *pool) find(pc *pendingCall) (best *conn) {
	for _, l := range pc.holder.conns {
		if l.state == ready && l.serves(pc) && l.free(pc) && (best == nil || l.better(best, pc)) {
			best = l
		}
	}
	return best
}

// expected reports whether a connection that is being started may come to be pc's. As
// long as it is unknown what the server speaks, one is started for all.
func (p *pool) expected(l *conn, pc *pendingCall) bool {
	return l.state == dialing && (l.serves(pc) || !p.known || p.modern)
}

// stateless reports whether the server is known to ask nothing outside of calls.
func (p *pool) stateless() bool { return p.known && p.modern }

// promise reports whether a connection that is being started is enough for pc, too.
func (p *pool) promise(pc *pendingCall) bool {
	for _, l := range pc.holder.conns {
		switch {
		case !p.expected(l, pc):
		case pc.light(), !l.serial(), p.stateless():
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
func (p *pool) hopeful(pc *pendingCall) bool {
	for _, l := range pc.holder.conns {
		if l.serves(pc) || p.expected(l, pc) {
			return true
		}
	}
	return !p.known && p.counts[dialing] > 0
}

// assign gives a connection to a pending call.
func (u *Upstream) assign(pc *pendingCall, l *conn) {
	pc.conn, pc.over, pc.age = l, false, u.pool.breaker.age
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
		if u.pool.breaker.succeeded() {
			u.pool.turn()
		}
		u.latency.add(now.Sub(pc.begun))
	case unreachable, unknown:
		u.lost(l, pc.age, err, now)
	case busy:
		if !errors.As(err, new(*jsonrpc.Error)) { // or it has taken the request itself
			u.pool.breaker.fail(now, pc.age, comeBack(err))
		}
		u.pool.failed(err)
		u.pool.turn()
	case late, given:
		u.unanswered(l, pc)
	}
	u.attribute(l) // it may be known now which call a question is about
	if pc.trial && outcome != answered {
		u.pool.breaker.forgo()
	}
	pc.trial, pc.conn = false, nil
	again = first && pc.Err() == nil && !u.over && pc.repeatable(outcome, err)
	u.count(pc, outcome, again)
	if l.state == draining || in != nil && in.RequestMeta != l.modern || l.holder.single {
		u.pool.retire(l)
	}
	u.pool.trim(l)
	return again
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

// lost notes that a connection has failed. Over HTTP the next call may get through
// all the same.
func (u *Upstream) lost(l *conn, age uint64, err error, now time.Time) {
	u.pool.breaker.fail(now, age, 0)
	u.pool.stale = true
	u.pool.failed(err)
	if u.opts.Exclusive {
		u.pool.retire(l)
	}
	u.pool.turn()
}

// unanswered notes that a call has ended, but not for the server, which may still
// ask about it. No other client must be asked that.
func (u *Upstream) unanswered(l *conn, pc *pendingCall) {
	switch {
	case l.modern || l.abilities == 0 || pc.light() || !pc.sent || l.holder.session != "":
	case l.holder.pooled() && l.serial():
		u.pool.retire(l)
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
	coming := u.pool.counts[draining] + u.pool.counts[closing] // places that will be free
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
	if l := u.pool.find(pc); l != nil {
		u.grant(pc, l)
		return
	}
	if u.pool.promise(pc) {
		return
	}
	if u.pool.breaker.open() && !pc.trial {
		if !u.pool.hopeful(pc) {
			_, _, wait := u.pool.breaker.peek(time.Now())
			u.refuse(pc, u.broken(wait))
		}
	} else if !u.over && u.pool.mayStart(pc, coming) {
		l := u.start(pc.holder, pc.abilities, pc)
		if !pc.light() {
			l.promised++
		}
		return
	} else if u.pool.places() >= u.opts.MaxConnections && u.pool.answersAwaited() {
		u.refuse(pc, u.refusal(jsonrpc.Overloaded,
			"Overloaded: each connection that %s may have (max connections: %d) waits for the answer of a client to a question; try again later",
			u.opts.Name, u.opts.MaxConnections))
	}
}

// answersAwaited reports whether all connections wait for answers of clients, which may take as long as
// they like: a call that needs another one is refused at once then.
func (p *pool) answersAwaited() bool {
	for _, h := range p.holders {
		for _, l := range h.conns {
			if !l.waits() {
				return false
			}
		}
	}
	return p.live() == p.places()
}

// mayStart reports whether a connection can be started for pc. It makes room for one if
// it has to.
func (p *pool) mayStart(pc *pendingCall, coming *int) bool {
	if !p.known && p.counts[dialing] > 0 || p.hopeful(pc) && time.Now().Before(p.cool) || !p.pooled(pc) {
		return false
	}
	switch {
	case p.places() < p.opts.MaxConnections:
		return true
	case *coming > 0:
		*coming--
	default:
		var all []*conn
		for _, h := range p.holders {
			if h.session == "" || h.ended { // a session's state is not lost before its end
				all = append(all, h.conns...)
			}
		}
		p.evict(all) // whose place is free when it is closed
	}
	return false
}

// pooled reports whether the pool has room for a connection for pc.
func (p *pool) pooled(pc *pendingCall) bool {
	switch h := pc.holder; {
	case h.single:
		return !p.opts.Exclusive || p.singles < p.opts.Pool
	case h.key.roots == listRoots:
		return len(h.conns) < p.opts.Pool || p.evict(h.conns)
	case h.pooled():
		return p.fits(h)
	default: // one for all calls of the owner that can be asked the same
		return !slices.ContainsFunc(h.conns, func(l *conn) bool { return l.serves(pc) })
	}
}

// fits reports whether there is room in the pool for one more connection of an owner whose requests
// have no session. It makes room if it has to: what is idle goes. A connection that waits for the
// answer of a client takes no room.
func (p *pool) fits(h *holder) bool {
	own, working := p.connsOfClient(h.key)
	return working < p.opts.Pool || p.evict(own)
}

// connsOfClient returns the connections of the client that a key names, and how many do not wait for an
// answer of it.
func (p *pool) connsOfClient(key ownerKey) (own []*conn, working int) {
	for _, h := range p.holders {
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
func (p *pool) trim(l *conn) {
	if l.holder.pooled() && l.idle() {
		if own, _ := p.connsOfClient(l.holder.key); len(own) > p.opts.Pool {
			p.retire(l)
		}
	}
}

// evict closes the connection that has been unused for the longest time.
func (p *pool) evict(conns []*conn) bool {
	var oldest *conn
	for _, l := range conns {
		if l.idle() && (oldest == nil || l.used.Before(oldest.used)) {
			oldest = l
		}
	}
	if oldest == nil {
		return false
	}
	p.retire(oldest)
	return true
}

// start starts a connection, for a pending call or, with nil, for none.
func (u *Upstream) start(h *holder, a abilities, pc *pendingCall) *conn {
	l := &conn{u: u, holder: h, abilities: a, age: u.pool.breaker.age, begun: time.Now()}
	l.ctx, l.cancel = context.WithCancel(&connContext{u.ctx, l})
	if pc != nil {
		l.identify(pc)
		if h.single || h.key.roots == knownRoots {
			l.roots.known = bytes.Clone(pc.who.Roots)
		}
	}
	h.conns = append(h.conns, l)
	if h.single {
		u.pool.singles++
	}
	u.pool.counts[dialing]++
	u.tasks.Go(l.run)
	u.sweep()
	u.pool.turn()
	return l
}

// release closes all connections of an owner, as soon as they have no calls.
func (p *pool) release(h *holder) {
	for _, l := range slices.Clone(h.conns) {
		p.retire(l)
	}
}

// described returns what is known of the server by a connection that shows at least what
// a client with these abilities may see.
func (p *pool) described(who *Caller, a abilities) *mcp.ServerInfo {
	key, lasting := p.keyOf(who, a, useLight)
	if !lasting {
		return p.info
	}
	h := p.holders[key]
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
	a := u.opts.abilitiesOf(who)
	key, lasting := u.pool.keyOf(who, a, useLight)
	h := u.pool.holders[key]
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
	for k, h := range u.pool.holders {
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
	u.pool.departed.add(session)
	for _, h := range u.pool.holders {
		if h.key.belongs(session) {
			h.ended = true
			u.pool.release(h)
			continue
		}
		for _, l := range h.conns {
			delete(l.sessions, session)
		}
	}
	u.dispatch()
}
