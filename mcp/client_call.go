package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/internal/observed"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Request calls any method. The params and the result are in the form of the newest
// revision, whatever the server speaks: params marshal to an object, or are nil;
// the result is unmarshalled into what result points to, and a *jsonrpc.Raw
// takes its bytes.
//
// It does all that a call needs in the server's revision: it adds the metadata,
// answers what the server asks for with the callbacks of ClientOptions and calls
// again, and takes from the cache what may be.
func (c *Client) Request(ctx context.Context, method string, params, result any) error {
	raw, err := objectOf(params)
	if err != nil {
		return fmt.Errorf("mcp: call %q: %w", method, err)
	}
	answer, err := c.call(ctx, &outgoing{method: method, params: raw})
	if err != nil {
		return err
	}
	return decodeResult(method, answer, result)
}

// objectOf marshals params, which must be an object or nothing.
func objectOf(params any) (jsonrpc.Raw, error) {
	raw, ok := params.(jsonrpc.Raw)
	if !ok && params != nil {
		var err error
		if raw, err = jsonv2.Append(nil, params); err != nil {
			return nil, fmt.Errorf("the params cannot be marshalled: %w", err)
		}
	}
	if err := jsonrpc.Valid(raw); len(raw) > 0 && err != nil {
		return nil, fmt.Errorf("the params are not valid JSON: %w", err)
	}
	switch i := scan.Space(raw, 0); {
	case len(raw) == 0, string(raw) == "null":
		return nil, nil
	case raw[i] != '{':
		return nil, fmt.Errorf("the params are %.20s; they must be an object", raw)
	}
	return raw, nil
}

func decodeResult(method string, raw jsonrpc.Raw, result any) error {
	switch r := result.(type) {
	case nil:
		return nil
	case *jsonrpc.Raw:
		*r = raw
		return nil
	}
	err := jsonv2.Unmarshal(raw, result)
	if err != nil { // hints for the cache are no reason to lose the rest
		err = jsonv2.Unmarshal(object.New(raw, "ttlMs", "cacheScope").End(), result)
	}
	if err != nil {
		return fmt.Errorf("mcp: the result of %q does not fit %T: %w", method, result, err)
	}
	return nil
}

// outgoing is a call that is to be made.
type outgoing struct {
	method string
	params jsonrpc.Raw // an object in canonical form, or nil
	header http.Header // Mcp-Param-… of a tool
	tool   *knownTool  // what they are made for; nil: none
	client *Client     // with middleware
	fresh  bool        // do not take it from the cache
	task   bool        // the answer may be a task
	rounds *observed.Rounds
}

// call makes a call, within the middleware, and returns the result in canonical form.
func (c *Client) call(ctx context.Context, q *outgoing) (jsonrpc.Raw, error) {
	if c.middleware.none() {
		return c.rounds(ctx, q)
	}
	return c.surrounded(ctx, q)
}

// rounds makes a call, in as many rounds as the server wants.
func (c *Client) rounds(ctx context.Context, q *outgoing) (jsonrpc.Raw, error) {
	entry := c.cache.entry(q.method, q.params)
	if raw := c.cache.get(entry); raw != nil && !q.fresh {
		return raw, nil
	}
	round := *q
	round.rounds = observed.NewRounds(c.opts.RPC)
	for n := 1; ; n++ {
		raw, err := c.visiting(ctx, &round)
		if err != nil {
			return nil, err
		}
		head := headOf(raw)
		switch {
		case head.kind == "" || head.kind == spec.ResultComplete:
			if n == 1 { // server/utilities/caching, "Cache Key"
				c.cache.put(entry, raw, head.ttl)
			}
			return raw, nil
		case head.kind == spec.ResultTask && q.task:
			return raw, nil
		case head.kind != spec.ResultInputRequired:
			// basic, "Responses": what it means is not known.
			return nil, fmt.Errorf("mcp: %q: %w: the server answered a result of the unknown type %q",
				q.method, farcall.ErrProtocol, head.kind)
		case n > c.opts.MaxRounds:
			return nil, c.tooManyRounds(q.method)
		}
		if round.params, err = c.nextRound(ctx, q, raw); err != nil {
			return nil, fmt.Errorf("mcp: %q: %w", q.method, err)
		}
		round.rounds.Next()
	}
}

func (c *Client) tooManyRounds(method string) error {
	return fmt.Errorf(
		"mcp: %q: the server asked for more %d times and wants more still; see ClientOptions.MaxRounds",
		method, c.opts.MaxRounds)
}

// nextRound answers what the server asks for and returns the params of the next
// round (basic/patterns/mrtr).
func (c *Client) nextRound(ctx context.Context, q *outgoing, raw jsonrpc.Raw) (jsonrpc.Raw, error) {
	switch q.method {
	case spec.MethodToolsCall, spec.MethodPromptsGet, spec.MethodResourcesRead:
	default:
		return nil, fmt.Errorf("%w: the server asks for more, which it may not in this method",
			farcall.ErrProtocol)
	}
	var want struct {
		InputRequests map[string]spec.InputRequest `json:"inputRequests"`
		RequestState  jsonrpc.Raw                  `json:"requestState"` // echoed as it is
	}
	if err := jsonv2.Unmarshal(raw, &want); err != nil {
		return nil, fmt.Errorf("%w: the server asks for more in a way that is not valid: %w",
			farcall.ErrProtocol, err)
	}
	if len(want.InputRequests) == 0 && want.RequestState == nil {
		return nil, fmt.Errorf("%w: the server asks for more but does not say for what",
			farcall.ErrProtocol)
	}
	params := object.New(q.params, "inputResponses", "requestState")
	if want.InputRequests != nil {
		responses, err := c.answerAll(ctx, want.InputRequests)
		if err != nil {
			return nil, err
		}
		params.Add("inputResponses", responses)
	}
	if want.RequestState != nil {
		params.Add("requestState", want.RequestState)
	}
	return params.End(), nil
}

// once makes one round of a call.
func (c *Client) once(ctx context.Context, q *outgoing) (raw jsonrpc.Raw, err error) {
	_, err = c.attempt(ctx, q.method, func(l *link) error {
		raw, err = c.exchange(ctx, l, q)
		return err
	})
	return raw, err
}

// attempt sends something on the link, and again when that has failed in a way
// that can be repaired and has had no effect. It returns the last link.
func (c *Client) attempt(
	ctx context.Context, method string, send func(*link) error,
) (*link, error) {
	for again := false; ; again = true {
		l, err := c.link(ctx)
		switch {
		case err != nil && again:
			return nil, fmt.Errorf("mcp: %q: %w", method, err)
		case err != nil:
			return nil, fmt.Errorf("%w: %q: %w", farcall.ErrNotSent, method, err)
		}
		if err = send(l); err == nil {
			return l, nil
		}
		if l.http == nil && errors.Is(err, farcall.ErrClosed) {
			l.stop() // also when the peer still answers what it was asked
		}
		if !again && ctx.Err() == nil && c.repaired(ctx, l, method, err) {
			continue
		}
		return l, c.failure(l, method, err)
	}
}

// repaired reports whether the cause of an error is gone and the call can be
// made again.
func (c *Client) repaired(ctx context.Context, l *link, method string, err error) bool {
	var wire *jsonrpc.Error
	var status *mcphttp.StatusError
	lost, taken := errors.Is(err, mcphttp.ErrSessionLost), errors.Is(err, errTaken)
	switch {
	case lost: // a 404: the server has not looked at the call, unless it had taken it before
	case l.rev.RequestMeta && errors.As(err, &wire):
		// A legacy server, which may have taken the place of a modern one, refuses so what has no
		// session.
		legacy := wire.Code == jsonrpc.InvalidRequest && errors.As(err, &status) &&
			status.Status == http.StatusBadRequest
		if wire.Code != spec.UnsupportedProtocolVersion && !legacy {
			return false
		}
	case l.rev.RequestMeta && errors.As(err, &status):
		// The server is another one now: it is older, as a rule.
		switch status.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		default:
			return false
		}
	case errors.Is(err, farcall.ErrClosed):
		return c.dial != nil && harmless(method) // link connects again
	default:
		return false
	}
	if _, again := c.renew(ctx, l); again != nil {
		c.warn("%q failed (%w), and the server could not be asked again: %w", method, err, again)
		return false
	}
	if lost && c.opts.OnSessionLost != nil && l.lost.CompareAndSwap(false, true) {
		// all calls under way find out
		c.opts.OnSessionLost()
	}
	return !taken || harmless(method)
}

// harmless reports whether a call only reads, so that it may be made twice.
func harmless(method string) bool {
	switch method {
	case spec.MethodServerDiscover, spec.MethodToolsList, spec.MethodResourcesList,
		spec.MethodResourcesTemplatesList,
		spec.MethodResourcesRead, spec.MethodPromptsList, spec.MethodPromptsGet,
		spec.MethodCompletionComplete,
		spec.MethodTasksGet, spec.MethodTasksList, spec.MethodPing:
		return true
	}
	return false
}

// failure makes an error one of a call.
func (c *Client) failure(l *link, method string, err error) error {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		if wire.Code == spec.URLElicitationRequired && l.rev.URLElicitationRequired == wire.Code {
			return wire // by this code it is known to callers; see visiting
		}
		return era.Code(wire, l.rev, era.Latest())
	}
	switch {
	case errors.Is(err, farcall.ErrNotSent):
		return err
	case errors.Is(err, mcphttp.ErrSessionLost) && !errors.Is(err, errTaken):
		return fmt.Errorf("%w: %q: %w", farcall.ErrNotSent, method, err)
	case (errors.Is(err, farcall.ErrClosed) || errors.Is(err, errTaken)) && !harmless(method):
		return fmt.Errorf("mcp: %q was under way and may or may not have had its effect: %w", method, err)
	}
	return fmt.Errorf("mcp: %w", err)
}

// exchange makes one attempt of a call on a link.
func (c *Client) exchange(ctx context.Context, l *link, q *outgoing) (raw jsonrpc.Raw, err error) {
	params := q.params
	if l.rev.RequestMeta {
		params, err = c.modernParams(l.rev, params)
	} else {
		params, err = era.Translate(era.Params, q.method, params, era.Latest(), l.rev)
	}
	if err != nil {
		return nil, err
	}
	if l.http != nil && q.header != nil {
		ctx = mcphttp.WithHeader(ctx, q.header)
	}
	if raw, err = c.send(q.rounds.Within(ctx), l.line, q.method, params); err != nil {
		return nil, err
	}
	return era.Translate(era.Result, q.method, raw, l.rev, era.Latest())
}

// modernParams adds to params the metadata that each modern request has
// (2026-07-28, basic, "_meta"). What the caller has given counts, except for the
// revision.
func (c *Client) modernParams(rev *era.Revision, params jsonrpc.Raw) (jsonrpc.Raw, error) {
	meta, err := c.requestMeta(rev)
	if err != nil {
		return nil, err
	}
	if given := scan.Member(params, "_meta"); given != nil {
		merged := object.New(given, spec.MetaProtocolVersion)
		for key, value := range scan.Members(meta) {
			if string(key) == spec.MetaProtocolVersion || scan.Member(given, string(key)) == nil {
				merged.Add(string(key), value)
			}
		}
		meta = merged.End()
	}
	all := object.New(params, "_meta")
	all.Add("_meta", meta)
	return all.End(), nil
}

// metadata is the _meta of a request, made once.
type metadata struct {
	rev *era.Revision
	raw jsonrpc.Raw
}

// requestMeta returns what the _meta of each request in a revision holds.
func (c *Client) requestMeta(rev *era.Revision) (jsonrpc.Raw, error) {
	if m := c.meta.Load(); m != nil && m.rev == rev {
		return m.raw, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock() // level and meta change together
	var err error
	o := object.New(nil)
	add := func(name string, value any) {
		if err == nil {
			err = o.Marshal(name, value)
		}
	}
	add(spec.MetaProtocolVersion, rev.Name)
	add(spec.MetaClientInfo, c.implementation())
	add(spec.MetaClientCapabilities, c.capabilities(true))
	if c.level != "" {
		add(spec.MetaLogLevel, c.level)
	}
	if err != nil {
		return nil, fmt.Errorf("ClientOptions: the capabilities cannot be marshalled: %w", err)
	}
	m := &metadata{rev: rev, raw: o.End()}
	c.meta.Store(m)
	return m.raw, nil
}

// link returns the link that is there, or makes one.
func (c *Client) link(ctx context.Context) (*link, error) {
	c.mu.Lock()
	l, closed := c.cur, c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, farcall.ErrClosed
	case l.http != nil || !l.gone():
		return l, nil
	case c.dial == nil:
		why := l.peer.Err() // may tell how a child has ended
		switch {
		case why == nil, errors.Is(why, io.EOF):
			why = farcall.ErrClosed
		case !errors.Is(why, farcall.ErrClosed):
			why = fmt.Errorf("%w: %w", farcall.ErrClosed, why)
		}
		return nil, fmt.Errorf("%w; no Redial function is configured: see ClientOptions.Redial", why)
	}
	return c.renew(ctx, l)
}

// gone reports whether a link over a stream is of no use any more.
func (l *link) gone() bool { return l.ctx.Err() != nil || l.peer.Err() != nil }

// renew makes a link in the place of one that is of no use any more, unless
// another call has.
func (c *Client) renew(ctx context.Context, old *link) (*link, error) {
	select {
	case c.making <- struct{}{}:
		defer func() { <-c.making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	now, closed := c.cur, c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, farcall.ErrClosed
	case now != old:
		return now, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)() //nolint:contextcheck // Close ends it, too
	var l *link
	var err error
	switch {
	case old.http != nil || !old.gone():
		l, err = c.agree(ctx, old.line)
	case c.dial == nil:
		err = farcall.ErrClosed
	default:
		_ = old.peer.Close() // it has ended already
		l, err = c.redial(ctx)
	}
	if err != nil {
		return nil, err
	}
	return l, c.replace(ctx, old, l)
}

// replace puts a link in the place of another one. What is cached may be of
// another server.
func (c *Client) replace(ctx context.Context, old, l *link) error {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.cur, c.known = l, l.rev
	}
	c.mu.Unlock()
	old.stop()
	if closed {
		l.stop()
		if l.line != old.line {
			_ = l.peer.Close() // as Close has done with the others
		}
		return farcall.ErrClosed
	}
	c.cache.clear()
	c.settled(ctx, l)
	return nil
}

// head is what the common part of a result says.
type head struct {
	kind string
	ttl  jsonrpc.Raw // ttlMs
}

func headOf(raw jsonrpc.Raw) (h head) {
	for key, value := range scan.Members(raw) {
		switch string(key) {
		case "resultType":
			if value[0] == '"' {
				h.kind = string(scan.Unquote(value))
			} else {
				h.kind = string(value)
			}
		case "ttlMs":
			h.ttl = value
		}
	}
	return h
}
