package mcp

import (
	"context"
	"sync"
)

// subscribers counts the subscribers of each resource, for ServerOptions.OnSubscribe.
type subscribers struct {
	mu  sync.Mutex
	all map[string]*subscribed // those that have subscribers, or are about to
}

// subscribed is a resource with subscribers.
type subscribed struct {
	users int // subscribers, and those that are about to be; guarded by subscribers.mu

	mu   sync.Mutex // held while the hook or its stop runs
	n    int        // subscribers
	stop func()     // what the hook returned; nil: nothing
}

func (t *subscribers) take(uri string) *subscribed {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[uri]
	if e == nil {
		if t.all == nil {
			t.all = map[string]*subscribed{}
		}
		e = &subscribed{}
		t.all[uri] = e
	}
	e.users++
	return e
}

func (t *subscribers) give(uri string, e *subscribed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(t.all, uri)
	}
}

// subscribes notes a subscriber of a resource until end is called; nil: there is no hook.
func (s *Server) subscribes(ctx context.Context, uri string) (end func(), err error) {
	hook := s.opts.OnSubscribe
	if hook == nil {
		return nil, nil
	}
	t := &s.subscribers
	e, counted := t.take(uri), false
	defer func() {
		if !counted {
			t.give(uri, e)
		}
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.n == 0 {
		if e.stop, err = hook(ctx, uri); err != nil {
			e.stop = nil
			return nil, err
		}
	}
	e.n++
	counted = true
	return sync.OnceFunc(func() {
		defer t.give(uri, e)
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.n--; e.n > 0 || e.stop == nil {
			return
		}
		stop := e.stop
		e.stop = nil
		s.contain("the stop of OnSubscribe", stop)
	}), nil
}
