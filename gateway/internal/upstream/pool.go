package upstream

import (
	"context"
	"slices"
	"time"

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
	owners   map[ownerKey]*owner
	queue    flights             // for whom there is no lane yet
	shares   map[ownerKey]*share // of the queue, by party
	round    uint64              // of the queue: that of the last flight that has got its lane
	inFlight int
	taken    map[ownerKey]int // of the places in flight that are scarce, by party
	places   int              // lanes that are being started, used or closed
	live     int              // of these, lanes that take calls or will
	starts   int              // and lanes that are being started
	known    bool             // a lane was up once, and so modern says something
	modern   bool
	serial   bool // questions do not say which call they are about
	roots    rootsHabit
	breaker  breaker
	cool     time.Time // until then no lane is started for calls that can do without
	stale    bool      // a connection was lost: lists may have changed
	info     *mcp.ServerInfo
	watching map[watchKey]*watch
	departed departed // sessions that have ended
	sweeping bool
	closing  bool          // no new calls
	over     bool          // nothing is started any more
	idle     chan struct{} // closed when closing and nothing is under way

	mood  string
	since time.Time
	stats
}

// coolTime is how long calls that can wait for another lane do so after a start
// has failed.
const coolTime = time.Second

func (u *Upstream) keyOf(who *Caller) ownerKey {
	switch {
	case u.opts.Lifetime == lifetimeSession && who.Session != "":
		return ownerKey{session: who.Session}
	case u.opts.Lifetime == lifetimeSession, u.opts.Lifetime == lifetimePrincipal:
		return ownerKey{principal: who.Principal}
	}
	return ownerKey{}
}

// ownerOf returns the owner of a caller's lanes.
func (u *Upstream) ownerOf(who *Caller) *owner {
	if u.opts.Lifetime == lifetimeCall {
		return &owner{}
	}
	key := u.keyOf(who)
	o := u.owners[key]
	if o == nil {
		o = &owner{key: key, ended: key.session != "" && u.departed.has(key.session)}
		u.owners[key] = o
	}
	return o
}

// tidy forgets an owner who has nothing.
func (u *Upstream) tidy(o *owner) {
	if len(o.lanes) == 0 && o.waiting == 0 && u.owners[o.key] == o {
		delete(u.owners, o.key)
	}
}

// find returns the best lane that f can have now, or nil.
func (u *Upstream) find(f *flight) (best *lane) {
	for _, l := range f.owner.lanes {
		if l.up && l.serves(f) && l.free(f) && (best == nil || l.better(best, f)) {
			best = l
		}
	}
	return best
}

// crowded returns a lane that f can use along with somebody who may be asked. That
// is for calls that raise no questions, when there is no other lane to be had.
func (u *Upstream) crowded(f *flight) *lane {
	for _, l := range f.owner.lanes {
		if f.light && l.up && l.serves(f) {
			return l
		}
	}
	return nil
}

// expected reports whether a lane that is being started may come to be f's. As
// long as nobody knows what the server speaks, one is started for all.
func (u *Upstream) expected(l *lane, f *flight) bool {
	return !l.up && !l.gone && (l.serves(f) || !u.known || u.modern)
}

// stateless reports whether the server is known to ask nothing by itself.
func (u *Upstream) stateless() bool { return u.known && u.modern }

// promise reports whether a lane that is being started is enough for f, too.
func (u *Upstream) promise(f *flight) bool {
	for _, l := range f.owner.lanes {
		switch {
		case !u.expected(l, f):
		case f.light, !l.serial(), u.stateless():
			return true
		case l.promised == 0:
			l.promised++
			return true
		}
	}
	return false
}

// hopeful reports whether a waiting flight may get a lane without a start of its
// own.
func (u *Upstream) hopeful(f *flight) bool {
	for _, l := range f.owner.lanes {
		if l.serves(f) || u.expected(l, f) {
			return true
		}
	}
	return !u.known && u.starts > 0
}

// board puts a flight on a lane.
func (u *Upstream) board(f *flight, l *lane) {
	f.lane, f.over, f.age = l, false, u.breaker.age
	f.level, f.rooted, f.moved, f.sent = "", nil, false, false
	u.started(f)
	l.flights.add(f)
	l.identify(f)
	if !f.light {
		l.asking++
	}
	if f.call.Method == describing {
		return
	}
	if severity := spec.LogSeverity(f.call.LogLevel); severity >= 0 && !l.modern && l.info.Capabilities.Logging != nil &&
		(l.level < 0 || severity < l.level) {
		f.level, l.level = f.call.LogLevel, severity
	}
	if l.serial() && !f.light {
		if l.abilities&canRoots != 0 && (l.fresh || l.session == "" || l.session != f.who.Session) {
			f.rooted, f.greeting = make(chan struct{}), true
		}
		l.session, l.fresh = f.who.Session, false
	}
}

// leave takes a flight from its lane, after an attempt with that outcome. It
// reports whether the call can be made again. It returns when nothing is passed on
// any more.
func (u *Upstream) leave(f *flight, in *era.Revision, err error, first bool) (again bool) {
	now := time.Now()
	outcome := outcomeOf(f, err)
	u.mu.Lock()
	defer u.mu.Unlock()
	l := f.lane
	f.over = true
	l.flights.remove(f)
	if !f.light {
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
		u.haunt(l, f)
	}
	if f.trial && outcome != answered {
		u.breaker.forgo()
	}
	f.trial, f.lane = false, nil
	again = first && f.Err() == nil && !u.over && (outcome == unreachable || outcome == unknown && f.call.Idempotent)
	u.count(f, outcome, again)
	if in != nil && in.Modern != l.modern || u.opts.Lifetime == lifetimeCall {
		u.retire(l)
	}
	if l.gone && l.flights.n == 0 {
		l.cancel()
	}
	u.dispatch()
	u.hush(f) // the lane is another's by now: who does not read what he is told does not keep it
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
func (u *Upstream) lost(l *lane, age uint64, err error, now time.Time) {
	u.breaker.fail(now, age)
	u.stale = true
	u.failed(err)
	if u.opts.Exclusive {
		u.retire(l)
	}
	u.turn()
}

// haunt notes that a call has ended, but not for the server, which may still ask
// about it. Nobody else must hear that.
func (u *Upstream) haunt(l *lane, f *flight) {
	switch {
	case l.modern || l.abilities == 0 || f.light || !f.sent:
	case l.serial() && f.who.Session == "":
		u.replace(l) // there is nobody who could have it
	case l.haunted && l.ghost != f.who.Session:
		l.ghost = ""
	default:
		l.haunted, l.ghost = true, f.who.Session
	}
}

// dispatch gives lanes to those who wait, in the order of the queue, and has lanes
// started for them.
func (u *Upstream) dispatch() {
	if u.queue.n == 0 {
		return
	}
	for f := u.queue.first; f != nil; f = f.next {
		for _, l := range f.owner.lanes {
			l.promised = 0
		}
	}
	coming := u.places - u.live // places that will be free
	for f := u.queue.first; f != nil && u.inFlight < u.opts.MaxInFlight; {
		next := f.next
		if u.room(f) {
			u.serve(f, &coming)
		}
		f = next
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
		l := u.start(f.owner, f.abilities, f)
		if !f.light {
			l.promised++
		}
		return
	}
	if l := u.crowded(f); l != nil && f.lane == nil {
		u.grant(f, l)
	}
}

// mayStart reports whether a lane can be started for f. It makes room for one if
// it has to.
func (u *Upstream) mayStart(f *flight, coming *int) bool {
	switch {
	case u.over, !u.known && u.starts > 0, u.hopeful(f) && time.Now().Before(u.cool):
		return false
	case u.opts.Lifetime == lifetimeCall:
		if u.opts.Exclusive && u.places >= u.opts.Pool {
			return false
		}
	case u.serial && !u.stateless() && f.abilities != 0:
		if u.serialLanes(f.owner) >= u.opts.Pool && !u.evict(f.owner.lanes) {
			return false
		}
	}
	switch {
	case u.places < u.opts.MaxLanes:
		return true
	case *coming > 0:
		*coming--
	default:
		var all []*lane
		for _, o := range u.owners {
			if o.key.session == "" || o.ended { // what is there for a session is not lost before its end
				all = append(all, o.lanes...)
			}
		}
		u.evict(all) // whose place is free when it is closed
	}
	return false
}

// serialLanes counts the lanes of an owner that carry one call at a time.
func (u *Upstream) serialLanes(o *owner) (n int) {
	for _, l := range o.lanes {
		if l.serial() {
			n++
		}
	}
	return n
}

// evict closes the lane that nobody has needed for the longest time.
func (u *Upstream) evict(lanes []*lane) bool {
	var oldest *lane
	for _, l := range lanes {
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

// start starts a lane, for a flight; nil: for nobody.
func (u *Upstream) start(o *owner, a abilities, f *flight) *lane {
	l := &lane{u: u, owner: o, abilities: a, age: u.breaker.age}
	l.ctx, l.cancel = context.WithCancel(&laneContext{u.ctx, l})
	if f != nil {
		l.identify(f)
	}
	o.lanes = append(o.lanes, l)
	u.places++
	u.live++
	u.starts++
	u.tasks.Go(l.run)
	u.sweep()
	u.turn()
	return l
}

// retire gives no more calls to a lane, and closes it when it has none.
func (u *Upstream) retire(l *lane) {
	if !l.gone {
		l.gone = true
		u.live--
		if l.up {
			u.dropped += l.client.Dropped()
		}
		l.owner.lanes = slices.DeleteFunc(l.owner.lanes, func(o *lane) bool { return o == l })
		u.tidy(l.owner)
		u.turn()
	}
	if l.flights.n == 0 {
		l.cancel()
	}
}

// replace retires a lane that nobody may use any more. When all callers have none
// but that, another one takes its place: somebody may want to be told of changes.
func (u *Upstream) replace(l *lane) {
	if l.owner.key == (ownerKey{}) && u.opts.Lifetime != lifetimeCall && l.up && !l.gone && len(l.owner.lanes) == 1 && !u.closing && !u.breaker.open() {
		u.stale = true                     // nobody tells what happens meanwhile
		u.start(l.owner, l.abilities, nil) // it is nobody's: lanes of the others are not replaced
	}
	u.retire(l)
}

// release closes all lanes of an owner, as soon as they have no calls.
func (u *Upstream) release(o *owner) {
	for _, l := range slices.Clone(o.lanes) {
		u.retire(l)
	}
}

// described returns what is known of the server by a lane that shows at least what
// a client with these abilities may see.
func (u *Upstream) described(key ownerKey, a abilities) *mcp.ServerInfo {
	if u.opts.Lifetime == lifetimeCall {
		return u.info
	}
	o := u.owners[key]
	if o == nil {
		return nil
	}
	for _, l := range o.lanes {
		if l.up && (l.modern || l.abilities&a == a) {
			return l.info
		}
	}
	return nil
}

// lanesOf returns the lanes that are a caller's.
func (u *Upstream) lanesOf(who *Caller) (lanes []*lane) {
	o := u.owners[u.keyOf(who)]
	if o == nil {
		return nil
	}
	a := abilitiesOf(who.Capabilities)
	for _, l := range o.lanes {
		if l.up && !l.modern && (l.serial() && l.session != "" && l.session == who.Session || !l.serial() && l.abilities == a) {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// Forget ends what belongs to a session that has ended.
func (u *Upstream) Forget(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if session == "" {
		return
	}
	if u.opts.Lifetime == lifetimeSession {
		key := ownerKey{session: session}
		for k, w := range u.watching {
			if k.owner == key {
				w.cancel()
			}
		}
		u.departed.add(session)
		if o := u.owners[key]; o != nil {
			o.ended = true
			u.release(o)
		}
	}
	for _, o := range u.owners {
		for _, l := range slices.Clone(o.lanes) {
			if l.session == session {
				l.session = ""
			}
			if l.haunted && l.ghost == session && l.serial() {
				u.replace(l)
			}
		}
	}
	u.dispatch()
}
