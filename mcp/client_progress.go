package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type progressKey struct{}

// A progressSink takes the reports of a call, and is the value of a sinkKey in
// the call's context. It does not block.
type progressSink func(value jsonrpc.Raw)

type sinkKey struct{}

// OnProgress returns a context whose calls ask for progress: f gets each report,
// one after the other, and all of them before the call returns. It may call the
// server in its turn. Of reports that come faster than f takes them the oldest
// are passed over, from 10,000 on.
func OnProgress(ctx context.Context, f func(spec.ProgressNotificationParams)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// send makes a call on a line, in the revision that is spoken there, bounded in
// time.
func (c *Client) send(ctx context.Context, w *line, method string, params jsonrpc.Raw) (raw jsonrpc.Raw, err error) {
	p := newPatience(ctx, c.opts.Timeout, c.opts.MaxTimeout, &w.asked)
	defer p.end()
	report, _ := ctx.Value(progressKey{}).(func(spec.ProgressNotificationParams))
	var sink progressSink
	switch {
	case report != nil:
		r := &relay{c: c, f: report}
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
	return w.callWithin(p, method, params, sink)
}

// callWithin makes a call; its progress, if it is to be asked for, goes to sink.
func (w *line) callWithin(p *patience, method string, params jsonrpc.Raw, sink progressSink) (raw jsonrpc.Raw, err error) {
	ctx := p.ctx
	if sink != nil {
		ctx = farcall.OnProgress(ctx, sink)
		if w.http != nil {
			ctx = context.WithValue(ctx, sinkKey{}, sink)
		}
	}
	err = w.peer.Call(ctx, method, orNothing(params), &raw)
	w.caughtUp(ctx)
	if err != nil {
		if late, ok := errors.AsType[*tooLateError](context.Cause(p.ctx)); ok {
			err = fmt.Errorf("%q: %w", method, late)
		}
		return nil, err
	}
	return raw, nil
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

// patience bounds how long a call may be without a sign of life, and in all.
type patience struct {
	ctx        context.Context //nolint:containedctx // the call's
	cancel     context.CancelCauseFunc
	idle, most time.Duration
	begun      time.Time
	asked      *attention  // the server waits for us while it lasts
	timer      *time.Timer // nil: unbounded
}

func newPatience(ctx context.Context, idle, most time.Duration, asked *attention) *patience {
	p := &patience{idle: idle, most: most, begun: time.Now(), asked: asked}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	if next, bounded := p.next(); bounded {
		p.timer = time.AfterFunc(next, p.tick)
	}
	return p
}

// next returns how long to wait for the next sign of life.
func (p *patience) next() (d time.Duration, bounded bool) {
	switch {
	case p.most < 0:
		return p.idle, p.idle >= 0
	case p.idle < 0:
		return p.most - time.Since(p.begun), true
	}
	return min(p.idle, p.most-time.Since(p.begun)), true
}

func (p *patience) touch() {
	if p.timer == nil {
		return
	}
	next, _ := p.next()
	p.timer.Reset(max(next, 0))
}

func (p *patience) tick() {
	switch {
	case p.most >= 0 && time.Since(p.begun) >= p.most:
		p.cancel(&tooLateError{fmt.Sprintf("no answer within %v (ClientOptions.MaxTimeout)", p.most)})
	case p.idle >= 0 && p.asked.last() < p.idle:
		next := min(p.idle-p.asked.last(), p.idle)
		if p.most >= 0 {
			next = min(next, p.most-time.Since(p.begun))
		}
		p.timer.Reset(next)
	default:
		p.cancel(&tooLateError{fmt.Sprintf("no answer and no progress within %v (ClientOptions.Timeout)", p.idle)})
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

func (p *patience) end() {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cancel(nil)
}

// maxReports bounds the reports that wait to be taken.
const maxReports = 10_000

// relay carries the reports of a call to a function that may take its time,
// which the goroutine that reads has not.
type relay struct {
	c *Client
	f func(spec.ProgressNotificationParams)

	mu      sync.Mutex
	change  sync.Cond
	reports []jsonrpc.Raw
	running bool // a goroutine takes the reports
	over    bool
}

// put is called by the goroutine that reads.
func (r *relay) put(value jsonrpc.Raw) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.reports = append(r.reports, bytes.Clone(value)); len(r.reports) > maxReports {
		r.reports = r.reports[1:]
	}
	if !r.running {
		r.running = r.c.spawn(r.run)
	}
}

func (r *relay) run() {
	for {
		r.mu.Lock()
		if len(r.reports) == 0 {
			r.running = false
			r.change.Broadcast()
			r.mu.Unlock()
			return
		}
		value := r.reports[0]
		r.reports = r.reports[1:]
		r.mu.Unlock()
		r.report(value)
	}
}

func (r *relay) report(value jsonrpc.Raw) {
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
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for r.running {
		r.change.Wait()
	}
}
