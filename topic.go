package farcall

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

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
func HandleTopic[P, T any](m *Mux, method string, f func(context.Context, P) (*Topic[T], error), doc ...string) {
	types := describe[P, T](method, true)
	m.addSubscription(types, method, doc, func(ctx context.Context, params jsonrpc.Raw) (source, error) {
		var p P
		if err := types.params.Load().bind(reflect.ValueOf(&p).Elem(), params); err != nil {
			return nil, err
		}
		t, err := f(ctx, p)
		if err != nil {
			return nil, err
		}
		return &t.hub, nil
	})
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
