package mcp

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/permit"
	"github.com/farcall-dev/farcall/internal/scan"
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

// events is what a client is to receive. All of it says "look again", so what
// happens twice before it was sent is sent once: the events that wait never grow
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

// listeners are those that receive events.
type listeners struct {
	mu       sync.Mutex
	modern   map[*listener]struct{}
	sessions map[*session]struct{}
	closed   bool // the server ends every subscription at once
}

func (l *listeners) addSession(x *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	setEntry(&l.sessions, x, struct{}{})
}

func (l *listeners) removeSession(x *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, x)
}

func (l *listeners) add(one *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	setEntry(&l.modern, one, struct{}{})
	if l.closed {
		one.end()
	}
}

func (l *listeners) remove(one *listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.modern, one)
}

// modernOnes reports whether there are subscriptions of the modern era.
func (l *listeners) modernOnes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.modern) > 0
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

func (l *listeners) endIf(f func(*listener) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.modern {
		if f(one) {
			one.end()
		}
	}
}

// tell gives an event to those that it concerns. It does not wait for any of
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

func (s *Server) listChanged(list listKind) { s.tell(&events{lists: list}) }

// tell gives an event to the listeners of the server, and of those that it is mounted in.
func (s *Server) tell(e *events) {
	for ; s != nil; s = s.outerServer() {
		s.listeners.tell(e)
	}
}

// ResourceUpdated tells the clients that have subscribed to a resource that it
// has changed.
func (s *Server) ResourceUpdated(uri string) { s.tell(&events{uris: []string{uri}}) }

// maxSubscriptions bounds the resources that one session subscribes to.
const maxSubscriptions = 10_000

// subscriptionsKey is that of the resources which a client has subscribed to, among the values of
// its session.
const subscriptionsKey = "\x00subscriptions"

// keepSubscriptions stores what the client has subscribed to, for a replica that goes on with the
// session. What is too much to be stored ends with this replica.
func (x *session) keepSubscriptions() {
	v := x.storedValues()
	if v == nil || x.again.Load() {
		return
	}
	x.writes.Lock()
	defer x.writes.Unlock()
	x.mu.Lock()
	all := slices.Sorted(maps.Keys(x.subs))
	x.mu.Unlock()
	raw, err := jsonv2.Append(nil, all)
	if err == nil {
		err = v.set(subscriptionsKey, raw)
	}
	if err != nil {
		x.srv.logger().Warn("mcp: another replica does not know the subscriptions of a client",
			"error", err)
	}
}

// Again returns the subscriptions that the client has made at another replica: see
// mcphttp.Resumable.
func (x *session) Again() (requests [][]byte, err error) {
	v := x.storedValues()
	if v == nil {
		return nil, nil
	}
	values, _, err := v.get(storeTimeout)
	if err != nil || values[subscriptionsKey] == nil {
		return nil, err
	}
	var all []string
	err = jsonv2.Unmarshal(values[subscriptionsKey], &all)
	for _, uri := range all {
		params := append(scan.AppendQuoted([]byte(`{"uri":`), uri), '}')
		requests = append(requests,
			jsonrpc.V2.AppendRequest(nil, jsonrpc.IntID(0), spec.MethodResourcesSubscribe, params))
	}
	return requests, err
}

// MadeAgain is called when these subscriptions are there again, or are given up: what changes from
// now on is stored.
func (x *session) MadeAgain() {
	x.again.Store(false)
	x.mu.Lock()
	some := len(x.subs) > 0
	x.mu.Unlock()
	if some {
		x.keepSubscriptions()
	}
}

// subscribe serves resources/subscribe.
func (s *Server) subscribe(c *call) (answer, error) {
	a, err := s.subscribeOnce(c)
	if err == nil {
		c.session.keepSubscriptions()
	}
	return a, err
}

func (s *Server) subscribeOnce(c *call) (answer, error) {
	uri, err := text("uri", c.in.uri)
	if err != nil {
		return answer{}, err
	}
	if at, ok := c.session.client.(interface {
		AwaitStream(ctx context.Context) error
	}); ok {
		if err := at.AwaitStream(c); err != nil { // another process may have the event stream
			return answer{}, err
		}
	}
	if s.relays() {
		if err := c.session.watch(c, string(uri)); err != nil {
			return answer{}, err
		}
		c.session.holdFor(c, string(uri))
		return emptyAnswer(), nil
	}
	if _, ok := s.reader(c, uri); !ok {
		return answer{}, c.resourceNotFound(uri)
	}
	end, err := s.subscribes(c, string(uri))
	if err != nil {
		return answer{}, err
	}
	_, isNew, err := c.session.subscribe(string(uri), end)
	if end != nil && !isNew {
		end()
	}
	if err == nil {
		c.session.holdFor(c, string(uri))
	}
	return emptyAnswer(), err
}

// holdFor has the subscription to a resource end when a guard no longer permits it.
func (x *session) holdFor(c *call, uri string) {
	hold := permit.HoldFrom(c)
	if hold == nil {
		return
	}
	x.mu.Lock()
	b := x.subs[uri]
	there := b == nil || b.release != nil
	if !there {
		b.release = func() {} // until there is one
	}
	x.mu.Unlock()
	if there {
		return
	}
	release := hold(c, "", nil, func(error) { x.unsubscribe(uri, b) })
	x.mu.Lock()
	kept := x.subs[uri] == b
	if kept {
		b.release = release
	}
	x.mu.Unlock()
	if !kept {
		release()
	}
}

// unsubscribe ends a subscription to a resource; b is nil for any.
func (x *session) unsubscribe(uri string, b *interest) {
	x.mu.Lock()
	at := x.subs[uri]
	if b != nil && at != b {
		at = nil
	}
	if at != nil {
		delete(x.subs, uri)
	}
	x.mu.Unlock()
	at.end()
}

// An interest is the subscription of a session to a resource.
type interest struct {
	stop    func() // called when the session does not have it any more; nil: nothing
	release func() // likewise, of a permit.Hold

	// Of a Relay only:
	ready chan struct{} // closed when it is known whether there is one
	err   error         // why there is none; set before
}

// end is called when the session does not have it any more.
func (b *interest) end() {
	if b == nil {
		return
	}
	if b.stop != nil {
		b.stop()
	}
	if b.release != nil {
		b.release()
	}
}

// subscribe returns the subscription to a resource, and whether it is a new one, which has the
// stop.
func (x *session) subscribe(uri string, stop func()) (b *interest, isNew bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.subs[uri]; ok {
		return b, false, nil
	}
	if x.closed {
		return nil, false, errSessionEnded
	}
	if len(x.subs) >= maxSubscriptions {
		return nil, false, errSubscriptions
	}
	b = &interest{stop: stop, ready: make(chan struct{})}
	setEntry(&x.subs, uri, b)
	return b, true, nil
}

var errSubscriptions = jsonrpc.Errorf(jsonrpc.Overloaded,
	"Overloaded: a client subscribes to %d resources at a time at most", maxSubscriptions)

// unsubscribe serves resources/unsubscribe.
func (s *Server) unsubscribe(c *call) (answer, error) {
	uri, err := text("uri", c.in.uri)
	if err != nil {
		return answer{}, err
	}
	c.session.unsubscribe(string(uri), nil)
	c.session.keepSubscriptions()
	return emptyAnswer(), nil
}

// sender is the goroutine that sends the events of a session.
type sender struct {
	stop context.CancelFunc
	done chan struct{}
}

// tell notes an event, if it concerns the client.
func (x *session) tell(e *events) {
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
	if x.pending == nil {
		x.pending = new(events)
	}
	x.pending.add(&mine)
	x.wake()
}

// begun is called when the client has said that it is initialized: what it has not
// been sent waits until then. It reports whether a hook is to be called, which it is once.
func (x *session) begun() (first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	first = !x.ready && x.began
	x.ready = true
	x.wake()
	return first
}

// wake has what is pending sent.
func (x *session) wake() {
	if !x.ready || x.closed || x.sending != nil || x.pending == nil {
		return
	}
	ctx, cancel := context.WithCancel(x.ctx)
	x.sending = &sender{cancel, make(chan struct{})}
	go x.send(ctx, x.sending)
}

// send sends what is pending until nothing is.
func (x *session) send(ctx context.Context, me *sender) {
	defer close(me.done)
	defer me.stop()
	rev := x.rev.Load()
	for {
		err := backoff.Sleep(ctx, linger)
		x.mu.Lock()
		now := x.pending
		x.pending = nil
		if now == nil || err != nil {
			x.sending = nil
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		// A client that cannot be reached is gone; anyone who carries it will notice.
		_ = now.send(func(method string, params jsonrpc.Raw) error {
			return notify(ctx, x.client, rev, method, params)
		})
	}
}

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
		e = &subscribed{}
		setEntry(&t.all, uri, e)
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
