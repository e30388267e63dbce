package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/share"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// describing is the method of a call that wants to know who the server is.
const describing = spec.MethodServerDiscover

// A pendingCall is a call from its arrival until its end. Its context has it as a value, so that
// what the server sends along with the answer is known to belong to this call.
type pendingCall struct {
	ctx       context.Context //nolint:containedctx // of this call, with itself as a value
	u         *Upstream
	call      *Call
	who       *Caller
	fw        relay.Forward
	abilities abilities
	use       usage
	told      bool // call.Tasks was
	failed    error

	// Under the upstream's lock.
	holder *holder
	conn   *connection // nil: it waits
	grant  chan error  // gets nil or a refusal, when it has waited
	item   *share.Item[*pendingCall]
	place  *share.Holder // in flight; nil: it has none
	begun  time.Time
	age    uint64        // of the breaker
	trial  bool          // for the breaker
	level  string        // to be sent to the server before
	sent   bool          // the server may know of it
	roots  bool          // the server may ask for roots before
	over   bool          // nothing is passed on any more
	open   int           // questions and deliveries that go on
	quiet  chan struct{} // closed when there are none; made when over
	asks   []*question   // without an answer
	notes  notes
}

// light reports whether the call raises no questions.
func (pc *pendingCall) light() bool { return pc.use != useAsking }

// pendingKey is the key of a pending call in its context.
type pendingKey struct{}

func (u *Upstream) newPendingCall(ctx context.Context, c *Call) *pendingCall {
	pc := &pendingCall{u: u, call: c, who: &c.Caller, abilities: u.opts.abilitiesOf(&c.Caller)}
	pc.ctx = context.WithValue(ctx, pendingKey{}, pc)
	if !asks(c.Method) {
		pc.use = useLight
	}
	pc.fw = relay.Forward{
		Method: c.Method, Params: c.Params, Received: true, Revision: c.Revision,
		Info: c.Caller.Info, Capabilities: c.Caller.Capabilities, Header: c.Header,
		LogLevel: c.LogLevel, Rounds: c.Rounds, Task: c.Task, TaskID: c.TaskID,
		TaskCreated: c.TaskCreated,
	}
	if pc.fw.Revision == nil {
		pc.fw.Revision = era.Latest()
	}
	if c.Progress != nil {
		pc.fw.OnProgress = pc.progressed
	}
	if c.Tasks != nil {
		pc.fw.Tasks = pc
	}
	return pc
}

// TaskStarted implements relay.TaskObserver: it tells of a task once, also when the call is made
// again.
func (pc *pendingCall) TaskStarted(id, created string) error {
	if pc.told {
		return nil
	}
	pc.told = true
	pc.failed = pc.call.Tasks.TaskStarted(id, created)
	return pc.failed
}

// LeavesTask implements relay.TaskObserver.
func (pc *pendingCall) LeavesTask() bool { return pc.call.Tasks.LeavesTask() }

// asks reports whether a server may ask something during a call: in these methods
// only, and who knows what others do.
func asks(method string) bool {
	switch method {
	case spec.MethodServerDiscover, spec.MethodInitialize, spec.MethodPing,
		spec.MethodToolsList, spec.MethodResourcesList, spec.MethodResourcesTemplatesList,
		spec.MethodPromptsList,
		spec.MethodCompletionComplete, spec.MethodLoggingSetLevel,
		spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe, spec.MethodSubscriptionsListen,
		spec.MethodTasksGet, spec.MethodTasksUpdate, spec.MethodTasksCancel, spec.MethodTasksResult,
		spec.MethodTasksList:
		return false
	}
	return true
}

// enter gets a connection for a pending call, and waits for one.
func (u *Upstream) enter(pc *pendingCall) error {
	u.mu.Lock()
	err := u.admitLocked(pc)
	if err != nil {
		u.rejectedLocked(pc)
	}
	wait := err == nil && pc.conn == nil
	u.mu.Unlock()
	if !wait {
		return err
	}
	defer func() { pc.call.Queued += time.Since(pc.begun) }()
	timer := time.NewTimer(u.opts.QueueTimeout)
	defer timer.Stop()
	slow := time.NewTimer(maxStartWait)
	defer slow.Stop()
	for {
		select {
		case err := <-pc.grant:
			return err
		case <-pc.ctx.Done():
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
				return u.overdue(pc)
			}
		}
		// It was granted at the same moment.
		if err := <-pc.grant; err != nil || pc.ctx.Err() == nil {
			return err
		}
		u.leave(pc, nil, pc.ctx.Err(), false)
		return u.ended(pc)
	}
}

// admitLocked lets a pending call in: to a connection, or to the queue.
func (u *Upstream) admitLocked(pc *pendingCall) error {
	now := time.Now()
	if u.closing {
		return u.shuttingDown()
	}
	if u.opts.Held != "" {
		return u.Refused()
	}
	trial, ok, wait := u.pool.breaker.admit(now)
	if !ok {
		return u.brokenLocked(wait)
	}
	pc.trial, pc.begun = trial, now
	pc.holder = u.pool.holderOf(pc)
	if u.queue.room(pc) {
		if l := u.pool.find(pc); l != nil {
			u.assignLocked(pc, l)
			return nil
		}
	}
	reject, full := u.queue.makeRoom(pc.who.owner())
	if reject != nil {
		u.refuseLocked(reject, u.refusal(jsonrpc.Overloaded,
			"Overloaded: %d calls wait for %s already, and %d of them are yours; try again later",
			u.queue.waiting.Len(), u.opts.Name, u.queue.waiting.Of(reject.who.owner())))
	}
	if full {
		u.giveUpLocked(pc)
		return u.refusal(jsonrpc.Overloaded, "Overloaded: %d calls wait for %s already; try again later",
			u.queue.waiting.Len(), u.opts.Name)
	}
	pc.grant = make(chan error, 1)
	u.queue.push(pc)
	u.dispatchLocked()
	return nil
}

// giveUpLocked forgets a pending call that has got no connection.
func (u *Upstream) giveUpLocked(pc *pendingCall) {
	if pc.trial {
		u.pool.breaker.forgo()
		pc.trial = false
	}
	u.pool.tidy(pc.holder)
}

// grantLocked gives a waiting call a connection.
func (u *Upstream) grantLocked(pc *pendingCall, l *connection) {
	u.queue.serve(pc)
	if u.opts.OnQueued != nil {
		u.opts.OnQueued(time.Since(pc.begun))
	}
	u.assignLocked(pc, l)
	pc.grant <- nil
}

// refuseLocked ends the waiting of a pending call.
func (u *Upstream) refuseLocked(pc *pendingCall, err error) {
	u.unqueueLocked(pc)
	pc.grant <- err
}

// unqueueLocked takes a pending call that has got no connection from the queue.
func (u *Upstream) unqueueLocked(pc *pendingCall) {
	u.queue.remove(pc)
	if pc.holder.single {
		u.pool.release(pc.holder) // no other call waits for that connection
	}
	u.giveUpLocked(pc)
	u.rejectedLocked(pc)
	u.drainedLocked()
}

// withdraw takes a pending call that waits no more from the queue. It reports false when
// it has just got an answer.
func (u *Upstream) withdraw(pc *pendingCall) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if pc.conn != nil || len(pc.grant) > 0 {
		return false
	}
	u.unqueueLocked(pc)
	return true
}

// overdue is the error of a call that has waited for too long.
func (u *Upstream) overdue(pc *pendingCall) error {
	u.mu.Lock()
	taken, shares := u.pool.places() >= u.opts.MaxConnections, u.pool.shares(pc.holder)
	u.mu.Unlock()
	switch {
	case !taken && !shares:
		return u.refusal(jsonrpc.Overloaded,
			"Overloaded: the sessions of this caller keep as many connections to %s as one "+
				"caller may have, "+
				"and none became free within %v; end sessions that are not needed",
			u.opts.Name, u.opts.QueueTimeout)
	case taken:
		return u.refusal(jsonrpc.Overloaded,
			"Overloaded: %s has as many connections as it may have (max connections: %d), all of them in "+
				"use or kept for sessions until these end, and none became free within %v; try again later",
			u.opts.Name, u.opts.MaxConnections, u.opts.QueueTimeout)
	}
	return u.refusal(jsonrpc.Overloaded, "Overloaded: no connection to %s became free within %v",
		u.opts.Name, u.opts.QueueTimeout)
}

// assignLocked gives a connection to a pending call.
func (u *Upstream) assignLocked(pc *pendingCall, l *connection) {
	pc.conn, pc.over, pc.age = l, false, u.pool.breaker.age
	pc.level, pc.sent = "", false
	u.queue.begin(pc)
	u.identify(l, pc)
	l.take(pc)
}

// leave takes a pending call from its connection, after an attempt with that outcome. It
// reports whether the call can be made again. It returns when nothing is passed on
// any more.
func (u *Upstream) leave(pc *pendingCall, in *era.Revision, err error, first bool) (again bool) {
	u.mu.Lock()
	again = u.partLocked(pc, in, err, first)
	// the connection may serve another call already: a slow reader must not block it
	u.dispatchLocked()
	if pc.open > 0 {
		u.mu.Unlock()
		pc.waitDelivered()
		u.mu.Lock()
	}
	defer u.mu.Unlock()
	u.queue.end(pc)
	u.dispatchLocked()
	u.drainedLocked()
	return again
}

// partLocked takes a pending call from its connection.
func (u *Upstream) partLocked(
	pc *pendingCall, in *era.Revision, err error, first bool,
) (again bool) {
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
		u.latency.Add(now.Sub(pc.begun))
	case unreachable, unknown:
		u.lostLocked(l, pc.age, err, now)
	case busy:
		if !errors.As(err, new(*jsonrpc.Error)) { // or it has taken the request itself
			u.pool.breaker.fail(now, pc.age, comeBack(err))
		}
		u.pool.failed(err)
		u.pool.turn()
	case late, given:
		u.unansweredLocked(l, pc)
	}
	u.attributeLocked(l) // it may be known now which call a question is about
	if pc.trial && outcome != answered {
		u.pool.breaker.forgo()
	}
	pc.trial, pc.conn = false, nil
	again = first && pc.ctx.Err() == nil && !u.over && pc.repeatable(outcome, err)
	u.countLocked(pc, outcome, again)
	if l.state == draining || in != nil && in.RequestMeta != l.modern || l.holder.single {
		u.pool.retire(l)
	}
	u.pool.shed(l, u.opts.Pool)
	return again
}

// shed retires a connection that has no calls where its owner has more than most.
func (p *pool) shed(l *connection, most int) {
	// The owner has more than the pool when a connection has waited for an answer.
	if l.holder.pooled() && l.idle() {
		if own, _ := p.connsOfClient(l.holder.key); len(own) > most {
			p.retire(l)
		}
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

// lostLocked notes that a connection has failed. Over HTTP the next call may get through
// all the same.
func (u *Upstream) lostLocked(l *connection, age uint64, err error, now time.Time) {
	u.pool.breaker.fail(now, age, 0)
	u.pool.stale = true
	u.pool.failed(err)
	if u.opts.Exclusive {
		u.pool.retire(l)
	}
	u.pool.turn()
}

// unansweredLocked notes that a call has ended, but not for the server, which may still
// ask about it. No other client must be asked that.
func (u *Upstream) unansweredLocked(l *connection, pc *pendingCall) {
	switch {
	case l.modern || l.abilities == 0 || pc.light() || !pc.sent || l.holder.session != "":
	case l.holder.pooled() && l.serial():
		u.pool.retire(l)
	default: // the cancellation is sent over the connection, which stays for that
		l.lateQuestions = true
	}
}

// dispatchLocked gives connections to those who wait, in the order of the queue, and has
// connections started for them.
func (u *Upstream) dispatchLocked() {
	if u.queue.waiting.Len() == 0 {
		return
	}
	for item := range u.queue.all() {
		for _, l := range item.Value.holder.conns {
			l.promised = 0
		}
	}
	coming := u.pool.counts[draining] + u.pool.counts[closing] // places that will be free
	for item := range u.queue.all() {
		if !u.queue.open() {
			break
		}
		if u.queue.room(item.Value) {
			u.serveLocked(item.Value, &coming)
		}
	}
}

// serveLocked does for a waiting call what can be done.
func (u *Upstream) serveLocked(pc *pendingCall, coming *int) {
	if l := u.pool.find(pc); l != nil {
		u.grantLocked(pc, l)
		return
	}
	if u.pool.promise(pc) {
		return
	}
	if u.pool.breaker.open() && !pc.trial {
		if !u.pool.hopeful(pc) {
			_, _, wait := u.pool.breaker.peek(time.Now())
			u.refuseLocked(pc, u.brokenLocked(wait))
		}
	} else if !u.over && u.pool.mayStart(pc, coming) {
		l := u.startLocked(pc.holder, pc.abilities, pc)
		if !pc.light() {
			l.promised++
		}
		return
	} else if u.pool.places() >= u.opts.MaxConnections && u.pool.answersAwaited() {
		u.refuseLocked(pc, u.refusal(jsonrpc.Overloaded,
			"Overloaded: each connection that %s may have (max connections: %d) waits for the answer of a "+
				"client to a question; try again later",
			u.opts.Name, u.opts.MaxConnections))
	}
}

// rekeyQueueLocked gives all waiting calls the owners that they have now that more is known of the
// server.
func (u *Upstream) rekeyQueueLocked() {
	for item := range u.queue.all() {
		pc := item.Value
		if pc.holder.single {
			continue // what is being started for it is its own
		}
		old := pc.holder
		old.waiting--
		pc.holder = u.pool.holderOf(pc)
		pc.holder.waiting++
		u.pool.tidy(old)
	}
}

const (
	// maxStale bounds the connections that a call tries which have ended before.
	maxStale = 3
	// maxComeBack bounds how long a call waits that a busy server wants again later.
	maxComeBack = 5 * time.Second
)

// Call makes a call and waits for its end. A call that the server has surely not seen, or that may
// be made twice, is made again when its connection fails. One that a busy server has not begun is
// made again when the server wants it, if that is within five seconds.
func (u *Upstream) Call(ctx context.Context, c *Call) (Result, error) {
	pc := u.newPendingCall(ctx, c)
	for attempt := 0; ; attempt++ {
		c.Attempts++
		if err := u.enter(pc); err != nil {
			return Result{}, err
		}
		raw, rev, err := pc.carry()
		if rev != nil {
			c.Spoken = rev.Name
		}
		// Connections that ended together are found out one by one.
		stale := u.opts.Exclusive && attempt < maxStale && errors.Is(err, farcall.ErrNotSent)
		again := u.leave(pc, rev, err, attempt == 0 || stale)
		switch {
		case err == nil:
			return Result{Raw: raw, Revision: rev}, nil
		case !again:
			return Result{}, u.failure(pc, err)
		}
		if err := u.pause(pc, comeBack(err)); err != nil {
			return Result{}, err
		}
	}
}

// pause waits before the next attempt, a little longer than the server wants, so that not all calls
// come at once.
func (u *Upstream) pause(pc *pendingCall, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d + rand.N(d/4+1)) //nolint:gosec // spreads attempts, guards nothing
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-pc.ctx.Done():
		return u.ended(pc)
	case <-u.ctx.Done():
		return u.shuttingDown()
	}
}

// carry makes the call on its connection.
func (pc *pendingCall) carry() (jsonrpc.Raw, *era.Revision, error) {
	l := pc.conn
	if pc.level != "" {
		if err := l.client.SetLogLevel(pc.ctx, pc.level); err != nil {
			pc.u.levelFailed(l, pc, err)
		}
	}
	if pc.roots {
		pc.settleRoots()
	}
	pc.sent = true
	return l.client.Forward(pc.ctx, &pc.fw)
}

// levelFailed notes that the server was not told how much to log.
func (u *Upstream) levelFailed(l *connection, pc *pendingCall, err error) {
	if pc.ctx.Err() == nil && !errors.Is(err, farcall.ErrClosed) {
		u.warn("the log level %q was not set: %w", pc.level, err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	l.level = -1
}
