package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Handler answers a request. Middleware is a function that returns a Handler which
// surrounds another one: see [Server.Use] and [Client.Use].
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Use adds middleware, which surrounds the handling of each request on every transport and in
// every revision. The first one added is the outermost. It sees requests in the form of the
// newest revision, after the interceptors of ServerOptions.RPC, which alone see initialize and
// notifications. Each function is called once, by Use.
//
// Middleware may change the Name, Arguments and Meta of the request before it calls next, return
// another [Response], or answer without next. It passes on the request that it got, and a context
// that derives from its own; the handler gets its values. It may call next again, after the first
// call has returned. The server answers only after next has returned.
//
// An error is answered as that of a handler: in tools/call one that is no *jsonrpc.Error is the
// result of the tool, with IsError, and so is a *[ToolError]; an error of the tool itself is no
// error of next but [Response.Err]. [Elicit] and its like fail in middleware.
//
// Each round of a multi-round call (2026-07-28) is its own request: see [Request.Continues]. The
// call that becomes a task is seen once, and so is its answer, the handle, if it is one by then;
// the requests for its state and result are seen as such.
//
// Use may be called while the server serves. It panics for a server with a Relay.
func (s *Server) Use(middleware ...func(next Handler) Handler) {
	s.checkMade()
	if s.relays() {
		misuse("Use: a server with a Relay has no middleware; use the Interceptors of ServerOptions.RPC")
	}
	s.middleware.use(middleware)
}

// Use adds middleware, which surrounds the calls of the client, as [Server.Use] does on a server.
// It sees a call once for all its rounds, also when the cache answers it, but none made before Use
// or by [Connect], [Dial] and [Client.Forward]. The handle of a task is an answer, its later result
// is not. Errors fail the call; a *[ToolError] is the result of tools/call.
func (c *Client) Use(middleware ...func(next Handler) Handler) { c.middleware.use(middleware) }

// middleware is what Use has added. Each Handler knows its number, by which it finds the next
// one: so it is made only once.
type middleware struct {
	mu  sync.Mutex
	all atomic.Pointer[[]Handler] // copied when it changes; nil: none
}

func (m *middleware) use(added []func(Handler) Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Handler
	if old := m.all.Load(); old != nil {
		all = slices.Clone(*old)
	}
	for _, wrap := range added {
		if wrap == nil {
			misuse("Use: the middleware is nil")
		}
		next := len(all) + 1
		h := wrap(func(ctx context.Context, r *Request) (*Response, error) { return m.run(ctx, r, next) })
		if h == nil {
			misuse("Use: the middleware returned no Handler")
		}
		all = append(all, h)
	}
	if len(all) > 0 {
		m.all.Store(&all)
	}
}

func (m *middleware) none() bool { return m.all.Load() == nil }

// run calls the middleware of that number, or else what it surrounds.
func (m *middleware) run(ctx context.Context, r *Request, number int) (*Response, error) {
	switch all := *m.all.Load(); {
	case r == nil || r.call == nil && r.out == nil:
		return nil, errOtherRequest
	case number < len(all):
		return all[number](ctx, r)
	}
	return r.pass(ctx)
}

// A middlewareError is a mistake of middleware: nothing for the model to read.
type middlewareError struct{ error }

func (e *middlewareError) Error() string { return "mcp: middleware " + e.error.Error() }
func (e *middlewareError) Unwrap() error { return e.error }

var (
	errOtherRequest = &middlewareError{
		errors.New("passed on another Request than it got; change the fields of that one"),
	}
	errOtherContext = &middlewareError{
		errors.New(
			"passed on a context that does not derive from its own; derive it, so that its values remain"),
	}
	errNoResponse = &middlewareError{errors.New("returned neither a Response nor an error")}
	errTooLate    = &middlewareError{errors.New("called next after it had returned")}
)

// pass lets the server answer, or the client make the call. The mutex keeps next from running twice
// at a time, and end from coming before its end: params are lent.
func (r *Request) pass(ctx context.Context) (*Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil, errTooLate
	}
	err := r.apply()
	if err != nil {
		return nil, err
	}
	var a answer
	if r.call != nil {
		a, err = r.serve(ctx)
	} else {
		a, err = r.send(ctx)
	}
	if err != nil {
		return nil, err
	}
	res := &r.response
	if r.answered {
		res = &Response{} // the first one is the caller's
	}
	r.answered, res.answer = true, a
	return res, nil
}

// end waits for next, if middleware has left it running in a goroutine.
func (r *Request) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
}

// A Response is the result of a request. It is not to be changed.
type Response struct{ answer answer }

// Raw returns the result as JSON, in the form of the newest revision. It is not to be changed.
func (r *Response) Raw() jsonrpc.Raw { return r.answer.raw }

// Decode stores the result in what v points to: a [ToolResult] for tools/call, for example. One
// that asks the client for more has the ResultType spec.ResultInputRequired.
func (r *Response) Decode(v any) error { return jsonv2.Unmarshal(r.answer.raw, v) }

// Err returns why the result of a tool has IsError: the error of its handler, or else a
// *[ToolError]. It returns nil for other results.
func (r *Response) Err() error {
	if r.answer.failure != nil {
		return r.answer.failure
	}
	if string(scan.Member(r.answer.raw, "isError")) != "true" {
		return nil
	}
	t := new(ToolResult)
	if err := r.Decode(t); err != nil {
		return err
	}
	return &ToolError{t}
}

// surrounded serves a request within the middleware. m is nil for a method that is not in the
// table.
func (s *Server) surrounded(c *call, m *method, req *farcall.Request) (answer, error) {
	r := c.request // of newCall
	if r == nil || r.call != nil {
		r = new(Request)
	}
	c.fillRequest(r)
	c.request, r.method, r.req = r, m, req
	defer r.end()
	res, err := s.middleware.run(c, r, 0)
	if err == nil && res == nil {
		err = errNoResponse
	}
	if _, wrong := errors.AsType[*middlewareError](err); c.method == spec.MethodToolsCall &&
		err != nil && !wrong {
		return toolOutcome(c, answer{}, err)
	}
	if err != nil {
		return answer{}, err
	}
	return res.answer, nil
}

// serve is what the middleware of a server surrounds.
func (r *Request) serve(ctx context.Context) (answer, error) {
	c := r.call
	if from := callFrom(ctx); from == nil || from.request != r {
		return answer{}, errOtherContext
	}
	r.running.Store(true)
	defer r.running.Store(false)
	req := r.req
	if r.sent != nil {
		own := *req
		own.Params, req = c.params, &own
		if c.mounted == nil {
			c.sent = r.sent
		}
	}
	if r.tried || ctx != context.Context(c) {
		c = c.apart(ctx)
		defer c.end()
	}
	if r.tried && !c.nested { // the attempt before has ended what its handler asked
		c.mayAsk, c.asks = false, nil
	}
	r.tried = true
	return c.server().answer(c, r.method, req)
}

// apart returns a call like c over ctx, which is c or derives from it.
func (c *call) apart(ctx context.Context) *call {
	if ctx == context.Context(c) {
		ctx = c.Parent()
	}
	return (&call{
		srv: c.srv, mounted: c.mounted, rev: c.rev, session: c.session, who: c.who, client: c.client,
		method: c.method, id: c.id, params: c.params, in: c.in, logLevel: c.logLevel, sent: c.sent,
		request: c.request, nested: c.nested, shown: c.shown,
		// None of these is set before the handler runs, unless the call is nested.
		mayAsk: c.mayAsk, asks: c.asks, task: c.task,
	}).derive(ctx)
}

// surrounded makes a call within the middleware.
func (c *Client) surrounded(ctx context.Context, q *outgoing) (jsonrpc.Raw, error) {
	own := *q
	own.client = c
	r := &Request{Method: q.method, in: &inputs{}, out: &own}
	if err := r.in.read(q.params); err != nil {
		return nil, fmt.Errorf("mcp: %q: %w", q.method, err)
	}
	r.fill("")
	defer r.end()
	res, err := c.middleware.run(ctx, r, 0)
	if a, ok := ownResult(err); ok && q.method == spec.MethodToolsCall {
		return a.raw, nil
	}
	switch {
	case err != nil:
		return nil, err
	case res == nil:
		return nil, errNoResponse
	}
	return res.answer.raw, nil
}

// send is what the middleware of a client surrounds.
func (r *Request) send(ctx context.Context) (answer, error) {
	q := *r.out
	if q.tool != nil && r.sent != nil {
		q.header = arguments.Headers(q.tool.headers, r.Arguments)
	}
	raw, err := q.client.rounds(ctx, &q)
	return answer{raw: raw}, err
}

// ServeRPC serves a message that belongs to no session: a request of the modern
// era, which says in its _meta all that there is to know.
func (s *Server) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	s.checkMade()
	if s.intercepted == nil {
		return s.serve(ctx, req)
	}
	return s.intercepted.ServeRPC(callctx.WithValue(ctx, entryKey{}, s), req)
}

// ServeRPC serves what the client sends.
func (x *session) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if x.srv.intercepted == nil {
		return x.serve(ctx, req)
	}
	return x.srv.intercepted.ServeRPC(callctx.WithValue(ctx, entryKey{}, x), req)
}

// intercept wraps what the server serves in the interceptors of its options. They
// are the server's and not the connection's, so that no way to mount it leaves
// them out.
func (s *Server) intercept() {
	if s.opts.RPC == nil || len(s.opts.RPC.Interceptors) == 0 {
		return
	}
	s.intercepted = farcall.HandlerFunc(s.afterInterceptors)
	for _, wrap := range slices.Backward(s.opts.RPC.Interceptors) {
		s.intercepted = wrap(s.intercepted)
	}
}

var errLostEntry = errors.New(
	"mcp: an interceptor passed on a context that does not derive from its own; derive it, so that " +
		"its values remain")

func (s *Server) afterInterceptors(ctx context.Context, req *farcall.Request) (any, error) {
	switch e := ctx.Value(entryKey{}).(type) {
	case *Server:
		if e == s {
			return s.serve(ctx, req)
		}
	case *session:
		if e.srv == s {
			return e.serve(ctx, req)
		}
	}
	return nil, errLostEntry
}

// An entryKey has, in the context of interceptors, where a message belongs past them: to a
// *session, or it stands alone at a *Server.
type entryKey struct{}

// HTTPOptions returns a copy of ServerOptions.HTTP, with what ServerOptions.RPC
// and Logger say about its connections. mcphttp.NewHandler uses it: see
// [mcphttp.Configured].
func (s *Server) HTTPOptions() *mcphttp.Options {
	s.checkMade()
	var o mcphttp.Options
	if s.opts.HTTP != nil {
		o = *s.opts.HTTP
	}
	if s.trace != nil {
		o.Trace = s.trace
	}
	if len(o.Keys) == 0 {
		o.Keys = s.opts.Keys
	}
	switch {
	case o.RPC == nil:
		o.RPC = s.rpcOptions()
	case o.RPC.Logger == nil:
		rpc := *o.RPC
		rpc.Logger = s.rpcOptions().Logger
		o.RPC = &rpc
	}
	return &o
}

// Owner returns ServerOptions.Owner.
func (s *Server) Owner() func(context.Context) string { return s.opts.Owner }

// rpcOptions are the options of connections. The interceptors are not among
// them: the server runs them itself.
func (s *Server) rpcOptions() *farcall.Options {
	o := farcall.Options{}
	if s.opts.RPC != nil {
		o = *s.opts.RPC
	}
	o.Interceptors = nil
	if o.Logger == nil {
		o.Logger = s.opts.Logger
	}
	return &o
}
