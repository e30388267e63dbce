package upstream

import (
	"context"
	"time"

	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// describing is the method of a call that wants to know who the server is.
const describing = spec.MethodServerDiscover

// A flight is a call on its way. It is also the context of that: the values of the
// caller's and itself, so that what the server sends along with the answer is known
// to be of this call.
type flight struct {
	context.Context //nolint:containedctx // it is a context itself

	u         *Upstream
	call      *Call
	who       *Caller
	fw        mcp.Forward
	abilities abilities
	use       usage
	told      bool // OnTask was
	failed    error

	// Under the upstream's lock.
	holder     *holder
	prev, next *flight    // on the connection
	conn       *conn      // nil: it waits
	grant      chan error // gets nil or a refusal, when it has waited
	item       *share.Item[*flight]
	place      *share.Holder // in flight; nil: it has none
	begun      time.Time
	age        uint64        // of the breaker
	trial      bool          // for the breaker
	level      string        // to be told to the server before
	sent       bool          // the server may know of it
	over       bool          // nothing is passed on any more
	pending    int           // questions and deliveries that go on
	quiet      chan struct{} // closed when there are none; made when over
	asks       []*asking
	notes      notes
}

// light reports whether the call raises no questions.
func (f *flight) light() bool { return f.use != useAsking }

type flightKey struct{}

// Value implements context.Context.
func (f *flight) Value(key any) any {
	if _, ok := key.(flightKey); ok {
		return f
	}
	return f.Context.Value(key)
}

// AfterFunc lets package context derive from this context without a goroutine
// (see context.AfterFunc).
func (f *flight) AfterFunc(do func()) (stop func() bool) { return context.AfterFunc(f.Context, do) }

func (u *Upstream) newFlight(ctx context.Context, c *Call) *flight {
	f := &flight{Context: ctx, u: u, call: c, who: &c.Caller, abilities: abilitiesOf(c.Caller.Capabilities)}
	if !asks(c.Method) {
		f.use = useLight
	}
	f.fw = mcp.Forward{
		Method: c.Method, Params: c.Params, Revision: c.Revision,
		Info: c.Caller.Info, Capabilities: c.Caller.Capabilities,
		LogLevel: c.LogLevel, Rounds: c.Rounds, Task: c.Task,
	}
	if f.fw.Revision == nil {
		f.fw.Revision = era.Latest()
	}
	if c.Progress != nil {
		f.fw.OnProgress = f.progressed
	}
	if c.OnTask != nil {
		f.fw.OnTask = f.onTask
	}
	return f
}

// onTask tells of a task once, also when the call is made again.
func (f *flight) onTask() error {
	if f.told {
		return nil
	}
	f.told = true
	f.failed = f.call.OnTask()
	return f.failed
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

// flights are the calls that use a connection.
type flights struct {
	first, last *flight
	n           int
}

func (q *flights) add(f *flight) {
	f.prev = q.last
	if f.prev == nil {
		q.first = f
	} else {
		f.prev.next = f
	}
	q.last = f
	q.n++
}

func (q *flights) remove(f *flight) {
	if f.prev == nil {
		q.first = f.next
	} else {
		f.prev.next = f.next
	}
	if f.next == nil {
		q.last = f.prev
	} else {
		f.next.prev = f.prev
	}
	f.prev, f.next = nil, nil
	q.n--
}

// enter gets a connection for a flight, and waits for one.
func (u *Upstream) enter(f *flight) error {
	u.mu.Lock()
	err := u.admit(f)
	if err != nil {
		u.rejected(f)
	}
	wait := err == nil && f.conn == nil
	u.mu.Unlock()
	if !wait {
		return err
	}
	timer := time.NewTimer(u.opts.QueueTimeout)
	defer timer.Stop()
	var waits <-chan time.Time
	if u.opts.OnWait != nil && !f.light() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		waits = ticker.C
	}
	for {
		select {
		case err := <-f.grant:
			return err
		case <-waits:
			u.opts.OnWait(*f.who)
			continue
		case <-f.Done():
			if u.withdraw(f) {
				return u.ended(f)
			}
		case <-timer.C:
			if u.expects(f) {
				timer.Reset(u.opts.QueueTimeout)
				continue
			}
			if u.withdraw(f) {
				return u.overdue()
			}
		}
		// It was granted at the same moment.
		if err := <-f.grant; err != nil || f.Err() == nil {
			return err
		}
		u.leave(f, nil, f.Err(), false)
		return u.ended(f)
	}
}

// admit lets a flight in: to a connection, or to the queue.
func (u *Upstream) admit(f *flight) error {
	now := time.Now()
	if u.closing {
		return u.shuttingDown()
	}
	trial, ok, wait := u.breaker.admit(now)
	if !ok {
		return u.broken(wait)
	}
	f.trial, f.begun = trial, now
	f.holder = u.holderOf(f)
	if u.room(f) {
		if l := u.find(f); l != nil {
			u.board(f, l)
			return nil
		}
	}
	if u.full(f) {
		u.giveUp(f)
		return u.refusal(jsonrpc.Overloaded, "Overloaded: %d calls wait for %s already; try again later", u.queue.Len(), u.opts.Name)
	}
	f.grant = make(chan error, 1)
	u.queued(f)
	u.dispatch()
	return nil
}

// giveUp forgets a flight that has got no connection.
func (u *Upstream) giveUp(f *flight) {
	if f.trial {
		u.breaker.forgo()
		f.trial = false
	}
	u.tidy(f.holder)
}

// grant gives a waiting flight a connection.
func (u *Upstream) grant(f *flight, l *conn) {
	u.queue.Serve(f.item)
	f.item = nil
	f.holder.waiting--
	u.board(f, l)
	f.grant <- nil
}

// refuse ends the waiting of a flight.
func (u *Upstream) refuse(f *flight, err error) {
	u.unqueue(f)
	u.giveUp(f)
	u.rejected(f)
	f.grant <- err
	u.drained()
}

// withdraw takes a flight that waits no more from the queue. It reports false when
// it has just got an answer.
func (u *Upstream) withdraw(f *flight) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f.conn != nil || len(f.grant) > 0 {
		return false
	}
	u.unqueue(f)
	if f.holder.single {
		u.release(f.holder) // nobody else waits for that connection
	}
	u.giveUp(f)
	u.rejected(f)
	u.drained()
	return true
}

// expects reports whether a connection for a flight may be being started.
func (u *Upstream) expects(f *flight) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f.conn != nil || len(f.grant) > 0 {
		return false
	}
	for _, l := range f.holder.conns {
		if u.expected(l, f) {
			return true
		}
	}
	return !u.known && u.starts > 0
}

// overdue is the error of a call that has waited for too long.
func (u *Upstream) overdue() error {
	u.mu.Lock()
	taken := u.opts.Lifetime == lifetimeSession && u.places >= u.opts.MaxConnections
	u.mu.Unlock()
	if taken {
		return u.refusal(jsonrpc.Overloaded,
			"Overloaded: %s has as many connections as it may have (max connections: %d), each kept for a session until that ends, and none became free within %v; try again later",
			u.opts.Name, u.opts.MaxConnections, u.opts.QueueTimeout)
	}
	return u.refusal(jsonrpc.Overloaded, "Overloaded: no connection to %s became free within %v", u.opts.Name, u.opts.QueueTimeout)
}
