package farcall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Subscription yields the events that Subscribe has subscribed to.
type Subscription[T any] struct{ feed *feed }

// Subscribe subscribes at the other end to what [HandleSubscription] or [HandleTopic] serve there,
// or go-ethereum: "eth_newHeads" is had by calling eth_subscribe. With [Dialect.PartialResults] the
// method is a call that streams its events, as LSP has it. The subscription lasts until it is
// closed or the context ends:
//
//	sub, err := farcall.Subscribe[Tick](ctx, peer, "time/ticks", nil)
//	if err != nil {
//		return err
//	}
//	defer sub.Close()
//	for tick, err := range sub.Events() {
//
// A Caller that is a *[Peer] subscribes over its connection, with which the subscription ends. One
// that has a method Peer(ctx) (*Peer, error), as rpc.Client has it, is asked for the next
// connection when one has broken, and the subscription goes on over that. Any other Caller, and
// HTTP, cannot carry subscriptions.
func Subscribe[T any](
	ctx context.Context, c Caller, method string, params any,
) (*Subscription[T], error) {
	f, err := newFeed(ctx, c, method, params)
	if err != nil {
		return nil, err
	}
	if err = f.subscribe(); err != nil {
		_ = f.close(nil) // an interceptor may have failed what was answered; the other error counts
		return nil, err
	}
	f.watch()
	return &Subscription[T]{f}, nil
}

// Events yields the events in order. A pair with an error that is a *[GapError] (errors.As) says
// that events before the next one are missing; any other error is the last pair. Without one the
// server, or Close, has ended the subscription. Breaking off does not end it: Events goes on where
// it was when it is called again, but not by several goroutines at once.
func (s *Subscription[T]) Events() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			var v T
			raw, err, more := s.feed.next()
			if !more {
				return
			}
			if err == nil {
				if err = decode(raw, &v); err != nil {
					err = fmt.Errorf("farcall: an event of %s: %w", s.feed.method, err)
					_ = s.feed.close(nil) // this error counts
				}
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// Close unsubscribes, and waits until the other end has answered, Options.CloseTimeout at most.
// Events that have arrived are dropped. It may be called more than once.
func (s *Subscription[T]) Close() error { return s.feed.close(nil) }

// A GapError says that a subscription goes on, but that events are missing.
type GapError struct {
	// Dropped is how many events were dropped because they were not taken as fast as they came, by
	// either end.
	Dropped uint64
	// Lost is why the connection was lost over which the events came; how many came to nothing is not
	// known. Nil: it was not.
	Lost error
}

// Error implements error.
func (g *GapError) Error() string {
	if g.Lost != nil {
		return "farcall: events may be missing: subscribed again after the connection was lost: " +
			g.Lost.Error()
	}
	return fmt.Sprintf("farcall: %d events are missing: they came faster than they were taken",
		g.Dropped)
}

// Unwrap returns Lost.
func (g *GapError) Unwrap() error { return g.Lost }

const (
	maxFeed      = 10_000 // events that wait to be taken
	maxAbandoned = 1000   // answers that may come yet
)

// A feed is a subscription of ours:
//
//	            the answer arrives                 the server ends it
//	subscribing ────────────────→ subscribed ─────────────────────────→ ended
//	     ↑                            │ the connection is lost             ↑
//	     └── next, with a connector ─ lost ── next, without one ───────────┘
//
// The goroutine that takes events subscribes again, so that a feed needs none.
type feed struct {
	ctx    context.Context //nolint:containedctx // that of Subscribe, which ends the subscription
	stop   func() bool     // the watch of ctx
	peers  func(context.Context) (*Peer, error)
	again  bool // peers has further connections
	method string
	space  namespace
	name   string
	params jsonrpc.Raw

	mu      sync.Mutex
	change  sync.Cond
	peer    *Peer
	key     feedKey // where peer has it; zero: it has not
	id      jsonrpc.Raw
	cancel  context.CancelFunc // ends the call of partial results
	events  []arrived
	bytes   int
	count   int    // events that arrived by the call of partial results
	dropped uint64 // before the first of events, or before the end
	lost    error  // the connection has ended; nil: it has not
	ended   bool
	closed  bool  // ended by close
	err     error // why it ended, to be yielded once
}

// arrived is an event that waits to be taken.
type arrived struct {
	value   jsonrpc.Raw
	dropped uint64 // by the other end, before this one
}

func newFeed(ctx context.Context, c Caller, method string, params any) (*feed, error) {
	f := &feed{ctx: ctx, method: method}
	f.change.L = &f.mu
	f.space, f.name = namespaceOf(method)
	switch c := c.(type) {
	case *Peer:
		f.peers = func(context.Context) (*Peer, error) { return c, nil }
	case interface {
		Peer(ctx context.Context) (*Peer, error)
	}:
		f.peers, f.again = c.Peer, true
	default:
		return nil,
			fmt.Errorf("farcall: subscribe to %q: a %T cannot carry subscriptions; a *farcall.Peer can, "+
				"and what has a method Peer", method, c)
	}
	raw, err := appendParams(nil, params)
	if err != nil {
		return nil, fmt.Errorf("farcall: subscribe to %q: %w", method, err)
	}
	f.params = append(jsonrpc.Raw(nil), raw...)
	return f, nil
}

// watch ends the subscription with its context.
func (f *feed) watch() {
	stop := context.AfterFunc(f.ctx, func() { _ = f.close(f.ctx.Err()) })
	f.mu.Lock()
	f.stop = stop
	over := f.ended
	f.mu.Unlock()
	if over {
		stop()
	}
}

// subscribe subscribes over the connection that there is, or over the next.
func (f *feed) subscribe() error {
	for {
		p, err := f.peers(f.ctx)
		if err != nil {
			return err
		}
		switch {
		case p.opts.Dialect.PartialResults:
			return f.callPartial(p)
		case p.x != nil:
			return fmt.Errorf(
				"farcall: subscribe to %q: HTTP cannot carry subscriptions; connect over WebSocket, TCP, a "+
					"unix socket or stdio, or use Stream, which HTTP carries", f.method)
		}
		var answer jsonrpc.Raw
		o := &opener{feed: f, space: f.space}
		err = p.Call(context.WithValue(f.ctx, progressKey{}, o), f.space.subscribe,
			joinSubscribe(f.name, f.params), &answer)
		if err == nil {
			if _, ok := keyOf(f.space, answer); !ok {
				return fmt.Errorf("%w: %s was answered with %.100s, which is no id of a subscription",
					ErrProtocol, f.space.subscribe, answer)
			}
			return nil
		}
		if !f.again || !errors.Is(err, ErrClosed) || f.ctx.Err() != nil {
			return err
		}
	}
}

// callPartial subscribes by a call; its partial results are the events.
func (f *feed) callPartial(p *Peer) error {
	ctx, cancel := context.WithCancel(f.ctx)
	f.mu.Lock()
	f.peer, f.cancel, f.lost, f.count = p, cancel, nil, 0
	f.mu.Unlock()
	call := func() {
		defer cancel()
		var result jsonrpc.Raw
		err := p.Call(context.WithValue(ctx, progressKey{}, f), f.method, f.params, &result)
		switch {
		case errors.Is(err, ErrClosed):
			f.broke(p, err)
		case err != nil:
			f.end(err, 0)
		default:
			f.whole(result)
		}
	}
	if p.x != nil {
		go call()
	} else {
		p.start(call)
	}
	return nil
}

// whole takes the answer of a call that has sent no partial results.
func (f *feed) whole(result jsonrpc.Raw) {
	if f.count == 0 && len(result) > 0 && result[0] == '[' {
		for value := range scan.Elements(result) {
			f.put(value)
		}
	}
	f.end(nil, 0)
}

// put implements progressSink.
func (f *feed) put(value jsonrpc.Raw) { f.add(value, 0) }

func (f *feed) add(value jsonrpc.Raw, dropped uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if f.ended {
		return
	}
	f.events = append(f.events, arrived{append(jsonrpc.Raw(nil), value...), dropped})
	f.bytes += len(value) + valueCost
	for len(f.events) > maxFeed || f.bytes > progressBytes {
		f.dropped += f.takeLocked().dropped + 1
	}
	f.change.Broadcast()
}

func (f *feed) takeLocked() arrived {
	e := f.events[0]
	f.events[0] = arrived{}
	f.events = f.events[1:]
	f.bytes -= len(e.value) + valueCost
	return e
}

// end notes that no more events come, and how many the other end has dropped since the last one.
func (f *feed) end(err error, dropped uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended, f.err = true, err
		f.dropped += dropped
		f.change.Broadcast()
	}
}

// broke notes that the connection has ended.
func (f *feed) broke(p *Peer, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.peer == p && f.lost == nil {
		f.lost, f.key = why, feedKey{}
		f.change.Broadcast()
	}
}

// next waits for the next event, and subscribes again when the connection is lost. more is false at
// the end.
func (f *feed) next() (value jsonrpc.Raw, err error, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if len(f.events) > 0 {
			f.dropped += f.events[0].dropped
			f.events[0].dropped = 0
		}
		switch {
		case f.dropped > 0 && (len(f.events) > 0 || f.ended):
			gap := &GapError{Dropped: f.dropped}
			f.dropped = 0
			return nil, gap, true
		case len(f.events) > 0:
			return f.takeLocked().value, nil, true
		case f.ended:
			err, f.err = f.err, nil
			return nil, err, err != nil
		case f.lost != nil && !f.again:
			f.ended, f.err = true, f.lost
		case f.lost != nil:
			lost := f.lost
			f.mu.Unlock()
			err := f.subscribe()
			f.mu.Lock()
			switch {
			case f.closed:
			case err != nil:
				f.ended, f.err = true, err
			default: // though the new one may have ended already
				return nil, &GapError{Lost: lost}, true
			}
		default:
			f.change.Wait()
		}
	}
}

// close ends the subscription, for a reason or none.
func (f *feed) close(reason error) error {
	f.mu.Lock()
	p, key, id, cancel, stop, done := f.peer, f.key, f.id, f.cancel, f.stop, f.ended
	f.ended, f.key, f.events, f.bytes, f.dropped = true, feedKey{}, nil, 0, 0
	if f.closed = true; !done {
		f.err = reason
	}
	f.change.Broadcast()
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
	if cancel != nil {
		cancel()
	}
	if p == nil || key == (feedKey{}) {
		return nil
	}
	if mine := p.unlisten(key, f); !mine {
		return nil
	}
	return p.unsubscribeThere(f.ctx, f.space, id)
}

// feedKey is the method of events, and the id of a subscription as the other end has written it,
// without escapes.
type feedKey struct{ method, id string }

// keyOf returns the key of a subscription by its id. It reports false when it is neither a string
// nor a number.
func keyOf(space namespace, id jsonrpc.Raw) (feedKey, bool) {
	switch {
	case len(id) == 0:
		return feedKey{}, false
	case id[0] == '"':
		return feedKey{space.event, `"` + string(scan.Unquote(id))}, true
	case id[0] == '-' || id[0] >= '0' && id[0] <= '9':
		return feedKey{space.event, string(id)}, true
	}
	return feedKey{}, false
}

// opener is a call of ours that subscribes.
type opener struct {
	feed  *feed
	space namespace
}

// listen notes where the events of a subscription go when its id has just been answered: the next
// frame may have the first one. It fails when the id is that of another subscription, because it
// would take its events.
func (p *Peer) listen(o *opener, id jsonrpc.Raw) error {
	key, ok := keyOf(o.space, id)
	if !ok {
		return nil // Subscribe fails
	}
	f, taken := o.feed, false
	p.update(func(s *state) { taken = !s.subscriptions().listen(key, f) })
	if taken {
		return fmt.Errorf("%w: %s was answered with %.100s, which is the id of another subscription",
			ErrProtocol, o.space.subscribe, id)
	}
	f.mu.Lock()
	ended := f.ended
	if !ended {
		f.peer, f.key, f.id, f.lost = p, key, append(jsonrpc.Raw(nil), id...), nil
	}
	f.mu.Unlock()
	if ended && p.unlisten(key, f) {
		p.endThere(&o.space, id)
	}
	if err := p.Err(); err != nil {
		f.broke(p, closedError(err))
	}
	return nil
}

// listen reports false when there is a subscription with that key.
func (all *subscriptions) listen(key feedKey, f *feed) bool {
	switch {
	case all.ours == nil: // the connection has ended
	case all.ours[key] != nil:
		return false
	default:
		all.ours[key] = f
	}
	return true
}

// unlisten forgets a subscription of ours. It reports false when the other end has ended it, and
// may have given its id to another one.
func (p *Peer) unlisten(key feedKey, f *feed) (was bool) {
	p.update(func(s *state) {
		if was = s.subs != nil && s.subs.ours[key] == f; was {
			delete(s.subs.ours, key)
		}
	})
	return was
}

// abandonSubscription notes that a call that may open a subscription is given up.
func (s *state) abandonSubscription(c *call) {
	if all := s.subscriptions(); len(all.abandoned) < maxAbandoned {
		all.abandoned[c.id] = c.extra.opens.space
	}
}

// abandoned returns where to end what the answer to a call opens that was given up, or nil.
func (s *state) abandoned(call uint64) *namespace {
	if s.subs == nil {
		return nil
	}
	space, ok := s.subs.abandoned[call]
	if !ok {
		return nil
	}
	delete(s.subs.abandoned, call)
	return &space
}

// endThere unsubscribes from a subscription that this end has given up. It does not wait.
func (p *Peer) endThere(space *namespace, id jsonrpc.Raw) {
	if _, ok := keyOf(*space, id); !ok {
		return // an error
	}
	id = append(jsonrpc.Raw(nil), id...)
	// it ends with the connection at the latest
	p.start(func() { _ = p.unsubscribeThere(p.ctx, *space, id) })
}

// unsubscribeThere unsubscribes at the other end. That it has ended already is no error.
func (p *Peer) unsubscribeThere(ctx context.Context, space namespace, id jsonrpc.Raw) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.CloseTimeout)
	defer cancel()
	params := append(append(jsonrpc.Raw{'['}, id...), ']')
	err := p.Call(ctx, space.unsubscribe, params, nil)
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// event takes a notification that is an event of a subscription. It reports false when it is not
// one of ours, and a handler may know better.
func (p *Peer) event(m *jsonrpc.Message) bool {
	if !strings.HasSuffix(string(m.Method), eventSuffix) {
		return false
	}
	n, ok := readNotice(m)
	if !ok {
		return false
	}
	key, ok := keyOf(namespace{event: string(m.Method)}, n.id)
	if !ok {
		return false
	}
	var f *feed
	p.update(func(s *state) {
		if s.subs == nil {
			return
		}
		if f = s.subs.ours[key]; f != nil && n.last {
			delete(s.subs.ours, key)
		}
	})
	switch {
	case f == nil:
		return p.unknownEvent(m)
	case n.last:
		f.end(n.err, n.dropped)
	default:
		f.add(n.value, n.dropped)
	}
	return true
}

// unknownEvent drops an event of no subscription, and reports false when a handler may want it.
func (p *Peer) unknownEvent(m *jsonrpc.Message) bool {
	if p.mux != nil && p.mux.find(m.Method) != nil || p.mux == nil && p.handler != nil {
		return false
	}
	p.update(func(s *state) { s.counts.droppedEvents++ })
	return true
}

// A notice is what the notification of an event says.
type notice struct {
	id, value jsonrpc.Raw
	dropped   uint64 // events that went before it
	last      bool
	err       error // why it is the last
}

// readNotice reads the params of an event. It reports false when they are none.
func readNotice(m *jsonrpc.Message) (n notice, ok bool) {
	for key, value := range scan.Members(m.Params) {
		switch string(key) {
		case "subscription":
			n.id = value
		case "result":
			n.value = value
		case "dropped":
			n.dropped, _ = strconv.ParseUint(string(value), 10, 64) // 0 of what is no number
		case "error":
			if string(value) == "null" {
				continue
			}
			answer := jsonrpc.Message{Version: m.Version, Error: value}
			n.last, n.err = true, &remote.Error{Wire: answer.Failure()}
		case "end":
			n.last = n.last || string(value) == "true"
		}
	}
	return n, n.id != nil && (n.value != nil || n.last)
}
