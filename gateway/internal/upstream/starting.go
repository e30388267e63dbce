package upstream

import (
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

// slowest returns the connection that has been starting for the longest time, or nil.
func (p *pool) slowest() (first *conn) {
	for _, h := range p.holders {
		for _, l := range h.conns {
			if l.state == dialing && (first == nil || l.begun.Before(first.begun)) {
				first = l
			}
		}
	}
	return first
}

// notReady is the error of a call that waits no longer for a connection that starts.
func (u *Upstream) notReady(l *conn) error {
	text := "starting"
	if !u.opts.Plain() {
		text = l.startStory()
	}
	return u.refusal(jsonrpc.Unavailable, "%s is not ready yet, %s; try again later", u.opts.Name, text)
}
