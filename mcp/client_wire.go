package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/cancel"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/internal/observed"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A line is a connection to the server, of any kind, and takes what the server
// sends on its own. Over HTTP it lasts as long as the client.
type line struct {
	c     *Client
	peer  *farcall.Peer
	http  *mcphttp.Client              // nil over streams
	sse   bool                         // over HTTP+SSE; changed while a link is made
	rev   atomic.Pointer[era.Revision] // nil until it is agreed on
	asked attention                    // by the server, for what callbacks answer

	// opening is held while a subscription waits for its acknowledgement: which
	// one it is of is known from the order only.
	opening chan struct{}
	pending atomic.Pointer[subscription]

	told  tally   // notifications that were handled
	later backlog // of HTTP+SSE

	// Over HTTP requests of the server come one by one, out of a peer's sight.
	responder *farcall.Responder
	mu        sync.Mutex
	answering map[string]context.CancelCauseFunc // by id
	reports   map[string]progressSink            // of calls under way, by progress token
}

// lineOver starts a peer on a transport.
func (c *Client) lineOver(t farcall.Transport) *line {
	w := &line{c: c, opening: make(chan struct{}, 1)}
	w.peer = farcall.NewPeer(c.trace.Transport(t), w, c.rpcOptions())
	return w
}

// lineHTTP puts a peer above an HTTP client.
func (c *Client) lineHTTP(x *mcphttp.Client) *line {
	w := &line{
		c: c, http: x, opening: make(chan struct{}, 1),
		answering: map[string]context.CancelCauseFunc{}, reports: map[string]progressSink{},
	}
	w.responder = farcall.NewResponder(w, c.rpcOptions())
	w.peer = farcall.NewClient(w, w, c.rpcOptions())
	return w
}

func (c *Client) rpcOptions() *farcall.Options {
	var o farcall.Options
	if c.opts.RPC != nil {
		o = *c.opts.RPC
	}
	o.Dialect = mcphttp.Dialect()
	o.Observer = observed.Calls(o.Observer)
	if len(c.opts.Resume) > 0 {
		// A client uses no id twice in a session (2025-11-25, basic, "Requests"). Which ids the earlier
		// clients have used is not known: they may have made calls after Session, and ended without
		// Close.
		o.FirstID = 1<<32 + rand.Uint64N(1<<48) //nolint:gosec // no secret
	}
	return &o
}

// adopt notes what is spoken from now on; nil: nothing is agreed on.
func (w *line) adopt(rev *era.Revision) {
	w.rev.Store(rev)
	if w.http != nil {
		w.http.Use(rev)
	}
}

// Exchange implements farcall.Exchanger. What the server sends along with the
// answers is taken here, so that a callback that waits for a user holds up
// neither the answers nor what else there is.
func (w *line) Exchange(ctx context.Context, frame []byte, reply func(frame []byte) error) error {
	defer w.expectProgress(ctx, frame)()
	during := detached(ctx)
	var bad error // the first invalid message
	err := w.http.Exchange(ctx, frame, func(frame []byte) error {
		return eachMessage(frame, func(message []byte) error {
			if bytes.Contains(message, []byte(`"method"`)) && w.take(during, message) {
				return nil
			}
			err := reply(message)
			if errors.Is(err, farcall.ErrProtocol) { // what the call waits for may still come
				w.c.warn("passed over what is no message: %w", err)
				bad, err = cmp.Or(bad, err), nil
			}
			return err
		})
	})
	switch {
	case err == nil:
		err = bad // which says why, if there was no answer
	case errors.Is(err, mcphttp.ErrSessionLost) && !refusedSession(err):
		err = fmt.Errorf("%w: %w", errTaken, err)
	}
	return err
}

// errTaken is wrapped by the failure of an exchange with the request that the server had
// taken before its session was gone.
var errTaken = errors.New("the answer is lost")

// refusedSession reports whether a request was refused because its session is
// gone. Around that error of a request there is none; there is one when a stream
// cannot be resumed.
func refusedSession(err error) bool {
	all, ok := err.(interface{ Unwrap() []error })
	return ok && slices.Contains(all.Unwrap(), mcphttp.ErrSessionLost)
}

// eachMessage gives the messages of a frame to f, one by one, so that none of a
// batch spoils the others.
func eachMessage(frame []byte, f func(message []byte) error) error {
	if i := scan.Space(frame, 0); i == len(frame) || frame[i] != '[' || jsonrpc.Valid(frame) != nil {
		return f(frame)
	}
	for message := range scan.Elements(frame) {
		if err := f(message); err != nil {
			return err
		}
	}
	return nil
}

// expectProgress has the progress of the call in a frame given to it also when
// it comes on another stream than the answer, until stop is called: many a
// legacy server does not know which call it reports of.
func (w *line) expectProgress(ctx context.Context, frame []byte) (stop func()) {
	sink, _ := ctx.Value(sinkKey{}).(progressSink)
	if rev := w.rev.Load(); sink == nil || rev == nil || !rev.Handshake {
		return func() {}
	}
	meta := scan.Member(scan.Member(frame, "params"), "_meta")
	token := string(scan.Member(meta, spec.MetaProgressToken))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports[token] = sink
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.reports, token)
	}
}

// progressed takes a report that has not come on the stream of its call.
func (w *line) progressed(params jsonrpc.Raw) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sink := w.reports[string(scan.Member(params, spec.MetaProgressToken))]; sink != nil {
		sink(params)
	}
}

// Close implements farcall.Exchanger.
func (w *line) Close() error { return w.http.Close() }

// take handles a message of a stream that is a request or notification, but not
// progress, which belongs to a call. Notifications are handled in order and
// before it returns, requests on their own.
func (w *line) take(ctx context.Context, frame []byte) bool {
	var d jsonrpc.Decoder
	var b jsonrpc.Batch
	if d.Decode(frame, &b) != nil || b.Array {
		return false
	}
	switch m := &b.Messages[0]; {
	case m.Kind == jsonrpc.Notification && string(m.Method) == spec.NotificationCancelled:
		w.cancelled(m.Params)
	case m.Kind == jsonrpc.Notification && string(m.Method) != spec.NotificationProgress:
		w.responder.Respond(ctx, nil, frame, nil)
	case m.Kind == jsonrpc.Request && m.ID.IsNull():
		w.c.warn("the server sent a request %q with an id that is null, which cannot be answered",
			m.Method)
	case m.Kind == jsonrpc.Request:
		w.answer(ctx, m.ID.String(), frame)
	default:
		return false
	}
	return true
}

// answer answers a request with its own exchange.
func (w *line) answer(ctx context.Context, id string, frame []byte) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	w.answering[id] = cancel
	w.mu.Unlock()
	ok := w.c.spawn(func() {
		defer cancel(nil)
		answer := w.responder.Respond(ctx, nil, frame, nil)
		w.mu.Lock()
		delete(w.answering, id)
		w.mu.Unlock()
		if ctx.Err() != nil {
			return // the server has cancelled it, or waits no more
		}
		if err := w.deliver(ctx, answer); err != nil && ctx.Err() == nil {
			w.c.warn("the answer to a request of the server was not delivered: %w", err)
		}
	})
	if !ok {
		cancel(nil)
	}
}

// deliver sends an answer, several times if the server is not reached: its call waits for it, and
// an answer that comes twice does no harm.
func (w *line) deliver(ctx context.Context, answer []byte) error {
	for failures := 1; ; failures++ {
		err := w.http.Exchange(ctx, answer, func([]byte) error { return nil })
		if err == nil || failures == maxDeliveries || !errors.Is(err, mcphttp.ErrConnect) {
			return err
		}
		if backoff.Sleep(ctx, backoff.Delay(failures, deliverPause, maxDeliverPause)) != nil {
			return err
		}
	}
}

// How often an answer is sent, within some seconds.
const (
	maxDeliveries   = 6
	deliverPause    = 100 * time.Millisecond
	maxDeliverPause = 2 * time.Second
)

func (w *line) cancelled(params jsonrpc.Raw) {
	var p spec.CancelledNotificationParams
	if jsonv2.Unmarshal(params, &p) != nil {
		return
	}
	var reason error
	if p.Reason != "" {
		reason = &farcall.CancelError{Reason: cancel.Bound(p.Reason)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := w.answering[p.RequestID.String()]; end != nil {
		end(reason)
	}
}

// ServeRPC implements farcall.Handler: it takes what the server sends.
func (w *line) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if req.IsNotification() {
		defer w.told.add()
		w.notified(ctx, req.Method, req.Params)
		return nil, nil
	}
	if req.Method == spec.MethodPing {
		return jsonrpc.Raw("{}"), nil
	}
	rev := w.rev.Load()
	if rev == nil || rev.InputRounds {
		// basic/patterns/mrtr: servers send no requests any more.
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound,
			"this client answers no request %q: it comes as an input request in this revision", req.Method)
	}
	w.asked.begin()
	defer w.asked.end()
	params, err := era.Translate(era.Params, req.Method, req.Params, rev, era.Latest())
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "Invalid params", Cause: err}
	}
	result, err := w.c.answerRequest(ctx, req.Method, params)
	if err != nil {
		if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && w.c.opts.Ask != nil {
			err = era.Code(wire, era.Latest(), rev)
		}
		return nil, err
	}
	return era.Translate(era.Result, req.Method, result, era.Latest(), rev)
}

// notified handles a notification.
func (w *line) notified(ctx context.Context, method string, params jsonrpc.Raw) {
	if rev := w.rev.Load(); rev != nil && rev != era.Latest() {
		up, err := era.Translate(era.Notification, method, params, rev, era.Latest())
		if err != nil {
			w.c.warn("a notification %q of the server is not valid: %w", method, err)
			return
		}
		params = up
	}
	if method == spec.NotificationProgress {
		w.progressed(params)
		return
	}
	c, o := w.c, &w.c.opts
	c.forget(method)
	if o.OnNotice != nil && o.OnNotice(ctx, method, params) {
		o = &ClientOptions{} // there is no other callback
	}
	switch method {
	case spec.NotificationMessage:
		deliver(c, method, params, o.OnLog)
	case spec.NotificationToolsListChanged:
		o.listChanged("tools")
	case spec.NotificationPromptsListChanged:
		o.listChanged("prompts")
	case spec.NotificationResourcesListChanged:
		o.listChanged("resources")
	case spec.NotificationResourcesUpdated:
		deliver(c, method, params, func(p *spec.ResourceUpdatedNotificationParams) {
			c.cache.drop(spec.MethodResourcesRead, p.URI)
			if o.OnResourceUpdated != nil {
				o.OnResourceUpdated(p.URI)
			}
		})
	case spec.NotificationTasks:
		deliver(c, method, params, func(t *spec.DetailedTask) { c.taskChanged(o, t) })
	case spec.NotificationTasksStatus:
		deliver(c, method, params, func(p *spec.LegacyTask) { c.taskChanged(o, modernTask(p)) })
	case spec.NotificationSubscriptionsAcknowledged:
		deliver(c, method, params, func(p *spec.SubscriptionsAcknowledgedNotificationParams) {
			w.acknowledged(ctx, p)
		})
	default:
		c.callBack(o, method, params)
	}
}

// callBack gives a notification to a callback: it means nothing to the client itself.
func (c *Client) callBack(o *ClientOptions, method string, params jsonrpc.Raw) {
	switch {
	case method == spec.NotificationElicitationComplete && o.OnElicitationComplete != nil:
		deliver(c, method, params, func(p *spec.ElicitationCompleteNotificationParams) {
			o.OnElicitationComplete(p.ElicitationID)
		})
	case o.OnNotification != nil:
		o.OnNotification(method, bytes.Clone(params))
	}
}

// deliver decodes the params of a notification for a callback, if there is one.
func deliver[P any](c *Client, method string, params jsonrpc.Raw, f func(*P)) {
	if f == nil {
		return
	}
	p := new(P)
	if err := jsonv2.Unmarshal(object.OrEmpty(params), p); err != nil {
		c.warn("a notification %q of the server is not valid: %w", method, err)
		return
	}
	f(p)
}

// forget drops the lists that have changed, by a notification.
func (c *Client) forget(notification string) {
	switch notification {
	case spec.NotificationToolsListChanged:
		c.shelf.settle(nil)
		c.cache.drop(spec.MethodToolsList, "")
	case spec.NotificationPromptsListChanged:
		c.cache.drop(spec.MethodPromptsList, "")
	case spec.NotificationResourcesListChanged:
		c.cache.drop(spec.MethodResourcesList, "")
		c.cache.drop(spec.MethodResourcesTemplatesList, "")
	}
}

func (o *ClientOptions) listChanged(kind string) {
	if o.OnListChanged != nil {
		o.OnListChanged(kind)
	}
}

// unasked takes what comes on the event stream of 2024-11-05 and belongs to no
// exchange. OnNotice is called before what follows on the stream is looked at; other
// callbacks may make calls, and their answers come there, and so wait in a backlog.
func (w *line) unasked(ctx context.Context, frame []byte) error {
	if w.c.opts.OnNotice != nil {
		w.handle(ctx, frame)
		return nil
	}
	return w.later.put(ctx, w, frame)
}

// handle handles a frame of a stream that belongs to no call.
func (w *line) handle(ctx context.Context, frame []byte) {
	_ = eachMessage(frame, func(message []byte) error {
		if !w.take(ctx, message) { // progress of a call, or nothing of use
			w.responder.Respond(ctx, nil, message, nil)
		}
		return nil
	})
}

// What a backlog holds at most.
const (
	maxBacklog      = 10_000
	maxBacklogBytes = 64 << 20
)

// A backlog has the frames that are still to be handled, in order.
type backlog struct {
	mu      sync.Mutex
	frames  [][]byte
	bytes   int
	running bool // a goroutine handles them
}

func (b *backlog) put(ctx context.Context, w *line, frame []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frames) >= maxBacklog || b.bytes > maxBacklogBytes {
		return fmt.Errorf(
			"%w: %d messages of the server wait for the callbacks of ClientOptions to return",
			farcall.ErrProtocol, len(b.frames))
	}
	b.frames, b.bytes = append(b.frames, frame), b.bytes+len(frame)
	b.running = b.running || w.c.spawn(func() { b.run(ctx, w) })
	return nil
}

func (b *backlog) run(ctx context.Context, w *line) {
	for {
		b.mu.Lock()
		if len(b.frames) == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}
		frame := b.frames[0]
		b.frames[0] = nil
		b.frames, b.bytes = b.frames[1:], b.bytes-len(frame)
		b.mu.Unlock()
		w.handle(ctx, frame)
	}
}

// A tally counts notifications that were handled.
type tally struct {
	mu     sync.Mutex
	n      uint64
	change chan struct{} // closed when n grows; nil: no goroutine waits
}

func (t *tally) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if t.change != nil {
		close(t.change)
		t.change = nil
	}
}

// wait waits for as many as have come by now.
func (t *tally) wait(ctx context.Context, p *farcall.Peer) {
	for came := p.Stats().Notifications; ; {
		t.mu.Lock()
		if t.n >= came {
			t.mu.Unlock()
			return
		}
		if t.change == nil {
			t.change = make(chan struct{})
		}
		change := t.change
		t.mu.Unlock()
		select {
		case <-change:
		case <-p.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
