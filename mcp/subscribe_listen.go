package mcp

import (
	"sync"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// listener is a subscription of the modern era: a call of subscriptions/listen.
type listener struct {
	c      *call
	filter spec.SubscriptionFilter
	lists  listKind
	uris   map[string]struct{}
	tasks  map[string]struct{}
	stops  []func() // of what a Relay or OnSubscribe watches

	wake  chan struct{} // there is something
	ended chan struct{} // the server ends it
	once  sync.Once

	mu      sync.Mutex
	pending events
}

func (l *listener) end() { l.once.Do(func() { close(l.ended) }) }

// tell notes an event, if the filter has it.
func (l *listener) tell(e *events) {
	mine := events{lists: e.lists & l.lists}
	for _, uri := range e.uris {
		if _, ok := l.uris[uri]; ok {
			mine.uris = append(mine.uris, uri)
		}
	}
	for _, t := range e.tasks {
		if _, ok := l.tasks[t.id]; ok {
			mine.tasks = append(mine.tasks, t)
		}
	}
	if !mine.empty() {
		l.note(&mine)
	}
}

// note notes what the client is to receive.
func (l *listener) note(mine *events) {
	l.mu.Lock()
	l.pending.add(mine)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *listener) take() (e events) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, l.pending = l.pending, events{}
	return e
}

// listen serves subscriptions/listen (2026-07-28, basic/patterns/subscriptions).
func (s *Server) listen(c *call) (answer, error) {
	l, err := s.newListener(c)
	if err != nil {
		return answer{}, err
	}
	defer l.unwatch()
	s.listeners.add(l)
	defer s.listeners.remove(l)
	ack, err := jsonv2.Append(nil,
		spec.SubscriptionsAcknowledgedNotificationParams{Notifications: l.filter})
	if err == nil {
		err = l.notify(spec.NotificationSubscriptionsAcknowledged, ack)
	}
	for err == nil {
		select {
		case <-c.Done():
			return answer{}, c.Err()
		case <-l.ended:
			return l.close()
		case <-l.wake:
		}
		if err = backoff.Sleep(c, linger); err == nil {
			e := l.take()
			err = e.send(l.notify)
		}
	}
	return answer{}, err
}

// close ends a subscription in order, after what is still to be sent.
func (l *listener) close() (answer, error) {
	e := l.take()
	if err := e.send(l.notify); err != nil {
		return answer{}, err
	}
	if !overHTTP(l.c) {
		// basic/patterns/cancellation: MUST, when the server ends a subscription.
		id := append(append([]byte(`{"requestId":`), l.c.id.Raw()...),
			`,"reason":"the server ends the subscription"}`...)
		if err := l.c.client.Notify(l.c, spec.NotificationCancelled, jsonrpc.Raw(id)); err != nil {
			return answer{}, err
		}
	}
	return answer{raw: append(l.meta([]byte(`{`)), '}')}, nil
}

// meta appends the member _meta that says which subscription it is: by the id of
// the request, as it was written.
func (l *listener) meta(dst []byte) []byte {
	dst = jsonrpc.AppendString(append(dst, `"_meta":{`...), spec.MetaSubscriptionID)
	return append(append(append(dst, ':'), l.c.id.Raw()...), '}')
}

// notify sends a notification of the subscription. params is nil or an object.
func (l *listener) notify(method string, params jsonrpc.Raw) error {
	observe.From(l.c).Event(method)
	out := l.meta([]byte{'{'})
	if len(params) > len("{}") {
		out = append(append(out, ','), params[1:]...)
	} else {
		out = append(out, '}')
	}
	return l.c.client.Notify(l.c, method, jsonrpc.Raw(out))
}

// newListener reads the filter and keeps of it what the server can tell.
func (s *Server) newListener(c *call) (*listener, error) {
	var p struct {
		Notifications *spec.SubscriptionFilter `json:"notifications"`
	}
	if err := jsonv2.Unmarshal(c.params, &p); err != nil || p.Notifications == nil {
		return nil, invalidParams(
			`subscriptions/listen needs "notifications", an object that says what to listen for`)
	}
	want := p.Notifications
	if len(want.TaskIDs) > 0 {
		if !needTasks.met(c) {
			return nil, needTasks.refuse(c)
		}
	}
	l := &listener{
		c: c, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		uris: map[string]struct{}{}, tasks: map[string]struct{}{},
	}
	got := &l.filter
	got.ToolsListChanged = want.ToolsListChanged && hasTools(s)
	got.PromptsListChanged = want.PromptsListChanged && hasPrompts(s)
	got.ResourcesListChanged = want.ResourcesListChanged && hasResources(s)
	for list, on := range map[listKind]bool{
		listTools:   got.ToolsListChanged,
		listPrompts: got.PromptsListChanged, listResources: got.ResourcesListChanged,
	} {
		if on {
			l.lists |= list
		}
	}
	for _, id := range want.TaskIDs {
		if s.watchableTask(c, id) && addTo(l.tasks, id) {
			got.TaskIDs = append(got.TaskIDs, id)
		}
	}
	if s.relays() {
		return l, l.watch(want.ResourceSubscriptions)
	}
	return l, l.subscribe(want.ResourceSubscriptions)
}

// subscribe subscribes a listener to the resources that there are.
func (l *listener) subscribe(uris []string) error {
	if len(uris) > maxSubscriptions {
		return errSubscriptions
	}
	done := false
	defer func() {
		if !done {
			l.unwatch()
		}
	}()
	for _, uri := range uris {
		if _, ok := l.c.srv.reader(l.c, []byte(uri)); !ok || !addTo(l.uris, uri) {
			continue
		}
		end, err := l.c.srv.subscribes(l.c, uri)
		if err != nil {
			delete(l.uris, uri)
			continue
		}
		if end != nil {
			l.stops = append(l.stops, end)
		}
		l.filter.ResourceSubscriptions = append(l.filter.ResourceSubscriptions, uri)
	}
	done = true
	return nil
}

// addTo reports whether the set did not have it.
func addTo(set map[string]struct{}, value string) bool {
	n := len(set)
	set[value] = struct{}{}
	return len(set) > n
}
