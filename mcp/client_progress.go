package mcp

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/late"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type progressKey struct{}

// A progressSink takes the reports of a call, and is the value of a sinkKey in
// the call's context. It does not block.
type progressSink func(value jsonrpc.Raw)

type sinkKey struct{}

// OnProgress returns a context; calls with it ask for progress: f gets each report,
// one after the other, and all of them before the call returns. It may call the
// server in its turn. Of reports that come faster than f takes them the oldest
// are passed over, from 10,000 on.
func OnProgress(ctx context.Context, f func(spec.ProgressNotificationParams)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// send makes a call on a line, in the revision that is spoken there, bounded in
// time.
func (c *Client) send(
	ctx context.Context, w *line, method string, params jsonrpc.Raw,
) (raw jsonrpc.Raw, err error) {
	idle := c.opts.Timeout
	if _, bounded := ctx.Deadline(); bounded &&
		(method == spec.MethodInitialize || method == spec.MethodServerDiscover) {
		idle = -1 // the deadline of a start counts: a server may take longer for that than for a call
	}
	p := &callDeadline{}
	p.begin(ctx, w, idle, c.opts.MaxTimeout)
	defer p.stop()
	report, _ := ctx.Value(progressKey{}).(func(spec.ProgressNotificationParams))
	var sink progressSink
	switch {
	case report != nil:
		r := &reports{c: c, f: report}
		r.change.L = &r.mu
		defer r.end()
		sink = func(value jsonrpc.Raw) {
			p.touch()
			r.put(value)
		}
	case method == spec.MethodToolsCall:
		// A tool that takes its time can say so.
		sink = func(jsonrpc.Raw) { p.touch() }
	}
	err = w.callWithin(p, method, orNothing(params), &raw, sink)
	return raw, err
}

// callWithin makes a call, as [farcall.Caller] does; its progress, if it is to be asked for, goes
// to sink.
func (w *line) callWithin(
	p *callDeadline, method string, params any, result *jsonrpc.Raw, sink progressSink,
) error {
	ctx := context.Context(p)
	if sink != nil {
		ctx = farcall.OnProgress(ctx, sink)
		if w.http != nil {
			ctx = context.WithValue(ctx, sinkKey{}, sink)
		}
	}
	err := w.peer.Call(ctx, method, params, result)
	if err != nil {
		if end := p.ended(); end != nil {
			return fmt.Errorf("%q: %w", method, end)
		}
	}
	// The notifications that came before the answer have been handled then: over HTTP they are. Other
	// callbacks than OnNotice may make calls, and would wait for themselves.
	if w.c.opts.OnNotice != nil && w.http == nil {
		w.told.wait(ctx, w.peer)
	}
	return err
}

// orNothing keeps a nil jsonrpc.Raw from being a value.
func orNothing(params jsonrpc.Raw) any {
	if params == nil {
		return nil
	}
	return params
}

// tooLateError ends a call.
type tooLateError struct{ text string }

func (e *tooLateError) Error() string { return e.text }
func (e *tooLateError) Unwrap() error { return context.DeadlineExceeded }

// callDeadline bounds how long a call may be without a sign of life, and in all. It is
// also the context of the call: the caller's, for a call over a stream, which is
// given up when it is too late, and otherwise one that ends then.
type callDeadline struct {
	callctx.Context

	idle, most time.Duration
	asked      *attention // the server waits for us while it lasts
	slow       *late.Watch
	place      late.Entry
	cancel     context.CancelCauseFunc // nil over a stream

	mu    sync.Mutex
	begun time.Time
	alive time.Time // the last sign of life
	call  late.Call // nil: none yet
	timer *time.Timer
	end   error // what has ended the call
	over  bool
}

// begin starts the time of a call on a line.
func (p *callDeadline) begin(ctx context.Context, w *line, idle, most time.Duration) {
	p.idle, p.most, p.asked, p.slow = idle, most, &w.asked, &w.c.slow
	if w.http != nil {
		ctx, p.cancel = context.WithCancelCause(ctx)
		p.call = ending(p.cancel)
	}
	p.Context = callctx.Over(ctx, p)
	p.begun = time.Now()
	p.alive = p.begun
	switch left, bounded := p.left(); {
	case !bounded:
	case left <= 2*late.After:
		p.Late()
	default:
		p.slow.Enter(&p.place, p)
	}
}

// ending ends a call with its context.
type ending context.CancelCauseFunc

// GiveUp implements late.Call.
func (cancel ending) GiveUp(reason error) { cancel(reason) }

// ContextValue implements callctx.Values.
func (p *callDeadline) ContextValue(key any) (any, bool) {
	_, ok := key.(late.LimitKey)
	return p, ok && p.cancel == nil
}

// Began implements late.Limit.
func (p *callDeadline) Began(c late.Call) {
	p.mu.Lock()
	p.call = c
	end := p.end
	p.mu.Unlock()
	if end != nil {
		c.GiveUp(end)
	}
}

// Late implements late.Thing: only a call that takes some time needs a timer.
func (p *callDeadline) Late() {
	p.mu.Lock()
	defer p.mu.Unlock()
	left, _ := p.left()
	p.timer = time.AfterFunc(left, p.tick)
}

// left returns how long to wait for the next sign of life.
func (p *callDeadline) left() (d time.Duration, bounded bool) {
	if p.idle >= 0 {
		d, bounded = p.idle-min(time.Since(p.alive), p.asked.last()), true
	}
	if most := p.most - time.Since(p.begun); p.most >= 0 && (!bounded || most < d) {
		d, bounded = most, true
	}
	return d, bounded
}

func (p *callDeadline) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive = time.Now()
}

// tick gives the call up, or waits on.
func (p *callDeadline) tick() {
	p.mu.Lock()
	if left, _ := p.left(); left > 0 || p.over {
		if !p.over {
			p.timer.Reset(left)
		}
		p.mu.Unlock()
		return
	}
	p.end = &tooLateError{
		fmt.Sprintf("no answer and no progress within %v (ClientOptions.Timeout)", p.idle),
	}
	if p.most >= 0 && time.Since(p.begun) >= p.most {
		p.end = &tooLateError{fmt.Sprintf("no answer within %v (ClientOptions.MaxTimeout)", p.most)}
	}
	call, end := p.call, p.end
	p.mu.Unlock()
	if call != nil {
		call.GiveUp(end)
	}
}

// ended returns what has ended the call, if it is the time.
func (p *callDeadline) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// stop stops the time.
func (p *callDeadline) stop() {
	p.slow.Leave(&p.place)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.cancel != nil {
		p.cancel(nil)
	}
}

// attention says whether the server waits for answers of ours.
type attention struct {
	mu    sync.Mutex
	count int
	ended time.Time
}

func (a *attention) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
}

func (a *attention) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count--
	a.ended = time.Now()
}

// last returns how long ago the server got its last answer; 0: it waits for one.
func (a *attention) last() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count > 0 {
		return 0
	}
	return time.Since(a.ended)
}

// maxReports bounds the reports that wait to be taken.
const maxReports = 10_000

// reports carries the reports of a call to a function that may take its time,
// which the goroutine that reads has not.
type reports struct {
	c *Client
	f func(spec.ProgressNotificationParams)

	mu      sync.Mutex
	change  sync.Cond
	waiting []jsonrpc.Raw
	running bool // a goroutine takes the reports
	over    bool
}

// put is called by the goroutine that reads.
func (r *reports) put(value jsonrpc.Raw) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.waiting = append(r.waiting, bytes.Clone(value)); len(r.waiting) > maxReports {
		r.waiting = r.waiting[1:]
	}
	if !r.running {
		r.running = r.c.spawn(r.run)
	}
}

func (r *reports) run() {
	for {
		r.mu.Lock()
		if len(r.waiting) == 0 {
			r.running = false
			r.change.Broadcast()
			r.mu.Unlock()
			return
		}
		value := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		r.report(value)
	}
}

func (r *reports) report(value jsonrpc.Raw) {
	defer func() {
		if v := recover(); v != nil {
			r.c.warn("the function given to OnProgress panicked: %v", v)
		}
	}()
	var p spec.ProgressNotificationParams
	if err := jsonv2.Unmarshal(value, &p); err != nil {
		r.c.warn("a progress notification of the server is not valid: %w", err)
		return
	}
	r.f(p)
}

// end waits until all reports are taken.
func (r *reports) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for r.running {
		r.change.Wait()
	}
}
