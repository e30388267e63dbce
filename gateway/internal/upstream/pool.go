package upstream

import (
	"slices"
	"time"

	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/mcp"
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
// The lock of the upstream guards all of it. A pool has no lock and starts nothing: it does no I/O,
// and its methods do not block.
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
func (p *pool) find(pc *pendingCall) (best *connection) {
	for _, l := range pc.holder.conns {
		if l.state == ready && l.serves(pc) && l.free(pc) && (best == nil || l.better(best, pc)) {
			best = l
		}
	}
	return best
}

// expected reports whether a connection that is being started may come to be pc's. As
// long as it is unknown what the server speaks, one is started for all.
func (p *pool) expected(l *connection, pc *pendingCall) bool {
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

// hopeful reports whether a waiting call may get a connection without its
// own.
func (p *pool) hopeful(pc *pendingCall) bool {
	for _, l := range pc.holder.conns {
		if l.serves(pc) || p.expected(l, pc) {
			return true
		}
	}
	return !p.known && p.counts[dialing] > 0
}

// answersAwaited reports whether all connections wait for answers of clients, which may take as
// long as they like: a call that needs another one is refused at once then.
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
	if !p.known && p.counts[dialing] > 0 || p.hopeful(pc) && time.Now().Before(p.cool) ||
		!p.pooled(pc) || !p.shares(pc.holder) {
		return false
	}
	switch {
	case p.places() < p.opts.MaxConnections:
		return true
	case *coming > 0:
		*coming--
	default:
		var all []*connection
		for _, h := range p.holders {
			if !h.kept() { // a session's state is not lost before its end
				all = append(all, h.conns...)
			}
		}
		p.evict(all) // its place is free when it is closed
	}
	return false
}

// keptRatio is how many times what is left an owner may have of the connections that are kept for
// sessions: one owner alone gets seven eighths.
const keptRatio = 7

// kept reports whether the connections of a holder stay, used or not, until its session ends.
func (h *holder) kept() bool { return h.session != "" && !h.ended }

// shares reports whether a holder may have one more connection. Those that are kept for sessions
// are divided between those who have the sessions, so that none leaves nothing to others.
func (p *pool) shares(h *holder) bool {
	if !h.kept() {
		return true
	}
	mine, all := 0, 0
	for _, o := range p.holders {
		if o.kept() {
			all += len(o.conns)
			if o.by == h.by {
				mine += len(o.conns)
			}
		}
	}
	b := share.Bounds{Total: p.opts.MaxConnections, Ratio: keptRatio}
	return b.Allows(mine, all, 1)
}

// pooled reports whether the pool has room for a connection for pc.
func (p *pool) pooled(pc *pendingCall) bool {
	switch h := pc.holder; {
	case h.single:
		return !p.opts.Exclusive || p.singles < p.opts.Pool
	case h.key.roots == listRoots:
		return len(h.conns) < p.opts.Pool || p.evict(h.conns)
	case h.pooled():
		// One more is for requests that have no session. What is idle goes, if it has to; a connection
		// that waits for the answer of a client takes no room.
		own, working := p.connsOfClient(h.key)
		return working < p.opts.Pool || p.evict(own)
	default: // one for all calls of the owner that can be asked the same
		return !slices.ContainsFunc(h.conns, func(l *connection) bool { return l.serves(pc) })
	}
}

// connsOfClient returns the connections of the client that a key names, and how many do not wait
// for an answer of it.
func (p *pool) connsOfClient(key ownerKey) (own []*connection, working int) {
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

// evict closes the connection that has been unused for the longest time.
func (p *pool) evict(conns []*connection) bool {
	var oldest *connection
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

// live is the number of connections that take calls, or will; places that of all that are not
// closed.
func (p *pool) live() int { return p.counts[dialing] + p.counts[ready] }

func (p *pool) places() int { return p.live() + p.counts[draining] + p.counts[closing] }

// move changes the state of a connection, and what follows from it. A change that leadsTo rules out
// is a bug: it fails tests, and is not made.
func (p *pool) move(l *connection, to connState) {
	from := l.state
	if !from.leadsTo(to) {
		p.opts.Logger.Error("a bug of farcall: a connection cannot change its state so", "from",
			from.String(), "to", to.String())
		return
	}
	l.state = to
	p.counts[from]--
	p.counts[to]++
	if from.live() && !to.live() {
		if from == ready {
			p.lost += l.client.Dropped()
		}
		l.holder.conns = slices.DeleteFunc(l.holder.conns, func(o *connection) bool { return o == l })
		p.tidy(l.holder)
	}
	switch to {
	case closing:
		l.cancel()
	case closed:
		p.counts[closed]--
		if l.holder.single {
			p.singles--
		}
	}
	p.turn()
}

// retire gives no more calls to a connection, and closes it when it has none.
func (p *pool) retire(l *connection) {
	switch {
	case l.state >= closing, l.state == draining && len(l.pending) > 0:
	case len(l.pending) > 0:
		p.move(l, draining)
	default:
		p.move(l, closing)
	}
}

// slowest returns the connection that has been starting for the longest time, or nil.
func (p *pool) slowest() (first *connection) {
	for _, h := range p.holders {
		for _, l := range h.conns {
			if l.state == dialing && (first == nil || l.begun.Before(first.begun)) {
				first = l
			}
		}
	}
	return first
}

// turn notes in which state the upstream is.
func (p *pool) turn() {
	mood := StateIdle
	switch {
	case p.breaker.open():
		mood = StateOpen
	case p.counts[ready] > 0:
		mood = StateUp
	case p.live() > 0:
		mood = StateStarting
	case p.stale:
		mood = StateDown
	}
	if mood != p.mood {
		p.mood, p.since = mood, time.Now()
	}
}

func (h *health) failed(err error) {
	if text := textOf(err); text != "" {
		h.lastError = text
	}
}

// rekey gives a connection that has started the owner that it has now that the server is known.
func (p *pool) rekey(l *connection) {
	switch old := l.holder; {
	case old.single || !l.state.live():
	case l.modern && (old.key.roots != undeclared || !old.key.client.IsZero()):
		// each call says what its caller has: the connection declares nothing
		old.conns = slices.DeleteFunc(old.conns, func(o *connection) bool { return o == l })
		l.holder = p.holder(ownerKey{group: old.key.group}, &Caller{Session: old.session})
		l.holder.conns = append(l.holder.conns, l)
		p.tidy(old)
	case l.declaresRoots() && old.key.roots == undeclared:
		p.retire(l)
	}
}
