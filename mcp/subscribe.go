package mcp

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// listKind is a set of lists that may change.
type listKind uint8

const (
	listTools listKind = 1 << iota
	listPrompts
	listResources
)

// listNotifications has the notification of each list.
var listNotifications = [...]struct {
	list   listKind
	method string
}{
	{listTools, spec.NotificationToolsListChanged},
	{listPrompts, spec.NotificationPromptsListChanged},
	{listResources, spec.NotificationResourcesListChanged},
}

// events is what a client is to be told. All of it says "look again", so what
// happens twice before it was told is told once: the events that wait never grow
// beyond what the client subscribed to, however slowly it reads.
type events struct {
	lists listKind
	uris  []string
	tasks []taskUpdate
}

// taskUpdate is the newest state of a task: the params of notifications/tasks.
type taskUpdate struct {
	id     string
	params jsonrpc.Raw
}

func (e *events) empty() bool { return e.lists == 0 && len(e.uris)+len(e.tasks) == 0 }

func (e *events) add(more *events) {
	e.lists |= more.lists
	for _, uri := range more.uris {
		if !slices.Contains(e.uris, uri) {
			e.uris = append(e.uris, uri)
		}
	}
	for _, t := range more.tasks {
		i := slices.IndexFunc(e.tasks, func(o taskUpdate) bool { return o.id == t.id })
		if i < 0 {
			e.tasks = append(e.tasks, t)
		} else {
			e.tasks[i] = t
		}
	}
}

// send calls f with each notification that tells the events. The params are nil
// or an object.
func (e *events) send(f func(method string, params jsonrpc.Raw) error) error {
	for _, n := range listNotifications {
		if e.lists&n.list == 0 {
			continue
		}
		if err := f(n.method, nil); err != nil {
			return err
		}
	}
	for _, uri := range e.uris {
		params := append(jsonrpc.AppendString([]byte(`{"uri":`), uri), '}')
		if err := f(spec.NotificationResourcesUpdated, params); err != nil {
			return err
		}
	}
	for _, t := range e.tasks {
		if err := f(spec.NotificationTasks, t.params); err != nil {
			return err
		}
	}
	return nil
}

// linger is how long events are collected before they are sent: adding a hundred
// tools in a row is one change of the list.
const linger = 10 * time.Millisecond

// pause waits for it, unless the context ends first.
func pause(ctx context.Context) error {
	t := time.NewTimer(linger)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listeners are those who are told of events.
type listeners struct {
	mu       sync.Mutex
	modern   map[*listener]struct{}
	sessions map[*session]struct{}
	closed   bool // the server ends every subscription at once
}

func (l *listeners) addSession(x *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions = map[*session]struct{}{}
	}
	l.sessions[x] = struct{}{}
}

func (l *listeners) removeSession(x *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, x)
}

func (l *listeners) add(one *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.modern == nil {
		l.modern = map[*listener]struct{}{}
	}
	l.modern[one] = struct{}{}
	if l.closed {
		one.end()
	}
}

func (l *listeners) remove(one *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.modern, one)
}

// close ends the subscriptions of the modern era, and those that are still to
// come.
func (l *listeners) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.endAll()
}

// endAll ends the subscriptions of the modern era, in order.
func (l *listeners) endAll() { l.endIf(func(*listener) bool { return true }) }

// endOf ends those of one client.
func (l *listeners) endOf(client farcall.Caller) {
	l.endIf(func(one *listener) bool { return one.c.client == client })
}

func (l *listeners) endIf(f func(*listener) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.modern {
		if f(one) {
			one.end()
		}
	}
}

// tell gives an event to those whom it concerns. It does not wait for any of
// them.
func (l *listeners) tell(e *events) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.modern {
		one.tell(e)
	}
	for x := range l.sessions {
		x.tell(e)
	}
}

func (s *Server) listChanged(list listKind) { s.listeners.tell(&events{lists: list}) }

// ResourceUpdated tells the clients that have subscribed to a resource that it
// has changed.
func (s *Server) ResourceUpdated(uri string) { s.listeners.tell(&events{uris: []string{uri}}) }

// notifyTask tells the listeners of a task its state: the params of
// notifications/tasks. Sessions are not told.
func (s *Server) notifyTask(id string, params jsonrpc.Raw) {
	s.listeners.tell(&events{tasks: []taskUpdate{{id, params}}})
}

// maxSubscriptions bounds the resources that one session subscribes to.
const maxSubscriptions = 10_000

// subscribe serves resources/subscribe.
func (s *Server) subscribe(c *call) (answer, error) {
	uri, err := text("uri", c.in.uri)
	if err != nil {
		return answer{}, err
	}
	if _, ok := s.reader(c, uri); !ok {
		return answer{}, c.resourceNotFound(uri)
	}
	x := c.session
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.subs == nil {
		x.subs = map[string]struct{}{}
	}
	if len(x.subs) >= maxSubscriptions {
		return answer{}, jsonrpc.Errorf(jsonrpc.Overloaded, "Overloaded: a session subscribes to %d resources at most", maxSubscriptions)
	}
	x.subs[string(uri)] = struct{}{}
	return emptyAnswer(), nil
}

// unsubscribe serves resources/unsubscribe.
func (s *Server) unsubscribe(c *call) (answer, error) {
	uri, err := text("uri", c.in.uri)
	if err != nil {
		return answer{}, err
	}
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	delete(c.session.subs, string(uri))
	return emptyAnswer(), nil
}

// sender is the goroutine that sends the events of a session.
type sender struct {
	stop context.CancelFunc
	done chan struct{}
}

// tell notes an event, if it concerns the client.
func (x *session) tell(e *events) {
	if !x.ready.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	mine := events{lists: e.lists}
	for _, uri := range e.uris {
		if _, ok := x.subs[uri]; ok {
			mine.uris = append(mine.uris, uri)
		}
	}
	if mine.empty() || x.closed {
		return
	}
	x.pending.add(&mine)
	if x.sending == nil {
		ctx, cancel := context.WithCancel(x.ctx)
		x.sending = &sender{cancel, make(chan struct{})}
		go x.send(ctx, x.sending)
	}
}

// send sends what is pending until nothing is.
func (x *session) send(ctx context.Context, me *sender) {
	defer close(me.done)
	defer me.stop()
	rev := x.rev.Load()
	for {
		err := pause(ctx)
		x.mu.Lock()
		now := x.pending
		x.pending = events{}
		if now.empty() || err != nil {
			x.sending = nil
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		// A client that cannot be told is gone; whoever carries it will notice.
		_ = now.send(func(method string, params jsonrpc.Raw) error {
			return notify(ctx, x.client, rev, method, params)
		})
	}
}

// listener is a subscription of the modern era: a call of subscriptions/listen.
type listener struct {
	c      *call
	filter spec.SubscriptionFilter
	lists  listKind
	uris   map[string]struct{}
	tasks  map[string]struct{}

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
	if mine.empty() {
		return
	}
	l.mu.Lock()
	l.pending.add(&mine)
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
	s.listeners.add(l)
	defer s.listeners.remove(l)
	ack, err := jsonv2.Append(nil, spec.SubscriptionsAcknowledgedNotificationParams{Notifications: l.filter})
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
		if err = pause(c); err == nil {
			e := l.take()
			err = e.send(l.notify)
		}
	}
	return answer{}, err
}

// close ends a subscription in order, after what is still to be told.
func (l *listener) close() (answer, error) {
	e := l.take()
	if err := e.send(l.notify); err != nil {
		return answer{}, err
	}
	if !overHTTP(l.c) {
		// basic/patterns/cancellation: MUST, when the server ends a subscription.
		id := append(append([]byte(`{"requestId":`), l.c.id.Raw()...), `,"reason":"the server ends the subscription"}`...)
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
		return nil, invalidParams(`subscriptions/listen needs "notifications", an object that says what to listen for`)
	}
	want := p.Notifications
	if len(want.TaskIDs) > 0 {
		if !needTasks.met(c) {
			return nil, needTasks.refuse(c)
		}
	}
	l := &listener{c: c, wake: make(chan struct{}, 1), ended: make(chan struct{}), uris: map[string]struct{}{}, tasks: map[string]struct{}{}}
	got := &l.filter
	got.ToolsListChanged = want.ToolsListChanged && hasTools(s)
	got.PromptsListChanged = want.PromptsListChanged && hasPrompts(s)
	got.ResourcesListChanged = want.ResourcesListChanged && hasResources(s)
	for list, on := range map[listKind]bool{listTools: got.ToolsListChanged, listPrompts: got.PromptsListChanged, listResources: got.ResourcesListChanged} {
		if on {
			l.lists |= list
		}
	}
	for _, uri := range want.ResourceSubscriptions {
		if _, ok := s.reader(c, []byte(uri)); ok && addTo(l.uris, uri) {
			got.ResourceSubscriptions = append(got.ResourceSubscriptions, uri)
		}
	}
	for _, id := range want.TaskIDs {
		if s.watchableTask(c, id) && addTo(l.tasks, id) {
			got.TaskIDs = append(got.TaskIDs, id)
		}
	}
	return l, nil
}

// addTo reports whether the set did not have it.
func addTo(set map[string]struct{}, value string) bool {
	n := len(set)
	set[value] = struct{}{}
	return len(set) > n
}
