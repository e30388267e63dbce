package upstream

import (
	"context"
	"slices"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The roots of a client reach a legacy server as if the client were connected directly: the server
// asks for them when it likes, during a call or not, and hears when they have changed. A connection
// that declares roots belongs to one client for its life (see [ownerKey]), so it does not matter
// when the server asks, or how long it takes to make use of the answer.
//
// A client with a session is asked each time, by way of one of its calls: a question that comes
// while none is in flight waits for the next one. For requests that stand alone, the server's
// question goes to the client of the call during which it comes, and the connection ends with that
// call; where the server asks outside of calls, the roots are known beforehand (Caller.Roots).

// rootsState is what a connection that declares roots knows about them. It is under the upstream's
// lock.
type rootsState struct {
	known  jsonrpc.Raw   // the client's answer; nil: the client is asked
	open   int           // questions of the server without an answer
	closed chan struct{} // closed when there are none any more; nil: not waited for
	called chan struct{} // closed when the next call is there; nil: not waited for
	news   bool          // the server may be about to ask: the roots are new to it
	missed bool          // the server has given up a question: it must be asked to ask again
	waiter *pendingCall  // the call that waits until the server has asked; nil: none
}

// declaresRoots is connection.declaresRoots for those who do not hold the lock.
func (u *Upstream) declaresRoots(l *connection) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return l.declaresRoots()
}

// askRoots answers roots/list.
func (u *Upstream) askRoots(
	ctx context.Context, l *connection, params jsonrpc.Raw,
) (jsonrpc.Raw, error) {
	answer, wait, err := u.rootsAsked(ctx, l)
	// The context ends when the answer is on its way: before that, a call could overtake it.
	context.AfterFunc(ctx, func() { u.rootsAnswered(l) })
	if !wait {
		return answer, err
	}
	tried := map[*pendingCall]bool{}
	for {
		answer, again, err := u.askClient(ctx, l, params, tried)
		if again == nil {
			return answer, err
		}
		select {
		case <-again:
		case <-ctx.Done():
			u.mu.Lock()
			l.roots.missed = true
			u.mu.Unlock()
			return nil, ctx.Err()
		}
	}
}

// rootsAsked takes a question for the roots. It returns the answer, unless that is the client's to
// give.
func (u *Upstream) rootsAsked(
	ctx context.Context, l *connection,
) (answer jsonrpc.Raw, wait bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pc, _ := ctx.Value(pendingKey{}).(*pendingCall)
	u.pool.asksRoots = true
	if l.asking == 0 || l.roots.waiter != nil && (pc == nil || pc == l.roots.waiter) {
		u.pool.rootsFirst = true
	}
	l.roots.open++
	switch kind := l.holder.key.roots; {
	case l.roots.known != nil:
		return l.roots.known, false, nil
	case kind == unaskedRoots:
		u.pool.retire(l)
		defer u.dispatchLocked() // calls that wait for the connection need another one
		if l.asking == 1 && (pc == nil || !pc.light()) {
			return nil, true, nil // its connection from now on
		}
		// from now on one at a time, so that the next question can be answered
		u.pool.mixedRoots = u.pool.mixedRoots || l.asking > 1
		fallthrough
	case kind == listRoots:
		return nil, false, jsonrpc.Errorf(jsonrpc.InternalError, "there are no roots on this connection")
	}
	return nil, true, nil
}

// askClient asks the client for its roots by way of a call in flight that was not tried. Without
// an answer, again is closed when there is another call.
func (u *Upstream) askClient(
	ctx context.Context, l *connection, params jsonrpc.Raw, tried map[*pendingCall]bool,
) (answer jsonrpc.Raw, again <-chan struct{}, err error) {
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &question{cancel: cancel}
	pc, again := u.borrow(ctx, l, tried, a)
	if pc == nil {
		return nil, again, nil
	}
	answer, err = pc.call.Ask(asked, spec.MethodRootsList, params)
	u.mu.Lock()
	over := pc.over
	u.mu.Unlock()
	u.replied(pc, a)
	if err == nil || ctx.Err() != nil || !over && !pc.light() {
		return answer, nil, err
	}
	// The question is not about that call: it outlives it.
	tried[pc] = true
	return nil, closedChan(), nil
}

func closedChan() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// borrow returns a call in flight by which the client can be asked for its roots, which waits for
// the answer from now on: the one with the exchange that has the question, or any other one. Nil:
// there is none until the channel is closed.
func (u *Upstream) borrow(
	ctx context.Context, l *connection, tried map[*pendingCall]bool, a *question,
) (*pendingCall, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	usable := func(pc *pendingCall) bool {
		return pc != nil && pc.conn == l && !pc.over && pc.call.Ask != nil && !tried[pc]
	}
	pc, _ := ctx.Value(pendingKey{}).(*pendingCall)
	if !usable(pc) {
		at := slices.IndexFunc(l.pending, usable)
		if at < 0 {
			if l.roots.called == nil {
				l.roots.called = make(chan struct{})
			}
			return nil, l.roots.called
		}
		pc = l.pending[at]
	}
	u.putLocked(pc, a)
	u.dispatchLocked() // a call that waits for its client lets others go on
	return pc, nil
}

// rootsAnswered notes that a question for the roots has its answer.
func (u *Upstream) rootsAnswered(l *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.roots.open--; l.roots.open == 0 && l.roots.closed != nil {
		close(l.roots.closed)
		l.roots.closed = nil
	}
}

// settlePings is how many pings a server answers before the first call after it got the roots: it
// does something with them in between. On a loaded machine server-filesystem has looked at the
// directories after four of them in 11 of 12 cases, and after eight in all.
const settlePings = 8

// settleRoots lets a server that asks for roots on its own do so before the call, and take the
// answer in: a client that is connected directly has had the time for that since it connected. The
// server answers a ping after it has sent what it had to ask. One that needs longer has no roots
// yet during the call, or those that the client had before: nothing is kept apart by this.
func (pc *pendingCall) settleRoots() {
	l, u := pc.conn, pc.u
	news, missed := u.rootsNews(pc)
	defer u.rootsSettled(pc)
	if missed {
		_ = l.client.Notify(pc.ctx, spec.NotificationRootsListChanged, nil) // the call would fail as well
	}
	if news || missed {
		_ = l.client.Ping(pc.ctx)
	}
	for n := 0; ; n++ { // it may ask between pings, too
		for open := u.rootsOpen(l); open != nil; open = u.rootsOpen(l) {
			news = true
			select {
			case <-open:
			case <-pc.ctx.Done():
				return
			}
		}
		if !news && !missed || n == settlePings || l.client.Ping(pc.ctx) != nil {
			return
		}
	}
}

// rootsNews reports whether a server that asks for roots may be about to do so, and whether it must
// learn that it should. The call waits until it has.
func (u *Upstream) rootsNews(pc *pendingCall) (news, missed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := &pc.conn.roots
	news, missed = r.news && u.pool.asksRoots, r.missed
	r.news, r.missed = false, false
	if news || missed {
		r.waiter = pc
	}
	return news, missed
}

// rootsSettled notes that the call waits no longer.
func (u *Upstream) rootsSettled(pc *pendingCall) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r := &pc.conn.roots; r.waiter == pc {
		r.waiter = nil
	}
}

// rootsOpen returns what is closed when the server has an answer to all of its questions for roots.
// Nil: it has.
func (u *Upstream) rootsOpen(l *connection) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.roots.open > 0 && l.roots.closed == nil {
		l.roots.closed = make(chan struct{})
	}
	return l.roots.closed
}

// rootsChanged returns the connections that have a session's roots, which have changed.
func (u *Upstream) rootsChanged(who *Caller) (conns []*connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, h := range u.pool.holders {
		if who.Session == "" || !h.key.belongs(who.Session) {
			continue
		}
		for _, l := range h.conns {
			if l.state == ready && l.declaresRoots() {
				l.roots.news = true
				conns = append(conns, l)
			}
		}
	}
	return conns
}
