package mcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/internal/observed"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// forwarding is a Forward that is under way.
type forwarding struct {
	*relay.Forward
	c      *Client
	rev    *era.Revision // of the params
	params jsonrpc.Raw   // of this round
	header http.Header   // Mcp-Param-… of a tool
	asTask bool          // the tool is to be called as a task, where that is up to the client
	task   bool          // it was, by this client or by what the params say
	sent   jsonrpc.Raw   // the params as the server gets them
	valid  remote.Params // sent, where they need no validation
	result jsonrpc.Raw   // of this round

	first callDeadline // of the first round
	begun bool         // first is in use

	rounds *observed.Rounds
}

// deadline returns a context for a round. Most calls have one round, and this costs them no
// allocation.
func (w *forwarding) deadline() *callDeadline {
	if w.begun {
		return &callDeadline{}
	}
	w.begun = true
	return &w.first
}

// toSend returns the params of a round for [farcall.Caller].
func (w *forwarding) toSend() any {
	switch {
	case w.sent == nil:
		return nil
	case w.Received:
		w.valid = remote.Params(w.sent)
		return &w.valid
	}
	return w.sent
}

// Forward makes a call for another client, as a gateway does. The result is as the server has sent
// it, in the form of the revision that is returned with it: nothing is taken from
// a cache, decoded or validated. Where the call became a task, it is the result of
// that; the end of the context cancels the task.
//
// Errors are those of [Client.Request], passed on ([farcall.PassOn]): a handler that returns one
// answers as the server did. Forward does not act on spec.URLElicitationRequired. A call with an
// error that does not wrap [farcall.ErrNotSent] may have had its effect.
func (c *Client) Forward(
	ctx context.Context, f *relay.Forward,
) (result jsonrpc.Raw, in *era.Revision, err error) {
	result, in, err = c.forward(ctx, f)
	return result, in, farcall.PassOn(err)
}

func (c *Client) forward(
	ctx context.Context, f *relay.Forward,
) (result jsonrpc.Raw, in *era.Revision, err error) {
	w := &forwarding{
		Forward: f, c: c, rounds: observed.NewRounds(c.opts.RPC),
		rev: cmp.Or(f.Revision, era.Latest()), params: f.Params,
	}
	if i := scan.Space(f.Params, 0); i < len(f.Params) && f.Params[i] != '{' &&
		string(f.Params[i:]) != "null" {
		return nil, nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid params: they must be an object")
	}
	if f.TaskID != "" {
		return w.resume(ctx)
	}
	for n := 1; ; n++ {
		l, err := w.round(ctx)
		if err != nil {
			return nil, nil, err
		}
		raw := w.result
		kind := ""
		if l.rev.ResultTypes && (f.Rounds || f.Method == spec.MethodToolsCall) {
			kind = resultType(raw)
		}
		created, err := w.created(raw, kind)
		switch {
		case err != nil:
			return nil, nil, err
		case created != nil:
			return w.finish(ctx, created)
		case !f.Rounds || kind != spec.ResultInputRequired:
			return raw, l.rev, nil
		case n > c.opts.MaxRounds:
			return nil, nil, c.tooManyRounds(f.Method)
		}
		if raw, err = era.Translate(era.Result, f.Method, raw, l.rev, era.Latest()); err == nil {
			w.params, err = c.nextRound(ctx, &outgoing{method: f.Method, params: w.params}, raw)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("mcp: %q: %w", f.Method, err)
		}
		w.rounds.Next()
	}
}

// resultType returns the resultType of a modern server's result.
func resultType(raw jsonrpc.Raw) string {
	switch v := scan.Member(raw, "resultType"); {
	case len(v) == 0 || v[0] != '"', string(v) == `"`+spec.ResultComplete+`"`:
		return spec.ResultComplete // the usual one costs no allocation
	default:
		return string(scan.Unquote(v))
	}
}

// round makes one round. A tool with a definition that may have changed is looked up
// again (2026-07-28, Streamable HTTP, "Client Behavior").
func (w *forwarding) round(ctx context.Context) (*link, error) {
	for again := false; ; again = true {
		if w.Method == spec.MethodToolsCall {
			if err := w.lookUp(ctx, again); err != nil {
				return nil, err
			}
		}
		l, err := w.c.attempt(ctx, w.Method, func(l *link) error { return w.exchange(ctx, l) })
		if again || err == nil || l == nil || l.http == nil || !errors.Is(err, spec.HeaderMismatch) {
			return l, err
		}
	}
}

// lookUp finds out what the call of a tool needs.
func (w *forwarding) lookUp(ctx context.Context, fresh bool) error {
	l, err := w.c.link(ctx)
	if err != nil {
		return fmt.Errorf("%w: %q: %w", farcall.ErrNotSent, w.Method, err)
	}
	w.header, w.asTask = nil, false
	if !l.callsTasks() && (l.http == nil || !l.rev.MirroredHeaders) {
		return nil
	}
	name := scan.Member(w.params, "name")
	if len(name) == 0 || name[0] != '"' {
		return nil // the server says what is wrong with it
	}
	known, err := w.c.knownTool(ctx, l, string(scan.Unquote(name)), fresh)
	if err != nil || known == nil {
		return err
	}
	if l.http != nil && l.rev.MirroredHeaders {
		w.header = arguments.Headers(known.headers, scan.Member(w.params, "arguments"))
	}
	w.asTask = known.task == spec.TaskRequired || w.Task && known.task == spec.TaskOptional
	return nil
}

// exchange makes one attempt on a link.
func (w *forwarding) exchange(ctx context.Context, l *link) error {
	var err error
	if w.sent, err = w.paramsFor(l); err != nil {
		return err
	}
	var way *route
	inner := w.rounds.Within(ctx)
	if w.mayBeTask(l) {
		var end func()
		inner, end = w.lingering(inner)
		defer end()
	}
	if l.http != nil {
		way = new(route)
		inner = way.trace(context.WithValue(inner, besidesKey{}, ctx))
		if w.Header != nil {
			inner = mcphttp.WithHeader(inner, w.Header)
		}
		if w.header != nil {
			inner = mcphttp.WithHeader(inner, w.header)
		}
	}
	p := w.deadline()
	p.begin(inner, l.line, cmp.Or(w.Timeout, w.c.opts.Timeout), w.c.opts.MaxTimeout)
	defer p.stop()
	var sink progressSink
	if w.OnProgress != nil {
		sink = func(value jsonrpc.Raw) {
			p.touch()
			if value, err := era.Translate(era.Notification, spec.NotificationProgress, value, l.rev,
				era.Latest()); err == nil {
				w.OnProgress(value)
			}
		}
	}
	w.result = nil
	err = l.callWithin(p, w.Method, w.toSend(), &w.result, sink)
	if err != nil && way != nil && way.none(err) {
		err = fmt.Errorf("%w: %q: %w", farcall.ErrNotSent, w.Method, err)
	}
	return err
}

// A besidesKey has the context that was given to Forward in that of an exchange.
type besidesKey struct{}

// detached returns the context for what the server sends during an exchange: it
// has the values of the call, but not what is meant for the exchange alone.
func detached(ctx context.Context) context.Context {
	values, ok := ctx.Value(besidesKey{}).(context.Context)
	if !ok {
		return ctx
	}
	v := &valued{values: values}
	v.Context = callctx.Over(ctx, v)
	return v
}

// valued is a context with the values of another one.
type valued struct {
	callctx.Context

	values context.Context //nolint:containedctx // it is a context itself
}

// ContextValue implements callctx.Values.
func (v *valued) ContextValue(key any) (any, bool) { return v.values.Value(key), true }

// A route notes whether a request got as far as a connection.
type route struct{ connected atomic.Bool }

func (r *route) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		r.connected.Store(true)
	}})
}

// none reports whether a request has surely not been sent.
func (r *route) none(err error) bool {
	if r.connected.Load() {
		return false // where a stream is resumed, too, the request was sent before
	}
	var (
		dial *net.OpError
		name *net.DNSError
		cert *tls.CertificateVerificationError
	)
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &name) || errors.As(err, &cert)
}

// Notify sends a notification. Its params are an object in the form of the
// newest revision, or nil. It does nothing where the server's revision does not
// have it. Nil means that it will be sent, not that it has arrived.
func (c *Client) Notify(ctx context.Context, method string, params jsonrpc.Raw) error {
	_, err := c.attempt(ctx, method, func(l *link) error {
		if method == spec.NotificationRootsListChanged && !l.rev.RootsChanged {
			return nil
		}
		own, err := era.Translate(era.Notification, method, params, era.Latest(), l.rev)
		if err != nil {
			return nil //nolint:nilerr // the revision has no such message
		}
		return l.peer.Notify(ctx, method, orNothing(own))
	})
	return err
}
