package upstream

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// A connection that starts tells how long it has taken and what may be the cause: in the log and in
// Status when it has taken longer than tellStart, in the error of a call that has waited for maxStartWait,
// and in its own error when StartTimeout is over. npx and uvx fetch a package first, and say nothing
// about it.
const (
	tellStart    = 3 * time.Second
	maxStartWait = 25 * time.Second // less than clients wait for an answer
)

// The bounds of the attempts of one start to which the server's supervision says "not yet", and of how
// long each may take.
const (
	maxStarts = 5
	maxPause  = 5 * time.Second
)

// connect makes the connection.
func (l *conn) connect() (*mcp.Client, error) {
	o := &l.u.opts
	ctx, cancel := context.WithTimeout(l.ctx, o.StartTimeout)
	defer cancel()
	defer time.AfterFunc(tellStart, func() { o.Logger.Warn(l.startStory()) }).Stop()
	client, err := l.dial(ctx)
	if err != nil && ctx.Err() != nil && l.ctx.Err() == nil {
		err = fmt.Errorf("not ready within %v (start_timeout), %s: %w", o.StartTimeout, l.startStory(), err)
	}
	return client, err
}

// dial makes the attempts of a start.
func (l *conn) dial(ctx context.Context) (*mcp.Client, error) {
	o := &l.u.opts
	for n := 1; ; n++ {
		client, err := o.Dial(ctx, &mcp.ClientOptions{
			Timeout:       o.Timeout,
			Capabilities:  l.abilities.declared(),
			Ask:           l.ask,
			OnNotice:      l.notice,
			OnListening:   l.granted,
			OnSessionLost: l.u.listsChanged,
			OnWarning:     func(err error) { l.u.warn("%w", err) },
			NoCache:       true,
		})
		if err == nil {
			return client, nil
		}
		after, _ := l.u.explain(err)
		if after <= 0 || after > maxPause || n == maxStarts {
			return nil, err
		}
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// startStory tells how long a start has taken, and what is known of it.
func (l *conn) startStory() string {
	text := fmt.Sprintf("starting for %v", time.Since(l.begun).Round(time.Second))
	if l.u.opts.Starting != nil {
		text += ": " + l.u.opts.Starting()
	}
	return text
}

// starting returns the connection that starts for a pending call, or nil.
func (u *Upstream) starting(pc *pendingCall) *conn {
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
func (u *Upstream) notReady(l *conn) error {
	text := "starting"
	if !u.opts.Plain() {
		text = l.startStory()
	}
	return u.refusal(jsonrpc.Unavailable, "%s is not ready yet, %s; try again later", u.opts.Name, text)
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

// run is the life of a connection.
func (l *conn) run() {
	client, err := l.connect()
	if l.u.arrived(l, client, err) {
		l.listen()
		<-l.ctx.Done()
	}
	if client != nil {
		if err := client.Close(); err != nil {
			l.u.opts.Logger.Debug("a connection was closed", "error", textOf(err))
		}
	}
	l.u.closed(l)
}

// arrived takes a connection that has started, or has not. It reports whether the connection
// is to be used.
func (u *Upstream) arrived(l *conn, client *mcp.Client, err error) bool {
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
			u.rekeyQueue()
		}
		u.pool.rekey(l)
		changed, u.pool.stale = u.pool.stale && u.opts.Lifetime != lifetimeCall, false
	case wanted:
		u.unstarted(l, err, now)
	}
	u.pool.turn()
	u.dispatch()
	u.drained()
	u.mu.Unlock()
	if err == nil && wanted && first {
		u.opts.Logger.Info("connected", "server", l.info.Name+" "+l.info.Version, "revision", l.info.Revision)
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

// unstarted ends the waiting of those who have no other connection to hope for.
func (u *Upstream) unstarted(l *conn, err error, now time.Time) {
	u.pool.breaker.fail(now, l.age, comeBack(err))
	u.pool.stale, u.pool.cool = true, now.Add(coolTime)
	u.pool.failed(err)
	u.pool.retire(l)
	for item := range u.queue.all() {
		if pc := item.Value; (pc.holder == l.holder || !u.pool.known) && !u.pool.hopeful(pc) {
			u.refuse(pc, u.unreached(err))
		}
	}
}

// closed notes that a connection is closed.
func (u *Upstream) closed(l *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.state < closing { // with all others: the upstream is closed
		u.pool.move(l, closing)
	}
	u.pool.move(l, closed)
	u.dispatch()
}
