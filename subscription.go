package farcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/permit"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// HandleSubscription adds something to subscribe to. f is called when the other end subscribes; its
// error refuses that. The sequence that it returns is the producer of the events of this one
// subscriber: it runs once the answer with the id of the subscription is on its way, and waits when
// events are not read as fast as they come, so that none is lost. Its context ends when the
// subscriber unsubscribes and when the connection ends, and the producer must return then. For
// events that many subscribers get, which must not wait for any of them, use [HandleTopic].
//
// What is named "time/ticks" is subscribed to as go-ethereum has it, with [Subscribe] or by hand:
//
//	--> {"jsonrpc":"2.0","id":1,"method":"time/subscribe","params":["ticks",{"interval":100}]}
//	<-- {"jsonrpc":"2.0","id":1,"result":"0x1"}
//	<-- {"jsonrpc":"2.0","method":"time/subscription","params":{"subscription":"0x1","result":"12:00"}}
//	--> {"jsonrpc":"2.0","id":2,"method":"time/unsubscribe","params":["0x1"]}
//	<-- {"jsonrpc":"2.0","id":2,"result":true}
//
// The namespace is what comes before the last slash, else before the last dot, else before the
// first underscore ("eth_newHeads" is had by eth_subscribe). The last event of a subscription that
// the server ends has a member "end", or an "error", instead of the result.
//
// Calling time/ticks itself is a call of a streaming method, for [Stream] and for LSP's partial
// results (partialResultToken): it ends when it is cancelled. HTTP carries this form only.
//
// A connection has [Options.MaxSubscriptions] at most. Otherwise HandleSubscription is like
// [Handle].
func HandleSubscription[P, T any](
	m *Mux, method string, f func(context.Context, P) (iter.Seq2[T, error], error), doc ...string,
) {
	handleSource[P, T](m, method, doc, f, func(seq iter.Seq2[T, error]) source {
		return producer(encoded(seq))
	})
}

// handleSource adds a subscription to what f returns.
func handleSource[P, T, S any](
	m *Mux, method string, doc []string, f func(context.Context, P) (S, error), of func(S) source,
) {
	types := describe[P, T](method, true)
	m.addSubscription(types, method, doc,
		func(ctx context.Context, params jsonrpc.Raw) (source, error) {
			var p P
			if err := types.params.Load().bind(reflect.ValueOf(&p).Elem(), params); err != nil {
				return nil, err
			}
			s, err := f(ctx, p)
			if err != nil {
				return nil, err
			}
			return of(s), nil
		})
}

// A source is where the events of a subscription come from.
type source interface {
	// feed gives events to a subscription, which is opening. It does not wait.
	feed(sub *subscriber)
	// stream gives events to the stream of a call, until its context or the source ends.
	stream(ctx context.Context, out *sink) error
}

// encoded returns the values of a sequence as JSON.
func encoded[T any](seq iter.Seq2[T, error]) iter.Seq2[jsonrpc.Raw, error] {
	return func(yield func(jsonrpc.Raw, error) bool) {
		for v, err := range seq {
			var raw jsonrpc.Raw
			if err == nil {
				raw, err = jsonv2.Append(nil, v)
			}
			if !yield(raw, err) || err != nil {
				return
			}
		}
	}
}

// A producer makes the events of one subscriber.
type producer iter.Seq2[jsonrpc.Raw, error]

func (events producer) feed(sub *subscriber) {
	sub.run = func() {
		returned := false
		defer func() {
			if r := recover(); r != nil {
				sub.finish(sub.panicked(r))
			} else if !returned { // runtime.Goexit
				sub.finish(sub.panicked("the producer called runtime.Goexit"))
			}
		}()
		var failure error
		for value, err := range events {
			if failure = err; err != nil || !sub.send(value) {
				break
			}
		}
		returned = true
		sub.finish(failure)
	}
}

func (events producer) stream(ctx context.Context, out *sink) error {
	for value, err := range events {
		if err == nil {
			err = out.put(ctx, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// panicked logs a panic of the producer and returns the error for the subscriber.
func (sub *subscriber) panicked(r any) error {
	sub.peer.logger().ErrorContext(sub.ctx, "the producer of a subscription panicked", "event",
		sub.space.event, "subscription", sub.id,
		"panic", r, "stack", string(debug.Stack()))
	return &jsonrpc.Error{Code: jsonrpc.InternalError, Message: "Internal error", Cause: panicError{r}}
}

// subscribable is the handler of what can be subscribed to.
type subscribable struct {
	open func(ctx context.Context, params jsonrpc.Raw) (source, error)
}

// ServeRPC implements Handler.
func (h *subscribable) ServeRPC(ctx context.Context, req *Request) (any, error) {
	if req.more == nil || req.more.space == nil {
		return h.stream(ctx, req)
	}
	v := servingFrom(ctx)
	switch {
	case v == nil || v.peer == nil:
		return nil, errNotPushed(*req.more.space, req.Method)
	case req.IsNotification():
		return nil, errNoSubscriptionID
	}
	sub, err := v.peer.subscribe(ctx, v, *req.more.space)
	if err != nil {
		return nil, err
	}
	defer sub.ctx.answered.Store(true)
	stop := context.AfterFunc(ctx, sub.cancel)
	from, err := h.open(sub.ctx, bytes.Clone(req.Params))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		sub.close()
		return nil, err
	}
	from.feed(sub)
	return sub.id, nil
}

var errNoSubscriptionID = jsonrpc.Errorf(jsonrpc.InvalidRequest,
	"A subscription needs a request with an id: the answer names it")

// stream serves a call of the method itself.
func (h *subscribable) stream(ctx context.Context, req *Request) (any, error) {
	out := newSink(req)
	if out.item == nil && !out.asked {
		space, name := namespaceOf(req.Method)
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"%s has no end: call %s with [%q], or ask for progress, as farcall stream does", req.Method,
			space.subscribe, name)
	}
	from, err := h.open(ctx, req.Params)
	if err == nil {
		err = from.stream(ctx, out)
	}
	return nil, err
}

// A namespace is the methods that subscriptions have in common.
type namespace struct{ prefix, subscribe, unsubscribe, event string }

// namespaceOf returns the namespace of what is subscribed to, and its name in there.
func namespaceOf(method string) (namespace, string) {
	at := strings.LastIndexByte(method, '/') + 1
	if at == 0 {
		at = strings.LastIndexByte(method, '.') + 1
	}
	if at == 0 {
		at = strings.IndexByte(method, '_') + 1
	}
	prefix := method[:at]
	return namespace{prefix, prefix + "subscribe", prefix + "unsubscribe", prefix + eventSuffix},
		method[at:]
}

// eventSuffix is how the methods of events end.
const eventSuffix = "subscription"

// addSubscription adds something to subscribe to, and the methods of its namespace.
func (m *Mux) addSubscription(
	types *signature, method string, doc []string,
	open func(context.Context, jsonrpc.Raw) (source, error),
) {
	e := &entry{name: method, handler: &subscribable{open}, doc: doc, types: types}
	types.subscription = true
	m.add(e)
	for m.whole != nil {
		m = m.whole
	}
	space, _ := namespaceOf(e.name)
	m.adding.Lock()
	taken := (*m.methods.Load())[space.subscribe]
	m.adding.Unlock()
	if taken != nil {
		if _, ours := taken.handler.(*subscriptionsOf); !ours {
			misuse("the method %q has a handler already: subscriptions to %q need it",
				space.subscribe, e.name)
		}
		return
	}
	m.add(&entry{name: space.subscribe, handler: &subscriptionsOf{m, space}, doc: []string{
		"Subscribe to events",
		fmt.Sprintf(
			"The first parameter is the name of what to subscribe to, without %q; the others are its own. "+
				"The answer is the id of the subscription. Its events are notifications %s.", space.prefix,
			space.event),
	}})
	Handle(m, space.unsubscribe, func(ctx context.Context, p unsubscription) (bool, error) {
		s := servingFrom(ctx)
		return s != nil && s.peer != nil && s.peer.unsubscribe(p.Subscription, space), nil
	}, "End a subscription", "The answer is whether the connection had it.")
}

// subscribes reports whether addSubscription added the entry.
func (e *entry) subscribes(methods map[string]*entry) bool {
	if e.types != nil && e.types.subscription {
		return true
	}
	space, _ := namespaceOf(e.name)
	subscribe := methods[space.subscribe]
	if subscribe == nil || e.name != space.subscribe && e.name != space.unsubscribe {
		return false
	}
	_, ours := subscribe.handler.(*subscriptionsOf)
	return ours
}

type unsubscription struct {
	Subscription string `json:"subscription" doc:"the id that was answered"`
}

// subscriptionsOf is the handler of the subscribe method of a namespace.
type subscriptionsOf struct {
	mux   *Mux
	space namespace
}

// ServeRPC implements Handler.
func (h *subscriptionsOf) ServeRPC(ctx context.Context, req *Request) (any, error) {
	name, rest, ok := splitSubscribe(req.Params)
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams,
			"Invalid params: a list is expected that begins with one of %s", h.names(ctx))
	}
	method := h.space.prefix + name
	if permitted := permit.From(ctx); permitted != nil {
		if err := permitted(ctx, method, rest); err != nil {
			return nil, err
		}
	}
	e := h.mux.find([]byte(method))
	if e == nil || e.types == nil || !e.types.subscription {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams,
			"Invalid params: there is no subscription %q among %s", name, h.names(ctx))
	}
	inner := *req
	inner.Method, inner.Params, inner.entry = e.name, rest, e
	inner.more = &requestMore{space: &h.space}
	result, err := e.handler.ServeRPC(ctx, &inner)
	if s := servingFrom(ctx); err == nil && s != nil && s.opens() != nil {
		if hold := permit.HoldFrom(ctx); hold != nil {
			sub := s.opens()
			sub.joined(hold(ctx, method, rest, sub.finish))
		}
	}
	return result, err
}

// names are what the namespace has, for who may know all of it.
func (h *subscriptionsOf) names(ctx context.Context) string {
	if permit.From(ctx) != nil {
		return "the subscriptions of the server"
	}
	var all []string
	for _, e := range sorted(h.mux.methods.Load()) {
		if space, name := namespaceOf(e.name); space == h.space && e.types != nil &&
			e.types.subscription {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// splitSubscribe takes the name from the params of a subscribe method. A single object that follows
// are the params by name.
func splitSubscribe(params jsonrpc.Raw) (name string, rest jsonrpc.Raw, ok bool) {
	if at := scan.Space(params, 0); at >= len(params) || params[at] != '[' {
		return "", nil, false
	}
	values := slices.Collect(scan.Elements(params))
	if len(values) == 0 || values[0][0] != '"' {
		return "", nil, false
	}
	name = string(scan.Unquote(values[0]))
	switch values = values[1:]; {
	case len(values) == 0:
		return name, nil, true
	case len(values) == 1 && values[0][0] == '{':
		return name, values[0], true
	}
	rest = append(jsonrpc.Raw{'['}, bytes.Join(values, []byte{','})...)
	return name, append(rest, ']'), true
}

// joinSubscribe is the other way round.
func joinSubscribe(name string, params jsonrpc.Raw) jsonrpc.Raw {
	joined := jsonrpc.AppendString([]byte{'['}, name)
	at := scan.Space(params, 0)
	switch {
	case len(params) == 0:
	case params[at] == '{':
		joined = append(append(joined, ','), params...)
	default:
		for value := range scan.Elements(params) {
			joined = append(append(joined, ','), value...)
		}
	}
	return append(slices.Clip(joined), ']')
}

// A Topic gives events to any number of subscribers, see [HandleTopic]. An event is encoded once
// for all of them, and none of them delays Publish or another one. The zero value is ready for use,
// by any number of goroutines at once.
type Topic[T any] struct {
	// Buffer is how many events wait for a subscriber that does not read as fast as they come, beside
	// what the connection takes. Beyond that, and beyond a quarter of Options.MaxUnsent for all
	// subscriptions of a connection, its oldest events are dropped, and the next one says how many:
	// see [GapError]. Default 1,024.
	Buffer int
	// NoDrop ends the subscription of such a subscriber instead, with an error, after the events that
	// wait.
	NoDrop bool

	hub hub
}

// HandleTopic adds a topic to subscribe to: f is called when the other end subscribes, and returns
// the topic or an error. Otherwise HandleTopic is like [HandleSubscription].
func HandleTopic[P, T any](
	m *Mux, method string, f func(context.Context, P) (*Topic[T], error), doc ...string,
) {
	handleSource[P, T](m, method, doc, f, func(t *Topic[T]) source { return &t.hub })
}

// Publish gives an event to all subscribers. It fails when v has no JSON. All subscribers get
// events in the same order.
func (t *Topic[T]) Publish(v T) error {
	raw, err := jsonv2.Append(nil, v)
	if err != nil {
		return err
	}
	t.hub.publish(raw, t.Buffer, t.NoDrop)
	return nil
}

// Close ends all subscriptions, with an error unless that is nil. The topic can still be used.
func (t *Topic[T]) Close(err error) { t.hub.close(err) }

// Subscribers returns how many there are.
func (t *Topic[T]) Subscribers() int {
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	return len(t.hub.members)
}

// defaultBuffer is Topic.Buffer.
const defaultBuffer = 1024

// A hub is the subscribers of a topic.
type hub struct {
	order sync.Mutex // of events

	mu      sync.Mutex
	members map[member]struct{}
	list    []member // members, for publish; nil: to be made
}

// A member of a hub is a subscription, or a call that streams.
type member interface {
	// take adds an event, which flush writes. Neither waits, nor calls back.
	take(e *event, buffer int, strict bool)
	flush()
	finish(err error)
}

// An event is encoded once. Frames of several connections are the same bytes when the ids of their
// subscriptions are the same.
type event struct {
	raw        jsonrpc.Raw
	head, tail string
	frame      []byte // raw in head and tail
}

func (h *hub) publish(raw jsonrpc.Raw, buffer int, strict bool) {
	if buffer <= 0 {
		buffer = defaultBuffer
	}
	h.order.Lock()
	defer h.order.Unlock()
	members := h.snapshot()
	e := &event{raw: raw}
	for few := range slices.Chunk(members, flushTogether) {
		for _, m := range few {
			m.take(e, buffer, strict)
		}
		for _, m := range few {
			m.flush()
		}
	}
}

// flushTogether is how many members queue an event before it is written: those of one connection
// share a write then, and the memory of the queues is still in the cache of the processor.
const flushTogether = 8

func (h *hub) snapshot() []member {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.list == nil {
		h.list = make([]member, 0, len(h.members))
		for m := range h.members {
			h.list = append(h.list, m)
		}
	}
	return h.list
}

func (h *hub) add(m member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.members == nil {
		h.members = map[member]struct{}{}
	}
	h.members[m] = struct{}{}
	h.list = nil
}

func (h *hub) remove(m member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.members, m)
	h.list = nil
}

func (h *hub) close(err error) {
	for _, m := range h.snapshot() {
		m.finish(err)
	}
}

// feed implements source.
func (h *hub) feed(sub *subscriber) {
	h.add(sub)
	sub.joined(func() { h.remove(sub) })
}

// take implements member.
func (sub *subscriber) take(e *event, buffer int, strict bool) {
	if e.head != sub.head || e.tail != sub.tail || e.frame == nil {
		e.head, e.tail, e.frame = sub.head, sub.tail, sub.frame(e.raw)
	}
	sub.put(e.frame, buffer, strict)
}

// stream implements source.
func (h *hub) stream(ctx context.Context, out *sink) error {
	l := &listener{change: make(chan struct{}, 1)}
	h.add(l)
	defer h.remove(l)
	for {
		values, err := l.rest()
		for _, value := range values {
			if err := out.put(ctx, value); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, errTopicClosed):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-l.change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errTopicClosed = errors.New("the topic was closed")

// A listener is a call that streams a topic. A stream has no gaps: it ends when events come faster
// than they are taken.
type listener struct {
	change chan struct{} // has a value when there is something new

	mu     sync.Mutex
	values []jsonrpc.Raw
	err    error // why it ends, after values
}

func (l *listener) rest() ([]jsonrpc.Raw, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	values := l.values
	l.values = nil
	return values, l.err
}

// take implements member.
func (l *listener) take(e *event, buffer int, _ bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if len(l.values) >= buffer {
		l.err = errSlowSubscriber
	} else {
		l.values = append(l.values, e.raw)
	}
}

// flush implements member.
func (l *listener) flush() {
	select {
	case l.change <- struct{}{}:
	default:
	}
}

// finish implements member.
func (l *listener) finish(err error) {
	l.mu.Lock()
	if l.err == nil {
		if l.err = err; err == nil {
			l.err = errTopicClosed
		}
	}
	l.mu.Unlock()
	l.flush()
}
