package farcall

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/remote"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

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
		return fmt.Errorf("%w: %s was answered with %.100s, which is the id of another subscription", ErrProtocol, o.space.subscribe, id)
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
	scan.Object(m.Params, func(key, value []byte) bool {
		switch string(key) {
		case "subscription":
			n.id = value
		case "result":
			n.value = value
		case "dropped":
			n.dropped, _ = strconv.ParseUint(string(value), 10, 64) // 0 of what is no number
		case "error":
			if string(value) == "null" {
				return true
			}
			answer := jsonrpc.Message{Version: m.Version, Error: value}
			n.last, n.err = true, &remote.Error{Wire: answer.Failure()}
		case "end":
			n.last = n.last || string(value) == "true"
		}
		return true
	})
	return n, n.id != nil && (n.value != nil || n.last)
}
