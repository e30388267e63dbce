package upstream

import (
	"context"
	"time"

	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// describing is the method of a call that wants to know who the server is.
const describing = spec.MethodServerDiscover

// A pendingCall is a call from its arrival until its end. It is also the context of the call: it has the
// values of the caller's context and itself, so that what the server sends along with the answer is
// known to belong to this call.
type pendingCall struct {
	context.Context //nolint:containedctx // it is a context itself

	u         *Upstream
	call      *Call
	who       *Caller
	fw        relay.Forward
	abilities abilities
	use       usage
	told      bool // OnTask was
	failed    error

	// Under the upstream's lock.
	holder     *holder
	prev, next *pendingCall // on the connection
	conn       *conn        // nil: it waits
	grant      chan error   // gets nil or a refusal, when it has waited
	item       *share.Item[*pendingCall]
	place      *share.Holder // in flight; nil: it has none
	begun      time.Time
	age        uint64        // of the breaker
	trial      bool          // for the breaker
	level      string        // to be told to the server before
	sent       bool          // the server may know of it
	over       bool          // nothing is passed on any more
	open       int           // questions and deliveries that go on
	quiet      chan struct{} // closed when there are none; made when over
	asks       []*question   // without an answer
	notes      notes
}

// light reports whether the call raises no questions.
func (pc *pendingCall) light() bool { return pc.use != useAsking }

type pendingKey struct{}

// Value implements context.Context.
func (pc *pendingCall) Value(key any) any {
	if _, ok := key.(pendingKey); ok {
		return pc
	}
	return pc.Context.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine
// (see context.AfterFunc).
func (pc *pendingCall) AfterFunc(do func()) (stop func() bool) {
	return context.AfterFunc(pc.Context, do)
}

func (u *Upstream) newPendingCall(ctx context.Context, c *Call) *pendingCall {
	pc := &pendingCall{Context: ctx, u: u, call: c, who: &c.Caller, abilities: u.opts.abilitiesOf(&c.Caller)}
	if !asks(c.Method) {
		pc.use = useLight
	}
	pc.fw = relay.Forward{
		Method: c.Method, Params: c.Params, Revision: c.Revision,
		Info: c.Caller.Info, Capabilities: c.Caller.Capabilities,
		LogLevel: c.LogLevel, Rounds: c.Rounds, Task: c.Task, TaskID: c.TaskID, TaskCreated: c.TaskCreated, LeaveTask: c.LeaveTask,
	}
	if pc.fw.Revision == nil {
		pc.fw.Revision = era.Latest()
	}
	if c.Progress != nil {
		pc.fw.OnProgress = pc.progressed
	}
	if c.OnTask != nil {
		pc.fw.OnTask = pc.onTask
	}
	return pc
}

// onTask tells of a task once, also when the call is made again.
func (pc *pendingCall) onTask(id, created string) error {
	if pc.told {
		return nil
	}
	pc.told = true
	pc.failed = pc.call.OnTask(id, created)
	return pc.failed
}

// asks reports whether a server may ask something during a call: in these methods
// only, and who knows what others do.
func asks(method string) bool {
	switch method {
	case spec.MethodServerDiscover, spec.MethodInitialize, spec.MethodPing,
		spec.MethodToolsList, spec.MethodResourcesList, spec.MethodResourcesTemplatesList, spec.MethodPromptsList,
		spec.MethodCompletionComplete, spec.MethodLoggingSetLevel,
		spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe, spec.MethodSubscriptionsListen,
		spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel, spec.MethodTasksResult, spec.MethodTasksList:
		return false
	}
	return true
}

// pendingCalls are the calls that use a connection.
type pendingCalls struct {
	first, last *pendingCall
	n           int
}

func (q *pendingCalls) add(pc *pendingCall) {
	pc.prev = q.last
	if pc.prev == nil {
		q.first = pc
	} else {
		pc.prev.next = pc
	}
	q.last = pc
	q.n++
}

func (q *pendingCalls) remove(pc *pendingCall) {
	if pc.prev == nil {
		q.first = pc.next
	} else {
		pc.prev.next = pc.next
	}
	if pc.next == nil {
		q.last = pc.prev
	} else {
		pc.next.prev = pc.prev
	}
	pc.prev, pc.next = nil, nil
	q.n--
}

// enter gets a connection for a pending call, and waits for one.
func (u *Upstream) enter(pc *pendingCall) error {
	u.mu.Lock()
	err := u.admit(pc)
	if err != nil {
		u.rejected(pc)
	}
	wait := err == nil && pc.conn == nil
	u.mu.Unlock()
	if !wait {
		return err
	}
	timer := time.NewTimer(u.opts.QueueTimeout)
	defer timer.Stop()
	slow := time.NewTimer(maxStartWait)
	defer slow.Stop()
	for {
		select {
		case err := <-pc.grant:
			return err
		case <-pc.Done():
			if u.withdraw(pc) {
				return u.ended(pc)
			}
		case <-slow.C:
			l := u.starting(pc)
			if l == nil {
				continue
			}
			if u.withdraw(pc) {
				return u.notReady(l)
			}
		case <-timer.C:
			if u.starting(pc) != nil {
				timer.Reset(u.opts.QueueTimeout)
				continue
			}
			if u.withdraw(pc) {
				return u.overdue()
			}
		}
		// It was granted at the same moment.
		if err := <-pc.grant; err != nil || pc.Err() == nil {
			return err
		}
		u.leave(pc, nil, pc.Err(), false)
		return u.ended(pc)
	}
}

// admit lets a pending call in: to a connection, or to the queue.
func (u *Upstream) admit(pc *pendingCall) error {
	now := time.Now()
	if u.closing {
		return u.shuttingDown()
	}
	trial, ok, wait := u.pool.breaker.admit(now)
	if !ok {
		return u.broken(wait)
	}
	pc.trial, pc.begun = trial, now
	pc.holder = u.pool.holderOf(pc)
	if u.room(pc) {
		if l := u.pool.find(pc); l != nil {
			u.assign(pc, l)
			return nil
		}
	}
	if u.full(pc) {
		u.giveUp(pc)
		return u.refusal(jsonrpc.Overloaded, "Overloaded: %d calls wait for %s already; try again later", u.queue.Len(), u.opts.Name)
	}
	pc.grant = make(chan error, 1)
	u.queued(pc)
	u.dispatch()
	return nil
}

// giveUp forgets a pending call that has got no connection.
func (u *Upstream) giveUp(pc *pendingCall) {
	if pc.trial {
		u.pool.breaker.forgo()
		pc.trial = false
	}
	u.pool.tidy(pc.holder)
}

// grant gives a waiting call a connection.
func (u *Upstream) grant(pc *pendingCall, l *conn) {
	u.queue.Serve(pc.item)
	pc.item = nil
	pc.holder.waiting--
	u.assign(pc, l)
	pc.grant <- nil
}

// refuse ends the waiting of a pending call.
func (u *Upstream) refuse(pc *pendingCall, err error) {
	u.unqueue(pc)
	u.giveUp(pc)
	u.rejected(pc)
	pc.grant <- err
	u.drained()
}

// withdraw takes a pending call that waits no more from the queue. It reports false when
// it has just got an answer.
func (u *Upstream) withdraw(pc *pendingCall) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if pc.conn != nil || len(pc.grant) > 0 {
		return false
	}
	u.unqueue(pc)
	if pc.holder.single {
		u.pool.release(pc.holder) // no other call waits for that connection
	}
	u.giveUp(pc)
	u.rejected(pc)
	u.drained()
	return true
}

// overdue is the error of a call that has waited for too long.
func (u *Upstream) overdue() error {
	u.mu.Lock()
	taken := u.pool.places() >= u.opts.MaxConnections
	u.mu.Unlock()
	if taken {
		return u.refusal(jsonrpc.Overloaded,
			"Overloaded: %s has as many connections as it may have (max connections: %d), all of them in use or kept for sessions until these end, and none became free within %v; try again later",
			u.opts.Name, u.opts.MaxConnections, u.opts.QueueTimeout)
	}
	return u.refusal(jsonrpc.Overloaded, "Overloaded: no connection to %s became free within %v", u.opts.Name, u.opts.QueueTimeout)
}
