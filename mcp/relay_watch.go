package mcp

import (
	"errors"
	"sync"
)

// watch subscribes a session to a resource of the relay. Anyone who is second waits
// for the first one.
func (x *session) watch(c *call, uri string) error {
	for {
		b, isNew, err := x.subscribe(uri, nil)
		switch {
		case err != nil:
			return err
		case isNew:
			return x.begin(c, uri, b)
		}
		select {
		case <-b.ready:
		case <-c.Done():
			return c.Err()
		}
		if b.err == nil {
			return nil
		}
	}
}

var errNotWatched = errors.New("mcp: the Relay has not returned from Watch")

// begin lets the relay watch for a subscription. When that is over by then it
// stops at once.
func (x *session) begin(c *call, uri string, b *interest) error {
	stop, err := func() {}, errNotWatched
	defer func() {
		x.mu.Lock()
		kept := x.subs[uri] == b
		switch {
		case kept && err == nil:
			b.stop = stop
		case kept:
			delete(x.subs, uri)
		}
		b.err = err
		x.mu.Unlock()
		close(b.ready)
		if !kept && err == nil {
			stop()
		}
	}()
	stop, err = c.srv.watch(c, uri, func() { x.tell(&events{uris: []string{uri}}) })
	return err
}

func (s *Server) watch(c *call, uri string, updated func()) (stop func(), err error) {
	stop, err = s.opts.Relay.Watch(c, uri, updated)
	if stop == nil {
		stop = func() {}
	}
	return stop, err
}

// watchers bounds how many resources of one subscriptions/listen the relay is
// asked to watch at a time.
const watchers = 8

// watch subscribes a listener to resources of the relay. Those that are refused
// are left out.
func (l *listener) watch(uris []string) error {
	if len(uris) > maxSubscriptions {
		return errSubscriptions
	}
	var unique []string
	seen := map[string]struct{}{}
	for _, uri := range uris {
		if addTo(seen, uri) {
			unique = append(unique, uri)
		}
	}
	stops := make([]func(), len(unique))
	room := make(chan struct{}, watchers)
	var all sync.WaitGroup
	for i, uri := range unique {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			stop, err := l.c.srv.watch(l.c, uri, func() { l.note(&events{uris: []string{uri}}) })
			if err == nil {
				stops[i] = stop
			}
		})
	}
	all.Wait()
	for i, stop := range stops {
		if stop != nil {
			l.uris[unique[i]] = struct{}{}
			l.filter.ResourceSubscriptions = append(l.filter.ResourceSubscriptions, unique[i])
			l.stops = append(l.stops, stop)
		}
	}
	if err := l.c.Err(); err != nil {
		l.unwatch()
		return err
	}
	return nil
}

// unwatch stops what the relay watches. It is called once.
func (l *listener) unwatch() {
	for _, stop := range l.stops {
		stop()
	}
	l.stops = nil
}
