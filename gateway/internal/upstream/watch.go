package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// maxWatching bounds the resources that are watched.
const maxWatching = 10_000

// How long to wait before a resource is watched again.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// A watch is a subscription to a resource, for all callers with the same key. It
// moves to another connection when its own has ended.
type watch struct {
	u      *Upstream
	key    watchKey
	who    Caller
	cancel context.CancelFunc

	settled chan struct{} // closed when it is known whether the server agrees

	// Under the upstream's lock.
	err      error // it does not
	known    bool  // settled is closed
	conn     *connection
	granted  bool // on this connection
	refused  bool
	unlisten context.CancelFunc
	watchers []*watcher
}

type watchKey struct {
	owner     ownerKey
	abilities abilities
	uri       string
}

type watcher struct {
	updated func()
	stopped atomic.Bool
}

// Watch calls updated when a resource may have changed, until stop is called. It
// may be called by any goroutine and must not block; a call of it that is under way
// when stop returns goes on. The connection is kept until then, and replaced when its
// connection ends.
func (u *Upstream) Watch(
	ctx context.Context, who Caller, uri string, updated func(),
) (stop func(), err error) {
	me := &watcher{updated: updated}
	u.mu.Lock()
	w, err := u.watchLocked(&who, uri, me)
	u.mu.Unlock()
	if err != nil {
		return nil, err
	}
	stop = func() {
		me.stopped.Store(true)
		u.mu.Lock()
		defer u.mu.Unlock()
		w.watchers = slices.DeleteFunc(slices.Clone(w.watchers), func(o *watcher) bool { return o == me })
		if len(w.watchers) == 0 {
			u.unwatchedLocked(w)
		}
	}
	select {
	case <-w.settled:
		err = w.err // does not change any more
	case <-ctx.Done():
		err = fmt.Errorf("upstream %s: watch %s: %w", u.opts.Name, uri, ctx.Err())
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// watchLocked adds a watcher, and a watch where there is none.
func (u *Upstream) watchLocked(who *Caller, uri string, me *watcher) (*watch, error) {
	key := watchKey{abilities: u.opts.abilitiesOf(who), uri: uri}
	key.owner, _ = u.pool.keyOf(who, key.abilities, useWatching)
	w := u.watching[key]
	switch {
	case w != nil:
	case u.closing:
		return nil, u.shuttingDown()
	case u.opts.Held != "":
		return nil, u.Refused()
	case len(u.watching) >= maxWatching:
		return nil, u.refusal(jsonrpc.Overloaded, "Overloaded: %d resources of %s are watched already",
			maxWatching, u.opts.Name)
	default:
		w = &watch{u: u, key: key, who: *who, settled: make(chan struct{})}
		w.who.Info, w.who.Capabilities = slices.Clone(who.Info), slices.Clone(who.Capabilities)
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(u.ctx)
		if u.watching == nil {
			u.watching = map[watchKey]*watch{}
		}
		u.watching[key] = w
		u.tasks.Go(func() { w.run(ctx) })
	}
	w.watchers = append(w.watchers, me)
	return w, nil
}

// unwatchedLocked ends a watch.
func (u *Upstream) unwatchedLocked(w *watch) {
	if u.watching[w.key] == w {
		delete(u.watching, w.key)
	}
	w.cancel()
}

// settleLocked tells the first watchers whether the server agrees.
func (w *watch) settleLocked(err error) {
	if !w.known {
		w.known, w.err = true, err
		close(w.settled)
	}
}

// run keeps up a watch.
func (w *watch) run(ctx context.Context) {
	pause := firstPause
	for {
		begun := time.Now()
		err := w.listen(ctx)
		if ctx.Err() != nil || w.u.fruitless(ctx, w, err) {
			w.u.finish(w, cmp.Or(err, errClosing))
			return
		}
		if time.Since(begun) > time.Minute {
			pause = firstPause
		}
		_ = backoff.Sleep(ctx, pause) // enter looks at the context
		pause = min(2*pause, lastPause)
	}
}

// fruitless reports whether there is no use in watching any longer: no client was
// notified that it works, or the server refuses.
func (u *Upstream) fruitless(ctx context.Context, w *watch, err error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	refused := w.refused ||
		err != nil && outcomeOf(nil, err) == answered && !errors.As(err, new(*wayError))
	if w.known && refused && ctx.Err() == nil {
		u.spawnLocked(func() { u.warn("%s is watched no more: %w", w.key.uri, err) })
	}
	return !w.known || refused
}

// finish ends a watch that watches no more.
func (u *Upstream) finish(w *watch, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.settleLocked(err)
	u.unwatchedLocked(w)
}

// listen watches on one connection, until that ends.
func (w *watch) listen(ctx context.Context) error {
	u := w.u
	pc := u.newPendingCall(ctx, &Call{Method: describing, Caller: w.who})
	pc.use = useWatching
	if err := u.enter(pc); err != nil {
		return err
	}
	l := pc.conn
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := u.attach(w, l, cancel)
	u.leave(pc, nil, nil, false)
	if err == nil {
		err = l.client.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: []string{w.key.uri}})
	}
	if u.detach(w, l) {
		return jsonrpc.Errorf(jsonrpc.MethodNotFound, "the server %s does not tell of changes to %s",
			u.opts.Name, w.key.uri)
	}
	if errors.Is(err, farcall.ErrClosed) && u.opts.Exclusive {
		u.died(l, err)
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return era.Code(wire, cmp.Or(era.Lookup(l.info.Revision), era.Latest()), era.Latest())
	}
	return err
}

// attach puts a watch on a connection, which is kept for it.
func (u *Upstream) attach(w *watch, l *connection, cancel context.CancelFunc) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.conn, w.granted, w.refused, w.unlisten = l, false, false, cancel
	l.watches = append(l.watches, w)
	if caps := l.info.Capabilities; !l.modern && (caps.Resources == nil || !caps.Resources.Subscribe) {
		w.refused = true
		return errors.New("it has no subscriptions")
	}
	return nil
}

// detach takes it from there. It reports whether the server has refused it.
func (u *Upstream) detach(w *watch, l *connection) (refused bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l.watches = slices.DeleteFunc(slices.Clone(l.watches), func(o *watch) bool { return o == w })
	l.used = time.Now()
	w.conn = nil
	return w.refused
}

// granted takes what the server has agreed to tell on a connection. What it has agreed to
// before may have changed in the meantime.
func (u *Upstream) granted(l *connection, got spec.SubscriptionFilter) {
	u.mu.Lock()
	var missed []*watcher
	for _, w := range l.watches {
		if !slices.Contains(got.ResourceSubscriptions, w.key.uri) {
			continue
		}
		if w.known {
			missed = append(missed, w.watchers...)
		}
		w.granted = true
		w.settleLocked(nil)
	}
	// Which subscription an answer is to is not said.
	if len(got.ResourceSubscriptions) == 0 && !got.ToolsListChanged && !got.PromptsListChanged &&
		!got.ResourcesListChanged {
		var pending []*watch
		for _, w := range l.watches {
			if !w.granted {
				pending = append(pending, w)
			}
		}
		if len(pending) == 1 {
			pending[0].refused = true
			pending[0].unlisten()
		}
	}
	u.mu.Unlock()
	tell(missed)
}

// updated tells who watches a resource. What has changed may be a part of it.
func (u *Upstream) updated(l *connection, uri string) {
	u.mu.Lock()
	var all []*watcher
	for _, w := range l.watches {
		if within(uri, w.key.uri) {
			all = append(all, w.watchers...)
		}
	}
	u.mu.Unlock()
	tell(all)
}

func within(uri, of string) bool {
	rest, ok := strings.CutPrefix(uri, of)
	return ok &&
		(rest == "" || strings.HasSuffix(of, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

func tell(watchers []*watcher) {
	for _, w := range watchers {
		if !w.stopped.Load() {
			w.updated()
		}
	}
}
