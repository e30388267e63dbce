package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A conn is an upstream connection and the calls on it. All but the first group is under the
// upstream's lock; client and info are set before calls get it.
type conn struct {
	u         *Upstream
	holder    *holder         // does not change but for a modern server, see rekey
	abilities abilities       // that were declared
	ctx       context.Context //nolint:containedctx // ends when the connection is to be closed
	cancel    context.CancelFunc

	client *mcp.Client
	info   *mcp.ServerInfo
	modern bool

	state   connState
	pending pendingCalls
	asking  int // pending calls that may be asked
	// suspended are those of them that wait for an answer of their client.
	suspended int
	roots     rootsState
	// sessions whose calls that may be asked it has carried, where several share it. They stay: what
	// the server keeps of their earlier calls is here.
	sessions map[string]struct{}
	// Calls of several clients, or of an unknown one, have ended without an answer, and the server may
	// still ask about them.
	lateQuestions bool
	held          []*question // that could be about several calls; the oldest first
	level         int         // of the log; -1: not told
	begun         time.Time   // when it was started; does not change
	used          time.Time
	age           uint64 // of the breaker, at the start
	promised      int    // calls that will get it, in one run of dispatch
	watches       []*watch

	identity atomic.Pointer[any] // of the last call; not under the lock
}

type identityKey struct{}

// connContext is the context of what belongs to a connection and to no call.
type connContext struct {
	context.Context //nolint:containedctx // it is a context itself

	l *conn
}

// Value implements context.Context.
func (c *connContext) Value(key any) any {
	if _, ok := key.(identityKey); ok {
		return c.l.identity.Load()
	}
	return c.Context.Value(key)
}

// Identity returns what Options.Identity has said of the last call of the connection whose request ctx is: the greeting, or
// a stream of its own. Nil: it is none, or nothing was said.
func Identity(ctx context.Context) any {
	if v, ok := ctx.Value(identityKey{}).(*any); ok && v != nil {
		return *v
	}
	return nil
}

// identify notes whose call is the last one.
func (l *conn) identify(pc *pendingCall) {
	if identity := l.u.opts.Identity; identity != nil {
		v := identity(pc)
		l.identity.Store(&v)
	}
}

// listen has the server tell when its lists change. Over a connection it returns
// when that has ended, where the server can be listened to at all.
func (l *conn) listen() {
	if l.u.single(l) {
		return
	}
	caps := l.info.Capabilities
	filter := spec.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	}
	if l.modern && !filter.ToolsListChanged && !filter.PromptsListChanged && !filter.ResourcesListChanged {
		return
	}
	if err := l.client.Listen(l.ctx, filter); errors.Is(err, farcall.ErrClosed) {
		l.u.died(l, err)
	}
}

// single reports whether a connection is there for one call only.
func (u *Upstream) single(l *conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return l.holder.single
}

// serves reports whether calls like pc may use a connection. Others than those that may
// raise questions can also use one that could be asked for more: it shows more.
func (l *conn) serves(pc *pendingCall) bool {
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
func (l *conn) serial() bool {
	if l.modern || l.abilities == 0 || l.holder.key.roots == listRoots {
		return false
	}
	return l.u.pool.asks || l.u.pool.mixedRoots && l.holder.key.roots == unaskedRoots
}

// free reports whether a connection has room for pc. A call that waits for an answer of its client
// does not hold up those of the same session, nor those that share the connection.
func (l *conn) free(pc *pendingCall) bool {
	switch {
	case !l.serial() || pc.light():
		return true
	case l.holder.pooled():
		return l.asking == 0
	}
	return l.asking == l.suspended
}

// waits reports whether all calls on a connection that may be asked wait for answers of their clients.
func (l *conn) waits() bool { return l.asking > 0 && l.asking == l.suspended }

// bind notes which sessions use a connection that several share.
func (l *conn) bind(pc *pendingCall) {
	if pc.who.Session == "" || pc.light() || l.modern || l.abilities == 0 || l.holder.session != "" {
		return
	}
	if l.sessions == nil {
		l.sessions = map[string]struct{}{}
	}
	l.sessions[pc.who.Session] = struct{}{}
}

// better reports whether pc should rather use l than another connection.
func (l *conn) better(other *conn, pc *pendingCall) bool {
	mine, others := l.rank(pc), other.rank(pc)
	if mine != others {
		return mine > others
	}
	return l.serial() && l.used.After(other.used) // what the server keeps of earlier calls is there
}

func (l *conn) rank(pc *pendingCall) (n int) {
	if !l.modern && l.abilities == pc.abilities {
		n += 2
	}
	if l.asking == 0 {
		n++
	}
	return n
}

// idle reports whether a connection is up and not in use.
func (l *conn) idle() bool { return l.state == ready && l.pending.n == 0 && len(l.watches) == 0 }

// settle notes what a connection has brought.
func (l *conn) settle(client *mcp.Client, now time.Time) {
	l.client, l.info = client, client.Server()
	if l.info.Capabilities == nil {
		l.info.Capabilities = &spec.ServerCapabilities{}
	}
	rev := era.Lookup(l.info.Revision)
	l.modern = rev != nil && rev.RequestMeta
	l.roots.news, l.level, l.used = true, -1, now
}
