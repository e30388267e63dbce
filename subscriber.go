package farcall

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// eventWindow is how many bytes may wait for the other end to read before its events wait in their
// subscriptions: an answer is never far behind events, and those that wait can be dropped.
const eventWindow = 64 << 10

// subscriptions is what a connection has of subscriptions: those of the other end, and ours. All of
// it belongs to the state of its Peer.
type subscriptions struct {
	theirs map[string]*subscriber // by id
	last   uint64                 // the last id
	ready  []*subscriber          // those with events that wait, in turn
	bytes  int                    // of events that wait

	ours map[feedKey]*feed // by event method and id
	// calls that were to subscribe and were given up: where to unsubscribe
	abandoned map[uint64]namespace
}

// subscriber is a subscription of the other end. Its events follow the answer that has its id:
//
//	         the answer is queued              the producer has ended, or Topic.Close
//	opening ──────────────────────→ open ────────────────────────────────→ ending
//	   │ the call fails              │ unsubscribed, or connection ended      │ all events are queued
//	   └─────────────────────────────┴───────────→ closed ←───────────────────┘
//
// While it is opening, or the connection has more than eventWindow bytes to write, events wait
// here.
type subscriber struct {
	peer       *Peer
	id         string
	space      namespace
	head, tail string // around the value of an event in its frame
	ctx        *lasting
	cancel     context.CancelFunc
	run        func()          // the producer, for a goroutine; nil: a topic's
	leave      func()          // takes it out of its topic; nil: it has none
	version    jsonrpc.Version // in which the other end has subscribed

	// The state's.
	phase   subscriberPhase
	waiting [][]byte // frames
	bytes   int      // of these
	dropped uint64   // events that were dropped since the last one that was queued
	end     []byte   // the frame that says how it ended
	inTurn  bool     // it is in ready
}

type subscriberPhase uint8

const (
	opening subscriberPhase = iota
	open
	ending
	closed
)

// subscriptions returns what there is, and makes it.
func (s *state) subscriptions() *subscriptions {
	if s.subs == nil {
		s.subs = &subscriptions{
			theirs: map[string]*subscriber{}, ours: map[feedKey]*feed{},
			abandoned: map[uint64]namespace{},
		}
	}
	return s.subs
}

// subscribed is how many subscriptions there are, in either direction.
func (s *state) subscribed() int {
	if s.subs == nil {
		return 0
	}
	return len(s.subs.theirs) + len(s.subs.ours)
}

// heldEvents is how many bytes of events wait.
func (s *state) heldEvents() int {
	if s.subs == nil {
		return 0
	}
	return s.subs.bytes
}

// subscribe registers a subscription of the call v. The answer opens it.
func (p *Peer) subscribe(ctx context.Context, v *serving, space namespace) (*subscriber, error) {
	sub := &subscriber{peer: p, space: space, version: v.req.version}
	sub.ctx, sub.cancel = outliving(ctx, p)
	var refusal error
	p.update(func(s *state) {
		all := s.subscriptions()
		switch {
		case s.err != nil:
			refusal = closedError(s.err)
		case len(all.theirs) >= p.opts.MaxSubscriptions:
			refusal = overloaded(
				"the limit of %d subscriptions of a connection is reached: unsubscribe from some first",
				p.opts.MaxSubscriptions)
		default:
			all.last++
			sub.id = "0x" + strconv.FormatUint(all.last, 16)
			all.theirs[sub.id] = sub
		}
	})
	if refusal != nil {
		sub.cancel()
		return nil, refusal
	}
	sub.head, sub.tail = eventFrame(sub.version, space.event, sub.id)
	x := v.needRare()
	if x.opens != nil { // an interceptor has called the handler again
		x.opens.close()
	}
	x.opens = sub
	OnAnswer(ctx, func(_ jsonrpc.Raw, err error) {
		if err != nil {
			sub.close()
		}
	})
	return sub, nil
}

// eventFrame returns what goes around the values of a subscription.
func eventFrame(v jsonrpc.Version, method, id string) (head, tail string) {
	params := jsonrpc.AppendString([]byte(`{"subscription":`), id)
	frame := v.AppendRequest(nil, jsonrpc.ID{}, method, append(params, `,"result":0}`...))
	at := bytes.LastIndex(frame, []byte(`0}`))
	return string(frame[:at]), string(frame[at+1:])
}

func (sub *subscriber) frame(value jsonrpc.Raw) []byte {
	frame := make([]byte, 0, len(sub.head)+len(value)+len(sub.tail))
	return append(append(append(frame, sub.head...), value...), sub.tail...)
}

// missing adds to a frame how many events went before it.
func (sub *subscriber) missing(frame []byte) []byte {
	frame = append(slices.Clip(frame[:len(frame)-len(sub.tail)]), `,"dropped":`...)
	return append(strconv.AppendUint(frame, sub.dropped, 10), sub.tail...)
}

// opened opens the subscription of a call when its answer was just queued, and closes it when it
// was not. The rest of it is for after.
func (p *Peer) opened(s *state, v *serving, answered bool) (after func()) {
	sub := v.opens()
	switch {
	case sub.phase == closed:
		return func() {}
	case !answered:
		return sub.close
	case sub.end != nil:
		sub.phase = ending
	default:
		sub.phase = open
	}
	s.enqueue(sub)
	s.refill()
	if sub.run == nil || sub.phase != open {
		return func() {}
	}
	return func() { p.start(sub.run) }
}

// put adds an event of a topic. At most buffer events wait; a strict topic refuses more. It does
// not wait itself.
func (sub *subscriber) put(frame []byte, buffer int, strict bool) {
	slow := false
	sub.peer.update(func(s *state) {
		switch {
		case sub.phase > open || s.err != nil:
		case sub.phase == open && len(sub.waiting) == 0 && s.unsent() <= eventWindow:
			s.event(sub, frame)
		default:
			slow = sub.wait(s, frame, buffer, strict)
			s.enqueue(sub)
		}
	})
	if slow {
		sub.finish(errSlowSubscriber)
	}
}

var errSlowSubscriber = jsonrpc.Refusal(jsonrpc.Overloaded,
	"the subscriber does not read events as fast as they come, and none may be dropped")

// wait keeps a frame; those that wait longest go for it. It reports true when they may not.
func (sub *subscriber) wait(s *state, frame []byte, buffer int, strict bool) (refused bool) {
	all, most := s.subs, sub.peer.opts.MaxUnsent/4
	if all.bytes+len(frame) > unsentStep && sub.peer.loan.Overdrawn() { // by what others do not read
		most = min(most, unsentStep)
	}
	for len(sub.waiting) > 0 && (len(sub.waiting) >= buffer || all.bytes+len(frame) > most) {
		if strict {
			return true
		}
		sub.oldest(s)
		sub.dropped++
	}
	if all.bytes+len(frame) > most {
		sub.dropped++
		return strict
	}
	sub.waiting = append(sub.waiting, frame)
	sub.bytes += len(frame)
	all.bytes += len(frame)
	return false
}

// oldest removes the frame that has waited longest.
func (sub *subscriber) oldest(s *state) (frame []byte) {
	frame, sub.waiting[0] = sub.waiting[0], nil
	sub.waiting = sub.waiting[1:]
	sub.bytes -= len(frame)
	s.subs.bytes -= len(frame)
	return frame
}

// send adds an event of a separate producer, which waits while the connection has enough to write.
// It reports false when the subscription has ended.
func (sub *subscriber) send(value jsonrpc.Raw) bool {
	frame := sub.frame(value)
	for {
		var room chan struct{}
		gone := false
		sub.peer.update(func(s *state) {
			switch {
			case sub.phase != open || s.err != nil:
				gone = true
			case s.unsent() > eventWindow:
				if s.room == nil {
					s.room = make(chan struct{})
				}
				room = s.room
			default:
				s.event(sub, frame)
			}
		})
		switch {
		case gone:
			return false
		case room == nil:
			sub.peer.flush()
			return true
		}
		select {
		case <-room:
		case <-sub.ctx.Done():
			return false
		}
	}
}

// event queues the frame of an event, or that of the end.
func (s *state) event(sub *subscriber, frame []byte) {
	if sub.dropped > 0 {
		frame = sub.missing(frame)
		sub.dropped = 0
	}
	s.queue(frame)
}

// enqueue gives a subscription its turn when something of it waits.
func (s *state) enqueue(sub *subscriber) {
	if sub.inTurn || sub.phase == opening || sub.phase == closed ||
		len(sub.waiting) == 0 && sub.end == nil {
		return
	}
	sub.inTurn = true
	s.subs.ready = append(s.subs.ready, sub)
}

// refill queues events that wait, one of each subscription in turn, as far as the window allows.
func (s *state) refill() {
	if s.subs == nil {
		return
	}
	all := s.subs
	for len(all.ready) > 0 && s.unsent() <= eventWindow {
		sub := all.ready[0]
		all.ready[0] = nil
		all.ready = all.ready[1:]
		sub.inTurn = false
		if len(sub.waiting) > 0 {
			s.event(sub, sub.oldest(s))
			s.enqueue(sub)
		} else if sub.end != nil {
			s.event(sub, sub.end)
			s.drop(sub)
		}
	}
}

// drop removes a subscription.
func (s *state) drop(sub *subscriber) {
	sub.phase = closed
	if sub.inTurn { // its turn may never come: the other end decides how much it reads
		s.subs.ready = slices.DeleteFunc(s.subs.ready, func(other *subscriber) bool {
			return other == sub
		})
		sub.inTurn = false
	}
	s.subs.bytes -= sub.bytes
	sub.waiting, sub.bytes = nil, 0
	delete(s.subs.theirs, sub.id)
}

// close ends a subscription at once. The other end wants no more of it, or is gone.
func (sub *subscriber) close() {
	sub.peer.update(func(s *state) {
		if sub.phase != closed {
			s.drop(sub)
		}
	})
	sub.release()
}

// release ends the producer of a subscription.
func (sub *subscriber) release() {
	sub.cancel()
	var leave func()
	sub.peer.update(func(*state) { leave, sub.leave = sub.leave, nil })
	if leave != nil {
		leave()
	}
}

// joined notes how a subscription leaves what it has joined, such as a topic.
func (sub *subscriber) joined(leave func()) {
	gone := false
	sub.peer.update(func(*state) {
		before := sub.leave
		switch gone = sub.phase == closed || sub.end != nil; {
		case gone:
		case before == nil:
			sub.leave = leave
		default:
			sub.leave = func() {
				before()
				leave()
			}
		}
	})
	if gone {
		leave()
	}
}

// finish ends a subscription and sends the reason to the other end, after its last event.
func (sub *subscriber) finish(err error) {
	p := sub.peer
	params := jsonrpc.AppendString([]byte(`{"subscription":`), sub.id)
	if err == nil {
		params = append(params, `,"end":true}`...)
	} else {
		wire := wireError(err, p.opts.Errors, p.opts.Details)
		if _, logged := wire.Cause.(panicError); wire.Code == jsonrpc.InternalError && !logged { //nolint:errorlint // ours, never wrapped
			p.logger().ErrorContext(sub.ctx, "subscription failed", "event", sub.space.event, "subscription",
				sub.id, "error", err)
		}
		answer := jsonrpc.V2.AppendError(nil, jsonrpc.NullID(), wire)
		params = append(append(append(params, `,"error":`...), scan.Member(answer, "error")...), '}')
	}
	p.update(func(s *state) {
		if sub.phase < ending && s.err == nil {
			if sub.phase == open {
				sub.phase = ending
			}
			sub.end = sub.version.AppendRequest(nil, jsonrpc.ID{}, sub.space.event, params)
			s.enqueue(sub)
			s.refill()
		}
	})
	sub.release()
	sub.flush()
}

// flush writes what is queued. It does not wait until the connection is closed where that fails.
func (sub *subscriber) flush() {
	p := sub.peer
	if err := p.tryFlush(); err != nil {
		p.start(func() { p.fail(err) })
	}
}

// unsubscribe ends a subscription of the connection. It reports false when there is none.
func (p *Peer) unsubscribe(id string, space namespace) bool {
	var sub *subscriber
	p.update(func(s *state) {
		if s.subs == nil {
			return
		}
		if sub = s.subs.theirs[id]; sub != nil && (sub.space != space || sub.phase == opening) {
			sub = nil
		}
	})
	if sub == nil {
		return false
	}
	sub.close()
	return true
}

// takeSubscriptions takes all of them from a connection that ends.
func (s *state) takeSubscriptions() (theirs []*subscriber, ours []*feed) {
	if s.subs == nil {
		return nil, nil
	}
	for _, sub := range s.subs.theirs {
		theirs = append(theirs, sub)
	}
	for _, sub := range theirs {
		sub.inTurn = false // ready goes as a whole
		s.drop(sub)
	}
	for _, f := range s.subs.ours {
		ours = append(ours, f)
	}
	s.subs = &subscriptions{} // the maps are nil: nothing is added to them any more
	return theirs, ours
}

// A lasting context has the values of the context of a call, and outlives it.
type lasting struct {
	callctx.Context

	peer     *Peer
	answered atomic.Bool // the handler of the call has returned
}

type lastingKey struct{}

// outliving returns a context for what a call leaves behind on its connection.
func outliving(ctx context.Context, p *Peer) (*lasting, context.CancelFunc) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &lasting{peer: p}
	l.Context = callctx.Over(inner, l)
	return l, cancel
}

// ContextValue hides the call once it is answered: its memory is in use for others then.
func (l *lasting) ContextValue(key any) (any, bool) {
	switch key.(type) {
	case lastingKey:
		return l, true
	case servingKey, traceKey, spanKey:
		if l.answered.Load() {
			return nil, true
		}
	}
	return nil, false
}

// errNotPushed is the error for a caller that cannot be pushed to.
func errNotPushed(space namespace, method string) error {
	return &jsonrpc.Error{
		Code: jsonrpc.NoCallback,
		Message: fmt.Sprintf(
			"This transport cannot push events; call %s over WebSocket, TCP, a unix socket or stdio, or "+
				"stream %s, which HTTP can carry", space.subscribe, method),
		Cause: ErrNoCallback,
	}
}
