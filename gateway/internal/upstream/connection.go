package upstream

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A connection is an upstream connection and the calls on it. The lock of the upstream guards all
// but the first two groups: those of the first do not change, those of the second are set before
// calls get it. Its methods need that lock, and it has no way to it; see [connState] for its life.
type connection struct {
	facts     *facts          // of the pool
	holder    *holder         // does not change but for a modern server, see rekey
	abilities abilities       // that were declared
	ctx       context.Context //nolint:containedctx // ends when the connection is to be closed
	cancel    context.CancelFunc

	client *mcp.Client
	info   *mcp.ServerInfo
	modern bool

	state   connState
	pending []*pendingCall // that use it; the oldest first
	asking  int            // pending calls that may be asked
	// suspended are those of them that wait for an answer of their client.
	suspended int
	roots     rootsState
	// sessions that had calls on it which may be asked, where several share it. They stay: what
	// the server keeps of their earlier calls is here.
	sessions map[string]struct{}
	// Calls of several clients, or of an unknown one, have ended without an answer, and the server may
	// still ask about them.
	lateQuestions bool
	held          []*question // that could be about several calls; the oldest first
	level         int         // of the log; -1: not told
	begun         time.Time   // when it was started; does not change
	parent        string      // the traceparent of the call that it was started for; likewise
	used          time.Time
	age           uint64 // of the breaker, at the start
	promised      int    // calls that will get it, in one run of dispatch
	watches       []*watch

	identity atomic.Pointer[any] // of the last call; not under the lock
}

// identityKey is the key of the identity of a connection in the context of what belongs to it and
// to no call.
type identityKey struct{}

// Identity returns what Options.Identity has said of the last call of the connection with the
// request context ctx: the handshake, or its own stream. Nil: it is no such request, or there is no
// identity.
func Identity(ctx context.Context) any {
	last, ok := ctx.Value(identityKey{}).(*atomic.Pointer[any])
	if !ok {
		return nil
	}
	if v := last.Load(); v != nil {
		return *v
	}
	return nil
}

// serves reports whether calls like pc may use a connection. Others than those that may
// raise questions can also use one that could be asked for more: it shows more.
func (l *connection) serves(pc *pendingCall) bool {
	switch {
	case !l.state.live():
		return false
	case l.modern: // each call says what its caller can do
		return true
	case pc.light():
		return l.abilities&pc.abilities == pc.abilities
	}
	return l.abilities == pc.abilities
}

// serial reports whether a connection carries one call at a time that may be asked: the server's
// questions do not say which call they are about.
func (l *connection) serial() bool {
	if l.modern || l.abilities == 0 || l.holder.key.roots == listRoots {
		return false
	}
	return l.facts.asks || l.facts.mixedRoots && l.holder.key.roots == unaskedRoots
}

// free reports whether a connection has room for pc. A call that waits for an answer of its client
// does not hold up those of the same session, nor those that share the connection.
func (l *connection) free(pc *pendingCall) bool {
	switch {
	case !l.serial() || pc.light():
		return true
	case l.holder.pooled():
		return l.asking == 0
	}
	return l.asking == l.suspended
}

// waits reports whether all calls on a connection that may be asked wait for answers of their
// clients.
func (l *connection) waits() bool { return l.asking > 0 && l.asking == l.suspended }

// bind notes which sessions use a connection that several share.
func (l *connection) bind(pc *pendingCall) {
	if pc.who.Session == "" || pc.light() || l.modern || l.abilities == 0 || l.holder.session != "" {
		return
	}
	if l.sessions == nil {
		l.sessions = map[string]struct{}{}
	}
	l.sessions[pc.who.Session] = struct{}{}
}

// better reports whether pc should rather use l than another connection.
func (l *connection) better(other *connection, pc *pendingCall) bool {
	mine, others := l.rank(pc), other.rank(pc)
	if mine != others {
		return mine > others
	}
	return l.serial() && l.used.After(other.used) // what the server keeps of earlier calls is there
}

func (l *connection) rank(pc *pendingCall) (n int) {
	if !l.modern && l.abilities == pc.abilities {
		n += 2
	}
	if l.asking == 0 {
		n++
	}
	return n
}

// idle reports whether a connection is up and not in use.
func (l *connection) idle() bool {
	return l.state == ready && len(l.pending) == 0 && len(l.watches) == 0
}

// settle notes what a connection has brought.
func (l *connection) settle(client *mcp.Client, now time.Time) {
	l.client, l.info = client, client.Server()
	if l.info.Capabilities == nil {
		l.info.Capabilities = &spec.ServerCapabilities{}
	}
	rev := era.Lookup(l.info.Revision)
	l.modern = rev != nil && rev.RequestMeta
	l.roots.news, l.level, l.used = true, -1, now
}

// connState is the state of a connection. Only pool.move changes it; doc.go has the diagram.
type connState uint8

const (
	dialing  connState = iota // calls wait for it
	ready                     // it takes calls
	draining                  // it takes no more calls, and has some
	closing                   // its context has ended
	closed
)

func (s connState) String() string {
	return []string{"dialing", "ready", "draining", "closing", "closed"}[s]
}

// live reports whether a connection takes calls, or will.
func (s connState) live() bool { return s <= ready }

// leadsTo reports whether one state may follow another.
func (s connState) leadsTo(next connState) bool {
	switch next {
	case ready:
		return s == dialing
	case draining:
		return s == ready
	case closing:
		return s < closing
	case closed:
		return s == closing
	}
	return false
}

// take gives a pending call to a connection.
func (l *connection) take(pc *pendingCall) {
	l.pending = append(l.pending, pc)
	if !pc.light() {
		l.asking++
	}
	if l.roots.called != nil {
		close(l.roots.called)
		l.roots.called = nil
	}
	pc.roots = !pc.light() && pc.call.Ask != nil && l.declaresRoots()
	if pc.call.Method == describing {
		return
	}
	if severity := spec.LogSeverity(pc.call.LogLevel); severity >= 0 && !l.modern &&
		l.info.Capabilities.Logging != nil &&
		(l.level < 0 || severity < l.level) {
		pc.level, l.level = pc.call.LogLevel, severity
	}
	l.bind(pc)
}

// part takes a pending call that ends from its connection.
func (l *connection) part(pc *pendingCall, now time.Time) {
	at := slices.Index(l.pending, pc)
	l.pending = slices.Delete(l.pending, at, at+1)
	l.used = now
	if pc.light() {
		return
	}
	l.asking--
	if len(pc.asks) > 0 {
		l.suspended--
	}
}

// declaresRoots reports whether the server of a connection learned that there are roots.
func (l *connection) declaresRoots() bool { return l.abilities&canRoots != 0 && !l.modern }

// candidate returns the call that the first held question belongs to. Nil: none, unless the end of
// other calls may tell. Of several calls of one session the newest that waits for no answer is the
// likeliest: while the server is known to ask, it came when all others waited for one.
func (l *connection) candidate() (pc *pendingCall, wait bool) {
	oneClient := true
	for _, at := range l.pending {
		if at.light() {
			continue
		}
		oneClient = oneClient && at.who.Session != "" && (pc == nil || at.who.Session == pc.who.Session)
		if pc == nil || len(pc.asks) > 0 || len(at.asks) == 0 {
			pc = at
		}
	}
	switch {
	case l.holder.session != "":
		return pc, false
	case l.lateQuestions:
		return nil, false
	case l.asking <= 1 || oneClient:
		return pc, false
	}
	return nil, len(l.held) < l.asking-l.suspended
}

// listener returns the call that gets what the server says without naming one: the only one under
// way or, on the connection of one client, the first. What is late there is that client's, too.
func (l *connection) listener() *pendingCall {
	if len(l.pending) == 0 || l.holder.session == "" &&
		(len(l.pending) > 1 || l.lateQuestions && l.holder.key.client.IsZero()) {
		return nil
	}
	first := slices.IndexFunc(l.pending, func(pc *pendingCall) bool { return !pc.light() })
	if first < 0 {
		first = len(l.pending) - 1
	}
	return l.pending[first]
}
