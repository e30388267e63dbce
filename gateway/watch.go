package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/callctx"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/observe"
)

// watching is a resource that a client watches. The server that has it may be
// another one after a reload.
type watching struct {
	e       *endpoint
	ctx     context.Context //nolint:containedctx // says who watches; it does not end
	uri     string
	name    string // of the resource at the server
	updated func()

	moving sync.Mutex // held while a server is asked

	mu   sync.Mutex
	at   *server
	of   *virtual // that has chosen the resource; nil: the address is of no virtual server
	stop func()
	over bool
}

// Watch implements relay.Relay.
func (e *endpoint) Watch(ctx context.Context, uri string, updated func()) (stop func(), err error) {
	of := e.virtual()
	at, name, stop, err := e.watch(ctx, uri, updated)
	if err != nil {
		return nil, err
	}
	w := &watching{
		e: e, ctx: context.WithoutCancel(ctx), uri: uri, name: name, updated: updated,
		at: at, of: of, stop: stop,
	}
	e.g.mu.Lock()
	e.g.watched[w] = struct{}{}
	e.g.mu.Unlock()
	w.move() // the configuration may have changed in the meantime
	return w.end, nil
}

// watch watches a resource at the server that has it now.
func (e *endpoint) watch(
	ctx context.Context, uri string, updated func(),
) (at *server, name string, stop func(), err error) {
	if !e.virtual().admits(ctx) {
		return nil, "", nil, errNotThere()
	}
	target, ok, err := e.find(ctx, route.Resources, uri)
	if err != nil {
		return nil, "", nil, err
	}
	if ok {
		if err := e.blockedTarget(uri, &target); err != nil {
			return nil, "", nil, err
		}
		// All resources of one call are decided about at once; none is the decision about that call.
		alone := context.WithValue(ctx, callctx.Observed{}, (*observe.Call)(nil))
		done, err := e.g.shield.begin(alone, nil,
			&guard.Call{Method: spec.MethodResourcesRead, Upstream: target.Source, Name: target.Name})
		if err != nil {
			return nil, "", nil, err
		}
		done(nil, nil)
	}
	at = e.g.plan.Load().byName[target.Source]
	if !ok || at == nil || at.mcp == nil {
		return nil, "", nil, notFound(uri)
	}
	if wants, err := at.wantsSignIn(ctx); err != nil {
		return nil, "", nil, err
	} else if wants {
		return nil, "", nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "%s", signInText(at.cfg.Name))
	}
	caller := context.WithoutCancel(ctx)
	stop, err = at.mcp.Watch(ctx, e.g.caller(ctx), target.Name, func() {
		if e.g.shield.stays(caller, target.Source, target.Name) {
			// a reload ends the watch a little later
			updated()
		}
	})
	return at, target.Name, stop, err
}

// end ends the watching.
func (w *watching) end() {
	w.e.g.mu.Lock()
	delete(w.e.g.watched, w)
	w.e.g.mu.Unlock()
	w.mu.Lock()
	over, stop := w.over, w.stop
	w.over = true
	w.mu.Unlock()
	if !over {
		stop()
	}
}

// current reports whether the server that is watched is still in use, and nothing else has been
// chosen since.
func (w *watching) current() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.e.g.plan.Load()
	return w.over || p.byName[w.at.cfg.Name] == w.at && p.virtual[w.e.name] == w.of &&
		w.e.g.shield.stays(w.ctx, w.at.cfg.Name, w.name)
}

// moveTimeout bounds how long a server may take that is to be watched in the place
// of another one.
const moveTimeout = 10 * time.Second

// move watches at the server that has the resource now, when that is another one.
func (w *watching) move() {
	w.moving.Lock()
	defer w.moving.Unlock()
	if w.current() {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, moveTimeout)
	defer cancel()
	defer context.AfterFunc(w.e.g.serving, cancel)()
	of := w.e.virtual()
	at, name, stop, err := w.e.watch(ctx, w.uri, w.updated)
	if err != nil {
		w.end()
		w.e.g.log.Warn("a resource is watched no more, after a reload", "uri", w.uri, "error", err)
		return
	}
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		stop()
		return
	}
	before := w.stop
	w.at, w.of, w.name, w.stop = at, of, name, stop
	w.mu.Unlock()
	before()
	w.updated() // changes in the meantime are not known
}

// movers bounds how many resources are watched again at a time.
const movers = 8

// moveWatches watches at the new servers what was watched at those that they
// replace.
func (g *Gateway) moveWatches() {
	g.mu.Lock()
	all := slices.Collect(maps.Keys(g.watched))
	g.mu.Unlock()
	room := make(chan struct{}, movers)
	var wg sync.WaitGroup
	for _, w := range all {
		if w.current() {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			w.move()
		})
	}
	wg.Wait()
}
