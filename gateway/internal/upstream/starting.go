package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A connection that starts tells how long it has taken and what may be the cause: in the log and in
// Status when it has taken longer than tellStart, in the error of a call that has waited for
// maxStartWait, and in its own error when StartTimeout is over. npx and uvx fetch a package first,
// and say nothing about it.
const (
	tellStart    = 3 * time.Second
	maxStartWait = 25 * time.Second // less than clients wait for an answer
)

// The bounds of the attempts of one start to which the server's supervision says "not yet", and of
// how long each may take.
const (
	maxStarts = 5
	maxPause  = 5 * time.Second
)

// connect makes the connection.
func (u *Upstream) connect(l *connection) (*mcp.Client, error) {
	o := &u.opts
	ctx, cancel := context.WithTimeout(l.ctx, o.StartTimeout)
	defer cancel()
	defer time.AfterFunc(tellStart, func() { o.Logger.Warn(u.startStory(l)) }).Stop()
	client, err := u.dial(ctx, l)
	if err != nil && ctx.Err() != nil && l.ctx.Err() == nil {
		err = fmt.Errorf("not ready within %v (start_timeout), %s: %w", o.StartTimeout,
			u.startStory(l), err)
	}
	return client, err
}

// dial makes the attempts of a start.
func (u *Upstream) dial(ctx context.Context, l *connection) (*mcp.Client, error) {
	o := &u.opts
	for n := 1; ; n++ {
		client, err := o.Dial(ctx, &mcp.ClientOptions{
			Timeout:      o.Timeout,
			Capabilities: l.abilities.declared(),
			Ask: func(ctx context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
				return u.ask(ctx, l, method, params)
			},
			OnNotice: func(ctx context.Context, method string, params jsonrpc.Raw) bool {
				return u.notice(ctx, l, method, params)
			},
			OnListening:   func(got spec.SubscriptionFilter) { u.granted(l, got) },
			OnSessionLost: u.listsChanged,
			OnWarning:     func(err error) { u.warn("%w", err) },
			NoCache:       true,
		})
		if err == nil {
			return client, nil
		}
		after, _ := u.explain(err)
		if after <= 0 || after > maxPause || n == maxStarts {
			return nil, err
		}
		if backoff.Sleep(ctx, after) != nil {
			return nil, err
		}
	}
}

// startStory tells how long a start has taken, and what is known of it.
func (u *Upstream) startStory(l *connection) string {
	text := fmt.Sprintf("starting for %v", time.Since(l.begun).Round(time.Second))
	if u.opts.Starting != nil {
		text += ": " + u.opts.Starting()
	}
	return text
}

// starting returns the connection that starts for a pending call, or nil.
func (u *Upstream) starting(pc *pendingCall) *connection {
	u.mu.Lock()
	defer u.mu.Unlock()
	if pc.conn != nil || len(pc.grant) > 0 {
		return nil
	}
	for _, l := range pc.holder.conns {
		if u.pool.expected(l, pc) {
			return l
		}
	}
	if !u.pool.known {
		return u.pool.slowest()
	}
	return nil
}

// notReady is the error of a call that waits no longer for a connection that starts.
func (u *Upstream) notReady(l *connection) error {
	text := "starting"
	if !u.opts.Plain() {
		text = u.startStory(l)
	}
	return u.refusal(jsonrpc.Unavailable, "%s is not ready yet, %s; try again later",
		u.opts.Name, text)
}

// startLocked starts a connection, for a pending call or, with nil, for none.
func (u *Upstream) startLocked(h *holder, a abilities, pc *pendingCall) *connection {
	l := &connection{
		facts: &u.pool.facts, holder: h, abilities: a, age: u.pool.breaker.age,
		begun: time.Now(),
	}
	l.ctx, l.cancel = context.WithCancel(context.WithValue(u.ctx, identityKey{}, &l.identity))
	if pc != nil {
		u.identify(l, pc)
		l.parent = farcall.TraceFrom(pc.ctx).Parent
		if h.single || h.key.roots == knownRoots {
			l.roots.known = bytes.Clone(pc.who.Roots)
		}
	}
	h.conns = append(h.conns, l)
	if h.single {
		u.pool.singles++
	}
	u.pool.counts[dialing]++
	u.tasks.Go(func() { u.run(l) })
	u.sweepLocked()
	u.pool.turn()
	return l
}

// run is the life of a connection.
func (u *Upstream) run(l *connection) {
	client, err := u.connect(l)
	if u.arrived(l, client, err) {
		u.listen(l)
		<-l.ctx.Done()
	}
	if client != nil {
		if err := client.Close(); err != nil {
			u.opts.Logger.Debug("a connection was closed", "error", textOf(err))
		}
	}
	u.closed(l)
}

// arrived takes a connection that has started, or has not. It reports whether the connection
// is to be used.
func (u *Upstream) arrived(l *connection, client *mcp.Client, err error) bool {
	now := time.Now()
	u.mu.Lock()
	wanted := l.state == dialing
	changed, first := false, !u.pool.known || u.pool.stale
	switch {
	case err == nil && wanted:
		l.settle(client, now)
		u.pool.move(l, ready)
		turned := !u.pool.known || u.pool.modern != l.modern
		u.pool.known, u.pool.modern, u.pool.info = true, l.modern, l.info
		if turned {
			u.rekeyQueueLocked()
		}
		u.pool.rekey(l)
		changed, u.pool.stale = u.pool.stale && u.opts.Lifetime != lifetimeCall, false
	case wanted:
		u.unstartedLocked(l, err, now)
	}
	u.pool.turn()
	u.dispatchLocked()
	u.drainedLocked()
	u.mu.Unlock()
	if err == nil && wanted && u.opts.OnStarted != nil {
		u.opts.OnStarted(now.Sub(l.begun), l.parent)
	}
	if err == nil && wanted && first {
		u.opts.Logger.Info("connected", "server", l.info.Name+" "+l.info.Version, "revision",
			l.info.Revision)
	}
	if err != nil {
		u.opts.Logger.Debug("a connection could not be started", "error", textOf(err))
	} else {
		u.opts.Logger.Debug("a connection has started")
	}
	if changed {
		u.listsChanged() // it is unknown what happened while it was down
	}
	return err == nil && wanted
}

// unstartedLocked ends the waiting of those who have no other connection to hope for.
func (u *Upstream) unstartedLocked(l *connection, err error, now time.Time) {
	callers := u.opts.CallersFault != nil && u.opts.CallersFault(err)
	if callers {
		u.pool.breaker.forgo()
	} else {
		u.pool.breaker.fail(now, l.age, comeBack(err))
		u.pool.stale, u.pool.cool = true, now.Add(coolTime)
		u.pool.failed(err)
	}
	u.pool.retire(l)
	for item := range u.queue.all() {
		if pc := item.Value; (pc.holder == l.holder || !u.pool.known && !callers) && !u.pool.hopeful(pc) {
			u.refuseLocked(pc, u.unreached(err))
		}
	}
}

// closed notes that a connection is closed.
func (u *Upstream) closed(l *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.state < closing { // with all others: the upstream is closed
		u.pool.move(l, closing)
	}
	u.pool.move(l, closed)
	u.dispatchLocked()
}

// identify notes the owner of the last call.
func (u *Upstream) identify(l *connection, pc *pendingCall) {
	if identity := u.opts.Identity; identity != nil {
		v := identity(pc.ctx)
		l.identity.Store(&v)
	}
}

// listen has the server tell when its lists change. Over a connection it returns
// when that has ended, where the server can be listened to at all.
func (u *Upstream) listen(l *connection) {
	if u.single(l) {
		return
	}
	caps := l.info.Capabilities
	filter := spec.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	}
	if l.modern && !filter.ToolsListChanged && !filter.PromptsListChanged &&
		!filter.ResourcesListChanged {
		return
	}
	if err := l.client.Listen(l.ctx, filter); errors.Is(err, farcall.ErrClosed) {
		u.died(l, err)
	}
}

// single reports whether a connection is there for one call only.
func (u *Upstream) single(l *connection) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return l.holder.single
}
